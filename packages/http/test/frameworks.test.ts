/** What is each framework's own: its streams, its ways around a response, its body parsers and its error handlers. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import type { RequestListener } from "node:http";
import { connect } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { Idempotency } from "@firstwrite/core";
import { idempotencyOf, idempotentHandler, UnrecordableAnswerError, type IdempotentOptions } from "@firstwrite/http";
import { idempotent as expressIdempotent } from "@firstwrite/http/express";
import { idempotent as fastifyIdempotent } from "@firstwrite/http/fastify";
import { idempotent as honoIdempotent } from "@firstwrite/http/hono";
import { idempotentListener } from "@firstwrite/http/node";
import { MemoryStore } from "@firstwrite/memory";
import compression from "compression";
import express, { type ErrorRequestHandler } from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { streamSSE } from "hono/streaming";
import { validator } from "hono/validator";

import { listen, listenFetch, type TestServer } from "./integrations.ts";
import { problemOf, send, sleep, until, type Got } from "./setup.ts";

let store: MemoryStore;
let servers: TestServer[];
let told: unknown[];

beforeEach(() => {
  store = new MemoryStore();
  servers = [];
  told = [];
});
afterEach(() => Promise.all(servers.map((server) => server.close())));

const options = (): Omit<IdempotentOptions<unknown>, "principal"> & { principal: () => string } => ({
  idempotency: new Idempotency({ store }),
  route: "/payouts",
  principal: () => "a1",
  recovery: "hold",
  recoverAfterMs: 0,
  answerBytesMax: 100_000,
  onError: (error) => told.push(error),
});

async function onServer(server: Promise<TestServer>): Promise<string> {
  const started = await server;
  servers.push(started);
  return started.url;
}
const onNode = (listener: RequestListener): Promise<string> => onServer(listen(listener));
const onFetch = (handle: (request: Request) => Promise<Response>): Promise<string> => onServer(listenFetch(handle));
const onFastify = (app: ReturnType<typeof fastify>): Promise<string> =>
  onServer(
    app.listen({ port: 0, host: "127.0.0.1" }).then((url: string) => ({
      url,
      close: () => app.close(),
    })),
  );

/** Refused, with nothing of what the handler wrote; the connection is good for the next, and the operation is held. */
async function isRefused(url: string, why: RegExp): Promise<void> {
  const got = await send(url, { path: "/payouts" });
  assert.equal(got.status, 500, got.text);
  assert.equal(problemOf(got)["type"], "urn:firstwrite:problem:answer-not-recordable");
  assert.equal(told.length, 1);
  const [error] = told;
  assert.ok(UnrecordableAnswerError.is(error));
  assert.match(error.message, why);
  const again = await send(url, { path: "/payouts" });
  assert.equal(problemOf(again)["type"], "urn:firstwrite:problem:held");
}

async function isReplayed(url: string, sending: Parameters<typeof send>[1] = {}): Promise<readonly [Got, Got]> {
  const first = await send(url, { path: "/payouts", ...sending });
  const again = await send(url, { path: "/payouts", ...sending });
  assert.deepEqual([again.status, again.body], [first.status, first.body]);
  assert.equal(again.headers.get("content-type"), first.headers.get("content-type"));
  assert.equal(again.headers.get("idempotent-replayed"), "true", first.text);
  return [first, again];
}

const sse = { "Content-Type": "text/event-stream" };
const endless = (): ReadableStream<Uint8Array> =>
  new ReadableStream({ pull: (controller) => controller.enqueue(Buffer.alloc(10_000)) });

