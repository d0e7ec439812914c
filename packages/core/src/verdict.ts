/** What an adapter's sorting of a service's answers comes to: the same words in all of them. */

import type { WriteOutcome } from "./conditional-store.ts";
import { StoreError, type StoreErrorCode } from "./store-error.ts";

/** The service turned the request away having done nothing, or nothing was sent. Becomes a `StoreError`. */
export interface Rejection {
  readonly kind: "error";
  readonly code: StoreErrorCode;
  readonly why: string;
}

export type WriteVerdict = { readonly kind: "refused" | "contended" | "unknown" } | Rejection;

/** `missing`: there is no record of that name. */
export type ReadVerdict = { readonly kind: "missing" } | Rejection;

/** Fix the call, the URL or the options. */
export function invalid(why: string): Rejection {
  return { kind: "error", code: "INVALID_ARGUMENT", why };
}

/** Fix credentials or access rights. */
export function denied(why: string): Rejection {
  return { kind: "error", code: "PERMISSION_DENIED", why };
}

/** Try later. */
export function unavailable(why: string): Rejection {
  return { kind: "error", code: "UNAVAILABLE", why };
}

/** This service cannot be used. */
export function unsupported(why: string): Rejection {
  return { kind: "error", code: "UNSUPPORTED", why };
}

/** What a write or a remove that was not done comes to; `cause` is what was seen of it. @throws {StoreError} */
export function outcomeOf(store: string, verdict: WriteVerdict, cause: unknown): Undone {
  if (verdict.kind === "error") throw rejectionError(store, verdict, cause);
  return verdict.kind === "unknown" ? { kind: "unknown", cause } : { kind: verdict.kind };
}

type Undone = Extract<WriteOutcome, { kind: "refused" | "contended" | "unknown" }>;

export function rejectionError(store: string, { code, why }: Rejection, cause?: unknown): StoreError {
  return new StoreError(code, store, why, cause === undefined ? {} : { cause });
}
