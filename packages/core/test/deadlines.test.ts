import assert from "node:assert/strict";
import {
  Idempotency,
  toVersion,
  type ConditionalStore,
  type Runtime,
  StoreError,
  type StoredRecord,
  type WriteOutcome,
} from "@firstwrite/core";
import { MemoryStore, settle, VirtualClock } from "@firstwrite/memory";
import {
  assign,
  bench,
  bytesOf,
  byOperationId,
  ending,
  input,
  isStoreError,
  recordName,
  request,
  returned,
  threw,
  TTL_MS,
} from "./setup.ts";

/** A store whose every request hangs, whatever its signal says. */
class DeafStore implements ConditionalStore {
  readonly traits = { name: "deaf", nameBytesMax: 1024, recordBytesMax: 1024, clockGranularityMs: 0 };
  readonly answers: ((outcome: WriteOutcome) => void)[] = [];
  readonly signals: AbortSignal[] = [];
  requests = 0;

  create(_name: string, _bytes: Uint8Array, options?: { signal?: AbortSignal | undefined }): Promise<WriteOutcome> {
    this.requests += 1;
    if (options?.signal !== undefined) this.signals.push(options.signal);
    return new Promise((resolve) => this.answers.push(resolve));
  }
  replace(): Promise<WriteOutcome> {
    return new Promise(() => {});
  }
  read(): Promise<StoredRecord | undefined> {
    this.requests += 1;
    return new Promise(() => {});
  }
}

function onDeafStore(options: { requestTimeoutMs?: number } = {}) {
  const clock = new VirtualClock();
  const store = new DeafStore();
  const idempotency = new Idempotency({ store, runtime: clock, ...options });
  const reserve = (limits: { deadlineMs?: number; signal?: AbortSignal }) =>
    ending(clock, idempotency.reserve(assign, { ...request, ...limits }, input, byOperationId));
  return { clock, store, idempotency, reserve };
}

function isUnavailable(error: unknown, deadlineMs: number): asserts error is StoreError {
  isStoreError(error, "UNAVAILABLE");
  assert.ok(
    error.message.includes(`not decided within ${deadlineMs} ms: send it again with the same key`),
    error.message,
  );
}