describe("a fetch handler", () => {
  it("is refused a stream of events, and a stream longer than the bound, which is cancelled", async () => {
    let cancelled = 0;
    const stream = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(Buffer.alloc(10_000)),
      cancel() {
        cancelled += 1;
      },
    });
    await isRefused(
      await onFetch(idempotentHandler(options(), () => new Response(endless(), { headers: sse }))),
      /a stream of events/,
    );
    told = [];
    store = new MemoryStore();
    await isRefused(await onFetch(idempotentHandler(options(), () => new Response(stream))), /more than 100000 bytes/);
    assert.equal(cancelled, 1);
  });

  it("may throw a Response", async () => {
    const url = await onFetch(
      idempotentHandler(options(), () => {
        throw new Response("not here", { status: 404 });
      }),
    );
    const [first] = await isReplayed(url);
    assert.deepEqual([first.status, first.text, told.length], [404, "not here", 0]);
  });

  it("is told of what it threw, and answers a problem", async () => {
    const url = await onFetch(
      idempotentHandler({ ...options(), record: "success" }, () => {
        throw new Error("secret");
      }),
    );
    const got = await send(url, { path: "/payouts" });
    assert.deepEqual([got.status, problemOf(got)["retry"]], [500, "same_key"]);
    assert.doesNotMatch(got.text, /secret/);
    assert.match(String(told[0]), /secret/);
  });

  it("has a request whose signal is the operation's, not the client's", async () => {
    const signals: boolean[] = [];
    const url = await onFetch(
      idempotentHandler(options(), async (request, { signal }) => {
        await sleep(60);
        signals.push(request.signal.aborted, signal.aborted);
        return new Response("done");
      }),
    );
    const gone = new AbortController();
    const first = send(url, { path: "/payouts", signal: gone.signal });
    await sleep(30);
    gone.abort();
    await assert.rejects(first);
    await until(() => signals.length === 2);
    assert.deepEqual(signals, [false, false]);
  });

  it("whose body the principal has read is the author's to mend", async () => {
    const handle = idempotentHandler(
      {
        ...options(),
        principal: async (request) => {
          await request.text();
          return "a1";
        },
      },
      () => new Response("done"),
    );
    const request = new Request("http://x/payouts", {
      method: "POST",
      body: "{}",
      headers: { "idempotency-key": '"k"' },
    });
    await assert.rejects(handle(request), /read request\.clone\(\)/);
  });
});

