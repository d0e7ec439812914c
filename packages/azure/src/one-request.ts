/**
 * One call, one HTTP request, and what was seen of it on the wire.
 *
 * A client that sends a write again after a lost reply is told 409 `BlobAlreadyExists`, or 412, about its own success
 * (https://github.com/Azure/azure-sdk-for-java/issues/37748), so the SDK's own retries must not touch a write (P1). The
 * client belongs to the user: its configuration, its policies and its retries of the user's own calls stay as they are.
 * What is here works on a second client with the same credential and policies.
 */

import {
  ContainerClient,
  isPipelineLike,
  newPipeline,
  type PipelineLike,
  type StoragePipelineOptions,
} from "@azure/storage-blob";

/** The part of an HTTP answer that decides anything, as the HTTP client gave it. */
export interface WireAnswer {
  readonly status: number;
  readonly headers: Readonly<Partial<Record<WireHeader, string>>>;
}

/** The headers that are looked at, by their names in lower case. */
const wireHeaders = ["etag", "date", "last-modified", "content-md5", "x-ms-error-code", "www-authenticate"] as const;

type WireHeader = (typeof wireHeaders)[number];

/**
 * How a call ended. `sent`: the request was handed to the HTTP client, so the service may have it. `answer` is there once
 * the HTTP client has given it: with the status line of a blob's download, whatever becomes of the rest, and with the end
 * of any other.
 */
export type Exchange<Result> =
  | { readonly kind: "answered"; readonly result: Result; readonly answer: WireAnswer | undefined }
  | {
      readonly kind: "failed";
      readonly error: unknown;
      readonly sent: boolean;
      readonly answer: WireAnswer | undefined;
    };

export interface OneRequestOptions {
  readonly signal: AbortSignal | undefined;
  /** A header without which the request must not leave. */
  readonly condition?: Condition | undefined;
}

export interface Condition {
  readonly header: "if-match" | "if-none-match";
  readonly value: string;
}

interface Call {
  /** By which its request is known; aborts when the caller's does. */
  readonly signal: AbortSignal;
  /** Whether the caller gave a signal, so that this one can abort. */
  readonly canAbort: boolean;
  readonly condition: Condition | undefined;
  requestId: string | undefined;
  sent: boolean;
  answer: WireAnswer | undefined;
  /** The body of the answer, where it comes as a stream. */
  body: WireBody | undefined;
  first: Promise<WireResponse> | undefined;
}

/** A client that is sent through once a call. */
export class OneRequestClient {
  /** Its requests are refused outside of {@link send}. */
  readonly container: ContainerClient;
  /** Calls under way, by the signal that is handed to the SDK and by the request's ID. */
  readonly #calls = new Map<unknown, Call>();

  /** @throws {UnknownClientError} */
  constructor(own: ContainerClient) {
    this.container = new ContainerClient(own.url, withoutRetries(own));
    const policies = policiesOf(this.container);
    policies.addPolicy(this.#recognise(), { phase: "Serialize" });
    policies.addPolicy(this.#watchTheWire(), { afterPhase: "Sign" });
  }

  /** Lets `send`, which hands `abortSignal` on to the SDK, send one request, and tells what became of it. Never rejects. */
  async send<Result>(
    { signal, condition }: OneRequestOptions,
    send: (abortSignal: AbortSignal) => Promise<Result>,
  ): Promise<Exchange<Result>> {
    const abort = new AbortController();
    const call: Call = {
      signal: abort.signal,
      canAbort: signal !== undefined,
      condition,
      requestId: undefined,
      sent: false,
      answer: undefined,
      body: undefined,
      first: undefined,
    };
    const failed = (error: unknown): Exchange<Result> => {
      return { kind: "failed", error, sent: call.sent, answer: call.answer };
    };
    if (signal?.aborted === true) return failed(signal.reason);

    this.#calls.set(call.signal, call);
    try {
      const start = (): Promise<Exchange<Result>> =>
        send(call.signal).then((result) => ({ kind: "answered", result, answer: call.answer }), failed);
      const exchange = signal === undefined ? await start() : await unlessAborted(signal, abort, start, failed);
      // The SDK leaves a body unread, and its connection open, where it gives up an answer for a header.
      if (exchange.kind === "failed" && exchange.answer?.status === 200) call.body?.destroy?.();
      return exchange;
    } finally {
      this.#calls.delete(call.signal);
      this.#calls.delete(call.requestId);
    }
  }

  /** The first policy of all. A user's own policy may put another signal into a request, but its ID stays. */
  #recognise(): Policy {
    return {
      name: "firstwriteCall",
      sendRequest: (request, next) => {
        const call = this.#calls.get(request.abortSignal);
        if (call !== undefined) {
          call.requestId = request.requestId;
          this.#calls.set(request.requestId, call);
        }
        return next(request);
      },
    };
  }

  /**
   * The last policy before the HTTP client. Whatever passes a second time (a retry of the user's own, a redirect, an
   * authentication challenge) gets the outcome of the first pass again, and no second request.
   */
  #watchTheWire(): Policy {
    return {
      name: "firstwriteWire",
      sendRequest: (request, next) => {
        const call = this.#calls.get(request.requestId) ?? this.#calls.get(request.abortSignal);
        if (call === undefined) {
          return Promise.reject(new Error("a request that belongs to no call under way was stopped"));
        }
        return (call.first ??= pass(call, request, next));
      },
    };
  }
}

