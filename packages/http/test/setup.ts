import { Idempotency } from "@firstwrite/core";
import { MemoryStore, VirtualClock } from "@firstwrite/memory";

import type { Integration, TestHandler, TestOptions, TestServer } from "./integrations.ts";

/** What came back over the wire. */
export interface Got {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Buffer;
  readonly text: string;
}

export interface Sending {
  readonly method?: string;
  readonly path?: string;
  /** As it stands in the header; `undefined` sends none. Default `"k1"`, in quotes. */
  readonly key?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | undefined;
  readonly signal?: AbortSignal;
}

/** One service of one integration, and the store behind it. */
export class Bench {
  readonly store: MemoryStore;
  readonly clock: VirtualClock | undefined;
  readonly #integration: Integration;
  readonly #servers: TestServer[] = [];
  /** Of each run of the handler. */
  runs = 0;
  url = "";

  constructor(integration: Integration, options: { readonly virtual?: boolean } = {}) {
    this.#integration = integration;
    this.clock = options.virtual === true ? new VirtualClock() : undefined;
    this.store = new MemoryStore(this.clock && { clock: this.clock });
  }

  /** An engine as another process has it. */
  engine(): Idempotency {
    return new Idempotency({ store: this.store, ...(this.clock && { runtime: this.clock }) });
  }

  /** Starts a service; a second one is another process on the same store. */
  async serve(
    handler: TestHandler = this.payout,
    options: Partial<TestOptions> = {},
  ): Promise<(sending?: Sending) => Promise<Got>> {
    const server = await this.#integration.serve({ idempotency: this.engine(), ...options }, (request, context) => {
      this.runs += 1;
      return handler(request, context);
    });
    this.#servers.push(server);
    this.url = server.url;
    return (sending) => send(server.url, sending);
  }

  /** A payout is made, and says how many there were before. */
  readonly payout: TestHandler = (_request, { operationId }) => ({
    status: 201,
    headers: { "content-type": "application/json", location: `/payouts/${operationId}` },
    body: JSON.stringify({ payout: operationId, run: this.runs }),
  });

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()));
  }
}

export async function send(url: string, sending: Sending = {}): Promise<Got> {
  const { method = "POST", path = "/accounts/7/payouts", headers = {}, signal } = sending;
  const key = "key" in sending ? sending.key : '"k1"';
  const body = "body" in sending ? sending.body : method === "GET" ? undefined : '{"amount":1250,"currency":"EUR"}';
  const response = await fetch(url + path, {
    method,
    headers: {
      ...(body !== undefined && { "content-type": "application/json" }),
      ...(key !== undefined && { "idempotency-key": key }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === "string" ? body : new Uint8Array(body) }),
    ...(signal && { signal }),
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  return { status: response.status, headers: response.headers, body: bytes, text: bytes.toString("utf8") };
}

export function problemOf({ text }: Got): Record<string, unknown> {
  const problem: Record<string, unknown> = JSON.parse(text);
  return problem;
}

/** Resolves when `holds` does. */
export async function until(holds: () => boolean): Promise<void> {
  for (let tries = 0; !holds(); tries += 1) {
    if (tries > 1_000) throw new Error("waited for something that did not come");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
