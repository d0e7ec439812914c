import assert from "node:assert/strict";
import { InProgressError, onEvent, OutcomeUnknownError, type Reconciled } from "@firstwrite/core";
import { settle, type Fault } from "@firstwrite/memory";
import {
  bench,
  clockLike,
  crashIn,
  Effect,
  leavesNothing,
  operationOf,
  processOf,
  recordName,
  returned,
  rewrite,
  sleep,
  threw,
  type Bench,
  type Run,
  type Started,
} from "./setup.ts";

const LEASE_MS = 30_000;
const THIRD_MS = 10_000;

interface Running {
  readonly on: Bench;
  readonly run: Run;
  readonly runs: readonly Run[];
  readonly call: Started;
}

/** A call whose run waits for the test, which outlasts every test's time. */
async function running(options: Parameters<typeof operationOf>[0] = {}, on = bench()): Promise<Running> {
  const effect = new Effect();
  const call = on.start(operationOf({ ...options, run: effect.run }), { deadlineMs: 3_000_000 });
  await settle();
  on.store.take();
  return { on, run: effect.last, runs: effect.runs, call };
}

async function ends({ on, run, call }: Running, value: unknown = "done"): Promise<void> {
  run.finish(value);
  const { recorded, ...executed } = returned(await call.ends());
  assert.deepEqual([executed.value, recorded], [value, true]);
  assert.equal((await on.stored())["status"], "ready");
}

