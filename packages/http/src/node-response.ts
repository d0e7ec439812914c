import { AsyncLocalStorage } from "node:async_hooks";
import { OutgoingMessage, validateHeaderValue, type OutgoingHttpHeader, type ServerResponse } from "node:http";

import {
  hasNoBody,
  isFraming,
  refusalOf,
  tooLong,
  UnrecordableAnswerError,
  type Answer,
  type HandlerAnswer,
} from "./answer.ts";

/** What runs as the handler of which response. */
const inside = new AsyncLocalStorage<NodeResponse>();

/**
 * Takes the place of a `ServerResponse` while a handler runs: what the handler sets and writes is kept here, and nothing of it
 * leaves before {@link NodeResponse.send}. For a handler that is still running then (its request was told so), or that was refused, it
 * stays in place, so that it writes to nobody; what wraps the response outside, such as compression, has the real one.
 */
export class NodeResponse {
  readonly #response: ServerResponse;
  readonly #bytesMax: number;
  /** What the handler sees of the response's headers. */
  readonly #headers = new OutgoingMessage();
  readonly #inherited: ReadonlyMap<string, string>;
  /** What the response has itself under the names that are replaced. */
  readonly #real = new Map<string, PropertyDescriptor | undefined>();
  readonly #answered = Promise.withResolvers<HandlerAnswer>();
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  #status: number;
  #message = "";
  #headersSent = false;
  #ended = false;
  #isAnswered = false;
  #restoreSocket: () => void = () => {};

