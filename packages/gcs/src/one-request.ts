/**
 * One call, one HTTP request, and what was seen of it on the wire.
 *
 * The methods of the SDK send a write again after a lost reply, and report a 412 for its own success; they cannot be
 * aborted, and change the retry options that all of the client's users share. So its transport is used below them: the
 * user's credentials, proxy and HTTP settings count, and no state of the `Storage` is touched.
 */

import type { Storage } from "@google-cloud/storage";
import { PassThroughClient, type AuthClient, type gaxios } from "google-auth-library";

/** What the requests need of a `Storage`. */
export type StorageClient = Pick<
  Storage,
  "apiEndpoint" | "authClient" | "customEndpoint" | "providedUserAgent" | "timeout" | "useAuthWithCustomEndpoint"
>;

export interface WireRequest {
  readonly method: "GET" | "POST" | "DELETE";
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: Uint8Array | undefined;
}

/** A status line and what came with it. */
export interface WireAnswer {
  readonly status: number;
  readonly headers: Headers;
}

/**
 * How a request ended. `answered`: the whole answer is there, whatever its status. Else `failed`: `stage` says how far it
 * came, and `answer` is there as soon as a status line was.
 *
 * - `before`: it was not begun.
 * - `credentials`: it was not sent, for the credentials for it could not be had.
 * - `sent`: it was handed to the transport, so the service may have it.
 */
export type Exchange =
  | { readonly kind: "answered"; readonly answer: WireAnswer; readonly body: Uint8Array<ArrayBuffer> }
  | {
      readonly kind: "failed";
      readonly error: unknown;
      readonly stage: "before" | "credentials" | "sent";
      readonly answer: WireAnswer | undefined;
    };

/** Sends a request once, whatever retries the client is set to, and tells what became of it. Never rejects. */
export async function oneRequest(
  storage: StorageClient,
  request: WireRequest,
  signal: AbortSignal | undefined,
): Promise<Exchange> {
  const ends = endsOf(storage, signal);
  const attempt: Attempt = { stage: "before", answer: undefined };
  const failed = (error: unknown): Exchange => ({ kind: "failed", error: withoutRequest(error), ...attempt });
  if (ends?.aborted === true) return failed(ends.reason);

  const abort = Promise.withResolvers<Exchange>();
  // Aborted while credentials are awaited, it is not the credentials that failed.
  const onAbort = (): void => {
    if (attempt.stage === "credentials") attempt.stage = "before";
    abort.resolve(failed(ends?.reason));
  };
  ends?.addEventListener("abort", onAbort, { once: true });
  try {
    // An abort ends the call at once, also while the client waits for a token and looks at no signal. A request that is
    // still to be sent then is stopped in `send`.
    return await Promise.race([abort.promise, send(storage, request, ends, attempt).catch(failed)]);
  } finally {
    ends?.removeEventListener("abort", onAbort);
  }
}

/** The HTTP client below credentials. */
type Transporter = AuthClient["transporter"];

interface Attempt {
  stage: "before" | "credentials" | "sent";
  answer: WireAnswer | undefined;
}

/** The caller's signal, and the time limit that the client was made with: `new Storage({ timeout })`. */
function endsOf({ timeout }: StorageClient, signal: AbortSignal | undefined): AbortSignal | undefined {
  if (timeout === undefined) return signal;
  const limit = AbortSignal.timeout(timeout);
  return signal === undefined ? limit : AbortSignal.any([signal, limit]);
}

async function send(
  storage: StorageClient,
  { method, url, headers, body }: WireRequest,
  signal: AbortSignal | undefined,
  attempt: Attempt,
): Promise<Exchange> {
  attempt.stage = "credentials";
  const { transporter, credentials } = await authorize(storage);
  signal?.throwIfAborted();
  attempt.stage = "sent";
  const response = await transporter.request({
    method,
    url,
    headers: {
      ...(storage.providedUserAgent !== undefined && { "user-agent": storage.providedUserAgent }),
      ...headers,
      ...Object.fromEntries(credentials),
    },
    ...(body !== undefined && { data: body }),
    ...(signal !== undefined && { signal }),
    ...once(transporter, attempt, signal),
    // A redirected POST would be a second request, and without its body.
    redirect: "manual",
    validateStatus: () => true,
    // The body is read here, so that the status counts even where the body does not come.
    responseType: "stream",
  });
  const whole = await response.arrayBuffer();
  return {
    kind: "answered",
    answer: { status: response.status, headers: response.headers },
    body: new Uint8Array(whole),
  };
}

const withoutCredentials = new PassThroughClient();

/**
 * As the SDK does it for its own requests: a custom endpoint gets no credentials, unless the client says so
 * (`useAuthWithCustomEndpoint`). Tokens are fetched and kept by the client.
 */
async function authorize({ authClient, customEndpoint, useAuthWithCustomEndpoint }: StorageClient): Promise<{
  readonly transporter: Transporter;
  readonly credentials: Headers;
}> {
  const anonymous = customEndpoint && useAuthWithCustomEndpoint !== true;
  const client = anonymous ? withoutCredentials : await authClient.getClient();
  // Not `client.request`, which sends a request again when it was answered 401 or 403 and the token can be renewed.
  return { credentials: await client.getRequestHeaders(), transporter: client.transporter };
}

/**
 * Lets one request through. A transport with retries of its own (`transporterOptions: { retryConfig }`) is told not to
 * use them, and whatever asks for a second one, such as an adapter of the user's, gets the first one's outcome again.
 */
function once({ defaults }: Transporter, attempt: Attempt, signal: AbortSignal | undefined): gaxios.GaxiosOptions {
  let first: gaxios.GaxiosPromise | undefined;
  return {
    retry: false,
    retryConfig: { retry: 0, noResponseRetries: 0, shouldRetry: () => false },
    adapter: (options, standard) => {
      const sendOnce: typeof standard = async (prepared) => {
        signal?.throwIfAborted();
        first ??= standard(prepared).then((response) => {
          attempt.answer = { status: response.status, headers: response.headers };
          return response;
        });
        return first;
      };
      return defaults.adapter?.(options, sendOnce) ?? sendOnce(options);
    },
  };
}

/** The transport's error without its own around it, which holds the whole request, and with it the record. */
function withoutRequest(error: unknown): unknown {
  return error instanceof Error && "config" in error && error.cause instanceof Error ? error.cause : error;
}