describe("execute: the lease (E3)", () => {
  leavesNothing();

  it("E3: is renewed when a third of it has passed, for one replace each, with nothing else changed", async () => {
    for (const leaseMs of [5_000, 30_000, 600_000]) {
      const { on, ...rest } = await running({ leaseMs, maxRunMs: 1e9 });
      const { write_id: first, ...claim } = await on.stored();
      for (let third = 1; third <= 4; third += 1) {
        await on.clock.advance(leaseMs / 3 - 1);
        assert.deepEqual(on.store.take(), []);
        await on.clock.advance(1);
        assert.deepEqual(on.store.take(), ["replace"]);
      }
      const { write_id: last, expires_at: expiresAt, ...renewed } = await on.stored();
      assert.deepEqual({ ...renewed, expires_at: claim["expires_at"] }, claim);
      assert.notEqual(last, first);
      assert.notEqual(expiresAt, claim["expires_at"], "every write sets expires_at anew");
      await ends({ on, ...rest });
      assert.deepEqual(on.store.take(), ["replace"], "and the settling write");
    }
  });

  it("E3: is renewed while reconcile goes on, too", async () => {
    const on = bench();
    await crashIn(on, operationOf());
    await on.clock.advance(60_001);
    const asked = new Effect();
    const call = on.start(operationOf({ recovery: { reconcile: async () => ({ found: await asked.run(0, none) }) } }), {
      deadlineMs: 200_000,
    });
    await settle();
    on.store.take();
    await on.clock.advance(THIRD_MS * 5);
    assert.deepEqual(on.store.take(), Array(5).fill("replace"));
    asked.last.finish("the row");
    assert.equal(returned(await call.ends()).value, "the row");
  });

  it("E3: keeps others out for as long as the run goes on", async () => {
    const { on, ...rest } = await running();
    const other = processOf(on, 5);
    for (let minute = 0; minute < 10; minute += 1) {
      await on.clock.advance(60_000);
      const end = await other.execute(operationOf({ run: () => assert.fail("ran beside it") }));
      assert.ok(InProgressError.is(threw(end)));
    }
    await ends({ on, ...rest });
  });

  it("E3: what is recorded is leaseMs and recoverAfterMs", async () => {
    for (const [recoverAfterMs, leaseMs] of [
      [undefined, 60_000],
      [0, 30_000],
      [5_000, 35_000],
    ] as const) {
      const at = await running(recoverAfterMs === undefined ? {} : { recoverAfterMs });
      assert.equal((await at.on.stored())["lease_ms"], leaseMs);
      await ends(at);
    }
  });

  const faults: readonly Fault[] = ["lostRequest", "lostReply", "landsLate", "contended", "hangs", "denied", "away"];
  for (const fault of faults) {
    // Two that hang, or a third apart are denied, take the two thirds of the lease that are left.
    for (const times of fault === "hangs" || fault === "denied" ? [1] : [1, 2]) {
      it(`E3: a renewal that meets ${fault}, ${times} times, keeps the lease, and the settling write is the last word`, async () => {
        const at = await running();
        const { on, run } = at;
        on.memory.inject(fault, { on: "write", times });
        await on.clock.advance(3 * LEASE_MS);
        while (on.memory.lateWrites > 0) on.memory.land();
        assert.equal(run.context.signal.aborted, false);
        await on.clock.advance(3 * LEASE_MS);
        await ends(at);
        assert.equal((await on.stored())["attempt"], 1);
      });
    }
  }

  it("E3: a renewal that is under way when the run ends is waited for, and not repeated: one write at a time", async () => {
    for (const fault of [undefined, ...faults]) {
      const at = await running();
      const { on, run, call } = at;
      let underWay = 0;
      on.store.travel = async (operation) => {
        if (operation === "read") return;
        assert.equal((underWay += 1), 1, "two writes at once");
        await sleep(on.clock, 1_000);
        underWay -= 1;
      };
      if (fault !== undefined) on.memory.inject(fault, { on: "write" });
      await on.clock.advance(THIRD_MS + 500);
      run.finish("done");
      const before = on.clock.monotonicMs();
      assert.equal(returned(await call.ends()).recorded, true);
      assert.ok(on.clock.monotonicMs() >= before + 1_500, "after the renewal's answer");
      on.store.travel = undefined;
      // The renewal that was left comes late, and is refused.
      while (on.memory.lateWrites > 0) on.memory.land();
      const record = await on.stored();
      assert.deepEqual([record["status"], record["attempt"]], ["ready", 1]);
    }
  });

  it("E5: a renewal that was left unresolved lands just before the settling write: settled again at its version", async () => {
    const at = await running();
    const { on, run, call } = at;
    on.memory.inject("landsLate", { on: "replace" });
    on.store.travelBack = async (operation) => (operation === "replace" ? sleep(on.clock, 500) : undefined);
    await on.clock.advance(THIRD_MS);
    run.finish("done");
    await settle();
    on.store.travelBack = undefined;
    on.store.before = () => {
      if (on.memory.lateWrites > 0) on.memory.land();
    };
    assert.equal(returned(await call.ends()).recorded, true);
    assert.deepEqual(on.store.take(), ["replace", "replace", "read", "replace"]);
    assert.equal((await on.stored())["status"], "ready");
  });

  it("E3: ownership that was lost aborts the signal at the next renewal, and nothing more is written", async () => {
    const heard: unknown[] = [];
    const stop = onEvent("firstwrite:ownership-lost", (message) => heard.push(message));
    const at = await running();
    const { on, run, call } = at;
    await on.clock.advance(THIRD_MS / 2);
    await rewrite(on, { attempt: 2, takeover: true, write_id: "theirs", status: "held", lease_ms: undefined });
    const theirs = await on.memory.read(recordName);
    await on.clock.advance(THIRD_MS / 2);
    assert.ok(run.context.signal.aborted);
    assert.match(String(run.context.signal.reason), /another process has taken the operation over/);
    run.finish("not this");
    threw(await call.ends());
    stop();
    await on.clock.advance(LEASE_MS);
    assert.equal((await on.memory.read(recordName))?.version, theirs?.version);
    const { operation_id: operationId, key_hash: keyHash } = await on.stored();
    assert.deepEqual(heard, [{ operation: "pay", operationId, keyHash, attempt: 1 }]);
  });

  it("E3: a lease that can no longer be proved aborts the signal, at leaseMs from before the last write that succeeded", async () => {
    for (const fault of ["away", "hangs", "lostRequest", "denied"] as const) {
      const at = await running();
      const { on, run } = at;
      await on.clock.advance(THIRD_MS);
      on.memory.inject(fault, { times: Infinity });
      await on.clock.advance(LEASE_MS - 1);
      assert.equal(run.context.signal.aborted, false, fault);
      await on.clock.advance(1);
      assert.equal(run.context.signal.aborted, true, fault);
      assert.match(String(run.context.signal.reason), /could not be renewed in time/);
      on.memory.heal();
      await on.clock.advance(LEASE_MS);
      await ends(at);
    }
  });

  it("E3: is counted from before the sending, however long the claim's answer took", async () => {
    const on = bench();
    on.store.travelBack = () => sleep(on.clock, 4_000);
    const effect = new Effect();
    const call = on.start(operationOf({ run: effect.run }), { deadlineMs: 3_000_000 });
    await on.clock.advance(4_000);
    on.store.travelBack = undefined;
    on.memory.inject("away", { times: Infinity });
    await on.clock.advance(LEASE_MS - 4_001);
    assert.equal(effect.last.context.signal.aborted, false);
    await on.clock.advance(1);
    assert.equal(effect.last.context.signal.aborted, true);
    on.memory.heal();
    await ends({ on, run: effect.last, runs: effect.runs, call });
  });

  it("E3: a renewal is counted from before its sending, too", async () => {
    const at = await running();
    const { on, run } = at;
    on.store.travelBack = () => sleep(on.clock, 4_000);
    await on.clock.advance(THIRD_MS + 4_000);
    on.store.travelBack = undefined;
    on.memory.inject("away", { times: Infinity });
    await on.clock.advance(LEASE_MS - 4_001);
    assert.equal(run.context.signal.aborted, false);
    await on.clock.advance(1);
    assert.equal(run.context.signal.aborted, true);
    on.memory.heal();
    await ends(at);
  });

  it("E3: and from the first sending, where the same bytes were sent again", async () => {
    const on = bench();
    // The first copy's answer is lost after 8 seconds; it had landed at once.
    on.memory.inject("lostReply", { on: "create" });
    on.store.travelBack = async (operation) => (operation === "create" ? sleep(on.clock, 8_000) : undefined);
    const effect = new Effect();
    const call = on.start(operationOf({ run: effect.run }), { deadlineMs: 3_000_000 });
    await on.clock.advance(8_000);
    on.memory.inject("away", { times: Infinity });
    await on.clock.advance(LEASE_MS - 8_001);
    assert.equal(effect.last.context.signal.aborted, false);
    await on.clock.advance(1);
    assert.equal(effect.last.context.signal.aborted, true);
    on.memory.heal();
    await ends({ on, run: effect.last, runs: effect.runs, call });
  });

  it("E3: a renewal's request that hangs leaves time for another before the lease is over", async () => {
    const at = await running({ leaseMs: 9_000 });
    const { on, run } = at;
    on.memory.inject("hangs", { on: "replace" });
    await on.clock.advance(9_000);
    assert.equal(run.context.signal.aborted, false);
    await ends(at);
  });

  it("E3: maxRunMs ends the renewing of a run that hangs: the signal aborts when the lease is over, and others take over", async () => {
    const at = await running({ maxRunMs: 45_000 });
    const { on, run, call } = at;
    await on.clock.advance(45_000);
    assert.equal(on.store.take().length, 4, "the last renewal is the last before maxRunMs");
    await on.clock.advance(24_999);
    assert.equal(run.context.signal.aborted, false);
    await on.clock.advance(1);
    assert.ok(run.context.signal.aborted);
    await on.clock.advance(600_000);
    assert.deepEqual(on.store.take(), []);
    assert.equal(returned(await processOf(on, 6).execute(operationOf())).value !== undefined, true);
    run.finish("too late");
    assert.deepEqual(returned(await call.ends()).value, { paid: 5 }, "E5: the record's, never its own");
  });

  it("E3: a run that ends after its lease was over, with nobody in between, is still recorded", async () => {
    const at = await running({ maxRunMs: 45_000 });
    await at.on.clock.advance(600_000);
    await ends(at);
  });
});