  constructor(response: ServerResponse, bytesMax: number) {
    this.#response = response;
    this.#bytesMax = bytesMax;
    this.#status = response.statusCode;
    for (const [name, value] of Object.entries(response.getHeaders())) setHeader(this.#headers, name, value);
    this.#inherited = valuesOf(pairsOf(this.#headers));
    // Whoever waits may have left; what the handler came to is then nobody's error.
    this.#answered.promise.catch(() => {});
    this.#takePlace();
    this.#guardSocket();
    // A stream stops to write when the client hangs up, and the body's end will not come. A handler that writes by itself goes on.
    response.on("unpipe", () => {
      if (response.destroyed && !this.#ended) this.refuse("a piped body that its client did not wait for");
    });
  }

  /**
   * The handler's whole answer.
   *
   * @throws {UnrecordableAnswerError}
   */
  get answered(): Promise<HandlerAnswer> {
    return this.#answered.promise;
  }

  /** The handler does what cannot be recorded. Nothing that it writes from now on goes anywhere. */
  refuse(why: string): void {
    this.#ended = true;
    this.#answered.reject(new UnrecordableAnswerError(why));
  }

  /** Runs what belongs to the handler. */
  run<Result>(handler: () => Result): Result {
    return inside.run(this, handler);
  }

  /** Sends an answer to the client, whatever the handler does. */
  send(answer: Answer): void {
    const response = this.#response;
    this.#restoreSocket();
    const place = Array.from(
      this.#real.keys(),
      (name) => [name, Object.getOwnPropertyDescriptor(response, name) ?? {}] as const,
    );
    for (const [name, descriptor] of this.#real) define(response, name, descriptor);
    if (this.#isAnswered) {
      // What the handler took away of what others had set.
      for (const name of this.#inherited.keys()) if (!this.#headers.hasHeader(name)) response.removeHeader(name);
    } else {
      for (const [name, descriptor] of place) this.#part(name, descriptor);
      // Of a handler that writes on and has lost its context, which is not to end the process.
      response.on("error", () => {});
    }
    sendAnswer(response, answer);
  }

  /** From here on `name` is another thing for the handler than for everybody else, the one who sends included. */
  #part(name: string, place: PropertyDescriptor): void {
    const response = this.#response;
    const isInside = (): boolean => inside.getStore() === this;
    Object.defineProperty(response, name, {
      configurable: true,
      enumerable: true,
      get: () => {
        const own = isInside() ? place : this.#real.get(name);
        if (own === undefined) return Reflect.get(Object.getPrototypeOf(response), name, response);
        return "value" in own ? own.value : own.get?.call(response);
      },
      set: (value: unknown) => {
        if (!isInside()) this.#real.set(name, { value, configurable: true, enumerable: true, writable: true });
        else if ("value" in place) place.value = value;
        else place.set?.(value);
      },
    });
  }

  #takePlace(): void {
    const headers = this.#headers;
    const open = (): void => {
      if (!this.#headersSent) return;
      throw Object.assign(new Error("Cannot set headers after they are sent to the client"), {
        code: "ERR_HTTP_HEADERS_SENT",
      });
    };
    const response = this.#response;
    const stream = (why: string) => (): void => this.refuse(why);
    const methods: Readonly<Record<string, unknown>> = {
      getHeader: headers.getHeader.bind(headers),
      getHeaders: headers.getHeaders.bind(headers),
      getHeaderNames: headers.getHeaderNames.bind(headers),
      hasHeader: headers.hasHeader.bind(headers),
      setHeader(name: string, value: OutgoingHttpHeader) {
        open();
        setHeader(headers, name, value);
        return response;
      },
      appendHeader(name: string, value: string | readonly string[]) {
        open();
        headers.appendHeader(name, value);
        return response;
      },
      setHeaders(all: Headers | Map<string, number | string | readonly string[]>) {
        open();
        headers.setHeaders(all);
        return response;
      },
      removeHeader(name: string) {
        open();
        headers.removeHeader(name);
      },
      writeHead: (status: number, ...rest: unknown[]) => {
        open();
        this.#writeHead(status, rest);
        return response;
      },
      write: (chunk: unknown, ...rest: unknown[]) => this.#write(chunk, rest),
      end: (...given: unknown[]) => this.#end(given),
      // Informational, and optional for whoever sends them.
      writeContinue() {},
      writeProcessing() {},
      writeEarlyHints() {},
      flushHeaders: stream("headers that are flushed before the body is whole"),
      addTrailers: stream("trailers"),
      detachSocket: stream("a connection that is taken over"),
      // As `pipeline` does when what it reads from fails.
      destroy: () => {
        this.refuse("a response that is destroyed");
        return response;
      },
    };
    for (const [name, value] of Object.entries(methods)) this.#replace(name, { value, writable: true });
    this.#replace("statusCode", {
      get: () => this.#status,
      set: (status: number) => {
        if (!this.#headersSent) this.#status = status;
      },
    });
    this.#replace("statusMessage", { get: () => this.#message, set: (message: string) => (this.#message = message) });
    this.#replace("headersSent", { get: () => this.#headersSent });
    this.#replace("writableEnded", { get: () => this.#ended });
    // Of Node's own making, and read by middleware that wraps responses, to know whether writeHead was called.
    this.#replace("_header", { get: () => (this.#headersSent ? "sent" : null) });
  }

  #replace(name: string, descriptor: PropertyDescriptor): void {
    this.#real.set(name, Object.getOwnPropertyDescriptor(this.#response, name));
    Object.defineProperty(this.#response, name, { ...descriptor, configurable: true, enumerable: true });
  }

  /**
   * While this response is the one on its connection nothing is written there but by it, and so by nobody: what a handler
   * writes to the socket itself does not leave.
   */
  #guardSocket(): void {
    const { socket, req } = this.#response;
    if (socket === null || req.httpVersionMajor !== 1) return;
    const real = Object.getOwnPropertyDescriptor(socket, "write");
    const value = (): boolean => {
      // Node itself writes a 400 here for a client that sends more than its request, and destroys the socket.
      queueMicrotask(() => {
        if (!socket.destroyed) this.refuse("bytes written to the connection itself");
      });
      return false;
    };
    Object.defineProperty(socket, "write", { value, configurable: true, writable: true });
    this.#restoreSocket = () => {
      this.#restoreSocket = () => {};
      define(socket, "write", real);
    };
  }

  /** `rest`: a reason phrase or none, and headers as an object, as pairs or as a flat list, or none. */
  #writeHead(status: number, rest: readonly unknown[]): void {
    this.#status = status;
    const given = typeof rest[0] === "string" ? rest[1] : rest[0];
    for (const [name, value] of pairsGiven(given)) setHeader(this.#headers, name, value);
    this.#beginsBody();
  }

