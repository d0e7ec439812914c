/** HTTP/2, without TLS. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Http2Server, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import { text } from "node:stream/consumers";

import { defineOperation, Idempotency, InvalidArgumentError } from "@firstwrite/core";
import { idempotent as fastifyIdempotent } from "@firstwrite/http/fastify";
import { idempotent } from "@firstwrite/http/hono";
import { idempotentListener, operationListener } from "@firstwrite/http/node";
import { MemoryStore } from "@firstwrite/memory";
import { getRequestListener } from "@hono/node-server";
import fastify from "fastify";
import { Hono } from "hono";

import { urlOf } from "./integrations.ts";

interface Got {
  readonly status: number | undefined;
  readonly replayed: unknown;
  readonly body: string;
}

describe("HTTP/2", () => {
  let server: Http2Server | undefined;
  afterEach(() => server?.close());

  async function send(
    listener: (request: Http2ServerRequest, response: Http2ServerResponse) => unknown,
  ): Promise<Got[]> {
    server = createServer((request, response) => void listener(request, response)).listen(0, "127.0.0.1");
    await once(server, "listening");
    return sendTo(urlOf(server.address()));
  }

  async function sendTo(url: string): Promise<Got[]> {
    const client = connect(url);
    const answers: Got[] = [];
    for (let sending = 0; sending < 2; sending += 1) {
      const stream = client.request({ ":method": "POST", ":path": "/payouts", "idempotency-key": '"k1"' });
      stream.end('{"amount":5}');
      const [headers] = await once(stream, "response");
      const { ":status": status, "idempotent-replayed": replayed } = headers;
      answers.push({ status, replayed, body: await text(stream) });
    }
    client.close();
    return answers;
  }

  const options = () => ({
    idempotency: new Idempotency({ store: new MemoryStore() }),
    route: "/payouts",
    principal: () => "a1",
    recovery: "hold" as const,
  });

  it("is refused by what stands on node:http, before anything is begun", async () => {
    const told: unknown[] = [];
    let runs = 0;
    const listener = idempotentListener({ ...options(), onError: (error) => told.push(error) }, () => {
      runs += 1;
    });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what a program without types does
    const answers = await send(listener as never);
    assert.deepEqual([answers.map(({ status }) => status), runs], [[500, 500], 0]);
    assert.ok(
      told.length === 2 && told.every((error) => InvalidArgumentError.is(error) && /HTTP\/2/.test(error.message)),
    );
  });

  it("is refused to an operation, too, and by Fastify", async () => {
    let runs = 0;
    const { idempotency, principal } = options();
    const run = (): string => `run ${(runs += 1)}`;
    const listener = operationListener({
      idempotency,
      operation: defineOperation({ name: "pay", recovery: "hold", run }),
      principal,
      input: () => "x",
      answer: (value) => new Response(value),
      onError: () => {},
    });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what a program without types does
    const refused = await send(listener as never);
    const app = fastify({ http2: true });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- its requests are of HTTP/2
    app.post("/payouts", { preHandler: fastifyIdempotent(options()) as never }, run);
    const byFastify = await sendTo(await app.listen({ port: 0, host: "127.0.0.1" }));
    await app.close();
    assert.deepEqual(
      [...refused, ...byFastify].map(({ status }) => status),
      [500, 500, 500, 500],
    );
    assert.match(byFastify[0]?.body ?? "", /HTTP\/2 is not supported/);
    assert.equal(runs, 0);
  });

  it("is taken by what stands on fetch", async () => {
    let runs = 0;
    const app = new Hono();
    app.post("/payouts", idempotent(options()), async (c) => c.text(`run ${(runs += 1)} ${await c.req.text()}`, 201));
    const answers = await send(getRequestListener(app.fetch, { overrideGlobalObjects: false }));
    const body = 'run 1 {"amount":5}';
    assert.deepEqual(answers, [
      { status: 201, replayed: undefined, body },
      { status: 201, replayed: "true", body },
    ]);
  });
});
