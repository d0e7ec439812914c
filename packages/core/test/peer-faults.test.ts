/**
 * What users of other idempotency libraries ran into, each the same situation with the right result. "V" was reproduced by
 * running the peer, "T" is a theme of its tracker. What needs HTTP is tested with the HTTP package: `next()` after a replay,
 * a client's own hit header, `Set-Cookie` in a replay, quoting and commas in the key's header, 409 against 422, statuses
 * that are or are not replayed.
 */

import assert from "node:assert/strict";
import {
  executionOf,
  IdempotencyConflictError,
  InProgressError,
  InvalidArgumentError,
  OperationHeldError,
  type Reconciled,
} from "@firstwrite/core";
import { settle, type Fault } from "@firstwrite/memory";
import {
  bench,
  crashIn,
  Effect,
  leavesNothing,
  operationOf,
  processOf,
  recordName,
  returned,
  threw,
  TTL_MS,
} from "./setup.ts";

const noFunds = new Error("no funds");

/** An owner whose lease is over while it works, and the one that took over and settled. */
async function lateOwner(onError?: () => "replay" | "retry" | "recover") {
  const on = bench();
  const late = processOf(on, 11);
  const effect = new Effect();
  const call = late.start(operationOf({ run: effect.run, ...(onError === undefined ? {} : { onError }) }), {
    deadlineMs: 200_000,
  });
  await settle();
  const thaw = late.freeze();
  await on.clock.advance(60_001);
  const newer = returned(await on.execute(operationOf({ run: () => "newer" })));
  const before = await on.memory.read(recordName);
  return { on, call, effect, thaw, newer, before };
}

/** How many times the effect runs over these calls, and what each gave. */
function counting(value: () => unknown = () => "done") {
  let runs = 0;
  const run = () => {
    runs += 1;
    return value();
  };
  return { run, runs: () => runs };
}

