import assert from "node:assert/strict";
import {
  executionOf,
  IdempotencyConflictError,
  onEvent,
  OperationHeldError,
  OutcomeUnknownError,
  StoreError,
  type FirstwriteEvents,
} from "@firstwrite/core";
import { settle, type Fault } from "@firstwrite/memory";
import {
  bench,
  Effect,
  leavesNothing,
  operationOf,
  processOf,
  recordName,
  returned,
  rewrite,
  threw,
  type Bench,
  type Run,
  type Started,
} from "./setup.ts";

interface Settling {
  readonly on: Bench;
  readonly run: Run;
  readonly call: Started;
  readonly effect: Effect;
}

/** A call in the middle of its run, one second after its claim. */
async function running(options: Parameters<typeof operationOf>[0] = {}, call = {}): Promise<Settling> {
  const on = bench();
  const effect = new Effect();
  const started = on.start(operationOf({ ...options, run: effect.run }), call);
  await on.clock.advance(1_000);
  on.store.take();
  return { on, run: effect.last, call: started, effect };
}

async function heardDuring(act: () => Promise<unknown>): Promise<FirstwriteEvents["firstwrite:not-recorded"][]> {
  const heard: FirstwriteEvents["firstwrite:not-recorded"][] = [];
  const stop = onEvent("firstwrite:not-recorded", (message) => heard.push(message));
  await act();
  stop();
  return heard;
}

const away = (how: Fault) => (on: Bench) => on.memory.inject(how, { times: Infinity });

describe("execute: settling (E5)", () => {
  leavesNothing();

  const faults: readonly Fault[] = ["lostRequest", "lostReply", "landsLate", "contended", "hangs", "away"];
  for (const fault of faults) {
    for (const second of [undefined, ...faults]) {
      it(`E5: the settling write meets ${fault}${second === undefined ? "" : `, then ${second}`}: recorded all the same`, async () => {
        const { on, run, call } = await running({}, { deadlineMs: 100_000 });
        on.memory.inject(fault, { on: "replace" });
        if (second !== undefined) on.memory.inject(second, { on: second === "contended" ? "replace" : "write" });
        run.finish("done");
        const { value, recorded } = returned(await call.ends());
        assert.deepEqual([value, recorded], ["done", true]);
        const before = await on.memory.read(recordName);
        while (on.memory.lateWrites > 0) on.memory.land();
        assert.equal((await on.memory.read(recordName))?.version, before?.version, "what lands later is refused");
        assert.equal((await on.stored())["status"], "ready");
      });
    }
  }

  it("E5: a read that fails is no answer: the write is resolved by the next", async () => {
    for (const fault of ["hangs", "away", "lostReply"] as const) {
      const { on, run, call } = await running({}, { deadlineMs: 100_000 });
      on.memory.inject("lostReply", { on: "replace" });
      on.memory.inject(fault, { on: "read", times: 2 });
      run.finish("done");
      assert.equal(returned(await call.ends()).recorded, true);
      assert.deepEqual(on.store.take(), ["replace", "read", "read", "read"]);
    }
  });

  for (const how of ["away", "hangs", "lostRequest", "contended"] as const) {
    it(`E5: a store that is ${how} until the deadline: the value is returned with recorded: false, not an error`, async () => {
      const { on, run, call } = await running();
      const { operationId } = run.context;
      const heard = await heardDuring(async () => {
        away(how)(on);
        run.finish({ paid: 5 });
        const end = await call.ends();
        assert.deepEqual(returned(end), { value: { paid: 5 }, operationId, replayed: false, recorded: false });
        assert.equal(end.tookMs, 30_000);
        await on.clock.advance(60_000);
      });
      assert.deepEqual(
        heard.map(({ reason, operationId: id, operation }) => [reason, id, operation]),
        [["store", operationId, "pay"]],
        "and an event says so",
      );
      // To be contended is an answer, and no trouble.
      assert.equal(heard[0]?.cause instanceof Error, how !== "contended", "with what the store last said");
      on.memory.heal();
      assert.equal((await on.stored())["status"], "creating", "the next call recovers");
    });
  }

  it("E5: an error of the run is thrown with recorded: false, not hidden by the store's", async () => {
    const { on, run, call } = await running({ onError: () => "replay" });
    away("away")(on);
    const failure = new Error("no funds");
    run.fail(failure);
    assert.equal(threw(await call.ends()), failure);
    const { operationId } = run.context;
    assert.deepEqual(executionOf(failure), { operationId, replayed: false, recorded: false });
    await on.clock.advance(60_000);
  });

  it("E5: a denial is final: recorded: false at once, with the denial in the event", async () => {
    const { on, run, call } = await running();
    const heard = await heardDuring(async () => {
      on.memory.inject("denied", { on: "replace" });
      run.finish("done");
      const end = await call.ends();
      assert.deepEqual([returned(end).recorded, end.tookMs], [false, 1_000]);
    });
    assert.ok(StoreError.is(heard[0]?.cause) && heard[0].cause.code === "PERMISSION_DENIED");
  });

  it("E5: a record that cannot be read back is no loss: recorded: false", async () => {
    const { on, run, call } = await running();
    const found = await on.memory.read(recordName);
    assert.ok(found);
    await on.memory.replace(recordName, found.version, Buffer.from("{"));
    run.finish("done");
    assert.equal(returned(await call.ends()).recorded, false);
  });

  it("E5: what was left unrecorded is recorded in time for later calls when the store comes back before the flight ends", async () => {
    const { on, run, call } = await running({}, { deadlineMs: 10_000 });
    await on.clock.advance(5_000);
    on.memory.inject("away", { times: Infinity });
    run.finish("done");
    assert.equal(returned(await call.ends()).recorded, false);
    on.memory.heal();
    await on.clock.advance(5_000);
    const { status, result } = await on.stored();
    assert.deepEqual([status, result], ["ready", { kind: "value", encoding: "text", body: "done" }]);
  });

  it("E5: that body under another version is still ours: replaced again, at the version read", async () => {
    const { on, run, call } = await running();
    const found = await on.memory.read(recordName);
    assert.ok(found);
    // A restored backup, or a server that gives the same bytes another version.
    await on.memory.replace(recordName, found.version, found.bytes);
    run.finish("done");
    assert.equal(returned(await call.ends()).recorded, true);
    assert.deepEqual(on.store.take(), ["replace", "read", "replace"]);
  });
});

