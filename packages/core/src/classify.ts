/** Record and time → what may be done. Pure: no store, no clock. */

import type { StoredRecord } from "./conditional-store.ts";
import { parseTime } from "./runtime.ts";
import type { IdempotencyRecord, RecordResult } from "./record.ts";

/** What `reserve` may do with the record it found. */
export type ReservationVerdict =
  /** Nothing is promised of it any more: a fresh claim may overwrite it. */
  | "stale"
  /** Nothing happened in the operation that another input had: a fresh claim may overwrite it, too. */
  | "free"
  /** The key is another input's, or another kind of operation's. */
  | "conflict"
  /** Nothing happened in its last attempt, and the operation goes on with the next. */
  | "released"
  /** Its value is the answer. */
  | "settled";

/**
 * In this order (rule E2): a stale record is overwritten whatever its fingerprint was; then the fingerprint, to which a
 * record that is free does not bind; then the state.
 */
export function classifyReservation(
  record: IdempotencyRecord,
  stored: StoredRecord,
  inputHash: string,
  clockGranularityMs: number,
): ReservationVerdict {
  if (isStale(record, stored, clockGranularityMs)) return "stale";
  if (record.inputHash !== inputHash) return isFree(record) ? "free" : "conflict";
  if (record.status === "released") return "released";
  return record.result?.kind === "value" && record.result.encoding === "json" ? "settled" : "conflict";
}

/** What `execute` may do with the record it found. */
export type OperationVerdict =
  /** Nothing is promised of it any more: a fresh claim may overwrite it. */
  | { readonly kind: "stale" }
  /** Nothing happened in the operation that another input had: a fresh claim may overwrite it, too. */
  | { readonly kind: "free" }
  /** The key is another input's, or another operation's. */
  | { readonly kind: "conflict" }
  /** Its result is the answer. */
  | { readonly kind: "ready"; readonly result: RecordResult }
  /** Nothing happened in its last attempt, and the operation goes on with the next. */
  | { readonly kind: "released" }
  /** Its owner may be at it. `leaseLeftMs`: unless it is renewed, by the store's clock; 0 or more. */
  | { readonly kind: "live"; readonly leaseLeftMs: number }
  /** Its owner can no longer be at it: to be taken over. */
  | { readonly kind: "over" }
  /** A person decides. */
  | { readonly kind: "held" };

/** In the order of rule E2. */
export function classifyOperation(
  record: IdempotencyRecord,
  stored: StoredRecord,
  inputHash: string,
  clockGranularityMs: number,
): OperationVerdict {
  if (isStale(record, stored, clockGranularityMs)) return { kind: "stale" };
  if (record.inputHash !== inputHash && isFree(record)) return { kind: "free" };
  // A reservation's first phase is no claim of an effect, whatever its hash: nobody may take it over.
  if (record.inputHash !== inputHash || isReservationFirstPhase(record)) return { kind: "conflict" };
  switch (record.status) {
    case "ready":
      return record.result === undefined ? { kind: "conflict" } : { kind: "ready", result: record.result };
    case "creating": {
      const leaseLeftMs = leaseOverInMs(record, stored, clockGranularityMs);
      return leaseLeftMs === undefined ? { kind: "over" } : { kind: "live", leaseLeftMs };
    }
    case "released":
    case "held":
      return { kind: record.status };
  }
}

/**
 * How long the lease of a `creating` record still lasts, in milliseconds by the store's clock alone; `undefined` when it
 * is over (rule E3).
 */
export function leaseOverInMs(
  { leaseMs = 0 }: IdempotencyRecord,
  { readAt, modifiedAt }: StoredRecord,
  clockGranularityMs: number,
): number | undefined {
  const leftMs = leaseMs + clockGranularityMs - (readAt - modifiedAt);
  return leaseMs === 0 || leftMs < 0 ? undefined : leftMs;
}

/**
 * Stale: settled or released, and older than its TTL by the store's clock alone, so that no claimer's clock can make a
 * record that is born stale or immortal. `now === expiry` is not yet stale. A `creating` or `held` record never goes
 * stale, since nobody knows whether its effect happened; a reservation's first phase, which carries its value and has no
 * effect to know of, goes stale like `ready` (rules E2.1, T7).
 */
export function isStale(record: IdempotencyRecord, stored: StoredRecord, clockGranularityMs: number): boolean {
  const canGoStale = record.status === "ready" || record.status === "released" || isReservationFirstPhase(record);
  return canGoStale && lifeLeftMs(record, stored) + clockGranularityMs < 0;
}

/**
 * How long the record is still kept after the read that found it, in milliseconds by the store's clock; negative when it
 * is over. A record of the older layout has no `ttl_ms` and lives until its `expires_at`.
 */
export function lifeLeftMs(record: IdempotencyRecord, stored: StoredRecord): number {
  if (record.ttlMs !== undefined) return record.ttlMs - (stored.readAt - stored.modifiedAt);
  return (parseTime(record.expiresAt) ?? 0) - stored.readAt;
}

/**
 * Whether the key is anybody's: each attempt said of itself that it had no effect, and none was taken over, so that nobody who
 * is paused can be behind the record. Its own input goes on with the operation; another begins one of its own (rule E2.2).
 */
function isFree({ status, takeover }: IdempotencyRecord): boolean {
  return status === "released" && !takeover;
}

function isReservationFirstPhase(record: IdempotencyRecord): boolean {
  return record.status === "creating" && record.leaseMs === 0 && record.result !== undefined;
}
