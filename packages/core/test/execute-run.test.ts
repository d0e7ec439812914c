import assert from "node:assert/strict";
import { InvalidArgumentError, OutcomeUnknownError, type EffectContext, type Reconciled } from "@firstwrite/core";
import { settle } from "@firstwrite/memory";
import {
  aborter,
  bench,
  crashIn,
  Effect,
  isStoreError,
  leavesNothing,
  operationOf,
  recordName,
  returned,
  sleep,
  threw,
  type Bench,
} from "./setup.ts";

describe("execute: what an effect is told (E4)", () => {
  leavesNothing();

  it("E4: the operation's ID and attempt of the record, in every attempt the same ID", async () => {
    const on = bench();
    const told: EffectContext[] = [];
    const note = (_: unknown, context: EffectContext) => void told.push(context);
    const operationId = await crashIn(on, operationOf());
    await on.clock.advance(60_001);
    const reconcile = (...given: Parameters<typeof note>): Reconciled<unknown> => {
      note(...given);
      return "absent";
    };
    returned(await on.execute(operationOf({ run: note, recovery: { reconcile } })));
    assert.deepEqual(
      told.map((context) => [context.operationId, context.attempt]),
      [
        [operationId, 2],
        [operationId, 2],
      ],
    );
    assert.equal((await on.stored())["attempt"], 2);
  });

  it("E4: remainingMs is until the last deadline of those who wait, counted when it is read, destructured too", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    const calls = [10_000, 20_000].map((deadlineMs) => on.start(operation, { deadlineMs }));
    await settle();
    const { context } = effect.last;
    const left = () => {
      const { remainingMs } = context;
      return remainingMs;
    };
    assert.equal(left(), 20_000);
    await on.clock.advance(15_000);
    assert.equal(left(), 5_000);
    const { remainingMs, ...others } = context;
    assert.equal(remainingMs, 5_000);
    assert.deepEqual(Object.keys(others), ["operationId", "attempt", "signal", "settlingWrite"]);
    await on.clock.advance(5_000);
    assert.equal(left(), 0, "nobody waits any more");
    await on.clock.advance(60_000);
    assert.equal(left(), 0);
    effect.last.finish();
    for (const call of calls) threw(await call.ends());
  });

  it("E4: a call that ends by its deadline during the run is told OutcomeUnknownError, and what is recorded later is its retry's", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    const end = await on.execute(operation, { deadlineMs: 5_000 });
    const error = threw(end);
    assert.ok(OutcomeUnknownError.is(error));
    const record = await on.stored();
    assert.deepEqual(
      [end.tookMs, error.code, error.operationId, error.keyHash],
      [5_000, "OUTCOME_UNKNOWN", record["operation_id"], record["key_hash"]],
    );
    assert.match(error.message, /send it again with the same key/);
    await on.clock.advance(120_000);
    effect.last.finish("late");
    await settle();
    const again = returned(await on.execute(operation));
    assert.deepEqual([again.value, again.replayed], ["late", true]);
  });

  it("E4: settling has a further deadlineMs after the run's end, and then nothing more is sent", async () => {
    const on = bench();
    const effect = new Effect();
    threw(await on.execute(operationOf({ run: effect.run }), { deadlineMs: 5_000 }));
    await on.clock.advance(1_000);
    on.memory.inject("away", { times: Infinity });
    effect.last.finish("late");
    await on.clock.advance(5_000);
    on.store.take();
    await on.clock.advance(60_000);
    assert.deepEqual(on.store.take(), []);
    on.memory.heal();
  });

  it("E4: the upload of a large result is within the same deadlineMs", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run, inlineBytesMax: 0 });
    threw(await on.execute(operation, { deadlineMs: 5_000 }));
    on.store.travelBack = async (_, name) => (name.endsWith(".result") ? sleep(on.clock, 4_000) : undefined);
    on.memory.inject("away", { on: "replace", times: Infinity });
    effect.last.finish("late");
    await on.clock.advance(5_000);
    on.store.take();
    await on.clock.advance(60_000);
    assert.deepEqual(on.store.take(), []);
    on.memory.heal();
  });

  it("E4: a call that is cancelled during the run ends at once, with the reason as the cause", async () => {
    const on = bench();
    const effect = new Effect();
    const abort = aborter();
    const reason = new Error("hung up");
    const call = on.start(operationOf({ run: effect.run }), { signal: abort.signal });
    await on.clock.advance(1_000);
    abort.abort(reason);
    await settle();
    const { end } = call;
    assert.ok(end);
    const error = threw(end);
    assert.ok(OutcomeUnknownError.is(error));
    assert.equal(error.cause, reason);
    assert.equal(effect.last.context.signal.reason, reason);
    effect.last.fail(effect.last.context.signal.reason);
    await settle();
    const { status, lease_ms: leaseMs } = await on.stored();
    assert.deepEqual([status, leaseMs], ["creating", 30_000], "E7: once the signal has aborted it is recover");
  });

  it("a call that is cancelled before anything began ends with its signal's reason, and nothing ran", async () => {
    const on = bench();
    const abort = aborter();
    on.memory.inject("hangs");
    const call = on.start(operationOf({ run: () => assert.fail("ran") }), { signal: abort.signal });
    await on.clock.advance(1_000);
    const reason = new Error("hung up");
    abort.abort(reason);
    assert.equal(threw(await call.ends()), reason);
    assert.equal(await on.memory.read(recordName), undefined);
  });

  it("one effect per call: a run that fails in every way is not started again by the same call", async () => {
    for (const meaning of ["replay", "retry", "recover"] as const) {
      const on = bench();
      let runs = 0;
      const failure = new Error("no");
      const operation = operationOf({
        onError: () => meaning,
        run() {
          runs += 1;
          throw failure;
        },
      });
      assert.equal(threw(await on.execute(operation, { waitMs: 20_000 })), failure);
      assert.equal(runs, 1, meaning);
    }
  });
});