describe("execute: ownership that was lost (E5)", () => {
  leavesNothing();

  const theirResult = { kind: "value", encoding: "text", body: "theirs" };
  const theirFailure = { kind: "failure", encoding: "json", body: { name: "Declined", message: "theirs" } };

  /** Another owner's record at the time of the settling write, and in the end. */
  const losses: Readonly<
    Record<string, readonly [now: Record<string, unknown>, later: Record<string, unknown> | undefined, answer: string]>
  > = {
    "a result": [{ status: "ready", lease_ms: undefined, result: theirResult }, undefined, "theirs"],
    "a failure": [{ status: "ready", lease_ms: undefined, result: theirFailure }, undefined, "Declined: theirs"],
    "a run that ends well": [{}, { status: "ready", lease_ms: undefined, result: theirResult }, "theirs"],
    "a run that fails": [{}, { status: "ready", lease_ms: undefined, result: theirFailure }, "Declined: theirs"],
    "a run that is held": [{}, { status: "held", lease_ms: undefined }, "HELD"],
    "a lease of 0, which somebody takes": [
      { lease_ms: 0 },
      { status: "ready", lease_ms: undefined, result: theirResult },
      "theirs",
    ],
    "a run that goes on past the deadline": [{}, undefined, "OUTCOME_UNKNOWN"],
    "a release that nobody takes": [{ status: "released", lease_ms: undefined }, undefined, "OUTCOME_UNKNOWN"],
    "another operation": [{ operation_id: "another" }, undefined, "OUTCOME_UNKNOWN"],
    "another operation, whose result is not its own": [
      { operation_id: "another", status: "ready", lease_ms: undefined, result: theirResult },
      undefined,
      "OUTCOME_UNKNOWN",
    ],
    "a record of a later format": [{ format: 2 }, undefined, "OUTCOME_UNKNOWN"],
  };
  for (const [title, [now, later, answer]] of Object.entries(losses)) {
    for (const own of ["value", "error"] as const) {
      it(`E5: to ${title}, with ${own === "value" ? "a value" : "an error"} of its own: ${answer}`, async () => {
        const { on, run, call, effect } = await running({ onError: () => "replay" });
        await rewrite(on, { attempt: 2, takeover: true, write_id: "theirs", ...now });
        if (own === "value") run.finish("mine");
        else run.fail(new Error("mine"));
        await on.clock.advance(9_000);
        if (later !== undefined) await rewrite(on, { write_id: "theirs later", ...later });
        const theirs = await on.memory.read(recordName);
        const end = await call.ends();
        assert.equal(answerOf(end), answer);
        assert.ok(end.tookMs <= 30_000);
        assert.equal((await on.memory.read(recordName))?.version, theirs?.version, "nothing more is written");
        assert.equal(on.store.take().filter((operation) => operation !== "read").length, 1);
        assert.equal(effect.runs.length, 1, "nor run");
        if (end.kind === "threw" && OutcomeUnknownError.is(end.error)) {
          assert.equal(end.error.operationId, run.context.operationId);
        }
      });
    }
  }

  for (const itsEnd of ["goes on", "is settled", "is released"]) {
    it(`E5: what was released with its answer lost, and another input's operation ${itsEnd}: nothing more is written`, async () => {
      const { on, run, call, effect } = await running({ onError: () => "retry" });
      const other = new Effect();
      const second = processOf(on, 7, { store: on.memory }).start(
        operationOf({ run: other.run, onError: () => "retry" }),
        {},
        { amount: 6 },
      );
      assert.ok(IdempotencyConflictError.is(threw(await second.ends())), "while it is going on");
      on.memory.inject("lostReply", { on: "replace" });
      let theirs: Started | undefined;
      on.store.travel = async (request) => {
        if (request !== "read" || theirs !== undefined) return;
        theirs = processOf(on, 8, { store: on.memory }).start(
          operationOf({ run: other.run, onError: () => "retry" }),
          {},
          { amount: 6 },
        );
        while (other.runs.length === 0) await settle();
        if (itsEnd === "is settled") other.last.finish("theirs");
        if (itsEnd === "is released") other.last.fail(new Error("theirs"));
        if (itsEnd !== "goes on") await theirs.ends();
      };
      run.fail(new Error("mine"));
      const error = threw(await call.ends());
      assert.ok(OutcomeUnknownError.is(error), String(error));
      assert.equal(error.operationId, run.context.operationId);
      const { operation_id: operationId, status } = await on.stored();
      assert.equal(operationId, other.last.context.operationId);
      assert.notEqual(operationId, run.context.operationId);
      assert.equal(status, { "goes on": "creating", "is settled": "ready", "is released": "released" }[itsEnd]);
      assert.equal(on.store.take().filter((request) => request !== "read").length, 1);
      assert.deepEqual([effect.runs.length, other.runs.length], [1, 1]);
      if (itsEnd === "goes on") other.last.finish("theirs");
      await theirs?.ends();
    });
  }

  it("E5: to nobody: a record that was removed is not made again", async () => {
    const { on, run, call } = await running();
    on.memory.expire(recordName);
    run.finish("mine");
    assert.ok(OutcomeUnknownError.is(threw(await call.ends())));
    assert.equal(await on.memory.read(recordName), undefined);
  });

  it("E5: an earlier owner's late settling write is refused by the record it lost", async () => {
    const { on, run, call } = await running();
    on.memory.inject("landsLate", { on: "replace" });
    run.finish("mine");
    await settle();
    await rewrite(on, { attempt: 2, takeover: true, write_id: "theirs" });
    on.memory.land();
    assert.ok(OutcomeUnknownError.is(threw(await call.ends())));
    const { status, attempt } = await on.stored();
    assert.deepEqual([status, attempt], ["creating", 2]);
  });

  it("E5: waits beyond its waitMs, to its deadline, with a store that is away in between", async () => {
    const { on, run, call } = await running({}, { waitMs: 100, deadlineMs: 25_000 });
    await rewrite(on, { attempt: 2, write_id: "theirs" });
    run.finish("mine");
    await on.clock.advance(5_000);
    on.memory.inject("away", { times: 5 });
    await on.clock.advance(15_000);
    assert.equal(call.end, undefined);
    const end = await call.ends();
    assert.ok(OutcomeUnknownError.is(threw(end)));
    assert.equal(end.tookMs, 25_000);
  });
});

function answerOf(end: Awaited<ReturnType<Started["ends"]>>): unknown {
  if (end.kind === "returned") {
    assert.deepEqual([end.value.recorded, end.value.replayed], [true, true]);
    return end.value.value;
  }
  if (OutcomeUnknownError.is(end.error) || OperationHeldError.is(end.error)) return end.error.code;
  return String(end.error);
}
