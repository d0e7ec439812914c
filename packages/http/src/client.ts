/** For whoever calls a service that takes `Idempotency-Key`. On web standards alone: it runs wherever `fetch` does. */

/** How {@link fetchWithIdempotency} sends, and sends again. */
export interface IdempotentFetchOptions {
  /** One for each operation, the same for all its sendings, also by another process. Default: a random UUID. */
  readonly idempotencyKey?: string;
  /** `"structured"`: in quotes, by the draft. `"bare"`: as it is, for services that take it so. Default `"structured"`. */
  readonly keyFormat?: "structured" | "bare";
  /**
   * The most all sendings and the waiting in between take, in milliseconds. Default 120,000: what a service with default leases
   * needs to find out what a process that died had done is a minute of it.
   */
  readonly budgetMs?: number;
  /** The most sendings. Default 10. */
  readonly attemptsMax?: number;
  /** After this long a sending is given up, and sent again, in milliseconds. Default 30,000. */
  readonly attemptMs?: number;
  /** The wait before the second sending, in milliseconds, doubled for each one more. Default 250. */
  readonly backoffMs?: number;
  /** The longest such wait, in milliseconds; at least `backoffMs`. A `Retry-After` may be longer. Default 30,000. */
  readonly backoffMsMax?: number;
  /** Sends once. Default: the global `fetch`. One that retries by itself would be a second owner of retries. */
  readonly fetch?: (request: Request) => Promise<Response>;
  /** Clock, timers and chance, for tests. */
  readonly runtime?: ClientRuntime;
}

export interface ClientRuntime {
  readonly monotonicMs: () => number;
  /** Epoch milliseconds: what a `Retry-After` that is a date is compared to. */
  readonly now: () => number;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  /** Calls `fire` after so many milliseconds; returns what cancels it. */
  readonly setTimer: (ms: number, fire: () => void) => () => void;
}

/** No answer came in time. Whether the operation was done is not known: send it again with the same key. */
export class IdempotentFetchError extends Error {
  readonly idempotencyKey: string;
  readonly attempts: number;

  constructor(idempotencyKey: string, attempts: number, cause: unknown) {
    super(`no answer after ${attempts} sendings; the operation may have been done: send it again with the same key`, {
      cause,
    });
    this.name = "IdempotentFetchError";
    this.idempotencyKey = idempotencyKey;
    this.attempts = attempts;
  }
}

/**
 * Sends one operation until it is answered, with one key and one body. An answer that says `retry: "never"` or `"new_key"`, a 422,
 * or an answer that was replayed is final; so is the last one when the budget is spent.
 *
 * @throws {IdempotentFetchError} when there was no answer at all, with the key to go on with.
 * @throws the signal's reason when `init.signal` aborts. The operation may have been done.
 */
export async function fetchWithIdempotency(
  input: string | URL | Request,
  init: RequestInit = {},
  options: IdempotentFetchOptions = {},
): Promise<Response> {
  checkNames(options);
  const { budgetMs = 120_000, attemptsMax = 10, fetch: sendOnce = (request) => fetch(request) } = options;
  const { attemptMs = 30_000, backoffMs = 250, backoffMsMax = Math.max(30_000, backoffMs) } = options;
  const { runtime = webRuntime, keyFormat = "structured" } = options;
  checkNumbers({ budgetMs, attemptsMax, attemptMs, backoffMs, backoffMsMax });
  if (backoffMsMax < backoffMs) {
    throw new TypeError(`backoffMsMax is ${backoffMsMax}: give at least backoffMs, which is ${backoffMs}`);
  }
  const first = new Request(input, init);
  const key = options.idempotencyKey ?? keyIn(first.headers) ?? crypto.randomUUID();
  // Read once, so that every sending has the same bytes.
  const bytes = first.body === null ? null : new Uint8Array(await first.arrayBuffer());
  const headers = new Headers(first.headers);
  headers.set("Idempotency-Key", keyFormat === "bare" ? bareKey(key) : structuredKey(key));
  const endsAtMs = runtime.monotonicMs() + budgetMs;

  for (let attempt = 1; ; attempt += 1) {
    const leftMs = endsAtMs - runtime.monotonicMs();
    const sending = new Sending(runtime, Math.min(attemptMs, leftMs), first.signal);
    let response: Response | undefined;
    let trouble: unknown;
    try {
      const request = new Request(first, { headers, signal: sending.signal, ...(bytes && { body: bytes }) });
      response = await sending.within(sendOnce(request));
      if (!(await sending.within(isTransient(response)))) return response;
    } catch (error) {
      first.signal.throwIfAborted();
      // An answer that broke off, if there was any, is none.
      response = undefined;
      trouble = error;
    } finally {
      sending.end();
    }
    const waitMs = Math.max(
      response === undefined ? 0 : retryAfterMs(response, runtime.now()),
      // Full jitter: many clients of one outage do not come back at once.
      runtime.random() * Math.min(backoffMsMax, backoffMs * 2 ** (attempt - 1)),
    );
    if (attempt >= attemptsMax || runtime.monotonicMs() + waitMs >= endsAtMs) {
      if (response !== undefined) return response;
      throw new IdempotentFetchError(key, attempt, trouble);
    }
    await response?.body?.cancel().catch(() => {});
    await pause(runtime, waitMs, first.signal);
  }
}

