import { brandedError, type ErrorBrand } from "./error-brand.ts";

/**
 * What a caller can do about a store's failure; the codes differ only where callers would act differently.
 *
 * - `INVALID_ARGUMENT`: fix the call. Nothing was sent.
 * - `PERMISSION_DENIED`: fix credentials or access rights.
 * - `UNAVAILABLE`: try later. Nothing was sent, or a read failed.
 * - `UNSUPPORTED`: this service cannot be used: it has no conditional writes, or no versions to rely on.
 * - `CORRUPT`: what is stored is not what was written. Call a person.
 */
export type StoreErrorCode = "INVALID_ARGUMENT" | "PERMISSION_DENIED" | "UNAVAILABLE" | "UNSUPPORTED" | "CORRUPT";

const brand: ErrorBrand = brandedError("StoreError");

/** The one error type of a store (P7). Act on `code`; the message is for people and may change. */
export class StoreError extends Error {
  readonly code: StoreErrorCode;
  /** The `traits.name` of the store that failed. */
  readonly store: string;

  constructor(code: StoreErrorCode, store: string, message: string, options?: { cause?: unknown }) {
    super(`${store}: ${message}`, options);
    this.code = code;
    this.store = store;
    brand.mark(this);
  }

  /** Whether `x` is a `StoreError` of any installed copy of this package; `instanceof` sees only its own copy. */
  static is(this: void, x: unknown): x is StoreError {
    return brand.has(x);
  }
}