describe("deadlines (invariant 7)", () => {
  for (const deadlineMs of [1, 5_000, 10_000, 25_000, 3_599_999]) {
    it(`a store that hangs and heeds no signal ends a call of ${deadlineMs} ms at its deadline`, async () => {
      const { clock, store, reserve } = onDeafStore();
      const end = await reserve({ deadlineMs });
      isUnavailable(threw(end), deadlineMs);
      assert.equal(end.tookMs, deadlineMs);
      assert.equal(clock.nextTimerMs, undefined, "no timer is left");
      assert.ok(
        store.signals.every(({ aborted }) => aborted),
        "each request was told",
      );
    });
  }

  it("is 30 seconds by default, and a request's is 10", async () => {
    const { store, reserve } = onDeafStore();
    const end = await reserve({});
    assert.equal(end.tookMs, 30_000);
    assert.equal(store.requests, 3);
  });

  it("names a hanging request as the cause", async () => {
    for (const [deadlineMs, cause] of [
      [5_000, "no answer to a create before the call ended"],
      [12_000, "no answer to a create within 10000 ms"],
    ] as const) {
      const error = threw(await onDeafStore().reserve({ deadlineMs }));
      assert.ok(error instanceof Error && error.cause instanceof Error);
      assert.equal(error.cause.message, cause);
    }
  });

  it("what the store said is the cause, also when its last request hangs", async () => {
    for (const last of ["away", "hangs"] as const) {
      const { memory, reserve, store } = bench();
      memory.inject("away", { times: 3 });
      memory.inject(last, { times: Infinity });
      const end = await reserve({ deadlineMs: 6_000 });
      const error = threw(end);
      isUnavailable(error, 6_000);
      isStoreError(error.cause, "UNAVAILABLE");
      assert.match(error.cause.message, /injected: away/);
      assert.equal(end.tookMs, 6_000);
      assert.ok(store.sent.length > 3);
    }
  });

  it("an unknown outcome is the cause while nothing else is known", async () => {
    const { memory, reserve } = bench();
    memory.inject("lostRequest", { times: Infinity });
    const error = threw(await reserve({ deadlineMs: 6_000 }));
    isUnavailable(error, 6_000);
    assert.ok(error.cause instanceof Error);
  });

  it("a caller's signal that has aborted already sends nothing, and its reason is thrown", async () => {
    const { idempotency, store, clock } = bench();
    const reason = new Error("the client hung up");
    const call = idempotency.reserve(assign, { ...request, signal: AbortSignal.abort(reason) }, input, byOperationId);
    await assert.rejects(call, (error) => error === reason);
    assert.deepEqual(store.sent, []);
    assert.equal(clock.nextTimerMs, undefined);
  });

  it("a caller's signal during the call ends it at once, and nothing more is sent", async () => {
    for (const fault of ["hangs", "away", "contended", "lostRequest"] as const) {
      const { clock, memory, store, idempotency } = bench();
      memory.inject(fault, { times: Infinity });
      const abort = new AbortController();
      const reason = new Error("the client hung up");
      const call = ending(
        clock,
        idempotency.reserve(assign, { ...request, signal: abort.signal }, input, byOperationId),
      );
      clock.setTimer(7, () => abort.abort(reason));
      const end = await call;
      assert.equal(threw(end), reason);
      assert.equal(end.tookMs, 7);
      const { length } = store.sent;
      memory.heal();
      await clock.advance(100_000);
      assert.equal(store.sent.length, length, fault);
      assert.equal(clock.nextTimerMs, undefined);
    }
  });

  it("a store that answers after the deadline is not heard, and harms nothing", async () => {
    const { clock, store, reserve } = onDeafStore();
    threw(await reserve({ deadlineMs: 1_000 }));
    for (const answer of store.answers) answer({ kind: "written", version: toVersion("v1"), at: clock.now() });
    await settle();
    assert.equal(store.requests, 1);
  });

  it("a process that was frozen past its deadline sends nothing more, whether an answer or a timer wakes it first", async () => {
    const answers: readonly WriteOutcome[] = [
      { kind: "unknown", cause: new Error("reset") },
      { kind: "refused" },
      { kind: "contended" },
    ];
    for (const outcome of answers) {
      const store = new DeafStore();
      const clock = new VirtualClock();
      let frozenMs = 0;
      const runtime: Runtime = {
        now: () => clock.now() + frozenMs,
        monotonicMs: () => clock.monotonicMs() + frozenMs,
        setTimer: (ms, fire) => clock.setTimer(ms, fire),
        random: () => clock.random(),
        randomBytes: (length) => clock.randomBytes(length),
      };
      const idempotency = new Idempotency({ store, runtime });
      const call = ending(clock, idempotency.reserve(assign, request, input, byOperationId));
      await settle();
      assert.equal(store.requests, 1);
      frozenMs = 3_000_000;
      for (const answer of store.answers) answer(outcome);
      isUnavailable(threw(await call), 30_000);
      await clock.advance(60_000);
      assert.equal(store.requests, 1, `nothing is sent after ${outcome.kind}`);
    }
  });

  it("a record that is removed each time it is looked for is no tight loop", async () => {
    const { memory, reserve, store } = bench();
    store.before = (operation) => {
      if (operation === "read") memory.expire(recordName);
      else void memory.create(recordName, bytesOf("in the way"));
    };
    const end = await reserve();
    isUnavailable(threw(end), 30_000);
    assert.ok(store.sent.length > 20 && store.sent.length < 150, `${store.sent.length} requests in half a minute`);
  });

  it("a stale record that is stale again each time it is overwritten is no tight loop", async () => {
    const { clock, memory, reserve, store } = bench();
    returned(await reserve());
    await clock.advance(TTL_MS + 1);
    const stale = await memory.read(recordName);
    store.replace = async () => {
      store.sent.push("replace");
      return { kind: "refused" };
    };
    store.take();
    isUnavailable(threw(await reserve({}, "another")), 30_000);
    assert.ok(store.sent.length > 20 && store.sent.length < 200, `${store.sent.length} requests in half a minute`);
    assert.equal((await memory.read(recordName))?.version, stale?.version);
  });

  it("what the store said is the cause whichever of the two timers of a deadline fires first", async () => {
    const clock = new VirtualClock();
    let timers = 0;
    const runtime: Runtime = {
      now: () => clock.now(),
      monotonicMs: () => clock.monotonicMs(),
      setTimer: (ms, fire) => clock.setTimer(timers++ === 0 ? ms + 1 : ms, fire),
      random: () => clock.random(),
      randomBytes: (length) => clock.randomBytes(length),
    };
    const idempotency = new Idempotency({ store: new DeafStore(), runtime, deadlineMs: 5_000 });
    const end = await ending(clock, idempotency.reserve(assign, request, input, byOperationId));
    const error = threw(end);
    isUnavailable(error, 5_000);
    assert.ok(error.cause instanceof Error);
    assert.equal(end.tookMs, 5_000);
    assert.equal(clock.nextTimerMs, undefined);
  });

  it("by the real clock too, a request is not sent anew at the deadline", async () => {
    for (let round = 0; round < 20; round += 1) {
      const store = new DeafStore();
      const call = new Idempotency({ store }).reserve(assign, { ...request, deadlineMs: 5.3 }, input, byOperationId);
      await assert.rejects(call, (error) => StoreError.is(error));
      // None, where the machine stalled before the first.
      assert.ok(store.requests <= 1, `${store.requests} requests`);
    }
  });

  it("a final failure ends the call at once", async () => {
    const { memory, reserve, store } = bench();
    memory.inject("denied");
    const end = await reserve();
    isStoreError(threw(end), "PERMISSION_DENIED");
    assert.equal(end.tookMs, 0);
    assert.deepEqual(store.sent, ["create"]);
  });

  it("a store that breaks its contract by throwing something else is unknown, not trusted", async () => {
    const { store, reserve } = bench();
    let broken = 2;
    store.before = () => {
      broken -= 1;
      if (broken >= 0) throw new TypeError("fetch failed");
    };
    assert.ok(returned(await reserve()).created);
  });
});

describe("a store that breaks its own type", () => {
  for (const answer of [undefined, null, {}, { kind: "ok" }, "written"]) {
    it(`answers a write ${JSON.stringify(answer)}: nothing is known, so a read decides`, async () => {
      const store = new MemoryStore();
      const create = store.create.bind(store);
      let calls = 0;
      // What a store without types may do; the engine must not take it for an outcome.
      const lying: unknown = async (...call: Parameters<typeof create>) => {
        calls += 1;
        const outcome = await create(...call);
        return calls === 1 ? answer : outcome;
      };
      Object.assign(store, { create: lying });
      const { created } = await new Idempotency({ store }).reserve(assign, request, input, byOperationId);
      assert.deepEqual([created, calls], [true, 1]);
    });
  }
});
