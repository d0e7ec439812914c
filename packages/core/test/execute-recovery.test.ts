import assert from "node:assert/strict";
import {
  days,
  executionOf,
  InProgressError,
  OperationHeldError,
  type ErrorMeaning,
  type OperationOptions,
  type Reconciled,
} from "@firstwrite/core";
import { settle } from "@firstwrite/memory";
import {
  aborter,
  bench,
  crashIn,
  Effect,
  leavesNothing,
  operationOf,
  recordName,
  returned,
  threw,
  type Bench,
  type Ending,
} from "./setup.ts";

type Options = Partial<OperationOptions<unknown, unknown>>;

/** An attempt died in its run, and its lease is over. */
async function afterCrash(options: Options = {}, on = bench()): Promise<Bench & { readonly operationId: string }> {
  const operationId = await crashIn(on, operationOf(options));
  await on.clock.advance(3_600_000);
  return { ...on, operationId };
}

const failure = new Error("no funds");
const fails = (): never => {
  throw failure;
};

async function recordOf({ stored }: Pick<Bench, "stored">): Promise<unknown[]> {
  const { status, attempt, takeover, lease_ms: leaseMs, result } = await stored();
  return [status, attempt, takeover, leaseMs, result].filter((value) => value !== undefined);
}

describe("execute: recovery after a takeover (E6)", () => {
  leavesNothing();

  const found = { kind: "value", encoding: "text", body: "the row" };
  const ran = { kind: "value", encoding: "text", body: "ran" };
  const unknowable = new Error("the ledger is away");

  interface Case {
    readonly recovery: NonNullable<Options["recovery"]>;
    readonly answer: string | ((error: unknown) => boolean);
    readonly runs: number;
    readonly record: readonly unknown[];
  }
  const answering = (answer: Reconciled<unknown>): Options["recovery"] & object => ({ reconcile: async () => answer });
  const cases: Readonly<Record<string, Case>> = {
    "reconcile finds the row: it is settled, and nothing runs": {
      recovery: answering({ found: "the row" }),
      answer: "the row",
      runs: 0,
      record: ["ready", 2, true, found],
    },
    "reconcile answers absent: it runs": {
      recovery: answering("absent"),
      answer: "ran",
      runs: 1,
      record: ["ready", 2, true, ran],
    },
    "reconcile answers unknown: held": {
      recovery: answering("unknown"),
      answer: OperationHeldError.is,
      runs: 0,
      record: ["held", 2, true],
    },
    "reconcile throws: as recover": {
      recovery: { reconcile: () => Promise.reject(unknowable) },
      answer: (error) => error === unknowable,
      runs: 0,
      record: ["creating", 2, true, 30_000],
    },
    "reconcile throws at once: as recover": {
      recovery: {
        reconcile() {
          throw unknowable;
        },
      },
      answer: (error) => error === unknowable,
      runs: 0,
      record: ["creating", 2, true, 30_000],
    },
    "reconcile answers something else: as recover, and the error says what to answer": {
      recovery: answering(JSON.parse('"gone"')),
      answer: (error) => String(error).includes('must answer { found: value }, "absent" or "unknown"'),
      runs: 0,
      record: ["creating", 2, true, 30_000],
    },
    "reconcile answers nothing: as recover": {
      recovery: answering(JSON.parse("null")),
      answer: (error) => String(error).includes("must answer"),
      runs: 0,
      record: ["creating", 2, true, 30_000],
    },
    "reconcile finds what cannot be recorded: returned, and held": {
      recovery: answering({ found: 5n }),
      answer: "5",
      runs: 0,
      record: ["held", 2, true],
    },
    "rerun: it runs": { recovery: "rerun", answer: "ran", runs: 1, record: ["ready", 2, true, ran] },
    "hold: held by the takeover itself, with takeover too": {
      recovery: "hold",
      answer: OperationHeldError.is,
      runs: 0,
      record: ["held", 2, true],
    },
  };
  for (const [title, { recovery, answer, runs, record }] of Object.entries(cases)) {
    it(`E6: ${title}`, async () => {
      const on = await afterCrash({ recovery });
      let ran = 0;
      const operation = operationOf({
        recovery,
        run() {
          ran += 1;
          return "ran";
        },
      });
      const end = await on.execute(operation);
      assert.equal(ran, runs);
      assert.deepEqual(await recordOf(on), record);
      if (typeof answer === "string") {
        const { value, operationId, replayed, recorded } = returned(end);
        assert.deepEqual(
          [String(value), operationId, replayed, recorded],
          [answer, on.operationId, false, record[0] === "ready"],
        );
      } else {
        const error = threw(end);
        assert.ok(answer(error), String(error));
        const known = OperationHeldError.is(error) ? error : executionOf(error);
        assert.equal(known?.operationId, on.operationId);
      }
    });
  }

  it("E6: reconcile is not asked before a first attempt, nor after a release", async () => {
    const on = bench();
    let runs = 0;
    const operation = operationOf({
      recovery: { reconcile: () => assert.fail("asked") },
      onError: () => "retry",
      run: () => (runs++ === 0 ? fails() : "ran"),
    });
    assert.equal(threw(await on.execute(operation)), failure);
    assert.equal(returned(await on.execute(operation)).value, "ran");
    assert.deepEqual(await recordOf(on), ["ready", 2, ran]);
  });

  it("E6: what nobody knows is asked again by each call, until the ledger tells", async () => {
    const answers: (Reconciled<unknown> | Error)[] = [unknowable, unknowable, { found: "the row" }];
    const reconcile = async (): Promise<Reconciled<unknown>> => {
      const answer = answers.shift();
      assert.ok(answer);
      if (answer instanceof Error) throw answer;
      return answer;
    };
    const operation = operationOf({ recovery: { reconcile }, recoverAfterMs: 5_000, run: () => assert.fail("ran") });
    const on = await afterCrash({ recovery: { reconcile } });
    for (const attempt of [2, 3]) {
      assert.equal(threw(await on.execute(operation)), unknowable);
      assert.deepEqual(await recordOf(on), ["creating", attempt, true, 5_000]);
      assert.ok(InProgressError.is(threw(await on.execute(operation))), "not before what it sent has landed or died");
      await on.clock.advance(5_001);
    }
    assert.equal(returned(await on.execute(operation)).value, "the row");
  });

  it("E6: a crash in reconcile is recovered by the next attempt, too", async () => {
    const asked = new Effect();
    const recovery = { reconcile: (...given: Parameters<Effect["run"]>) => asked.run(...given).then(() => absent) };
    const on = await afterCrash({ recovery });
    const operationId = await crashIn(on, operationOf({ recovery }));
    assert.deepEqual(await recordOf(on), ["creating", 2, true, 60_000]);
    await on.clock.advance(60_001);
    const call = on.start(operationOf({ recovery, run: () => "ran" }));
    await settle();
    const { context } = asked.last;
    assert.deepEqual([context.operationId, context.attempt], [operationId, 3]);
    asked.last.finish();
    assert.equal(returned(await call.ends()).value, "ran");
  });

  it("E6: hold: a person's, and never run again however often it is called", async () => {
    const on = await afterCrash({ recovery: "hold" });
    for (let call = 0; call < 3; call += 1) {
      const error = threw(await on.execute(operationOf({ recovery: "hold", run: () => assert.fail("ran") })));
      assert.ok(OperationHeldError.is(error));
      await on.clock.advance(days(100));
    }
    assert.deepEqual(await recordOf(on), ["held", 2, true]);
  });

  it("E6: a takeover whose answer is lost is found, and two that want it at once recover once", async () => {
    const on = await afterCrash();
    on.memory.inject("lostReply", { on: "replace" });
    let asked = 0;
    const reconcile = (): Reconciled<unknown> => {
      asked += 1;
      return "absent";
    };
    assert.equal(returned(await on.execute(operationOf({ recovery: { reconcile }, run: () => "ran" }))).value, "ran");
    assert.equal(asked, 1);
    assert.deepEqual(await recordOf(on), ["ready", 2, true, ran]);
  });
});

