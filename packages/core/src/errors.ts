import { brandedError, type ErrorBrand } from "./error-brand.ts";

/** What may be known about the operation an error is about. Never its input, its result or its raw key. */
export interface OperationFacts {
  /** The operation the key belongs to: what a log, a ledger and a support ticket name it by. */
  readonly operationId?: string | undefined;
  /** `sha256:…` of scope and key. */
  readonly keyHash?: string | undefined;
}

/** The stable part of an {@link IdempotencyError}: what a program decides by. The message may change. */
export type IdempotencyErrorCode = "INVALID_ARGUMENT" | "CONFLICT" | "KEY_TOO_OLD" | "UNSUPPORTED_RECORD";

const anyBrand: ErrorBrand = brandedError("IdempotencyError");
const invalidArgument: ErrorBrand = brandedError("InvalidArgumentError");
const conflict: ErrorBrand = brandedError("IdempotencyConflictError");
const keyTooOld: ErrorBrand = brandedError("KeyTooOldError");
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
