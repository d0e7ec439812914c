import assert from "node:assert/strict";

import { days, Idempotency, InvalidArgumentError } from "@firstwrite/core";
import {
  idempotencyContract,
  idempotencyScope,
  idempotentHandler,
  recordedResponse,
  UnrecordableAnswerError,
  type AnswerFacts,
  type Fate,
  type IdempotentOptions,
} from "@firstwrite/http";
import { idempotentListener } from "@firstwrite/http/node";
import { MemoryStore, VirtualClock } from "@firstwrite/memory";

import { until } from "./setup.ts";

const good = (): IdempotentOptions<Request> => ({
  idempotency: new Idempotency({ store: new MemoryStore() }),
  route: "/payouts",
  principal: () => "a1",
  recovery: "hold",
});
const request = (headers: Record<string, string> = {}): Request =>
  new Request("http://x/payouts", { method: "POST", body: "{}", headers: { "idempotency-key": '"k1"', ...headers } });

describe("the options of an idempotent route", () => {
  const wrong: readonly (readonly [Readonly<Record<string, unknown>>, RegExp])[] = [
    [{ idempotency: {} }, /new Idempotency/],
    [{ route: "payouts" }, /route's template/],
    [{ route: `/${"x".repeat(180)}` }, /route's template/],
    [{ principal: undefined }, /who asks/],
    [{ principal: "a1" }, /who asks/],
    [{ recovery: undefined }, /recovery says what to do/],
    [{ recovery: { reconcyle: () => "absent" } }, /recovery cannot have/],
    [{ record: "2xx" }, /"stripe".*"success"/],
    [{ fingerprint: { fields: [] } }, /fingerprint must be/],
    [{ fingerprint: { fields: [["a", 1]] } }, /fingerprint must be/],
    [{ fingerprint: "hash" }, /fingerprint must be/],
    [{ methods: [] }, /methods must be/],
    [{ methods: ["post"] }, /in capitals/],
    [{ waitMs: -1 }, /waitMs/],
    [{ waitMs: Number.NaN }, /waitMs/],
    [{ deadlineMs: 0 }, /deadlineMs/],
    [{ bodyBytesMax: 1.5 }, /bodyBytesMax/],
    [{ answerBytesMax: 1e12 }, /answerBytesMax.*with this store/],
    [{ replayHeaders: ["X-A", "Set-Cookie"] }, /"set-cookie".*never replayed/],
    [{ replayHeaders: "x-a" }, /list of header names/],
    [{ storeAway: "run" }, /run_unprotected/],
    [{ docs: "docs/keys" }, /docs must be the URL/],
    [{ onError: "log" }, /onError/],
    [{ readFirst: 1 }, /readFirst must be/],
    [{ retention: { ttlMs: 5 } }, /ttlMs/],
    [{ leaseMs: 1 }, /leaseMs/],
    [{ key: { lengthMax: 300 } }, /lengthMax/],
    [{ principle: () => "a1" }, /cannot have "principle"/],
  ];
  for (const [options, message] of wrong) {
    it(`refuse ${JSON.stringify(options)}, and say what to write`, () => {
      // What callers without types may give.
      const given = Object.assign(good(), options);
      assert.throws(
        () => idempotentHandler(given, () => new Response()),
        (error) => InvalidArgumentError.is(error) && message.test(error.message),
      );
    });
  }

  it("go with a handler, which is missed at once and not by the first request", () => {
    const missed = (error: unknown): boolean => InvalidArgumentError.is(error) && /handler must be/.test(error.message);
    // @ts-expect-error -- for callers without types
    assert.throws(() => idempotentHandler(good()), missed);
    // @ts-expect-error -- for callers without types
    assert.throws(() => idempotentListener({ ...good(), principal: () => "a1" }, undefined), missed);
  });

  it("refuse a principal that is nobody", async () => {
    for (const nobody of ["", undefined, 7]) {
      const handle = idempotentHandler(
        // @ts-expect-error -- for callers without types
        { ...good(), principal: () => nobody },
        () => new Response(),
      );
      await assert.rejects(
        handle(request()),
        (error) => InvalidArgumentError.is(error) && /who asks/.test(error.message),
      );
    }
  });

  it("pass on what the principal throws, that is no Response", async () => {
    const handle = idempotentHandler(
      {
        ...good(),
        principal: () => {
          throw new Error("the session store is away");
        },
      },
      () => new Response(),
    );
    await assert.rejects(handle(request()), /session store/);
  });

  it("compare by a function's value, which has the request and its body", async () => {
    const handle = idempotentHandler(
      {
        ...good(),
        fingerprint: (incoming, body) => [incoming.headers.get("x-order"), body.kind],
      },
      () => new Response("done"),
    );
    assert.equal((await handle(request({ "x-order": "1" }))).status, 200);
    assert.equal(
      (await handle(request({ "x-order": "1", "x-other": "2" }))).headers.get("idempotent-replayed"),
      "true",
    );
    assert.equal((await handle(request({ "x-order": "2" }))).status, 422);
    const broken = idempotentHandler({ ...good(), fingerprint: () => Number.NaN }, () => new Response());
    await assert.rejects(broken(request()), InvalidArgumentError.is);
  });

  it("replay only the headers that replayHeaders names", async () => {
    const handle = idempotentHandler(
      { ...good(), replayHeaders: ["X-Kept"] },
      () => new Response("x", { headers: { "x-kept": "1", "x-token": "2", "content-type": "text/plain" } }),
    );
    const first = await handle(request());
    assert.deepEqual([first.headers.get("x-kept"), first.headers.get("x-token")], ["1", "2"]);
    const again = await handle(request());
    assert.deepEqual([again.headers.get("x-kept"), again.headers.get("x-token")], ["1", null]);
    assert.equal(again.headers.get("content-type"), null);
  });

  it("do not replay what Connection names", async () => {
    const handle = idempotentHandler(
      good(),
      () => new Response("x", { headers: { connection: "close, X-Hop", "x-hop": "1", "x-end": "2" } }),
    );
    await handle(request());
    const again = await handle(request());
    assert.deepEqual([again.headers.get("x-hop"), again.headers.get("x-end")], [null, "2"]);
  });

  it("keep an answer in the shorter of two forms, so that the store takes what answerBytesMax allows", async () => {
    for (const [body, text] of [
      ["\u0000".repeat(5_000), "base64"],
      ['{"plain":"text"}', "text"],
    ] as const) {
      const recorded = await recordedResponse(new Response(body));
      assert.equal(recorded.encoding, text);
      assert.ok(JSON.stringify(recorded).length < body.length * 1.4 + 200);
    }
  });

  it("give an answer the fate that a policy of one's own says", async () => {
    const seen: AnswerFacts[] = [];
    let fate: Fate = "release";
    let runs = 0;
    const handle = idempotentHandler(
      {
        ...good(),
        recovery: "rerun",
        recoverAfterMs: 0,
        onError: () => {},
        record(answer) {
          seen.push(answer);
          return fate;
        },
      },
      () => {
        runs += 1;
        if (runs === 1) throw new Error("one");
        return new Response(`run ${runs}`, { status: 201, headers: { "x-run": `${runs}` } });
      },
    );
    const texts: string[] = [];
    for (const next of ["release", "recover", "record", "record"] as const) {
      fate = next;
      texts.push(await (await handle(request())).text());
    }
    assert.match(texts[0] ?? "", /^\{"type"/);
    assert.deepEqual(texts.slice(1), ["run 2", "run 3", "run 3"]);
    assert.equal(String(seen[0]?.thrown?.error), "Error: one");
    const last = seen.at(-1);
    assert.deepEqual(
      [last?.status, last?.headers.get("x-run"), Buffer.from(last?.body ?? []).toString()],
      [201, "3", "run 3"],
    );
  });

  it("take a policy that throws, or says nothing known, for one that does not know", async () => {
    for (const record of [
      () => {
        throw new Error("x");
      },
      () => "keep",
    ]) {
      // @ts-expect-error -- for callers without types
      const handle = idempotentHandler({ ...good(), record, recoverAfterMs: 0 }, () => new Response("x"));
      assert.equal((await handle(request())).status, 200);
      assert.equal((await handle(request())).status, 409);
    }
  });

  it("tell of a reconcile that fails, or answers nothing known, and leave the key as it is", async () => {
    const told: unknown[] = [];
    const answers: unknown[] = [undefined, { found: 1 }, new Response("x".repeat(11)), new Error("the ledger is away")];
    let asked = 0;
    const handle = idempotentHandler(
      {
        ...good(),
        record: () => "recover",
        recoverAfterMs: 0,
        answerBytesMax: 10,
        onError: (error) => told.push(error),
        recovery: {
          // @ts-expect-error -- for callers without types
          reconcile() {
            const answer = answers[asked];
            asked += 1;
            if (answer instanceof Error) throw answer;
            return asked > answers.length ? new Response("found") : answer;
          },
        },
      },
      () => new Response("x"),
    );
    await handle(request());
    for (const _ of answers) {
      const got = await handle(request());
      assert.deepEqual([got.status, got.headers.get("retry-after")], [503, "1"]);
    }
    assert.equal(told.length, answers.length);
    assert.ok(InvalidArgumentError.is(told[0]) && InvalidArgumentError.is(told[1]));
    assert.ok(UnrecordableAnswerError.is(told[2]));
    assert.equal(await (await handle(request())).text(), "found");
  });

  it("hold an operation whose reconcile does not know", async () => {
    const handle = idempotentHandler(
      { ...good(), record: () => "recover", recoverAfterMs: 0, recovery: { reconcile: () => "unknown" } },
      () => new Response("x"),
    );
    await handle(request());
    const got = await handle(request());
    assert.deepEqual([got.status, got.headers.get("retry-after")], [409, "60"]);
  });

  it("read first where most requests are repeats: one request to the store for each", async () => {
    const store = new MemoryStore();
    let requests = 0;
    const counted = new Proxy(store, {
      get(target, name) {
        const member: unknown = Reflect.get(target, name);
        if (typeof member !== "function") return member;
        return (...given: unknown[]): unknown => {
          requests += 1;
          return Reflect.apply(member, target, given);
        };
      },
    });
    const handle = idempotentHandler(
      { ...good(), idempotency: new Idempotency({ store: counted }), readFirst: true },
      () => new Response("x"),
    );
    await handle(request());
    assert.equal(requests, 3);
    await handle(request());
    assert.equal(requests, 4);
    await handle(request({ "idempotency-key": "bad" }));
    assert.equal(requests, 4);
  });
});

describe("a client that hangs up", () => {
  it("ends its waiting at once, for a run of this process and for one of another", async () => {
    const store = new MemoryStore();
    const { promise, resolve } = Promise.withResolvers<void>();
    let runs = 0;
    const handler = async (): Promise<Response> => {
      runs += 1;
      await promise;
      return new Response("done");
    };
    const service = (): ((request: Request) => Promise<Response>) =>
      idempotentHandler({ ...good(), idempotency: new Idempotency({ store }), waitMs: 60_000 }, handler);
    const [one, two] = [service(), service()];
    const first = one(request());
    await until(() => runs === 1);
    const begun = performance.now();
    for (const serve of [one, two]) {
      const gone = new AbortController();
      const waiting = serve(new Request(request(), { signal: gone.signal }));
      setTimeout(() => gone.abort(), 30);
      assert.equal((await waiting).status, 409);
      assert.equal((await serve(new Request(request(), { signal: AbortSignal.abort() }))).status, 409);
    }
    assert.ok(performance.now() - begun < 5_000);
    resolve();
    assert.equal(await (await first).text(), "done");
    assert.equal(runs, 1);
  });
});

describe("what a handler is told", () => {
  it("is its operation, how much time is left, and whether it is protected", async () => {
    const clock = new VirtualClock();
    const idempotency = new Idempotency({ store: new MemoryStore({ clock }), runtime: clock });
    const seen: unknown[] = [];
    const handle = idempotentHandler(
      { ...good(), idempotency, deadlineMs: 5_000, key: { required: false } },
      async (incoming, context) => {
        const { operationId, attempt, body } = context;
        seen.push(operationId.length, attempt, context.protected, context.remainingMs, body?.byteLength);
        await clock.advance(2_000);
        seen.push(context.remainingMs, context.signal.aborted);
        return new Response(await incoming.text());
      },
    );
    assert.equal(await (await handle(request())).text(), "{}");
    assert.deepEqual(seen.splice(0), [36, 1, true, 5_000, 2, 3_000, false]);
    const bare = new Request("http://x/payouts", { method: "POST", body: "{}" });
    assert.equal(await (await handle(bare)).text(), "{}");
    assert.deepEqual(seen.splice(0), [36, 1, false, 5_000, undefined, 3_000, false]);
  });
});

describe("the contract", () => {
  it("says what the options say", () => {
    const contract = idempotencyContract({
      ...good(),
      key: { format: "lenient", required: false, lengthMin: 16 },
      keyTime: true,
      fingerprint: { fields: ["amount"] },
      record: "success",
      waitMs: 2_500,
      methods: ["POST"],
      retention: { ttlMs: days(3) },
    });
    assert.deepEqual(contract.key, {
      format: "sf-string or bare",
      lengthMin: 16,
      lengthMax: 255,
      time: "uuid-v7 or ulid",
    });
    assert.deepEqual(contract.recorded, { record: ["2xx"], release: ["4xx"], recover: ["3xx", "5xx"] });
    assert.deepEqual([contract.required, contract.waitSeconds, contract.methods], [false, 2.5, ["POST"]]);
    assert.deepEqual([contract.expiresAfterSeconds, contract.retryWindowSeconds], [259_200, 172_800]);
    assert.deepEqual(contract.fingerprint, { fields: ["amount"] });
    assert.equal(idempotencyContract({ ...good(), record: () => "record", fingerprint: () => 1 }).recorded, "custom");
    assert.deepEqual(JSON.parse(JSON.stringify(contract)), contract);
  });

  it("is refused for what the route would refuse", () => {
    assert.throws(() => idempotencyContract({ ...good(), route: "x" }), InvalidArgumentError.is);
  });
});

describe("the scope", () => {
  it("takes a principal of any length, and differs with each of its parts", () => {
    const of = { principal: "ä".repeat(1_000), method: "POST", route: "/payouts" };
    const scopes = [of, { ...of, principal: "b" }, { ...of, method: "PATCH" }, { ...of, route: "/p" }].map(
      idempotencyScope,
    );
    assert.equal(new Set(scopes).size, 4);
    for (const separator of [",", '","', "\0", ":"]) {
      assert.notEqual(
        idempotencyScope({ principal: `a${separator}b`, method: "c", route: "/" }),
        idempotencyScope({ principal: "a", method: `b${separator}c`, route: "/" }),
      );
    }
    for (const scope of scopes) assert.match(scope, /^http\.[0-9a-f]{64}$/);
  });
});
