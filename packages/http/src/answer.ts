import { brandedError, type ErrorBrand } from "@firstwrite/core";

/** A complete HTTP response, held in memory, whichever framework made it or sends it. */
export interface Answer {
  readonly status: number;
  /** In the order they were set; `Set-Cookie` once for each cookie. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array;
}

/** What a handler answered. */
export interface HandlerAnswer extends Answer {
  /**
   * Names, in lower case, of headers that something outside of the handler had set, such as CORS or a request ID: they
   * are one request's, not the operation's, and are not recorded.
   */
  readonly inherited: ReadonlySet<string>;
  /** What the handler threw, where nobody made a response of it. */
  readonly thrown?: { readonly error: unknown };
}

const unrecordable: ErrorBrand = brandedError("UnrecordableAnswerError");

/**
 * The handler's answer cannot be recorded, and so not be replayed: it is a stream, was written past the framework, or is too
 * large. Its effect may have happened; the route's `recovery` says so to the retry.
 */
export class UnrecordableAnswerError extends Error {
  constructor(why: string) {
    super(
      `an idempotent route cannot answer with ${why}: give the whole response at once, or answer so on another route`,
    );
    this.name = "UnrecordableAnswerError";
    unrecordable.mark(this);
  }

  static is(this: void, x: unknown): x is UnrecordableAnswerError {
    return unrecordable.has(x);
  }
}

/** RFC 9110 §15 and Fetch: a response with one of these has no body. */
export function hasNoBody(status: number): boolean {
  return status === 204 || status === 205 || status === 304;
}

/** What of a response's status and headers says that it cannot be recorded. */
export function refusalOf(status: number, header: (name: string) => string | undefined): string | undefined {
  if (!(Number.isInteger(status) && status >= 200 && status <= 599)) return `the status ${status}`;
  // https://html.spec.whatwg.org/multipage/server-sent-events.html
  if (/^\s*text\/event-stream\b/i.test(header("content-type") ?? "")) return "a stream of events";
  return undefined;
}

export function tooLong(bytesMax: number): string {
  return `a body of more than ${bytesMax} bytes (answerBytesMax)`;
}

/**
 * The whole of a `Response`, whose body is read up to `bytesMax`.
 *
 * @throws {UnrecordableAnswerError}
 */
export async function readResponse(
  response: Response,
  bytesMax: number,
  inherited: ReadonlySet<string> = new Set(),
): Promise<HandlerAnswer> {
  const { status, headers, body } = response;
  const refusal = response.bodyUsed
    ? "a Response whose body was read"
    : refusalOf(status, (name) => headers.get(name) ?? undefined);
  if (refusal !== undefined) {
    if (!response.bodyUsed) await body?.cancel();
    throw new UnrecordableAnswerError(refusal);
  }
  const bytes = await readBounded(body, bytesMax);
  if (bytes === undefined) throw new UnrecordableAnswerError(tooLong(bytesMax));
  return { status, headers: Array.from(headers), body: bytes, inherited };
}

/** A `Response` that says the same. */
export function toResponse({ status, headers, body }: Answer): Response {
  // Whole before there is a response: a server's own Response, such as @hono/node-server's, may put a content type of its own
  // in headers that are asked for later.
  const sent = new Headers();
  for (const [name, value] of headers) if (!isFraming(name)) sent.append(name, value);
  return new Response(hasNoBody(status) ? null : new Uint8Array(body), { status, headers: sent });
}

/** How long a body is, and where it ends, is said by whoever sends it. */
export function isFraming(name: string): boolean {
  return /^(content-length|transfer-encoding|trailer)$/i.test(name);
}

/** All bytes of a stream; `undefined`, and the stream cancelled, as soon as there are more than `bytesMax`. */
export async function readBounded(
  stream: ReadableStream<Uint8Array> | null,
  bytesMax: number,
): Promise<Uint8Array | undefined> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  // Leaving the loop cancels the stream.
  for await (const chunk of stream ?? []) {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
