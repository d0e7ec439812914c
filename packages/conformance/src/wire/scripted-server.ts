/**
 * An HTTP server on a real socket that answers as a test says, and keeps every request it got. The faults it can inject:
 * a reset after the request was read, no answer at all, a late answer, and an answer whose body stops early, with a reset
 * or with silence.
 */

import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface ReceivedRequest {
  readonly method: string;
  readonly url: URL;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  /** Leaves the `Date` header out, which Node otherwise adds. */
  readonly withoutDate?: boolean;
  readonly lateByMs?: number;
  /** Announces the whole body, sends this many bytes of it, and then resets the connection or falls silent. */
  readonly stopsAfterBytes?: number;
  readonly thenSilent?: boolean;
}

export type Reply = Answer | "reset" | "silence";

type Script = (request: ReceivedRequest, nth: number) => Reply;

export class ScriptedServer implements AsyncDisposable {
  readonly requests: ReceivedRequest[] = [];
  readonly #server: Server;
  #script: Script;

  private constructor(script: Script) {
    this.#script = script;
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        const received = {
          method: request.method ?? "",
          url: new URL(request.url ?? "", "http://server"),
          headers: request.headers,
          body: Buffer.concat(chunks),
        };
        this.requests.push(received);
        const reply = this.#script(received, this.requests.length);
        if (reply === "reset") request.socket.resetAndDestroy();
        else if (reply !== "silence") setTimeout(() => send(response, reply), reply.lateByMs ?? 0);
      });
    });
  }

  /** Answers each request by the script; the last of several replies is repeated. */
  static async start(...replies: Reply[] | [Script]): Promise<ScriptedServer> {
    const server = new ScriptedServer(() => "silence");
    server.answers(...replies);
    await new Promise<void>((resolve) => server.#server.listen(0, "127.0.0.1", resolve));
    return server;
  }

  answers(...replies: Reply[] | [Script]): void {
    const [first] = replies;
    if (typeof first === "function") {
      this.#script = first;
      return;
    }
    const left = replies.filter((reply) => typeof reply !== "function");
    this.#script = () => (left.length > 1 ? left.shift() : left[0]) ?? "silence";
  }

  get port(): number {
    const address: AddressInfo | string | null = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the server is not listening");
    return address.port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Resolves when that many requests have arrived. */
  async received(count: number): Promise<void> {
    while (this.requests.length < count) await new Promise((resolve) => setTimeout(resolve, 2));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }
}

function send(response: ServerResponse, answer: Answer): void {
  const body = Buffer.from(answer.body ?? "");
  response.sendDate = answer.withoutDate !== true;
  response.writeHead(answer.status, { "content-length": body.byteLength, ...answer.headers });
  if (answer.stopsAfterBytes === undefined) {
    response.end(body);
    return;
  }
  response.write(body.subarray(0, answer.stopsAfterBytes), () => {
    if (answer.thenSilent !== true) response.socket?.resetAndDestroy();
  });
  response.flushHeaders();
}