describe("execute: the input is a copy (E4)", () => {
  leavesNothing();

  const given = () => ({ amount: 5, to: { iban: "x" } });

  it("E4: what the caller changes after the call is nobody's input, and the fingerprint is of what was sent", async () => {
    const on = bench();
    const mine = given();
    const operation = operationOf({ run: (input) => input });
    const call = on.start(operation, {}, mine);
    mine.to.iban = "changed";
    assert.deepEqual(returned(await call.ends()).value, given());
    assert.deepEqual(returned(await on.execute(operation, {}, given())).value, given());
  });

  it("E4: what run changes is not the caller's, and no other record is settled", async () => {
    const on = bench();
    const mine = given();
    const operation = operationOf({ run: (input) => Object.assign(Object(input), { amount: 6 }) });
    returned(await on.execute(operation, {}, mine));
    assert.deepEqual(mine, given());
    assert.deepEqual(returned(await on.execute(operation, {}, given())).value, { ...given(), amount: 6 });
  });

  it("E4: what reconcile changes is not what run gets", async () => {
    const on = bench();
    const seen: unknown[] = [];
    const operation = operationOf({
      recovery: {
        reconcile(input) {
          seen.push(structuredClone(input));
          Object.assign(Object(input), { amount: 6 });
          return "absent";
        },
      },
      run: (input) => void seen.push(input),
    });
    await crashIn(on, operation);
    await on.clock.advance(60_001);
    returned(await on.execute(operation));
    assert.deepEqual(seen, [{ amount: 5 }, { amount: 5 }]);
  });

  it("E4: the copy is what structuredClone makes of it, for what is no plain data too", async () => {
    const shared = { a: 1 };
    const inputs: readonly unknown[] = [
      /(?<cents>\d+)/.exec("pay 5"),
      Object.assign(Array(3), { 1: "between holes" }),
      new Map([[1, { at: new Date(0) }]]),
      Uint8Array.from([1, 2]),
      Object.assign(Object.create(null), { a: 1 }),
      [shared, shared],
      JSON.parse('{"__proto__":{"x":1}}'),
    ];
    for (const [nth, given] of inputs.entries()) {
      const on = bench();
      const seen: unknown[] = [];
      const operation = operationOf({ fingerprint: () => nth, run: (input) => void seen.push(input) });
      returned(await on.execute(operation, {}, given));
      assert.deepEqual(seen, [structuredClone(given)]);
      assert.notEqual(seen[0], given);
    }
  });

  it("E4: an input that cannot be copied is refused with what to give instead, before any request", async () => {
    const on = bench();
    const operation = operationOf({ fingerprint: () => 1 });
    for (const input of [{ close: () => {} }, () => {}]) {
      const error = threw(await on.execute(operation, {}, input));
      assert.ok(InvalidArgumentError.is(error));
      assert.match(error.message, /^the input of "pay" cannot be copied: give plain data, or a copyInput of your own/);
    }
    assert.deepEqual(on.store.take(), []);
  });

  it("E4: copyInput copies it another way", async () => {
    const on = bench();
    class Money {
      readonly amount: unknown;
      constructor(amount: unknown) {
        this.amount = amount;
      }
    }
    const operation = operationOf({
      copyInput: (input) => new Money(Reflect.get(Object(input), "amount")),
      run: (input) => input instanceof Money && input.amount,
    });
    assert.equal(returned(await on.execute(operation, {}, new Money(7))).value, 7);
  });
});

