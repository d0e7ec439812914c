import assert from "node:assert/strict";
import { days, defineOperation, InvalidArgumentError, type OperationOptions } from "@firstwrite/core";
import { untyped } from "./setup.ts";

const good: OperationOptions<unknown, unknown> = { name: "pay", run: () => 1, recovery: "rerun" };

describe("defineOperation refuses every mistake, and says what to write", () => {
  const mistakes: readonly [title: string, options: unknown, message: RegExp][] = [
    ["no options", undefined, /^what defineOperation takes must be an object$/],
    ["a misspelt option", { ...good, leaseMS: 5 }, /cannot have "leaseMS": it takes name, run, recovery, onError/],
    ["no name", { ...good, name: undefined }, /^the operation's name must be a string of 1 to 200 characters$/],
    ["an empty name", { ...good, name: "" }, /name must be a string of 1 to 200/],
    ["a name of 201 characters", { ...good, name: "n".repeat(201) }, /name must be a string of 1 to 200/],
    ["no run", { ...good, run: undefined }, /^run, the effect, must be a function$/],
    ["a run that is a promise", { ...good, run: Promise.resolve(1) }, /^run, the effect, must be a function$/],
    [
      "no recovery",
      { name: "pay", run: good.run },
      /^recovery says what to do when .* died in the middle of run: give \{ reconcile \} .* "rerun" .* or "hold"/,
    ],
    ["an unknown recovery", { ...good, recovery: "retry" }, /give \{ reconcile \} to ask the ledger, "rerun"/],
    ["a recovery of null", { ...good, recovery: null }, /give \{ reconcile \}/],
    ["a recovery without reconcile", { ...good, recovery: {} }, /^recovery\.reconcile, .* must be a function$/],
    [
      "a reconcile that is none",
      { ...good, recovery: { reconcile: "ask" } },
      /^recovery\.reconcile, .* must be a function$/,
    ],
    [
      "a misspelt member of recovery",
      { ...good, recovery: { reconcile: good.run, absentIsfinal: true } },
      /^recovery cannot have "absentIsfinal": it takes reconcile, absentIsFinal$/,
    ],
    [
      "an absentIsFinal in words",
      { ...good, recovery: { reconcile: good.run, absentIsFinal: "yes" } },
      /^recovery\.absentIsFinal must be true or false$/,
    ],
    ...["onError", "fingerprint", "serializeError", "deserializeError", "copyInput"].map(
      (name): [string, unknown, RegExp] => [
        `a ${name} that is none`,
        { ...good, [name]: "no" },
        new RegExp(`^${name}, where it is given, must be a function$`),
      ],
    ),
    ["a keyTime in words", { ...good, keyTime: "uuid" }, /^keyTime must be true or false$/],
    ["a storeKey in words", { ...good, storeKey: "no" }, /^storeKey must be true or false$/],
    ["a lease below 5 seconds", { ...good, leaseMs: 4_999 }, /^leaseMs is 4999: give .*5000 to 3600000.* milliseconds/],
    ["a lease above an hour", { ...good, leaseMs: 3_600_001 }, /^leaseMs is 3600001/],
    ["a lease that is no number", { ...good, leaseMs: Number.NaN }, /^leaseMs is NaN/],
    ["a lease as text, from the environment", { ...good, leaseMs: "30000" }, /^leaseMs is 30000: give/],
    ["a lease of a fraction, which no record holds", { ...good, leaseMs: 60_000 / 7 }, /^leaseMs is 8571\.42/],
    [
      "a recoverAfterMs that is too short",
      { ...good, recoverAfterMs: 1 },
      /^recoverAfterMs is 1: .* or 0 where the ledger is unique/,
    ],
    ["a negative recoverAfterMs", { ...good, recoverAfterMs: -1 }, /^recoverAfterMs is -1/],
    ["a recoverAfterMs above an hour", { ...good, recoverAfterMs: 3_600_001 }, /^recoverAfterMs is 3600001/],
    ["a recoverAfterMs as text", { ...good, recoverAfterMs: "5000" }, /^recoverAfterMs is 5000: give/],
    ["a recoverAfterMs of a fraction", { ...good, recoverAfterMs: 5_000.5 }, /^recoverAfterMs is 5000\.5/],
    [
      "a maxRunMs below the lease",
      { ...good, maxRunMs: 29_999 },
      /^maxRunMs is 29999: give .* at least leaseMs \(30000\)/,
    ],
    ["an endless maxRunMs", { ...good, maxRunMs: Infinity }, /^maxRunMs is Infinity/],
    ["a maxRunMs as text", { ...good, maxRunMs: "60000" }, /^maxRunMs is 60000: give/],
    [
      "a negative inlineBytesMax",
      { ...good, inlineBytesMax: -1 },
      /^inlineBytesMax is -1: give whole bytes, 0 or more$/,
    ],
    ["a half byte", { ...good, inlineBytesMax: 0.5 }, /^inlineBytesMax is 0\.5/],
    [
      "a TTL that is shorter than its retries",
      { ...good, retention: { retryWindowMs: days(30) } },
      /^retention\.ttlMs is .*, less than .* and a day: give at least/,
    ],
    ["a misspelt retention", { ...good, retention: { ttl: 1 } }, /^retention cannot have "ttl"/],
  ];
  for (const [title, options, message] of mistakes) {
    it(title, () => {
      assert.throws(
        () => untyped(defineOperation, undefined, [options]),
        (error) => {
          assert.ok(InvalidArgumentError.is(error), String(error));
          assert.match(error.message, message);
          return true;
        },
      );
    });
  }

  it("has the defaults of protocol §3, and cannot be changed afterwards", () => {
    const reconcile = () => "absent" as const;
    const defined = defineOperation({ ...good, recovery: { reconcile } });
    const { name, run, recovery, leaseMs, recoverAfterMs, maxRunMs, inlineBytesMax, keyTime, retention } = defined;
    assert.deepEqual(
      { name, run, recovery, leaseMs, recoverAfterMs, maxRunMs, inlineBytesMax, keyTime, retention },
      {
        ...good,
        recovery: { reconcile, absentIsFinal: false },
        leaseMs: 30_000,
        recoverAfterMs: 30_000,
        maxRunMs: 3_600_000,
        inlineBytesMax: 262_144,
        keyTime: false,
        retention: { retryWindowMs: 0, brokerDelayMs: 0, auditMs: 0, ttlMs: days(30) },
      },
    );
    assert.equal(defined.onError(new Error("no")), "recover");
    for (const part of [defined, defined.recovery, defined.retention]) assert.ok(Object.isFrozen(part));
  });

  it("recoverAfterMs is leaseMs where it is not given, and the limits are taken", () => {
    for (const leaseMs of [5_000, 3_600_000]) {
      assert.equal(defineOperation({ ...good, leaseMs, maxRunMs: leaseMs }).recoverAfterMs, leaseMs);
    }
    for (const recoverAfterMs of [0, 5_000, 3_600_000]) {
      assert.equal(defineOperation({ ...good, recoverAfterMs }).recoverAfterMs, recoverAfterMs);
    }
  });
});
