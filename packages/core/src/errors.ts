import { brandedError, type ErrorBrand } from "./error-brand.ts";

/** What may be known about the operation an error is about. Never its input, its result or its raw key. */
export interface OperationFacts {
  /** The operation the key belongs to: what a log, a ledger and a support ticket name it by. */
  readonly operationId?: string | undefined;
  /** `sha256:…` of scope and key. */
  readonly keyHash?: string | undefined;
}

/** The stable part of an {@link IdempotencyError}: what a program decides by. The message may change. */
export type IdempotencyErrorCode =
  | "INVALID_ARGUMENT"
  | "CONFLICT"
  | "IN_PROGRESS"
  | "HELD"
  | "OUTCOME_UNKNOWN"
  | "KEY_TOO_OLD"
  | "RESULT_GONE"
  | "UNSUPPORTED_RECORD";

const anyBrand: ErrorBrand = brandedError("IdempotencyError");
const invalidArgument: ErrorBrand = brandedError("InvalidArgumentError");
const conflict: ErrorBrand = brandedError("IdempotencyConflictError");
const inProgress: ErrorBrand = brandedError("InProgressError");
const operationHeld: ErrorBrand = brandedError("OperationHeldError");
const outcomeUnknown: ErrorBrand = brandedError("OutcomeUnknownError");
const keyTooOld: ErrorBrand = brandedError("KeyTooOldError");
const resultGone: ErrorBrand = brandedError("ResultGoneError");
const unsupportedRecord: ErrorBrand = brandedError("UnsupportedRecordError");

/** Every refusal of the engine that is not the store's own failure (`StoreError`). */
export class IdempotencyError extends Error {
  readonly code: IdempotencyErrorCode;
  readonly operationId: string | undefined;
  readonly keyHash: string | undefined;

  constructor(code: IdempotencyErrorCode, message: string, facts: OperationFacts = {}, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
    this.operationId = facts.operationId;
    this.keyHash = facts.keyHash;
    anyBrand.mark(this);
  }

  /** Whether `x` is an `IdempotencyError` of any installed copy of this package. */
  static is(this: void, x: unknown): x is IdempotencyError {
    return anyBrand.has(x);
  }
}

/** The call is wrong, and the message says how to write it. Nothing was sent to the store. */
export class InvalidArgumentError extends IdempotencyError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("INVALID_ARGUMENT", message, {}, options);
    invalidArgument.mark(this);
  }

  static override is(this: void, x: unknown): x is InvalidArgumentError {
    return invalidArgument.has(x);
  }
}

/**
 * The key was used for something else: another input, another operation or another task type. Nothing ran and nothing
 * was written. Sending it again cannot succeed; a new operation needs a new key.
 */
export class IdempotencyConflictError extends IdempotencyError {
  constructor(message: string, facts: OperationFacts = {}) {
    super("CONFLICT", message, facts);
    conflict.mark(this);
  }

  static override is(this: void, x: unknown): x is IdempotencyConflictError {
    return conflict.has(x);
  }
}

/**
 * Another caller is at it, or died at it a moment ago: this call started nothing. Send it again with the same key after
 * `retryAfterMs`, or give `waitMs`.
 */
export class InProgressError extends IdempotencyError {
  /** A guess, in milliseconds: not longer than the lease of the other caller can last unless it is renewed. */
  readonly retryAfterMs: number;

  constructor(message: string, retryAfterMs: number, facts: OperationFacts = {}, options?: { cause?: unknown }) {
    super("IN_PROGRESS", message, facts, options);
    this.retryAfterMs = retryAfterMs;
    inProgress.mark(this);
  }

  static override is(this: void, x: unknown): x is InProgressError {
    return inProgress.has(x);
  }
}

/**
 * Nobody knows whether the operation's effect happened, and its policy leaves that to a person. Sending it again changes
 * nothing until one has looked and called `settle` or `release`.
 */
export class OperationHeldError extends IdempotencyError {
  constructor(message: string, facts: OperationFacts = {}) {
    super("HELD", message, facts);
    operationHeld.mark(this);
  }

  static override is(this: void, x: unknown): x is OperationHeldError {
    return operationHeld.has(x);
  }
}

/**
 * The effect may have started, and the call ended before its result was recorded. Send it again with the same key, which
 * starts no second effect beside a first: the answer is there, or the operation's `recovery` finds out.
 */
export class OutcomeUnknownError extends IdempotencyError {
  constructor(message: string, facts: OperationFacts = {}, options?: { cause?: unknown }) {
    super("OUTCOME_UNKNOWN", message, facts, options);
    outcomeUnknown.mark(this);
  }

  static override is(this: void, x: unknown): x is OutcomeUnknownError {
    return outcomeUnknown.has(x);
  }
}

/** The key was issued longer ago than its record is sure to be kept, so its effect may have happened already. */
export class KeyTooOldError extends IdempotencyError {
  constructor(message: string, facts: OperationFacts = {}) {
    super("KEY_TOO_OLD", message, facts);
    keyTooOld.mark(this);
  }

  static override is(this: void, x: unknown): x is KeyTooOldError {
    return keyTooOld.has(x);
  }
}

/**
 * The operation is done, and its result, which was too large for the record, is missing or not what was stored. It is not
 * run again.
 */
export class ResultGoneError extends IdempotencyError {
  constructor(message: string, facts: OperationFacts = {}) {
    super("RESULT_GONE", message, facts);
    resultGone.mark(this);
  }

  static override is(this: void, x: unknown): x is ResultGoneError {
    return resultGone.has(x);
  }
}

/** The record was written by a later version of this library, which this one must not guess at: upgrade. */
export class UnsupportedRecordError extends IdempotencyError {
  constructor(message: string, facts: OperationFacts = {}) {
    super("UNSUPPORTED_RECORD", message, facts);
    unsupportedRecord.mark(this);
  }

  static override is(this: void, x: unknown): x is UnsupportedRecordError {
    return unsupportedRecord.has(x);
  }
}