describe("execute: a run starts only while ownership is proved (E3)", () => {
  leavesNothing();

  /** A call whose claim is answered only after `tookMs`. */
  async function slowClaim(tookMs: number, during: (on: Bench) => Promise<unknown> = async () => {}) {
    const on = bench({ requestTimeoutMs: 3_000_000 });
    on.store.travelBack = async (operation) => {
      if (operation === "create") await sleep(on.clock, tookMs);
      else await sleep(on.clock, 100);
    };
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    const call = on.start(operation, { deadlineMs: 3_000_000 });
    await on.clock.advance(tookMs - 1);
    await during(on);
    await on.clock.advance(1);
    return { on, effect, call };
  }

  it("E3: at once, while it is", async () => {
    const { on, effect, call } = await slowClaim(LEASE_MS - 1);
    assert.equal(effect.runs.length, 1);
    assert.equal(effect.last.context.signal.aborted, false);
    effect.last.finish();
    await call.ends();
    await on.clock.advance(1_000);
  });

  it("E3: a claim that took longer than the lease is renewed first, and its run begins with a signal that has not aborted", async () => {
    const { on, effect, call } = await slowClaim(LEASE_MS + 5_000);
    assert.equal(effect.runs.length, 0);
    await on.clock.advance(100);
    assert.equal(effect.runs.length, 1);
    assert.deepEqual(on.store.take(), ["create", "replace"]);
    assert.equal(effect.last.context.signal.aborted, false);
    effect.last.finish("done");
    assert.equal(returned(await call.ends()).recorded, true);
    await on.clock.advance(1_000);
  });

  it("E3: a claim that was taken over before it was answered runs nothing, and its caller gets the other's result", async () => {
    const other = new Effect();
    const { on, effect, call } = await slowClaim(120_000, async (on) => {
      const theirs = processOf(on, 8, { store: on.memory }).start(operationOf({ run: other.run }));
      await settle();
      other.last.finish("theirs");
      returned(await theirs.ends());
    });
    assert.deepEqual(returned(await call.ends()).value, "theirs");
    assert.equal(effect.runs.length, 0);
    await on.clock.advance(1_000);
  });

  it("E3: ownership that was lost before anything began is no unknown outcome, whatever the store does then", async () => {
    const other = new Effect();
    const { on, effect, call } = await slowClaim(120_000, async (on) => {
      processOf(on, 8, { store: on.memory }).start(operationOf({ run: other.run }));
      await settle();
    });
    // The renewal's refusal takes 100 ms, and the read that finds the other 100 more.
    await on.clock.advance(150);
    on.memory.inject("away", { on: "read", times: Infinity });
    const error = threw(await call.ends());
    assert.ok(!OutcomeUnknownError.is(error), String(error));
    assert.equal(effect.runs.length, 0);
    on.memory.heal();
    other.last.finish();
    await on.clock.advance(1_000);
  });

  it("E3: a renewal before the run that cannot be told goes on until the deadline, and nothing runs", async () => {
    const { on, effect, call } = await slowClaim(LEASE_MS + 5_000, async ({ memory }) =>
      memory.inject("away", { times: Infinity }),
    );
    threw(await call.ends());
    assert.equal(effect.runs.length, 0);
    on.memory.heal();
    await on.clock.advance(1_000);
  });

  it("E3: a reconcile that outlasts a lease that could not be renewed is followed by a run that owns it again", async () => {
    const on = bench();
    await crashIn(on, operationOf());
    await on.clock.advance(60_001);
    const asked = new Effect();
    const effect = new Effect();
    const operation = operationOf({
      run: effect.run,
      recovery: { reconcile: (...given) => asked.run(...given).then(() => absent) },
    });
    const call = on.start(operation, { deadlineMs: 3_000_000 });
    await settle();
    on.memory.inject("away", { times: Infinity });
    await on.clock.advance(LEASE_MS);
    assert.ok(asked.last.context.signal.aborted, "reconcile is told");
    asked.last.finish();
    await on.clock.advance(5_000);
    assert.equal(effect.runs.length, 0, "not while it is not known whose it is");
    on.memory.heal();
    await on.clock.advance(2_000);
    assert.equal(effect.runs.length, 1);
    assert.equal(effect.last.context.signal.aborted, false);
    effect.last.finish("done");
    assert.equal(returned(await call.ends()).recorded, true);
  });

  it("E3: a reconcile whose ownership was lost meanwhile is followed by no run, and the call gets what was recorded", async () => {
    const on = bench();
    await crashIn(on, operationOf());
    await on.clock.advance(60_001);
    const asked = new Effect();
    const operation = operationOf({
      run: () => assert.fail("ran"),
      recovery: { reconcile: (...given) => asked.run(...given).then(() => absent) },
    });
    const call = on.start(operation);
    await settle();
    await rewrite(on, { attempt: 3, write_id: "theirs" });
    await on.clock.advance(THIRD_MS);
    asked.last.finish();
    await settle();
    const result = { kind: "value", encoding: "text", body: "theirs" };
    await rewrite(on, { status: "ready", lease_ms: undefined, result, write_id: "theirs too" });
    assert.equal(returned(await call.ends()).value, "theirs");
  });

  it("E4: a process that was frozen past its deadline begins nothing when the claim's answer wakes it before its timers", async () => {
    const { clock } = bench();
    let frozenMs = 0;
    const runtime = { ...clockLike(clock, 3), monotonicMs: () => clock.monotonicMs() + frozenMs };
    const on = bench({ runtime });
    on.store.travelBack = async () => {
      frozenMs = 6_000;
    };
    let runs = 0;
    const call = on.start(operationOf({ run: () => (runs += 1) }), { deadlineMs: 5_000 });
    await clock.advance(10_000);
    assert.equal(runs, 0);
    assert.ok(call.end !== undefined && !OutcomeUnknownError.is(threw(call.end)), "no effect was started");
  });

  it("E4: a deadline that has passed by the time the claim is answered begins nothing", async () => {
    const on = bench();
    on.store.travelBack = async (operation) => (operation === "create" ? sleep(on.clock, 6_000) : undefined);
    const end = await on.execute(operationOf({ run: () => assert.fail("ran") }), { deadlineMs: 5_000 });
    assert.ok(!OutcomeUnknownError.is(threw(end)), "no effect was started");
    await on.clock.advance(10_000);
  });
});

const absent: Reconciled<unknown> = "absent";
const none = { operationId: "", attempt: 0, signal: new AbortController().signal, remainingMs: 0 };