const absent: Reconciled<unknown> = "absent";

describe("execute: an effect that throws (E7)", () => {
  leavesNothing();

  const recorded = {
    kind: "failure",
    encoding: "json",
    body: { name: "Error", message: "no funds" },
  };

  const afterAbsent = (absentIsFinal?: boolean): Options["recovery"] & object => ({
    reconcile: () => "absent",
    ...(absentIsFinal === undefined ? {} : { absentIsFinal }),
  });

  const cases: readonly [
    title: string,
    options: Options,
    afterTakeover: boolean,
    record: readonly unknown[],
    isRecorded: boolean,
  ][] = [
    ["replay: final", { onError: () => "replay" }, false, ["ready", 1, recorded], true],
    ["retry: released", { onError: () => "retry" }, false, ["released", 1], false],
    ["recover: the lease of recoverAfterMs", { onError: () => "recover" }, false, ["creating", 1, 30_000], false],
    ["recover is the default", {}, false, ["creating", 1, 30_000], false],
    ["recover, with recoverAfterMs 0", { recoverAfterMs: 0 }, false, ["creating", 1, 0], false],
    [
      "an onError that throws is recover",
      {
        onError() {
          throw new Error("onError is broken");
        },
      },
      false,
      ["creating", 1, 30_000],
      false,
    ],
    [
      "an onError that answers something else is recover",
      { onError: () => JSON.parse('"never"') },
      false,
      ["creating", 1, 30_000],
      false,
    ],
    [
      "takeover, rerun: replay is recover, for the owner before may still commit",
      { onError: () => "replay" },
      true,
      ["creating", 2, true, 30_000],
      false,
    ],
    [
      "takeover, absent: replay is recover",
      { onError: () => "replay", recovery: afterAbsent() },
      true,
      ["creating", 2, true, 30_000],
      false,
    ],
    [
      "takeover, absent, absentIsFinal false: replay is recover",
      { onError: () => "replay", recovery: afterAbsent(false) },
      true,
      ["creating", 2, true, 30_000],
      false,
    ],
    [
      "takeover, absent, absentIsFinal: replay is final",
      { onError: () => "replay", recovery: afterAbsent(true) },
      true,
      ["ready", 2, true, recorded],
      true,
    ],
    [
      "takeover: retry speaks for one attempt only, so the next asks again",
      { onError: () => "retry" },
      true,
      ["creating", 2, true, 0],
      false,
    ],
    [
      "takeover, absent, absentIsFinal: retry is never released",
      { onError: () => "retry", recovery: afterAbsent(true) },
      true,
      ["creating", 2, true, 0],
      false,
    ],
    ["takeover: recover", { onError: () => "recover" }, true, ["creating", 2, true, 30_000], false],
  ];
  for (const [title, options, afterTakeover, record, isRecorded] of cases) {
    it(`E7: ${title}`, async () => {
      const on = afterTakeover ? await afterCrash() : bench();
      assert.equal(threw(await on.execute(operationOf({ ...options, run: fails }))), failure);
      assert.deepEqual(await recordOf(on), record);
      const facts = executionOf(failure);
      assert.deepEqual(
        [facts?.recorded, facts?.replayed, facts?.operationId],
        [isRecorded, false, (await on.stored())["operation_id"]],
      );
      const isShutOut = typeof options.recovery === "object" && options.recovery.absentIsFinal === true;
      assert.equal(facts?.earlierMaySucceed ?? false, afterTakeover && !isShutOut);
    });
  }

  it("E7: absentIsFinal counts for this attempt's own reconcile alone", async () => {
    const on = await afterCrash();
    let asked = 0;
    const recovery = { absentIsFinal: true, reconcile: (): Reconciled<unknown> => (asked++ === 0 ? "absent" : absent) };
    const retry = operationOf({ recovery, onError: () => "retry", run: fails });
    threw(await on.execute(retry));
    assert.deepEqual(await recordOf(on), ["creating", 2, true, 0]);
    // The next attempt is a takeover of its own, and does not ask: an earlier answer does not speak for it.
    threw(await on.execute(operationOf({ recovery: "rerun", onError: () => "replay", run: fails })));
    assert.deepEqual(await recordOf(on), ["creating", 3, true, 30_000]);
  });

  it("E7: after retry the next call runs at once, as the next attempt of the same operation", async () => {
    const on = bench();
    threw(await on.execute(operationOf({ onError: () => "retry", run: fails })));
    const { operation_id: operationId } = await on.stored();
    const again = returned(await on.execute(operationOf()));
    assert.equal(again.operationId, operationId);
    assert.equal((await on.stored())["attempt"], 2);
  });

  it("E7: after recover nobody takes over before recoverAfterMs, and then the recovery is asked", async () => {
    const on = bench();
    const recovery = { reconcile: async (): Promise<Reconciled<unknown>> => ({ found: "the row" }) };
    const operation = operationOf({ recovery, recoverAfterMs: 7_000, run: fails });
    threw(await on.execute(operation));
    await on.clock.advance(7_000);
    assert.ok(InProgressError.is(threw(await on.execute(operation))));
    await on.clock.advance(1);
    assert.equal(returned(await on.execute(operation)).value, "the row");
  });

  it("E7: once the signal has aborted onError is not asked: it is recover", async () => {
    for (const why of ["cancelled", "unproved"] as const) {
      const on = bench();
      const effect = new Effect();
      const abort = aborter();
      let asked = 0;
      const onError = (): ErrorMeaning => {
        asked += 1;
        return "replay";
      };
      const operation = operationOf({ onError, run: effect.run });
      const call = on.start(operation, { signal: abort.signal, deadlineMs: 100_000 });
      await settle();
      if (why === "cancelled") {
        abort.abort();
        await settle();
      } else {
        on.memory.inject("away", { times: Infinity });
        await on.clock.advance(60_000);
        on.memory.heal();
      }
      assert.ok(effect.last.context.signal.aborted);
      effect.last.fail(failure);
      await call.ends();
      await settle();
      assert.deepEqual(await recordOf(on), ["creating", 1, 30_000], why);
      assert.equal(asked, 0);
    }
  });

  it("E7: a process that was frozen past its lease is not asked either, though no timer has told the signal", async () => {
    const clock = bench();
    let frozenMs = 0;
    const on = bench({
      runtime: {
        now: () => clock.clock.now(),
        monotonicMs: () => clock.clock.monotonicMs() + frozenMs,
        setTimer: (ms, fire) => clock.clock.setTimer(ms, fire),
        random: () => 0,
        randomBytes: (length) => clock.clock.randomBytes(length),
      },
    });
    const operation = operationOf({
      onError: () => "replay",
      run() {
        frozenMs = 31_000;
        throw failure;
      },
    });
    const end: Ending<unknown> = await on.execute(operation, { deadlineMs: 100_000 });
    assert.equal(threw(end), failure);
    assert.deepEqual(await recordOf(on), ["creating", 1, 30_000]);
  });

  it("E7: records are never deleted on failure", async () => {
    for (const meaning of ["replay", "retry", "recover"] as const) {
      const on = bench();
      threw(await on.execute(operationOf({ onError: () => meaning, run: fails })));
      assert.ok(await on.memory.read(recordName), meaning);
    }
  });
});