describe("execute: wrong arguments are refused before any request", () => {
  leavesNothing();
  const wrong: readonly [title: string, call: (on: Bench) => Promise<unknown>, message: RegExp][] = [
    [
      "waitMs below 0",
      (on) => on.execute(operationOf(), { waitMs: -1 }),
      /^waitMs is -1: give milliseconds, 0 or more$/,
    ],
    ["waitMs that is no number", (on) => on.execute(operationOf(), { waitMs: NaN }), /^waitMs is NaN/],
    ["waitMs as text", (on) => on.execute(operationOf(), JSON.parse('{"waitMs":"5"}')), /^waitMs is 5/],
    ["a deadline of an hour", (on) => on.execute(operationOf(), { deadlineMs: 3_600_000 }), /less than an hour/],
    ["a misspelt option", (on) => on.execute(operationOf(), JSON.parse('{"waitsMs":5}')), /cannot have "waitsMs"/],
    [
      "a controller for a signal",
      (on) => on.execute(operationOf(), JSON.parse('{"signal":{}}')),
      /must be an AbortSignal/,
    ],
    [
      "an empty key",
      (on) => on.execute(operationOf(), { key: "" }),
      /the idempotency key must be a string that is not empty/,
    ],
    [
      "an input that is not JSON",
      (on) => on.execute(operationOf(), {}, { big: 1n }),
      /^the fingerprint of the input\.big is of type bigint/,
    ],
    ["no operation", (on) => on.execute(JSON.parse("null")), /^the operation must be an object$/],
    ["an operation that is not defined", (on) => on.execute(JSON.parse("{}")), /must come from defineOperation/],
  ];
  for (const [title, call, message] of wrong) {
    it(title, async () => {
      const on = bench();
      const end: unknown = await call(on);
      assert.ok(typeof end === "object" && end !== null && "error" in end);
      assert.ok(InvalidArgumentError.is(end.error), String(end.error));
      assert.match(end.error.message, message);
      assert.deepEqual(on.store.take(), []);
    });
  }

  it("what a fingerprint throws is thrown on", async () => {
    const on = bench();
    const thrown = new Error("no account");
    const fingerprint = () => {
      throw thrown;
    };
    assert.equal(threw(await on.execute(operationOf({ fingerprint }))), thrown);
    assert.deepEqual(on.store.take(), []);
  });

  it("a denied claim is thrown at once, and nothing ran", async () => {
    const on = bench();
    on.memory.inject("denied");
    const end = await on.execute(operationOf({ run: () => assert.fail("ran") }));
    isStoreError(threw(end), "PERMISSION_DENIED");
    assert.equal(end.tookMs, 0);
  });
});