describe("node:http", () => {
  const ways: Readonly<Record<string, readonly [Parameters<typeof idempotentListener>[1], RegExp]>> = {
    "headers that are flushed": [(_request, response) => response.flushHeaders(), /flushed/],
    "a stream of events": [(_request, response) => void response.writeHead(200, sse), /stream of events/],
    trailers: [(_request, response) => response.addTrailers({ x: "1" }), /trailers/],
    "a detached socket": [
      (_request, response) => {
        if (response.socket !== null) response.detachSocket(response.socket);
      },
      /taken over/,
    ],
    "bytes on the socket": [(request) => void request.socket.write("HTTP/1.1 200 OK\r\n\r\n"), /connection itself/],
    "a body without end": [
      (_request, response) =>
        void Readable.fromWeb(endless())
          .on("error", () => {})
          .pipe(response),
      /more than 100000 bytes/,
    ],
    "a body whose source fails": [
      async (_request, response) => {
        const source = new Readable({ read() {} });
        source.push("half");
        setTimeout(() => source.destroy(new Error("the disk")), 20);
        await pipeline(source, response).catch(() => {});
      },
      /response that is destroyed/,
    ],
    "an upgrade": [(_request, response) => void response.writeHead(101).end(), /status 101/],
  };
  for (const [way, [listener, why]] of Object.entries(ways)) {
    it(`is refused ${way} before a byte has left`, async () => {
      await isRefused(await onNode(idempotentListener(options(), listener)), why);
    });
  }

  it("records what is written in parts, and piped, as one", async () => {
    const bytes = randomBytes(90_000);
    const url = await onNode(
      idempotentListener(options(), async (_request, response) => {
        response.writeHead(200, "Fine", ["X-One", "1", "Content-Type", "application/octet-stream"]);
        await pipeline(Readable.from([bytes.subarray(0, 10_000), bytes.subarray(10_000)]), response);
      }),
    );
    const [first] = await isReplayed(url);
    assert.ok(bytes.equals(first.body));
    assert.equal(first.headers.get("x-one"), "1");
  });

  it("calls back, and takes text in its encoding", async () => {
    let calls = 0;
    const url = await onNode(
      idempotentListener(options(), (_request, response) => {
        response.write("c3bc", "hex", () => (calls += 1));
        response.end("ü", "latin1", () => (calls += 1));
      }),
    );
    const [first] = await isReplayed(url);
    assert.deepEqual([first.body, calls], [Buffer.from([0xc3, 0xbc, 0xfc]), 2]);
  });

  it("lets a handler see its response as it would be", async () => {
    const seen: unknown[] = [];
    const url = await onNode((request, response) => {
      response.setHeader("X-Before", "1");
      idempotentListener(options(), (_request, response) => {
        seen.push(response.headersSent, response.writableEnded, response.getHeader("x-before"), response.statusCode);
        response.statusCode = 202;
        response
          .setHeader("X-A", "1")
          .appendHeader("X-A", "2")
          .setHeaders(new Map([["x-b", "3"]]));
        response.removeHeader("X-Before");
        seen.push(response.hasHeader("x-before"), response.getHeaderNames());
        response.writeHead(202);
        response.statusCode = 500;
        response.end("x");
        seen.push(response.headersSent, response.writableEnded);
        response.statusCode = 500;
        assert.throws(() => response.setHeader("X-C", "1"), { code: "ERR_HTTP_HEADERS_SENT" });
        response.end("twice");
      })(request, response);
    });
    const [first] = await isReplayed(url);
    assert.deepEqual(seen, [false, false, "1", 200, false, ["x-a", "x-b"], true, true]);
    assert.deepEqual([first.status, first.text, first.headers.get("x-a")], [202, "x", "1, 2"]);
  });

  it("keeps an answer that was given before its handler threw", async () => {
    const url = await onNode(
      idempotentListener(options(), (_request, response) => {
        response.end("done");
        throw new Error("afterwards");
      }),
    );
    const [first] = await isReplayed(url);
    assert.equal(first.text, "done");
  });

  it("has the body twice: in the context, and to be read", async () => {
    const url = await onNode(
      idempotentListener({ ...options(), answerBytesMax: 1_000_000 }, async (request, response, { body }) => {
        const parts: Buffer[] = [];
        for await (const part of request) parts.push(Buffer.from(part));
        response.end(JSON.stringify([Buffer.concat(parts).toString(), Buffer.from(body ?? []).toString()]));
      }),
    );
    for (const body of ["", "x", "y".repeat(300_000)]) {
      const [first] = await isReplayed(url, { body, key: `"${body.length}"` });
      assert.equal(first.text, JSON.stringify([body, body]));
    }
  });

  it("says so when somebody has read the body before", async () => {
    const listener = idempotentListener(options(), (_request, response) => void response.end());
    const url = await onNode((request, response) => {
      request.resume().once("end", () => listener(request, response));
    });
    const got = await send(url, { path: "/payouts" });
    assert.equal(got.status, 500);
    assert.match(String(told[0]), /read before its route/);
  });

  it("is told of what it threw where the header means nothing, too, and the process goes on", async () => {
    const url = await onNode(
      idempotentListener(options(), async (request, response) => {
        if (request.url === "/half") response.write("half");
        if (request.url === "/whole") response.end("whole");
        throw new Error(`thrown at ${request.url}`);
      }),
    );
    assert.equal((await send(url, { method: "GET", path: "/none" })).status, 500);
    await assert.rejects(send(url, { method: "GET", path: "/half" }));
    assert.equal((await send(url, { method: "GET", path: "/whole" })).text, "whole");
    assert.deepEqual(
      told.map(String),
      ["/none", "/half", "/whole"].map((path) => `Error: thrown at ${path}`),
    );
  });

  it("goes on where whoever is told of it throws", async () => {
    const url = await onNode(
      idempotentListener(
        {
          ...options(),
          onError() {
            throw new Error("the log is full");
          },
        },
        (request, response) => {
          if (request.method === "POST") response.end("done");
          throw new Error("thrown");
        },
      ),
    );
    const logged: unknown[] = [];
    const { error } = console;
    console.error = (failure: unknown) => logged.push(failure);
    try {
      assert.equal((await send(url, { method: "GET" })).status, 500);
      assert.equal((await send(url)).text, "done");
    } finally {
      console.error = error;
    }
    assert.deepEqual(logged.map(String), ["Error: the log is full", "Error: the log is full"]);
  });

  it("does not wait for the end of a piped body whose client has gone", async () => {
    let piped = 0;
    const url = await onNode(
      idempotentListener(options(), (_request, response) => {
        const source = new Readable({ read() {} });
        source.push("half");
        source.pipe(response);
        piped += 1;
      }),
    );
    const gone = new AbortController();
    const first = send(url, { path: "/payouts", signal: gone.signal });
    await until(() => piped === 1);
    await sleep(30);
    gone.abort();
    await assert.rejects(first);
    await until(() => told.length === 1);
    assert.match(String(told[0]), /client did not wait for/);
  });

  it("records what a handler writes by itself after its client has gone", async () => {
    let runs = 0;
    const url = await onNode(
      idempotentListener(options(), async (_request, response) => {
        runs += 1;
        response.write("one ");
        await sleep(80);
        response.end("two");
      }),
    );
    const gone = new AbortController();
    const first = send(url, { path: "/payouts", signal: gone.signal });
    await until(() => runs === 1);
    await sleep(20);
    gone.abort();
    await assert.rejects(first);
    await sleep(120);
    const got = await send(url, { path: "/payouts" });
    assert.deepEqual([got.status, got.text, runs], [200, "one two", 1]);
  });
});

