/**
 * An HTTP proxy on a real socket between a store and its service, which does to a request what networks do. It forwards
 * everything as it came, the Host header included, so that signatures hold. The faults:
 *
 * | fault         | the service                                    | the store                      |
 * | ------------- | ---------------------------------------------- | ------------------------------ |
 * | `lostRequest` | gets nothing                                   | a reset                        |
 * | `lostReply`   | does what it was asked                         | a reset                        |
 * | `landsLate`   | gets the request when it is told to land       | a reset                        |
 * | `repeated`    | gets the request once more, after the answer   | the first answer               |
 * | `late`        | does what it was asked                         | the answer, a while later      |
 * | `hangs`       | gets nothing                                   | no answer at all               |
 */

import {
  createServer,
  request as forwardRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

export type ProxyFault = "lostRequest" | "lostReply" | "landsLate" | "repeated" | "late" | "hangs";

/** What a fault is chosen by. */
export interface ProxiedRequest {
  readonly method: string;
  /** Path and query, as they came. */
  readonly path: string;
}

interface HeldRequest extends ProxiedRequest {
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** How late `late` and, at random, `landsLate` and `repeated` are, in milliseconds. */
const LATE_MS = 50;

export class FaultyProxy implements AsyncDisposable {
  readonly #target: URL;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #held: HeldRequest[] = [];
  readonly #afterwards = new Set<Promise<unknown>>();
  #faults: { readonly fault: ProxyFault; readonly matches: (request: ProxiedRequest) => boolean }[] = [];
  #atRandom: (request: ProxiedRequest) => ProxyFault | undefined = () => undefined;
  /** How many requests have arrived. */
  requests = 0;
  /** How many of them met a fault. */
  faults = 0;

  /** Starts a proxy on a free port of 127.0.0.1, before the service at `target`: `http://host:port`. */
  static async start(target: string): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(new URL(target));
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  private constructor(target: URL) {
    this.#target = target;
    this.#server = createServer((incoming, response) => void this.#serve(incoming, response));
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  get url(): string {
    const address: AddressInfo | string | null = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the proxy is not listening");
    return `http://127.0.0.1:${address.port}`;
  }

  /** The next request that `matches` meets the fault, and only that one. */
  inject(fault: ProxyFault, matches: (request: ProxiedRequest) => boolean = () => true): void {
    this.#faults.push({ fault, matches });
  }

  /** From now on a part `rate` of all requests meets one of `faults`. `random` gives numbers in [0, 1). */
  faultAtRandom(rate: number, faults: readonly ProxyFault[], random: () => number): void {
    this.#atRandom = () => (random() < rate ? faults[Math.floor(random() * faults.length)] : undefined);
  }

  /** Forgets every fault. What is held stays held. */
  heal(): void {
    this.#faults = [];
    this.#atRandom = () => undefined;
  }

  /** Lets the oldest request held by `landsLate` reach the service, and waits for its answer, which nobody gets. */
  async land(): Promise<void> {
    const held = this.#held.shift();
    if (held !== undefined) await this.#forward(held);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#afterwards);
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async #serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "GET", url: path = "/", headers, socket } = incoming;
    const body = await buffer(incoming).catch(() => undefined);
    const answer = body === undefined ? "reset" : await this.#handle({ method, path, headers, body });
    if (answer === "hangs") return;
    if (answer === "reset") socket.resetAndDestroy();
    else response.writeHead(answer.status, withoutHops(answer.headers)).end(answer.body);
  }

  async #handle(request: HeldRequest): Promise<Answer | "reset" | "hangs"> {
    this.requests += 1;
    const injected = this.#faults.findIndex(({ matches }) => matches(request));
    const [asked] = injected === -1 ? [] : this.#faults.splice(injected, 1);
    const fault = asked?.fault ?? this.#atRandom(request);
    if (fault !== undefined) this.faults += 1;
    switch (fault) {
      case "lostRequest":
        return "reset";
      case "hangs":
        return "hangs";
      case "landsLate":
        if (asked === undefined) this.#later(request);
        else this.#held.push(request);
        return "reset";
      case "lostReply":
        await this.#forward(request);
        return "reset";
      case "repeated":
        this.#later(request);
        return this.#forward(request);
      case "late":
        await sleep(LATE_MS);
        return this.#forward(request);
      case undefined:
        return this.#forward(request);
    }
  }

  #later(request: HeldRequest): void {
    const landing = sleep(LATE_MS).then(() => this.#forward(request));
    this.#afterwards.add(landing);
    void landing.finally(() => this.#afterwards.delete(landing));
  }

  /** A service that cannot be reached is a reset to the store. */
  #forward({ method, path, headers, body }: HeldRequest): Promise<Answer | "reset"> {
    return new Promise((resolve) => {
      const { hostname, port } = this.#target;
      const outgoing = forwardRequest(
        { hostname, port, method, path, headers: withoutHops(headers), setHost: false },
        (incoming) => {
          buffer(incoming).then(
            (answer) => resolve({ status: incoming.statusCode ?? 502, headers: incoming.headers, body: answer }),
            () => resolve("reset"),
          );
        },
      );
      outgoing.on("error", () => resolve("reset"));
      outgoing.end(body);
    });
  }
}

/** Hop-by-hop headers (RFC 9110 §7.6.1), and Expect, which the proxy has met already. */
function withoutHops(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const { connection: _, "keep-alive": __, "transfer-encoding": ___, expect: ____, ...rest } = headers;
  return rest;
}
