import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";

import {
  fetchWithIdempotency,
  IdempotentFetchError,
  type ClientRuntime,
  type IdempotentFetchOptions,
} from "@firstwrite/http/client";

type Step = (request: IncomingMessage, response: ServerResponse) => void;

const problem =
  (status: number, retry: string | undefined, headers: Record<string, string> = {}): Step =>
  (_request, response) => {
    response.writeHead(status, { "content-type": "application/problem+json", ...headers });
    response.end(JSON.stringify({ title: "x", status, retry }));
  };
const plain =
  (status: number, headers: Record<string, string> = {}): Step =>
  (_request, response) => {
    response.writeHead(status, headers).end(`answer ${status}`);
  };
const drop: Step = (request) => request.socket.destroy();
const hang: Step = () => {};

describe("fetchWithIdempotency", () => {
  let server: Server;
  let url: string;
  let script: Step[];
  let seen: { readonly key: string | undefined; readonly body: string; readonly method: string | undefined }[];
  let waits: number[];

  /** Waits that take no time, and are written down. */
  const runtime = (): ClientRuntime => {
    let nowMs = 0;
    return {
      monotonicMs: () => nowMs,
      now: () => Date.UTC(2026, 0, 1) + nowMs,
      random: () => 0.5,
      setTimer(ms, fire) {
        // That of one sending: only a sending that hangs is to meet it.
        if (ms >= 5_000 && ms < 20_000) {
          const timer = setTimeout(fire, 60);
          return () => clearTimeout(timer);
        }
        waits.push(ms);
        nowMs += ms;
        setImmediate(fire);
        return () => {};
      },
    };
  };

  const post = (options: IdempotentFetchOptions = {}, init: RequestInit = {}): Promise<Response> =>
    fetchWithIdempotency(
      url,
      { method: "POST", body: '{"amount":5}', ...init },
      { runtime: runtime(), attemptMs: 5_000, budgetMs: 4_000_000, ...options },
    );

  beforeEach(async () => {
    script = [];
    seen = [];
    waits = [];
    server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        const key = request.headers["idempotency-key"];
        seen.push({ key: String(key), body: Buffer.concat(chunks).toString(), method: request.method });
        (script.shift() ?? plain(200))(request, response);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    assert.ok(address !== null && typeof address === "object");
    url = `http://127.0.0.1:${address.port}/payouts`;
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });

  it("sends one key and one body, however often", async () => {
    script = [drop, plain(503), hang, problem(409, "same_key"), plain(201)];
    const response = await post();
    assert.equal(response.status, 201);
    assert.equal(seen.length, 5);
    assert.equal(new Set(seen.map((one) => JSON.stringify(one))).size, 1);
    assert.match(seen[0]?.key ?? "", /^"[0-9a-f-]{36}"$/);
    assert.equal(seen[0]?.body, '{"amount":5}');
  });

  it("has a key of its own for each operation, or the caller's", async () => {
    await post();
    await post();
    await post({ idempotencyKey: 'a"b\\' });
    await post({}, { headers: { "idempotency-key": '"mine"' } });
    await post({ idempotencyKey: "k1", keyFormat: "bare" });
    const keys = seen.map(({ key }) => key);
    assert.notEqual(keys[0], keys[1]);
    assert.deepEqual(keys.slice(2), [String.raw`"a\"b\\"`, '"mine"', "k1"]);
  });

  it("refuses a key that cannot be sent", async () => {
    for (const options of [
      { idempotencyKey: "" },
      { idempotencyKey: "é" },
      { idempotencyKey: "k".repeat(256) },
      { idempotencyKey: "a,b", keyFormat: "bare" as const },
    ]) {
      await assert.rejects(post(options), TypeError);
    }
    await assert.rejects(post({ budgetMs: 0 }), TypeError);
    // @ts-expect-error -- as JavaScript may misspell it
    await assert.rejects(post({ budgetMS: 1_000 }), /no option "budgetMS": it takes idempotencyKey, /);
    assert.equal(seen.length, 0);
  });

  it("sends a 422 never again, whatever it says", async () => {
    for (const step of [plain(422), problem(422, "same_key"), plain(422, { "stripe-should-retry": "true" })]) {
      script = [step];
      assert.equal((await post()).status, 422);
    }
    assert.equal(seen.length, 3);
  });

  it("heeds retry: never and new_key end it, same_key goes on, whatever the status", async () => {
    for (const [status, retry] of [
      [503, "never"],
      [500, "new_key"],
      [409, "never"],
    ] as const) {
      script = [problem(status, retry)];
      const response = await post();
      assert.equal(response.status, status);
      // Still there to be read.
      const body: unknown = await response.json();
      assert.deepEqual(body, { title: "x", status, retry });
    }
    assert.equal(seen.length, 3);
    script = [problem(400, "same_key"), plain(200)];
    assert.equal((await post()).status, 200);
  });

  it("goes by the status where a problem document is none", async () => {
    const broken: Step = (_request, response) => {
      response.writeHead(503, { "content-type": "application/problem+json" }).end("{");
    };
    script = [broken, problem(503, undefined), problem(409, undefined), plain(200)];
    assert.equal((await post()).status, 200);
    script = [problem(400, undefined)];
    assert.equal((await post()).status, 400);
  });

  it("takes a replayed answer for final, a 500 too", async () => {
    script = [plain(500, { "idempotent-replayed": "true" })];
    assert.equal((await post()).status, 500);
    assert.equal(seen.length, 1);
  });

  it("heeds Stripe-Should-Retry, and without a word goes by the status", async () => {
    script = [plain(500, { "stripe-should-retry": "false" })];
    assert.equal((await post()).status, 500);
    script = [plain(400, { "stripe-should-retry": "true" }), plain(200)];
    assert.equal((await post()).status, 200);
    for (const status of [408, 409, 425, 429, 500, 502, 503, 504]) {
      script = [plain(status), plain(200)];
      assert.equal((await post()).status, 200);
    }
    seen = [];
    for (const status of [200, 201, 204, 400, 401, 402, 403, 404, 410]) {
      script = [plain(status)];
      assert.equal((await post()).status, status);
    }
    assert.equal(seen.length, 9);
  });

  it("waits as Retry-After says, in seconds or as a date, and else longer each time", async () => {
    script = [
      problem(409, "same_key", { "retry-after": "3" }),
      plain(503, { "retry-after": "Thu, 01 Jan 2026 00:00:07 GMT" }),
      plain(503),
      plain(503),
      plain(200),
    ];
    assert.equal((await post()).status, 200);
    assert.deepEqual(waits, [3_000, 4_000, 500, 1_000]);
  });

  it("waits no longer than backoffMsMax, but for a Retry-After", async () => {
    script = [plain(503), plain(503), plain(503), plain(503, { "retry-after": "3" })];
    assert.equal((await post({ backoffMs: 100, backoffMsMax: 300 })).status, 200);
    assert.deepEqual(waits, [50, 100, 150, 3_000]);
    await assert.rejects(post({ backoffMs: 100, backoffMsMax: 99 }), TypeError);
  });

  it("ends with its budget, in the last answer, and does not wait beyond it", async () => {
    script = [plain(503, { "retry-after": "3600" })];
    const response = await post({ budgetMs: 19_000 });
    assert.deepEqual([response.status, waits, seen.length], [503, [], 1]);
    assert.equal(await response.text(), "answer 503");
    script = Array.from({ length: 9 }, () => plain(503));
    assert.equal((await post({ attemptsMax: 3 })).status, 503);
    assert.equal(seen.length, 4);
  });

  it("ends without an answer in an error that has the key to go on with", async () => {
    script = [drop, drop, hang];
    await assert.rejects(post({ attemptsMax: 3, idempotencyKey: "order-7" }), (error) => {
      assert.ok(error instanceof IdempotentFetchError);
      assert.deepEqual([error.idempotencyKey, error.attempts], ["order-7", 3]);
      assert.ok(error.cause instanceof DOMException && error.cause.name === "TimeoutError");
      return true;
    });
  });

  it("ends with its caller's signal, while it sends, while it waits and while the body is read", async () => {
    const sending = new AbortController();
    script = [hang];
    const first = post({ attemptsMax: 1 }, { signal: sending.signal });
    setTimeout(() => sending.abort(new Error("enough")), 20);
    await assert.rejects(first, /enough/);

    const waiting = new AbortController();
    script = [plain(503)];
    const second = post(
      {
        runtime: {
          ...runtime(),
          setTimer(ms) {
            if (ms !== 5_000) waiting.abort(new Error("enough"));
            return () => {};
          },
        },
      },
      { signal: waiting.signal },
    );
    await assert.rejects(second, /enough/);

    const reading = new AbortController();
    script = [
      (_request, response) => {
        response.writeHead(200);
        response.write("half");
      },
    ];
    const response = await post({}, { signal: reading.signal });
    reading.abort(new Error("enough"));
    await assert.rejects(response.text(), /enough/);
    assert.equal(seen.length, 3);
    await assert.rejects(post({}, { signal: AbortSignal.abort(new Error("before")) }), /before/);
    assert.equal(seen.length, 3);
  });

  it("gives up a problem document that does not end, and lets go of what it does not give back", async () => {
    const half: Step = (_request, response) => {
      response.writeHead(503, { "content-type": "application/problem+json" });
      response.write("{");
    };
    script = [half, plain(200)];
    assert.equal((await post()).status, 200);
    let cancelled = 0;
    const answers = [503, 200].map(
      (status) => new Response(new ReadableStream({ cancel: () => void (cancelled += 1) }), { status }),
    );
    const response = await post({ fetch: async () => answers.shift() ?? new Response() });
    assert.deepEqual([response.status, cancelled], [200, 1]);
  });

  it("gives up a fetch that does not heed its signal", async () => {
    let sendings = 0;
    await assert.rejects(
      post({
        attemptsMax: 2,
        fetch() {
          sendings += 1;
          return new Promise(() => {});
        },
      }),
      IdempotentFetchError,
    );
    assert.equal(sendings, 2);
  });

  it("takes a Request, a body that is a stream, and none", async () => {
    script = [drop, plain(200)];
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue(Buffer.from("streamed"));
        controller.close();
      },
    });
    await fetchWithIdempotency(
      new Request(url, { method: "PATCH", body: stream, duplex: "half" }),
      {},
      { runtime: runtime(), attemptMs: 5_000 },
    );
    await fetchWithIdempotency(url, { method: "POST" }, { runtime: runtime(), attemptMs: 5_000 });
    assert.deepEqual(
      seen.map(({ method, body }) => [method, body]),
      [
        ["PATCH", "streamed"],
        ["PATCH", "streamed"],
        ["POST", ""],
      ],
    );
  });
});
