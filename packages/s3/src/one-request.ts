/**
 * One command, one HTTP request, and what was seen of it on the wire.
 *
 * A client that sends a write again after a lost reply is told 412 about its own success
 * (https://github.com/aws/aws-sdk-java-v2/issues/6580), so the SDK's own retries must not touch a write (P1). The client
 * belongs to the user: its configuration, its middleware and its retries of the user's own calls stay as they are.
 * Everything here is therefore added to the one command that is sent.
 */

/** The part of an HTTP answer that decides anything, as the HTTP handler gave it. */
export interface WireAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * How a command ended. `sent`: the request was handed to the HTTP handler, so the service may have it. `answer` is there
 * as soon as a status line was, whatever became of the rest.
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
  /** Takes the SDK's checksum headers off the request. */
  readonly withoutChecksums: boolean;
}

export interface Condition {
  readonly header: "if-match" | "if-none-match";
  readonly value: string;
}

/** The middleware stack of any S3 command, as far as it is used here. */
export interface CommandStack {
  add(middleware: Middleware, options: StepOptions & { step: "initialize" }): void;
  add(middleware: Middleware, options: StepOptions & { step: "build" }): void;
  add(middleware: Middleware, options: StepOptions & { step: "finalizeRequest" }): void;
  add(middleware: Middleware, options: StepOptions & { step: "deserialize" }): void;
}

/** Called once for each `send`, with the steps that come after it. */
type Middleware = <Args extends object, Result extends object>(
  next: (args: Args) => Promise<Result>,
) => (args: Args) => Promise<Result>;

interface StepOptions {
  name: string;
  priority?: "high" | "low";
  override?: boolean;
}

/** Lets `send` send a command once, whatever the client's retry policy, and tells what became of it. Never rejects. */
export async function oneRequest<Result>(
  stack: CommandStack,
  options: OneRequestOptions,
  send: () => Promise<Result>,
): Promise<Exchange<Result>> {
  const { signal } = options;
  const attempt: Attempt = { sent: false, answer: undefined };
  const failed = (error: unknown): Exchange<Result> => ({ kind: "failed", error, ...attempt });
  if (signal?.aborted === true) return failed(signal.reason);

  switchOffRetries(stack);
  if (options.withoutChecksums) dropChecksums(stack);
  watchTheWire(stack, attempt, options);

  const abort = Promise.withResolvers<Exchange<Result>>();
  const onAbort = (): void => abort.resolve(failed(signal?.reason));
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    // An abort ends the call at once, also while the SDK waits for credentials and looks at no signal. A request that
    // is still to be sent then is stopped by `watchTheWire`.
    return await Promise.race([
      abort.promise,
      send().then((result): Exchange<Result> => ({ kind: "answered", result, answer: attempt.answer }), failed),
    ]);
  } finally {
    signal?.removeEventListener("abort", onAbort);
  }
}

interface Attempt {
  sent: boolean;
  answer: WireAnswer | undefined;
}

/**
 * Puts a step that does nothing in place of the SDK's retries, and of its second request to a bucket's other region. A
 * retry by another name, such as a middleware of the user's, gets the first pass's outcome again and no second request.
 */
function switchOffRetries(stack: CommandStack): void {
  stack.add((next) => next, {
    name: "retryMiddleware",
    step: "finalizeRequest",
    priority: "high",
    override: true,
  });
  stack.add((next) => next, { name: "regionRedirectMiddleware", step: "initialize", override: true });
  stack.add(
    <Args, Result>(next: (args: Args) => Promise<Result>) => {
      let first: Promise<Result> | undefined;
      return (args: Args) => (first ??= next(args));
    },
    { name: "firstwriteFirstOutcome", step: "finalizeRequest", priority: "low" },
  );
}

/**
 * `requestChecksumCalculation` is the client's, and read anew for each command; a service that rejects what it adds is
 * spared it here, before the request is signed. Without `x-amz-checksum-mode` a service sends no checksum to validate.
 */
function dropChecksums(stack: CommandStack): void {
  stack.add(
    (next) => (args) => {
      const headers = "request" in args && hasHeaders(args.request) ? args.request.headers : {};
      for (const name of Object.keys(headers)) {
        if (/^x-amz-(sdk-)?checksum-/i.test(name)) delete headers[name];
      }
      return next(args);
    },
    { name: "firstwriteWithoutChecksums", step: "build", priority: "low" },
  );
}

/**
 * The step next to the HTTP handler: a command's middleware of equal rank comes after the client's. It lets one request
 * through, and not one that has lost its condition: an SDK from before `IfMatch` (3.699 and older) leaves a member it
 * does not know out of the request, which then overwrites whatever is there.
 */
function watchTheWire(stack: CommandStack, attempt: Attempt, { signal, condition }: OneRequestOptions): void {
  stack.add(
    (next) => async (args) => {
      signal?.throwIfAborted();
      if (attempt.sent) throw new Error("a second request for one call was stopped");
      if (condition !== undefined && !carries(args, condition)) throw new ConditionLostError(condition.header);
      attempt.sent = true;
      const result = await next(args);
      // Copied: the SDK rewrites the status of a 200 whose body is an error.
      if ("response" in result) attempt.answer = copyOf(result.response);
      return result;
    },
    { name: "firstwriteWire", step: "deserialize", priority: "low" },
  );
}

/** The request would have left without its condition; it was not sent. */
export class ConditionLostError extends Error {
  constructor(header: string) {
    super(
      `the request lost its ${header} header on the way, to a middleware or to an outdated @aws-sdk/client-s3; it was not sent`,
    );
    this.name = "ConditionLostError";
  }
}

function carries(args: object, { header, value }: Condition): boolean {
  return "request" in args && hasHeaders(args.request) && lowerCased(args.request.headers)[header] === value;
}

function copyOf(response: unknown): WireAnswer | undefined {
  if (!hasHeaders(response) || !("statusCode" in response) || typeof response.statusCode !== "number") return undefined;
  return { status: response.statusCode, headers: lowerCased(response.headers) };
}

function lowerCased(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

function hasHeaders(x: unknown): x is { headers: Record<string, string> } {
  return typeof x === "object" && x !== null && "headers" in x && typeof x.headers === "object" && x.headers !== null;
}
