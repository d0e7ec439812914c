import assert from "node:assert/strict";
import * as core from "@firstwrite/core";
import {
  brandedError,
  IdempotencyConflictError,
  IdempotencyError,
  InProgressError,
  InvalidArgumentError,
  KeyTooOldError,
  OperationHeldError,
  OutcomeUnknownError,
  ResultGoneError,
  StoreError,
  UnsupportedRecordError,
} from "@firstwrite/core";

const facts = { operationId: "op", keyHash: "sha256:00" };

type Errors = Pick<
  typeof core,
  | "IdempotencyError"
  | "InvalidArgumentError"
  | "IdempotencyConflictError"
  | "InProgressError"
  | "KeyTooOldError"
  | "OperationHeldError"
  | "OutcomeUnknownError"
  | "ResultGoneError"
  | "UnsupportedRecordError"
  | "StoreError"
>;

/** One of each, by its name. */
function madeBy(copy: Errors): Readonly<Record<string, Error & { code: string }>> {
  return {
    IdempotencyError: new copy.IdempotencyError("CONFLICT", "m", facts),
    InvalidArgumentError: new copy.InvalidArgumentError("m", { cause: "c" }),
    IdempotencyConflictError: new copy.IdempotencyConflictError("m", facts),
    InProgressError: new copy.InProgressError("m", 5, facts, { cause: "c" }),
    KeyTooOldError: new copy.KeyTooOldError("m", facts),
    OperationHeldError: new copy.OperationHeldError("m", facts),
    OutcomeUnknownError: new copy.OutcomeUnknownError("m", facts, { cause: "c" }),
    ResultGoneError: new copy.ResultGoneError("m", facts),
    UnsupportedRecordError: new copy.UnsupportedRecordError("m", facts),
    StoreError: new copy.StoreError("CORRUPT", "memory", "m", { cause: "c" }),
  };
}

const is: Readonly<Record<string, (x: unknown) => boolean>> = {
  IdempotencyError: (x) => IdempotencyError.is(x),
  InvalidArgumentError: (x) => InvalidArgumentError.is(x),
  IdempotencyConflictError: (x) => IdempotencyConflictError.is(x),
  InProgressError: (x) => InProgressError.is(x),
  KeyTooOldError: (x) => KeyTooOldError.is(x),
  OperationHeldError: (x) => OperationHeldError.is(x),
  OutcomeUnknownError: (x) => OutcomeUnknownError.is(x),
  ResultGoneError: (x) => ResultGoneError.is(x),
  UnsupportedRecordError: (x) => UnsupportedRecordError.is(x),
  StoreError: (x) => StoreError.is(x),
};

const codes: Readonly<Record<string, string>> = {
  IdempotencyError: "CONFLICT",
  InvalidArgumentError: "INVALID_ARGUMENT",
  IdempotencyConflictError: "CONFLICT",
  InProgressError: "IN_PROGRESS",
  KeyTooOldError: "KEY_TOO_OLD",
  OperationHeldError: "HELD",
  OutcomeUnknownError: "OUTCOME_UNKNOWN",
  ResultGoneError: "RESULT_GONE",
  UnsupportedRecordError: "UNSUPPORTED_RECORD",
  StoreError: "CORRUPT",
};

describe("errors", () => {
  it("P7: are recognised across package copies, each by its own name and as what they extend", async () => {
    // The query makes Node load the two modules a second time, as a second installed copy is.
    const specifiers = ["../src/errors.ts?copy", "../src/store-error.ts?copy"];
    const [errors, storeErrors]: [Omit<Errors, "StoreError">, Pick<Errors, "StoreError">] = [
      await import(specifiers[0] ?? ""),
      await import(specifiers[1] ?? ""),
    ];
    const copy: Errors = { ...errors, ...storeErrors };
    for (const [name, error] of Object.entries(madeBy(copy))) {
      assert.ok(!(error instanceof IdempotencyError) && !(error instanceof StoreError), "it is another copy's");
      const recognised = Object.keys(is).filter((as) => is[as]?.(error));
      const expected = name === "StoreError" || name === "IdempotencyError" ? [name] : ["IdempotencyError", name];
      assert.deepEqual(recognised, expected);
    }
  });

  it("have a name and a code, in their text and stack", () => {
    for (const [name, error] of Object.entries(madeBy(core))) {
      assert.ok(error instanceof Error);
      assert.equal(error.name, name);
      assert.equal(error.code, codes[name]);
      assert.ok(String(error).startsWith(`${name}: `));
      assert.ok(!Object.keys(error).includes("name"), "the name is not an own property that is printed twice");
    }
  });

  it("carry the operation, the key's hash, the store and the cause", () => {
    const conflict = new IdempotencyConflictError("m", facts);
    assert.deepEqual([conflict.operationId, conflict.keyHash], ["op", "sha256:00"]);
    const failed = new StoreError("UNAVAILABLE", "memory", "m", { cause: conflict });
    assert.deepEqual([failed.store, failed.message, failed.cause], ["memory", "memory: m", conflict]);
    assert.equal(new InvalidArgumentError("m", { cause: 1 }).cause, 1);
    const busy = new InProgressError("m", 250, facts, { cause: failed });
    assert.deepEqual([busy.retryAfterMs, busy.operationId, busy.cause], [250, "op", failed]);
    const unknown = new OutcomeUnknownError("m", facts, { cause: failed });
    assert.deepEqual([unknown.operationId, unknown.keyHash, unknown.cause], ["op", "sha256:00", failed]);
    for (const error of [busy, unknown, new OperationHeldError("m", facts), new ResultGoneError("m", facts)]) {
      assert.deepEqual([error.operationId, error.keyHash], ["op", "sha256:00"]);
    }
    assert.ok(!("cause" in new InProgressError("m", 1)), "no cause is none, not undefined");
  });

  it("are not anything else: primitives, plain objects, other errors", () => {
    for (const x of [
      undefined,
      null,
      0,
      "StoreError",
      Symbol("StoreError"),
      {},
      { code: "CORRUPT" },
      new Error("m"),
      () => 1,
    ]) {
      for (const [name, recognises] of Object.entries(is)) assert.equal(recognises(x), false, name);
    }
  });

  it("two brands do not know each other", () => {
    const [one, two] = [brandedError("One"), brandedError("Two")];
    const error = new Error("m");
    one.mark(error);
    assert.deepEqual([one.has(error), two.has(error), error.name], [true, false, "One"]);
  });
});