/**
 * An abort ends the call at once, also while a credential is awaited that looks at no signal. A request that is still to
 * be sent then belongs to no call any more, and is stopped.
 */
async function unlessAborted<Result>(
  signal: AbortSignal,
  abort: AbortController,
  start: () => Promise<Exchange<Result>>,
  failed: (error: unknown) => Exchange<Result>,
): Promise<Exchange<Result>> {
  const aborted = Promise.withResolvers<Exchange<Result>>();
  const onAbort = (): void => {
    aborted.resolve(failed(signal.reason));
    abort.abort(signal.reason);
  };
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([aborted.promise, start()]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

async function pass(call: Call, request: WireRequest, next: Next): Promise<WireResponse> {
  call.signal.throwIfAborted();
  if (call.condition !== undefined) checkCondition(request, call.condition);
  call.sent = true;
  const response = await withoutIdleSignal(call, request, next);
  call.answer = { status: response.status, headers: headersOf(response) };
  call.body = response.readableStreamBody;
  return response;
}

/**
 * A signal that cannot abort is there for the call to be found by, and costs the HTTP client more to watch than all that
 * is done here. It is put back, for a second pass to be known by.
 */
async function withoutIdleSignal(call: Call, request: WireRequest, next: Next): Promise<WireResponse> {
  if (call.canAbort || request.abortSignal !== call.signal) return next(request);
  request.abortSignal = undefined;
  try {
    return await next(request);
  } finally {
    request.abortSignal = call.signal;
  }
}

/** A copy: policies of the user's get the answer next. */
function headersOf({ headers }: WireResponse): WireAnswer["headers"] {
  const found: Partial<Record<WireHeader, string>> = {};
  for (const name of wireHeaders) {
    const value = headers.get(name);
    if (value !== undefined) found[name] = value;
  }
  return found;
}

/**
 * A policy of the user's could take the condition off a request, which would then overwrite whatever is there, or put a
 * lease ID on it, under which a create was once seen to overwrite (https://github.com/Azure/azure-storage-net/issues/38).
 */
function checkCondition(request: WireRequest, { header, value }: Condition): void {
  if (request.headers.get(header) !== value) throw new ConditionLostError(`lost its ${header} header`);
  if (request.headers.get("x-ms-lease-id") !== undefined) throw new ConditionLostError("got a lease ID");
}

/** The request would have left without its condition; it was not sent. */
export class ConditionLostError extends Error {
  constructor(what: string) {
    super(`the request ${what} on the way, in a policy of the client's pipeline; it was not sent`);
    this.name = "ConditionLostError";
  }
}

/** The container client is not made as those of @azure/storage-blob 12 are. */
export class UnknownClientError extends Error {
  constructor() {
    super("the container client is none of an @azure/storage-blob that this package knows");
    this.name = "UnknownClientError";
  }
}

/** The user's options, policies and HTTP client, with one try, and never the secondary host, whose answers are stale. */
function withoutRetries(own: ContainerClient): PipelineLike {
  const { options, factories } = pipelineOf(own);
  const given: StoragePipelineOptions = options;
  const retryOptions = { ...given.retryOptions, maxTries: 1, secondaryHost: "" };
  const pipeline = newPipeline(own.credential, { ...given, retryOptions });
  pipeline.factories.unshift(...factories);
  return pipeline;
}

/** `pipeline` is protected in the SDK's types, and there is no other way to what the user put into it. */
function pipelineOf(own: object): PipelineLike {
  if ("pipeline" in own && isPipeline(own.pipeline)) return own.pipeline;
  throw new UnknownClientError();
}

function isPipeline(x: unknown): x is PipelineLike {
  return typeof x === "object" && x !== null && isPipelineLike(x);
}

/**
 * The policies that a client of ours sends its requests through. `storageClientContext` is protected in the SDK's types;
 * a policy factory, which the SDK does take, comes before its redirects and its authentication, and would see neither.
 */
function policiesOf(client: object): PolicyList {
  const context = "storageClientContext" in client ? client.storageClientContext : undefined;
  const policies =
    typeof context === "object" && context !== null && "pipeline" in context ? context.pipeline : undefined;
  if (isPolicyList(policies)) return policies;
  throw new UnknownClientError();
}

function isPolicyList(x: unknown): x is PolicyList {
  return typeof x === "object" && x !== null && "addPolicy" in x && typeof x.addPolicy === "function";
}

/** The pipeline of @azure/core-rest-pipeline, as far as it is used here. */
interface PolicyList {
  addPolicy(policy: Policy, options: { phase: "Serialize" } | { afterPhase: "Sign" }): void;
}

interface Policy {
  readonly name: string;
  sendRequest(request: WireRequest, next: Next): Promise<WireResponse>;
}

type Next = (request: WireRequest) => Promise<WireResponse>;

interface WireRequest {
  readonly requestId: string;
  abortSignal?: unknown;
  readonly headers: { get(name: string): string | undefined };
}

interface WireResponse {
  readonly status: number;
  /** `get` takes a name in any case. */
  readonly headers: { get(name: string): string | undefined };
  readonly readableStreamBody?: WireBody;
}

interface WireBody {
  destroy?(): unknown;
}