describe("what other libraries get wrong", () => {
  leavesNothing();

  it("V1, T11: a late owner whose lease was over does not overwrite the newer owner's result", async () => {
    const { on, call, effect, thaw, before } = await lateOwner();
    effect.last.finish("older");
    thaw();
    assert.equal(returned(await call.ends()).value, "newer", "it is told what was recorded");
    assert.equal((await on.memory.read(recordName))?.version, before?.version);
  });

  for (const meaning of ["replay", "retry", "recover"] as const) {
    it(`V1: a late owner that fails (${meaning}) does not delete the newer completed record`, async () => {
      const { on, call, effect, thaw, before } = await lateOwner(() => meaning);
      effect.last.fail(noFunds);
      thaw();
      assert.equal(returned(await call.ends()).value, "newer");
      assert.equal((await on.memory.read(recordName))?.version, before?.version);
      assert.equal(returned(await on.execute(operationOf({ run: () => assert.fail("a third run") }))).value, "newer");
    });
  }

  it("V2: an identical retry is no mismatch, from another process too", async () => {
    const on = bench();
    const first = returned(await on.execute(operationOf(), {}, { a: 1, b: [2, { c: 3 }] }));
    const retry = await processOf(on, 2).execute(operationOf(), {}, { a: 1, b: [2, { c: 3 }] });
    assert.deepEqual(returned(retry), { ...first, replayed: true });
  });

  it("V3, T2: two processes at once run once, with default deadlines", async () => {
    const on = bench();
    const { run, runs } = counting();
    const operation = operationOf({ run });
    const calls = [1, 2, 3].map((seed) => processOf(on, seed).start(operation, { waitMs: 20_000 }));
    for (const call of calls) assert.equal(returned(await call.ends()).value, "done");
    assert.equal(runs(), 1);
  });

  it("V4: a nested call on the same store is not answered with the outer one's result", async () => {
    const on = bench();
    const inner = operationOf({ name: "inner", run: () => "inner" });
    const outer = operationOf({
      name: "outer",
      run: async () => ["outer", returned(await on.execute(inner, { key: "inner" })).value],
    });
    assert.deepEqual(returned(await on.execute(outer)).value, ["outer", "inner"]);
    // Under the very same key it is a conflict, which is said, and no result of the other's.
    const clash = operationOf({ name: "outer", run: async () => threw(await on.execute(inner, { key: "k2" })) });
    const end = returned(await on.execute(clash, { key: "k2" }));
    assert.ok(IdempotencyConflictError.is(end.value));
  });

  it("V5, T9: a completion write that fails after the side effect is no error to the caller, and no retry doubles it", async () => {
    const on = bench();
    const rows = new Map<string, unknown>();
    const { run, runs } = counting();
    const operation = operationOf({
      recovery: {
        reconcile: async (_, { operationId }): Promise<Reconciled<unknown>> =>
          rows.has(operationId) ? { found: rows.get(operationId) } : "absent",
      },
      run(_, { operationId }) {
        rows.set(operationId, "paid");
        return run() && "paid";
      },
    });
    on.memory.inject("away", { on: "replace", times: Infinity });
    const { value, recorded } = returned(await on.execute(operation));
    assert.deepEqual([value, recorded], ["paid", false]);
    on.memory.heal();
    await on.clock.advance(60_001);
    const retry = returned(await on.execute(operation));
    assert.deepEqual([retry.value, retry.recorded, runs()], ["paid", true, 1]);
  });

  it("V6: a result with a Date is recorded as JSON has it, and one that cannot be is the caller's all the same", async () => {
    const on = bench();
    const dated = returned(await on.execute(operationOf({ run: () => ({ at: new Date(0) }) })));
    assert.deepEqual([dated.value, dated.recorded], [{ at: "1970-01-01T00:00:00.000Z" }, true]);
    const { run, runs } = counting(() => new Map([[1, 2]]));
    const mapped = operationOf({ run });
    assert.deepEqual(returned(await on.execute(mapped, { key: "k2" })).value, new Map([[1, 2]]));
    assert.ok(OperationHeldError.is(threw(await on.execute(mapped, { key: "k2" }))));
    assert.equal(runs(), 1);
  });

  it("V7: keys in another order, and keys that differ in case alone, are told apart as JSON does", async () => {
    const on = bench();
    const { run, runs } = counting();
    const operation = operationOf({ run });
    returned(await on.execute(operation, {}, { a: 1, A: 2 }));
    assert.ok(returned(await on.execute(operation, {}, { A: 2, a: 1 })).replayed);
    assert.ok(IdempotencyConflictError.is(threw(await on.execute(operation, {}, { a: 2, A: 1 }))));
    assert.equal(runs(), 1);
  });

  it("V8, T5: an effect that changes its input completes its own record, and no other", async () => {
    const on = bench();
    const { run, runs } = counting();
    const operation = operationOf({
      run(input) {
        Object.assign(Object(input), { id: "changed" });
        return run();
      },
    });
    const given = { id: "mine" };
    returned(await on.execute(operation, {}, given));
    assert.deepEqual(given, { id: "mine" });
    assert.ok(returned(await on.execute(operation, {}, { id: "mine" })).replayed);
    assert.ok(IdempotencyConflictError.is(threw(await on.execute(operation, {}, { id: "changed" }))));
    assert.equal(runs(), 1);
  });

  it("V9: a call that is refused while another runs completes nothing, and a conflict destroys no good record", async () => {
    const on = bench();
    const effect = new Effect();
    const running = processOf(on, 2).start(operationOf({ run: effect.run }));
    await settle();
    const before = await on.memory.read(recordName);
    assert.ok(InProgressError.is(threw(await on.execute(operationOf()))));
    assert.ok(IdempotencyConflictError.is(threw(await on.execute(operationOf(), {}, "another"))));
    assert.equal((await on.memory.read(recordName))?.version, before?.version);
    effect.last.finish("done");
    returned(await running.ends());
    threw(await on.execute(operationOf(), {}, "another"));
    assert.equal(returned(await on.execute(operationOf())).value, "done", "and later callers replay the good one");
  });

  it("V10: a result of nothing is a result: its replay does not run again", async () => {
    for (const nothing of [undefined, null, "", 0, false]) {
      const on = bench();
      const { run, runs } = counting(() => nothing);
      const operation = operationOf({ run });
      await on.execute(operation);
      const { value, replayed } = returned(await on.execute(operation));
      assert.deepEqual([value, replayed, runs()], [nothing, true, 1]);
    }
  });

  it("V10: a store that is away hangs nobody: every call ends by its deadline", async () => {
    for (const fault of ["hangs", "away", "lostRequest", "contended"] as const) {
      const on = bench();
      on.memory.inject(fault, { times: Infinity });
      const end = await on.execute(operationOf({ run: () => assert.fail("ran") }), { deadlineMs: 3_000 });
      threw(end);
      assert.equal(end.tookMs, 3_000, fault);
    }
  });

  it("V12, T3: the same key and input for another operation, or in another scope, is not answered with the first one's", async () => {
    const on = bench();
    returned(await on.execute(operationOf({ run: () => "charged" })));
    assert.ok(IdempotencyConflictError.is(threw(await on.execute(operationOf({ name: "refund" })))));
    const other = returned(await on.execute(operationOf({ run: () => "theirs" }), { scope: "another customer" }));
    assert.deepEqual([other.value, other.replayed], ["theirs", false]);
  });

  it("V12: another key with the same input is another operation, and no conflict", async () => {
    const on = bench();
    returned(await on.execute(operationOf({ run: () => "first" })));
    assert.equal(returned(await on.execute(operationOf({ run: () => "second" }), { key: "k2" })).value, "second");
  });

  it("V12, T7: one lost acknowledgement locks no key: a retried conditional write that meets itself is no conflict", async () => {
    const lost: readonly Fault[] = ["lostReply", "contended", "lostRequest"];
    for (const fault of lost) {
      for (const on of ["create", "replace"] as const) {
        const made = bench();
        made.memory.inject(fault, { on, times: 2 });
        const { run, runs } = counting();
        const { recorded, replayed } = returned(await made.execute(operationOf({ run })));
        assert.deepEqual([recorded, replayed, runs()], [true, false, 1], `${fault} on ${on}`);
      }
    }
  });

  it("V13: after its TTL a key is free at once, with nobody to purge it", async () => {
    const on = bench();
    const { run, runs } = counting();
    const operation = operationOf({ run });
    returned(await on.execute(operation));
    await on.clock.advance(TTL_MS + 1);
    assert.equal(returned(await on.execute(operation)).replayed, false);
    assert.equal(runs(), 2);
  });

  it("V13: bytes are the same bytes, in the first answer and in the replay", async () => {
    const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    for (const inlineBytesMax of [262_144, 0]) {
      const on = bench();
      const operation = operationOf({ run: () => bytes, inlineBytesMax });
      for (const { value } of [returned(await on.execute(operation)), returned(await on.execute(operation))]) {
        assert.ok(value instanceof Uint8Array);
        assert.deepEqual(Uint8Array.from(value), bytes);
      }
    }
  });

  it("T1: an operation whose process crashed is not stuck: its lease ends, and it is recovered", async () => {
    const on = bench();
    await crashIn(on, operationOf());
    const busy = threw(await on.execute(operationOf()));
    assert.ok(InProgressError.is(busy) && busy.retryAfterMs > 0);
    await on.clock.advance(60_001);
    assert.equal(returned(await on.execute(operationOf())).recorded, true);
  });

  it("T1: nor is one whose run never ends, in the process it hangs in", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run, maxRunMs: 40_000 });
    threw(await on.execute(operation));
    await on.clock.advance(120_000);
    const retry = on.start(operation);
    await settle();
    effect.last.finish("second");
    assert.equal(returned(await retry.ends()).value, "second");
    effect.runs[0]?.finish();
  });

  it("T4: which failures are kept is the author's to say, for each error", async () => {
    const on = bench();
    const errors = { final: new Error("declined"), transient: new Error("busy"), unknown: new Error("timeout") };
    const operation = operationOf({
      run: (which) => Promise.reject(errors[which === "final" || which === "transient" ? which : "unknown"]),
      onError: (error) => (error === errors.final ? "replay" : error === errors.transient ? "retry" : "recover"),
    });
    const statuses: unknown[] = [];
    for (const which of ["final", "transient", "unknown"]) {
      threw(await on.execute(operation, { key: which }, which));
    }
    for await (const { name } of on.memory.list("")) statuses.push((await on.stored(name))["status"]);
    assert.deepEqual(statuses, ["ready", "released", "creating"]);
  });

  it("T6: a fingerprint is never lost in silence: one that is nothing, or not JSON, is refused", async () => {
    const on = bench();
    for (const fingerprint of [() => undefined, () => new Map(), () => Number.NaN, async () => 1]) {
      const error = threw(await on.execute(operationOf({ fingerprint })));
      assert.ok(InvalidArgumentError.is(error), String(error));
    }
    assert.deepEqual(on.store.take(), []);
  });

  it("T8: how long an owner is taken to be alive is the author's to say, and it is renewed", async () => {
    const on = bench();
    await crashIn(on, operationOf({ leaseMs: 5_000, recoverAfterMs: 5_000 }));
    await on.clock.advance(10_001);
    returned(await on.execute(operationOf()));
  });

  it("T10: a call may wait for the result instead of an error", async () => {
    const on = bench();
    const effect = new Effect();
    const running = processOf(on, 2).start(operationOf({ run: effect.run }));
    await settle();
    const waiting = on.start(operationOf(), { waitMs: 20_000 });
    await on.clock.advance(3_000);
    effect.last.finish("done");
    assert.equal(returned(await waiting.ends()).value, "done");
    returned(await running.ends());
  });

  it("T12: an operation's own error with one of our codes is not taken for ours, nor ours for its", async () => {
    const on = bench();
    const own = Object.assign(new Error("a booking conflict"), { name: "IdempotencyConflictError", code: "CONFLICT" });
    const operation = operationOf({ onError: () => "replay", run: () => Promise.reject(own) });
    for (const error of [threw(await on.execute(operation)), threw(await on.execute(operation))]) {
      assert.ok(!IdempotencyConflictError.is(error));
      assert.equal(executionOf(error)?.recorded, true);
    }
    const conflict = threw(await on.execute(operation, {}, "another"));
    assert.ok(IdempotencyConflictError.is(conflict));
    assert.equal(executionOf(conflict), undefined);
  });

  it("T13: a replay can be told apart, of values and of errors", async () => {
    const on = bench();
    const failing = operationOf({ onError: () => "replay", run: () => Promise.reject(new Error("no funds")) });
    const told: unknown[] = [];
    for (const call of [1, 2]) {
      told.push(returned(await on.execute(operationOf())).replayed);
      told.push(executionOf(threw(await on.execute(failing, { key: `failing` })))?.replayed, call);
    }
    assert.deepEqual(told, [false, false, 1, true, true, 2]);
  });

  it("T14: no stack and no member of an error that was not chosen is stored, nor the key where it may not be", async () => {
    const on = bench();
    const error = Object.assign(new Error("no funds"), { request: { authorization: "SECRET" } });
    const operation = operationOf({ onError: () => "replay", storeKey: false, run: () => Promise.reject(error) });
    threw(await on.execute(operation));
    const record = await on.stored();
    assert.equal(record["key"], undefined);
    assert.ok(!/SECRET|\.ts:/.test(JSON.stringify(record)));
  });

  it("T15: the record can be looked at: its key, its expiry, and a result that is too large for it", async () => {
    const on = bench({ traits: { recordBytesMax: 2_000 } });
    returned(await on.execute(operationOf({ run: () => "x".repeat(1_900) })));
    const found = await on.idempotency.inspect({ scope: "acme", key: "k1" });
    assert.deepEqual(
      [found?.status, found?.key, found?.stale, found?.result?.kind],
      ["ready", "k1", false, "offloaded"],
    );
    const { expires_at: expiresAt } = await on.stored();
    assert.equal(expiresAt, "2026-01-31T00:00:00.000Z");
  });
});