  #beginsBody(): void {
    this.#headersSent = true;
    const refusal = refusalOf(this.#status, (name) => {
      const value = this.#headers.getHeader(name);
      return value === undefined ? undefined : String(value);
    });
    if (refusal !== undefined) this.refuse(refusal);
  }

  /** By the property, as Node does: middleware inside may have wrapped it, to set headers at the last moment. */
  #sendHead(): void {
    if (!this.#headersSent) this.run(() => this.#response.writeHead(this.#status));
    if (!this.#headersSent) this.#beginsBody();
  }

  #write(chunk: unknown, rest: readonly unknown[]): boolean {
    this.#sendHead();
    this.#take(chunk, rest[0]);
    done(rest);
    return true;
  }

  #end(given: readonly unknown[]): ServerResponse {
    const [chunk, encoding] = given;
    this.#sendHead();
    if (chunk !== undefined && chunk !== null && typeof chunk !== "function") this.#take(chunk, encoding);
    done(given);
    if (this.#ended) return this.#response;
    this.#ended = true;
    this.#isAnswered = true;
    const headers = pairsOf(this.#headers);
    const values = Array.from(valuesOf(headers));
    this.#answered.resolve({
      status: this.#status,
      headers,
      body: hasNoBody(this.#status) ? new Uint8Array() : Buffer.concat(this.#chunks),
      inherited: new Set(values.filter(([name, value]) => this.#inherited.get(name) === value).map(([name]) => name)),
    });
    return this.#response;
  }

  #take(chunk: unknown, encoding: unknown): void {
    if (this.#ended) return;
    const bytes =
      typeof chunk === "string"
        ? Buffer.from(chunk, isEncoding(encoding) ? encoding : "utf8")
        : chunk instanceof Uint8Array
          ? Buffer.from(chunk)
          : undefined;
    if (bytes === undefined) throw new TypeError("a response is written as strings, Buffers or Uint8Arrays");
    this.#bytes += bytes.byteLength;
    if (this.#bytes > this.#bytesMax) this.refuse(tooLong(this.#bytesMax));
    else this.#chunks.push(bytes);
  }
}

/**
 * Sends an answer on a response that nothing was sent on. Headers that others have set stay, where it has none of its own.
 *
 * @throws {TypeError} for a header that Node does not send, such as one with a control character, which a `Response` may have.
 *   Nothing was sent.
 */
export function sendAnswer(response: ServerResponse, { status, headers, body }: Answer): void {
  if (response.headersSent || response.destroyed) return;
  const others = headers.filter(([name]) => !isFraming(name));
  for (const [name, value] of others) validateHeaderValue(name, value);
  for (const name of new Set(others.map(([name]) => name))) {
    const values = others.filter(([other]) => other.toLowerCase() === name.toLowerCase()).map(([, value]) => value);
    response.setHeader(name, values.length === 1 ? (values[0] ?? "") : values);
  }
  response.statusCode = status;
  if (hasNoBody(status)) {
    response.end();
    return;
  }
  response.setHeader("Content-Length", body.byteLength);
  response.end(body);
}

/** Aborts when the client hangs up before it has its answer. */
export function goneSignal(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) gone.abort();
  });
  return gone.signal;
}

function define(target: object, name: PropertyKey, descriptor: PropertyDescriptor | undefined): void {
  if (descriptor === undefined) Reflect.deleteProperty(target, name);
  else Object.defineProperty(target, name, descriptor);
}

/** Takes what a response of Node's takes, and refuses what it refuses. */
function setHeader(headers: OutgoingMessage, name: string, value: unknown): void {
  if (Array.isArray(value)) headers.setHeader(name, value.map(String));
  else if (typeof value === "string" || typeof value === "number") headers.setHeader(name, value);
  else if (typeof value === "boolean") headers.setHeader(name, String(value));
  else {
    throw Object.assign(new TypeError(`Invalid value for header ${JSON.stringify(name)}`), {
      code: "ERR_HTTP_INVALID_HEADER_VALUE",
    });
  }
}

/** One pair for each value. */
function pairsOf(headers: OutgoingMessage): [string, string][] {
  return Object.entries(headers.getHeaders()).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one): [string, string] => [name, String(one)]),
  );
}

/** Name in lower case → all its values, to be compared. */
function valuesOf(pairs: readonly (readonly [string, string])[]): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  for (const [name, value] of pairs) {
    const lower = name.toLowerCase();
    const before = values.get(lower);
    values.set(lower, before === undefined ? value : `${before}\n${value}`);
  }
  return values;
}

function pairsGiven(given: unknown): [string, unknown][] {
  if (Array.isArray(given)) {
    if (given.every((pair) => Array.isArray(pair))) return given.map(([name, value]) => [String(name), value]);
    return given.flatMap((name, index): [string, unknown][] =>
      index % 2 === 0 ? [[String(name), given[index + 1]]] : [],
    );
  }
  return typeof given === "object" && given !== null ? Object.entries(given) : [];
}

/** Calls a callback where one is given last, as a stream does. */
function done(given: readonly unknown[]): void {
  const callback = given.findLast((one) => typeof one === "function");
  if (typeof callback === "function") process.nextTick(() => void Reflect.apply(callback, undefined, []));
}

function isEncoding(encoding: unknown): encoding is BufferEncoding {
  return typeof encoding === "string" && Buffer.isEncoding(encoding);
}