describe("Express", () => {
  it("compares by what a body parser left, and the parser may come after as well", async () => {
    for (const order of ["before", "after"] as const) {
      const app = express();
      const idempotent = expressIdempotent({ ...options(), route: `/${order}` });
      const stack = order === "before" ? [express.json(), idempotent] : [idempotent, express.json()];
      app.post("/payouts", ...stack, (request, response) => {
        response.status(201).json({ got: request.body, id: idempotencyOf(request)?.operationId.length });
      });
      const url = await onNode(app);
      const [first] = await isReplayed(url);
      assert.deepEqual(JSON.parse(first.text), { got: { amount: 1250, currency: "EUR" }, id: 36 });
      const same = await send(url, { path: "/payouts", body: ' { "currency":"EUR", "amount":1250 }' });
      assert.equal(same.text, first.text);
      assert.equal((await send(url, { path: "/payouts", body: '{"amount":1}' })).status, 422);
    }
  });

  it("records what an error handler makes of an error, thrown, rejected or passed on", async () => {
    const app = express();
    let runs = 0;
    app.post("/payouts", expressIdempotent(options()), async (_request, _response, next) => {
      runs += 1;
      if (runs === 1) throw new Error("one");
      next(new Error("two"));
    });
    const onError: ErrorRequestHandler = (error: unknown, _request, response, _next) => {
      response.status(502).json({ error: String(error) });
    };
    app.use(onError);
    const url = await onNode(app);
    assert.equal((await isReplayed(url))[0].text, '{"error":"Error: one"}');
    assert.equal((await isReplayed(url, { key: '"k2"' }))[0].text, '{"error":"Error: two"}');
    assert.equal(runs, 2);
  });

  it("works with Express's own last error handler, and its not found", async () => {
    const app = express();
    app.set("env", "test");
    app.post("/payouts", expressIdempotent(options()), (_request, _response, next) => next());
    app.post("/throws", expressIdempotent({ ...options(), route: "/throws" }), () => {
      throw new Error("x");
    });
    const url = await onNode(app);
    assert.equal((await isReplayed(url))[0].status, 404);
    assert.equal((await isReplayed(url, { path: "/throws" }))[0].status, 500);
  });

  it("is refused streams before a byte has left", async () => {
    const app = express();
    app.post("/payouts", expressIdempotent(options()), (_request, response) => {
      response.set(sse);
      response.flushHeaders();
      response.write("data: 1\n\n");
    });
    await isRefused(await onNode(app), /flushed/);
  });

  it("refuses to compare multipart bodies that were parsed by what is left of them", async () => {
    const app = express();
    app.set("env", "test");
    app.use((request, _response, next) => {
      request.body = { title: "without its file" };
      next();
    });
    app.post("/payouts", expressIdempotent(options()), (_request, response) => void response.end());
    const errors: unknown[] = [];
    const onError: ErrorRequestHandler = (error: unknown, _request, response, _next) => {
      errors.push(error);
      response.status(500).end();
    };
    app.use(onError);
    const url = await onNode(app);
    const headers = { "content-type": "multipart/form-data; boundary=x" };
    assert.equal((await send(url, { path: "/payouts", headers, body: "--x--" })).status, 500);
    assert.match(String(errors[0]), /fingerprint function/);
  });

  it("prefers rawBody, and tells a parsed body that RFC 8785 has no form for from another", async () => {
    const app = express();
    app.use((request, _response, next) => {
      if (request.headers["x-raw"] !== undefined) Reflect.set(request, "rawBody", Buffer.from("raw"));
      next();
    });
    app.post("/payouts", express.json(), expressIdempotent(options()), (_request, response) => void response.end("x"));
    const url = await onNode(app);
    const headers = { "x-raw": "1", "content-type": "application/json" };
    await isReplayed(url, { headers });
    assert.equal((await send(url, { path: "/payouts", headers, body: '{"other":1}' })).status, 200);
    await isReplayed(url, { key: '"k2"', body: String.raw`{"a":"\ud800"}` });
    assert.equal((await send(url, { path: "/payouts", key: '"k2"', body: String.raw`{"a":"\ud801"}` })).status, 422);
  });

  it("measures a body that was parsed by the length that was declared", async () => {
    const app = express();
    app.post(
      "/payouts",
      express.json(),
      expressIdempotent({ ...options(), bodyBytesMax: 10 }),
      (_request, response) => {
        response.end("x");
      },
    );
    const url = await onNode(app);
    assert.equal((await send(url, { path: "/payouts" })).status, 413);
    assert.equal((await send(url, { path: "/payouts", body: '{"a":1}' })).status, 200);
  });

  it("counts the path that a router is mounted at", async () => {
    const app = express();
    const router = express.Router({ mergeParams: true });
    router.post(
      "/payouts",
      expressIdempotent(options()),
      (request, response) => void response.end(request.originalUrl),
    );
    app.use("/tenants/:tenant", router);
    const url = await onNode(app);
    await isReplayed(url, { path: "/tenants/1/payouts" });
    assert.equal((await send(url, { path: "/tenants/2/payouts" })).status, 422);
  });
});

