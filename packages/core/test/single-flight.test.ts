import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import {
  defineReservation,
  IdempotencyConflictError,
  InvalidArgumentError,
  SingleFlight,
  type Reservation,
  type ReserveRequest,
} from "@firstwrite/core";
import { settle } from "@firstwrite/memory";
import {
  assign,
  bench,
  byOperationId,
  ending,
  input,
  isStoreError,
  leavesNothing,
  request,
  returned,
  threw,
  type Bench,
} from "./setup.ts";

function start({ idempotency }: Bench, limits: Partial<ReserveRequest> = {}): Promise<Reservation<string>> {
  return idempotency.reserve(assign, { ...request, ...limits }, input, byOperationId);
}

describe("single flight (I1)", () => {
  leavesNothing();

  it("1,000 calls at once cost as one, and one of them is told that it made the claim", async () => {
    const on = bench();
    const { signal } = new AbortController();
    const all = await Promise.all(Array.from({ length: 1000 }, () => start(on, { signal })));
    assert.deepEqual(on.store.take(), ["create"]);
    assert.equal(all.filter(({ created }) => created).length, 1);
    assert.equal(new Set(all.map(({ value }) => value)).size, 1);
    const again = await Promise.all(Array.from({ length: 1000 }, () => start(on)));
    assert.deepEqual(on.store.take(), ["create", "read"]);
    assert.ok(again.every(({ created, value }) => !created && value === all[0]?.value));
    assert.equal(on.clock.nextTimerMs, undefined, "no timer is left");
  });

  it("each caller's value is its own copy", async () => {
    const { idempotency } = bench();
    const call = () => idempotency.reserve(assign, request, input, () => ({ value: { list: [1] } }));
    const [one, two] = await Promise.all([call(), call()]);
    one.value.list.push(2);
    assert.deepEqual(two.value, { list: [1] });
    assert.deepEqual((await call()).value, { list: [1] });
  });

  it("another input, operation, scope or key is another flight", async () => {
    const { idempotency, store } = bench();
    const other = defineReservation({ name: "assign" });
    const calls = await Promise.allSettled([
      idempotency.reserve(assign, request, input, byOperationId),
      idempotency.reserve(assign, request, "another input", byOperationId),
      idempotency.reserve(other, request, input, byOperationId),
      idempotency.reserve(assign, { ...request, key: "k2" }, input, byOperationId),
      idempotency.reserve(assign, { ...request, scope: "acme2" }, input, byOperationId),
    ]);
    const [first, conflicting, same, ...others] = calls;
    assert.ok(conflicting?.status === "rejected" && IdempotencyConflictError.is(conflicting.reason), "a conflict");
    assert.ok(first?.status === "fulfilled" && same?.status === "fulfilled");
    assert.equal(same.value.value, first.value.value);
    assert.ok(others.every((end) => end.status === "fulfilled" && end.value.created));
    assert.equal(store.sent.filter((operation) => operation === "create").length, 5);
  });

  it("a joiner with a shorter deadline leaves at its own, and the flight goes on for the others", async () => {
    const on = bench();
    on.memory.inject("hangs");
    const long = ending(on.clock, start(on, { deadlineMs: 20_000 }));
    const short = ending(on.clock, start(on, { deadlineMs: 1_000 }));
    const left = await short;
    isStoreError(threw(left), "UNAVAILABLE");
    assert.equal(left.tookMs, 1_000);
    assert.ok(returned(await long).created);
    assert.deepEqual(on.store.sent, ["create", "read", "create"]);
  });

  it("a joiner with a longer deadline goes on with a flight of its own when the first ends", async () => {
    const on = bench();
    on.memory.inject("hangs");
    const short = ending(on.clock, start(on, { deadlineMs: 1_000 }));
    const long = ending(on.clock, start(on, { deadlineMs: 20_000 }));
    isStoreError(threw(await short), "UNAVAILABLE");
    assert.ok(returned(await long).created);
    assert.deepEqual(on.store.sent, ["create", "create"]);
    assert.equal(on.clock.nextTimerMs, undefined);
  });

  it("one that leaves a second flight at its deadline is told the trouble of the first", async () => {
    const on = bench();
    on.memory.inject("away", { times: Infinity });
    const [first, last, between] = [5_000, 20_000, 5_500].map((deadlineMs) =>
      ending(on.clock, start(on, { deadlineMs })),
    );
    assert.ok(first && last && between);
    const left = await between;
    assert.equal(left.tookMs, 5_500);
    const error = threw(left);
    isStoreError(error, "UNAVAILABLE");
    isStoreError(error.cause, "UNAVAILABLE");
    threw(await first);
    on.memory.heal();
    assert.ok(returned(await last).created);
  });

  it("a joiner's signal ends its own wait alone, the starter's too", async () => {
    for (const leaver of [0, 1]) {
      const on = bench();
      on.memory.inject("hangs");
      const abort = new AbortController();
      const calls = [0, 1].map((nth) => ending(on.clock, start(on, nth === leaver ? { signal: abort.signal } : {})));
      await settle();
      const reason = new Error("left");
      abort.abort(reason);
      const ends = await Promise.all(calls);
      assert.deepEqual(ends.map(({ kind }) => kind).toSorted(), ["returned", "threw"]);
      for (const end of ends) if (end.kind === "threw") assert.equal(end.error, reason);
      assert.deepEqual(on.store.sent, ["create", "read", "create"]);
    }
  });

  it("ends with its last joiner: nothing more is sent, and a new call begins a new flight", async () => {
    const on = bench();
    on.memory.inject("hangs");
    const aborts = Array.from({ length: 3 }, () => new AbortController());
    const calls = aborts.map(({ signal }) => ending(on.clock, start(on, { signal })));
    await settle();
    for (const abort of aborts) abort.abort();
    await Promise.all(calls);
    await on.clock.advance(100_000);
    assert.deepEqual(on.store.take(), ["create"]);
    assert.equal(on.clock.nextTimerMs, undefined);
    assert.ok(returned(await on.reserve()).created);
  });

  it("one that was left does not take the flight after it out of the way of others when it ends", async () => {
    const { clock, idempotency, memory, store } = bench();
    const call = (signal?: AbortSignal) => idempotency.reserve(assign, { ...request, signal }, input, byOperationId);
    const first = new AbortController();
    memory.inject("hangs", { times: 2 });
    const left = assert.rejects(call(first.signal));
    await settle();
    first.abort(new Error("left"));
    await left;
    // The flight that was left has yet to notice.
    const second = call();
    await settle();
    const third = call();
    await clock.advance(11_000);
    assert.deepEqual([(await second).created, (await third).created], [true, false]);
    assert.deepEqual(store.sent, ["create", "create", "read", "create"]);
  });

  it("ends at the deadline of the call that began it, though that call has left and its request hangs", async () => {
    const { clock, idempotency, memory, store } = bench({ requestTimeoutMs: 50_000 });
    memory.inject("hangs");
    const first = new AbortController();
    const call = (limits: { deadlineMs: number; signal?: AbortSignal }) =>
      idempotency.reserve(assign, { ...request, ...limits }, input, byOperationId);
    const left = assert.rejects(call({ deadlineMs: 5_000, signal: first.signal }));
    const stays = call({ deadlineMs: 60_000 });
    await clock.advance(1_000);
    first.abort(new Error("left"));
    await left;
    await clock.advance(4_000);
    await stays;
    assert.deepEqual(store.sent, ["create", "create"]);
  });

  it("leaves nothing behind on a signal that outlives many calls", async () => {
    const on = bench();
    const { signal } = new AbortController();
    on.memory.inject("lostReply");
    for (let call = 0; call < 5; call += 1) returned(await on.reserve({ signal }));
    assert.deepEqual(getEventListeners(signal, "abort"), []);
  });

  it("an error reaches all, and is not remembered", async () => {
    const on = bench();
    on.memory.inject("denied");
    const ends = await Promise.allSettled(Array.from({ length: 10 }, () => start(on)));
    for (const end of ends) {
      assert.ok(end.status === "rejected");
      isStoreError(end.reason, "PERMISSION_DENIED");
    }
    assert.deepEqual(on.store.take(), ["create"]);
    assert.ok((await start(on)).created);
  });

  it("what the chooser throws reaches all, with nothing written", async () => {
    const { idempotency, store, clock } = bench();
    const thrown = new Error("no numbers left");
    const call = () =>
      idempotency.reserve(assign, request, input, () => {
        throw thrown;
      });
    for (const end of await Promise.allSettled([call(), call()])) {
      assert.ok(end.status === "rejected" && end.reason === thrown);
    }
    assert.deepEqual(store.sent, []);
    assert.equal(clock.nextTimerMs, undefined);
  });

  it("when all leave while the flight fails, nobody is left to hear it, and nothing is unhandled", async () => {
    const on = bench();
    on.memory.inject("hangs", { times: Infinity });
    const abort = new AbortController();
    const call = ending(on.clock, start(on, { signal: abort.signal }));
    await settle();
    abort.abort();
    threw(await call);
    await settle();
  });

  it("its own start that throws at once leaves no flight behind", async () => {
    const { clock } = bench();
    const flights = new SingleFlight<number>(clock, "memory");
    const failing = flights.run("k", { deadlineMs: 1000 }, async () => {
      throw new InvalidArgumentError("no");
    });
    await assert.rejects(failing, (error) => InvalidArgumentError.is(error));
    const landed = await flights.run("k", { deadlineMs: 1000 }, async () => 7);
    assert.deepEqual(landed, { result: 7, first: true });
    assert.equal(clock.nextTimerMs, undefined);
  });
});