/** The time and the signal of one sending. */
class Sending {
  /** Aborts with the caller's, also after the answer has begun: its body is still to be read. */
  readonly signal: AbortSignal;
  readonly #cancel: () => void;
  readonly #aborted = Promise.withResolvers<never>();

  constructor(runtime: ClientRuntime, ms: number, caller: AbortSignal) {
    const late = new AbortController();
    this.signal = AbortSignal.any([caller, late.signal]);
    this.#cancel = runtime.setTimer(ms, () => late.abort(new DOMException("no answer in time", "TimeoutError")));
    this.#aborted.promise.catch(() => {});
    const onAbort = (): void => this.#aborted.reject(this.signal.reason);
    this.signal.addEventListener("abort", onAbort, { once: true });
    if (this.signal.aborted) onAbort();
  }

  /** Also for a `fetch` that does not heed its signal. */
  within<Result>(answer: Promise<Result>): Promise<Result> {
    return Promise.race([answer, this.#aborted.promise]);
  }

  end(): void {
    this.#cancel();
  }
}

/** Whether the same request may be answered otherwise later. Leaves the response to be read. */
async function isTransient(response: Response): Promise<boolean> {
  const { status, headers } = response;
  // A record does not change. And whoever conflicts has another operation's key.
  if (status < 400 || status === 422 || headers.get("idempotent-replayed") === "true") return false;
  const should = headers.get("stripe-should-retry");
  if (should === "true" || should === "false") return should === "true";
  const retry = await retryMember(response);
  if (retry !== undefined) return retry === "same_key";
  return status === 408 || status === 409 || status === 425 || status === 429 || status >= 500;
}

/** The member `retry` of a problem document. */
async function retryMember(response: Response): Promise<string | undefined> {
  if (!/^application\/problem\+json\b/i.test(response.headers.get("content-type") ?? "")) return undefined;
  try {
    const problem: unknown = await response.clone().json();
    const retry: unknown = typeof problem === "object" && problem !== null ? Reflect.get(problem, "retry") : undefined;
    return typeof retry === "string" ? retry : undefined;
  } catch {
    return undefined;
  }
}

/** RFC 9110 §10.2.3: seconds or a date; 0 where there is none. */
function retryAfterMs({ headers }: Response, nowMs: number): number {
  const value = headers.get("retry-after")?.trim() ?? "";
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? 0 : Math.max(0, at - nowMs);
}

function keyIn(headers: Headers): string | undefined {
  const value = headers.get("idempotency-key");
  if (value === null) return undefined;
  return /^".*"$/.test(value) ? value.slice(1, -1).replace(/\\(["\\])/g, "$1") : value;
}

/** A String of RFC 8941 §4.1.6. */
function structuredKey(key: string): string {
  if (!/^[ -~]{1,255}$/.test(key)) {
    throw new TypeError("idempotencyKey must be 1 to 255 characters of visible ASCII or spaces");
  }
  return `"${key.replace(/["\\]/g, "\\$&")}"`;
}

function bareKey(key: string): string {
  if (/^[!#-+\--:<-~]{1,255}$/.test(key)) return key;
  throw new TypeError('a bare idempotencyKey must be 1 to 255 characters of visible ASCII without " , ;');
}

const NAMES: ReadonlySet<string> = new Set<keyof IdempotentFetchOptions>([
  "idempotencyKey",
  "keyFormat",
  "budgetMs",
  "attemptsMax",
  "attemptMs",
  "backoffMs",
  "backoffMsMax",
  "fetch",
  "runtime",
]);

/** A misspelt option would be passed over. */
function checkNames(options: IdempotentFetchOptions): void {
  const unknown = Object.keys(options).find((name) => !NAMES.has(name));
  if (unknown === undefined) return;
  throw new TypeError(
    `fetchWithIdempotency has no option ${JSON.stringify(unknown)}: it takes ${[...NAMES].join(", ")}`,
  );
}

function checkNumbers(numbers: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(numbers)) {
    if (!(Number.isFinite(value) && value > 0)) throw new TypeError(`${name} is ${value}: give a number above 0`);
  }
}

function pause(runtime: ClientRuntime, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      cancel();
      // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- the caller's own reason, whatever it is
      reject(signal.reason);
    };
    const cancel = runtime.setTimer(ms, () => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    });
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

const webRuntime: ClientRuntime = {
  monotonicMs: () => performance.now(),
  now: () => Date.now(),
  random: () => Math.random(),
  setTimer(ms, fire) {
    // One that is longer fires at once.
    const timer = setTimeout(fire, Math.min(ms, 2 ** 31 - 1));
    return () => clearTimeout(timer);
  },
};