describe("what wraps a response of node:http", () => {
  const text = "compress me ".repeat(500);
  const encoded = { path: "/payouts", headers: { "accept-encoding": "gzip" } };

  it("outside, as compression does, is applied to each answer, and not recorded", async () => {
    const app = express();
    app.use(compression({ threshold: 0 }));
    app.post("/payouts", expressIdempotent(options()), (_request, response) => void response.type("text").send(text));
    const url = await onNode(app);
    const plain = { path: "/payouts", headers: { "accept-encoding": "identity" } };
    for (const sending of [encoded, encoded, plain, encoded]) {
      const got = await send(url, sending);
      assert.equal(got.text, text);
      assert.equal(got.headers.get("content-encoding"), sending === plain ? null : "gzip");
    }
    const refused = await send(url, { ...encoded, body: "{}" });
    assert.deepEqual([refused.status, problemOf(refused)["status"]], [422, 422]);
  });

  it("outside is applied to what is sent while the handler is still running, and not to what it does then", async () => {
    const app = express();
    const { promise, resolve } = Promise.withResolvers<void>();
    app.use(compression({ threshold: 0 }));
    app.post("/payouts", expressIdempotent({ ...options(), deadlineMs: 100 }), async (_request, response) => {
      await promise;
      response.status(201).set("x-made", "1").send(text);
    });
    const url = await onNode(app);
    const late = await send(url, encoded);
    assert.deepEqual([late.status, problemOf(late)["status"]], [503, 503]);
    resolve();
    let got = await send(url, encoded);
    for (; got.status === 409; got = await send(url, encoded));
    assert.deepEqual([got.status, got.text, got.headers.get("x-made")], [201, text, "1"]);
    assert.equal(got.headers.get("retry-after"), null);
  });

  it("outside is applied to a refusal of what goes on to write", async () => {
    const app = express();
    let writes = 0;
    app.use(compression({ threshold: 0 }));
    app.post("/payouts", expressIdempotent(options()), (_request, response) => {
      response.set(sse);
      const timer = setInterval(() => {
        response.write("data: 1\n\n");
        writes += 1;
        if (writes === 20) clearInterval(timer);
      }, 5);
    });
    const url = await onNode(app);
    const got = await send(url, encoded);
    assert.equal(problemOf(got)["type"], "urn:firstwrite:problem:answer-not-recordable");
    await until(() => writes === 20);
    assert.equal((await send(url, { ...encoded, key: "bad" })).status, 400);
  });

  it("inside is a part of the handler: what it sets at the last moment is recorded", async () => {
    const app = express();
    app.post(
      "/payouts",
      expressIdempotent(options()),
      (_request, response, next) => {
        const writeHead = response.writeHead.bind(response);
        response.writeHead = (status: number) => {
          response.setHeader("x-last", "moment");
          return writeHead(status);
        };
        next();
      },
      compression({ threshold: 0 }),
      (_request, response) => void response.type("text").send(text),
    );
    const url = await onNode(app);
    const [first, again] = await isReplayed(url, encoded);
    assert.deepEqual([first.text, again.text], [text, text]);
    for (const got of [first, again]) {
      assert.deepEqual([got.headers.get("x-last"), got.headers.get("content-encoding")], ["moment", "gzip"]);
    }
  });

  it("inside is called where the handler itself sends no head", async () => {
    const url = await onNode(
      idempotentListener(options(), (_request, response) => {
        const writeHead = response.writeHead.bind(response);
        response.writeHead = (status: number) => {
          response.setHeader("x-last", "moment");
          return writeHead(status);
        };
        response.end("x");
      }),
    );
    for (const got of await isReplayed(url)) assert.equal(got.headers.get("x-last"), "moment");
  });

  it("does not end the process when a refused handler writes on from elsewhere", async () => {
    const elsewhere: (() => void)[] = [];
    let calls = 0;
    // Begun before the request, and so no part of what its handler does.
    const timer = setInterval(() => {
      for (const call of elsewhere) call();
      if (elsewhere.length > 0) calls += 1;
    }, 5);
    try {
      const url = await onNode(
        idempotentListener(options(), (_request, response) => {
          response.flushHeaders();
          elsewhere.push(() => void response.write("more"));
        }),
      );
      assert.equal((await send(url, { path: "/payouts" })).status, 500);
      await until(() => calls > 5);
      assert.equal((await send(url, { path: "/payouts", key: "bad" })).status, 400);
    } finally {
      clearInterval(timer);
    }
  });

  it("takes away what the handler takes away, and sets cookies for the first answer alone", async () => {
    const app = express();
    app.post("/payouts", expressIdempotent(options()), (_request, response) => {
      response.removeHeader("X-Powered-By");
      response.cookie("sid", "1").status(201).json({ made: true });
    });
    const url = await onNode(app);
    const [first, again] = await isReplayed(url);
    assert.equal(first.headers.get("x-powered-by"), null);
    assert.deepEqual([first.headers.getSetCookie(), again.headers.getSetCookie()], [["sid=1; Path=/"], []]);
  });

  it("has the files that Express sends", async () => {
    const app = express();
    const file = new URL("../package.json", import.meta.url).pathname;
    app.post("/payouts", expressIdempotent(options()), (_request, response) => response.sendFile(file));
    const [first] = await isReplayed(await onNode(app));
    assert.match(first.text, /"@firstwrite\/http"/);
    assert.match(first.headers.get("content-type") ?? "", /json/);
  });

  it("is one of several on a connection: each request of a pipeline gets its own answer, in order", async () => {
    const app = express();
    app.post("/payouts", expressIdempotent(options()), async (request, response) => {
      await sleep(request.headers["x-slow"] === undefined ? 0 : 60);
      response.send(`for ${request.get("idempotency-key") ?? ""}`);
    });
    const { port } = new URL(await onNode(app));
    const socket = connect(Number(port), "127.0.0.1");
    const request = (key: string, more = ""): string =>
      `POST /payouts HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "${key}"\r\nContent-Length: 0\r\n${more}\r\n`;
    let got = "";
    socket.on("data", (bytes) => (got += bytes.toString()));
    socket.write(request("a", "X-Slow: 1\r\n") + request("b") + request("a") + request("c", "Connection: close\r\n"));
    await new Promise<void>((resolve) => socket.once("close", () => resolve()));
    const answers = [...got.matchAll(/HTTP\/1\.1 (\d+)|for "(\w)"|"title":"A request is outstanding/gm)];
    assert.deepEqual(
      answers.map(([, status, key]) => status ?? key ?? "outstanding"),
      ["200", "a", "200", "b", "409", "outstanding", "200", "c"],
    );
  });
});

describe("Fastify", () => {
  it("takes the hook on a route with types of its own", async () => {
    const app = fastify();
    app.post<{ Body: { amount: number } }>(
      "/payouts",
      { preHandler: [fastifyIdempotent(options())] },
      async (request) => ({
        twice: request.body.amount * 2,
      }),
    );
    assert.equal((await isReplayed(await onFastify(app)))[0].text, '{"twice":2500}');
  });

  it("compares by what Fastify parsed, and records what it serialized, its onSend hooks included, once", async () => {
    const app = fastify();
    let sends = 0;
    app.addHook("onSend", async (_request, reply, payload) => {
      sends += 1;
      reply.header("x-sent", "yes");
      return `${String(payload)}!`;
    });
    app.post("/payouts", { preHandler: fastifyIdempotent(options()) }, async (request) => ({
      got: request.body,
      id: idempotencyOf(request)?.operationId.length,
    }));
    const url = await onFastify(app);
    const [first, again] = await isReplayed(url);
    assert.equal(first.text, '{"got":{"amount":1250,"currency":"EUR"},"id":36}!');
    assert.equal(again.headers.get("x-sent"), "yes");
    assert.equal(sends, 1);
    assert.equal((await send(url, { path: "/payouts", body: ' {"currency":"EUR","amount":1250}' })).text, first.text);
  });

  it("records what an error handler makes of an error; a failed schema consumes no key", async () => {
    const app = fastify();
    let runs = 0;
    app.setErrorHandler((error, _request, reply) => {
      void reply.code(error instanceof Error && "validation" in error ? 400 : 502).send({ error: String(error) });
    });
    app.post(
      "/payouts",
      {
        preHandler: fastifyIdempotent(options()),
        schema: { body: { type: "object", required: ["amount"], properties: { amount: { type: "integer" } } } },
      },
      async () => {
        runs += 1;
        throw new Error("declined");
      },
    );
    const url = await onFastify(app);
    assert.equal((await send(url, { path: "/payouts", body: "{}" })).status, 400);
    assert.equal((await isReplayed(url))[0].text, '{"error":"Error: declined"}');
    assert.equal(runs, 1);
  });

  it("runs onResponse hooks for a first answer and for a replay", async () => {
    const app = fastify();
    const statuses: number[] = [];
    app.addHook("onResponse", async (_request, reply) => void statuses.push(reply.raw.statusCode));
    app.post("/payouts", { preHandler: fastifyIdempotent(options()) }, (_request, reply) => {
      void reply.code(201).send("made");
    });
    await isReplayed(await onFastify(app));
    await until(() => statuses.length === 2);
    assert.deepEqual(statuses, [201, 201]);
  });

  it("is refused a hijacked reply, and a stream longer than the bound", async () => {
    const app = fastify({ forceCloseConnections: true });
    app.post("/payouts", { preHandler: fastifyIdempotent(options()) }, (_request, reply) => {
      reply.hijack();
      reply.raw.end("mine");
    });
    await isRefused(await onFastify(app), /hijacked/);
    store = new MemoryStore();
    told = [];
    const streams = fastify({ forceCloseConnections: true });
    streams.post("/payouts", { preHandler: fastifyIdempotent(options()) }, (_request, reply) => {
      void reply.send(Readable.fromWeb(endless()));
    });
    await isRefused(await onFastify(streams), /more than 100000 bytes/);
  });

  it("records a stream that ends in time", async () => {
    const app = fastify();
    app.post("/payouts", { preHandler: fastifyIdempotent(options()) }, (_request, reply) => {
      void reply.type("text/plain").send(Readable.from([Buffer.from("one "), Buffer.from("two")]));
    });
    assert.equal((await isReplayed(await onFastify(app)))[0].text, "one two");
  });

  it("says so when a parser left a stream", async () => {
    const app = fastify();
    app.removeAllContentTypeParsers();
    app.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
    app.post("/payouts", { preHandler: fastifyIdempotent(options()) }, async () => "x");
    const got = await send(await onFastify(app), { path: "/payouts" });
    assert.equal(got.status, 500);
    assert.match(got.text, /parseAs/);
  });
});

describe("Hono", () => {
  it("leaves the body to handlers, and takes what a validator has read", async () => {
    const app = new Hono();
    app.post("/payouts", honoIdempotent(options()), async (c) => c.json({ got: await c.req.json() }, 201));
    app.post(
      "/validated",
      validator("json", (value) => value),
      honoIdempotent({ ...options(), route: "/validated" }),
      async (c) => c.json({ got: c.req.valid("json"), id: idempotencyOf(c)?.operationId.length }, 201),
    );
    const url = await onFetch(async (request) => app.fetch(request));
    const [first] = await isReplayed(url);
    assert.equal(first.text, '{"got":{"amount":1250,"currency":"EUR"}}');
    const [validated] = await isReplayed(url, { path: "/validated" });
    assert.equal(validated.text, '{"got":{"amount":1250,"currency":"EUR"},"id":36}');
    assert.equal((await send(url, { path: "/validated", body: "{}" })).status, 422);
  });

  it("records what onError makes of an error, and of an HTTPException", async () => {
    const app = new Hono();
    let runs = 0;
    app.onError((error, c) =>
      error instanceof HTTPException ? error.getResponse() : c.json({ error: error.message }, 502),
    );
    app.post("/payouts", honoIdempotent(options()), () => {
      runs += 1;
      if (runs === 1) throw new HTTPException(402, { message: "declined" });
      throw new Error("away");
    });
    const url = await onFetch(async (request) => app.fetch(request));
    assert.deepEqual((await isReplayed(url)).map(({ status, text }) => [status, text])[1], [402, "declined"]);
    assert.equal((await isReplayed(url, { key: '"k2"' }))[0].text, '{"error":"away"}');
    assert.equal(runs, 2);
  });

  it("is refused a stream of events", async () => {
    const app = new Hono();
    app.post("/payouts", honoIdempotent(options()), (c) =>
      streamSSE(c, async (stream) => {
        await stream.writeSSE({ data: "1" });
      }),
    );
    await isRefused(await onFetch(async (request) => app.fetch(request)), /stream of events/);
  });

  it("records of a handler that outlives its request what it set itself, and gives outside what was given", async () => {
    const app = new Hono();
    const given: number[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    app.use(async (c, next) => {
      await next();
      await sleep(20);
      given.push(c.res.status);
    });
    app.post("/payouts", honoIdempotent({ ...options(), deadlineMs: 100 }), async (c) => {
      await promise;
      c.header("x-made", "1");
      return c.json({ made: true }, 201);
    });
    const url = await onFetch(async (request) => app.fetch(request));
    assert.equal((await send(url, { path: "/payouts" })).status, 503);
    resolve();
    let got = await send(url, { path: "/payouts" });
    for (; got.status === 409; got = await send(url, { path: "/payouts" }));
    assert.deepEqual([got.status, got.text, got.headers.get("x-made")], [201, '{"made":true}', "1"]);
    for (const name of ["retry-after", "cache-control", "content-language"]) assert.equal(got.headers.get(name), null);
    assert.equal(given[0], 503);
  });

  it("gives middleware outside a response that it may change, for a replay too", async () => {
    const app = new Hono();
    app.use(async (c, next) => {
      c.header("vary", "Origin");
      await next();
      c.res.headers.set("x-after", String(c.res.status));
    });
    app.post("/payouts", honoIdempotent(options()), (c) => c.text("made", 201));
    const url = await onFetch(async (request) => app.fetch(request));
    for (const got of await isReplayed(url)) {
      assert.deepEqual([got.headers.get("vary"), got.headers.get("x-after")], ["Origin", "201"]);
    }
  });

  it("refuses to compare multipart bodies that were read before", async () => {
    const app = new Hono();
    app.onError((error, c) => c.text(error.message, 500));
    app.post(
      "/payouts",
      validator("form", (value) => value),
      honoIdempotent(options()),
      (c) => c.text("made"),
    );
    const url = await onFetch(async (request) => app.fetch(request));
    const headers = { "content-type": "multipart/form-data; boundary=x" };
    const body = '--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n';
    const got = await send(url, { path: "/payouts", headers, body });
    assert.equal(got.status, 500);
    assert.match(got.text, /fingerprint function/);
  });
});
