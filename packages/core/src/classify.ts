/** Record and time → what may be done. Pure: no store, no clock. */

import type { StoredRecord } from "./conditional-store.ts";
import { parseTime } from "./runtime.ts";
import type { IdempotencyRecord } from "./record.ts";

/** What `reserve` may do with the record it found. */
export type ReservationVerdict =
  /** Nothing is promised of it any more: a fresh claim may overwrite it. */
  | "stale"
  /** The key is another input's, or another kind of operation's. */
  | "conflict"
  /** Nothing happened in its last attempt, and the operation goes on with the next. */
  | "released"
  /** Its value is the answer. */
  | "settled";

/**
 * In this order (rule E2): a stale record is overwritten whatever its fingerprint was; then the fingerprint; then the
 * state.
 */
export function classifyReservation(
  record: IdempotencyRecord,
  stored: StoredRecord,
  inputHash: string,
  clockGranularityMs: number,
): ReservationVerdict {
  if (isStale(record, stored, clockGranularityMs)) return "stale";
  if (record.inputHash !== inputHash) return "conflict";
  if (record.status === "released") return "released";
  return record.result?.kind === "value" ? "settled" : "conflict";
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

function isReservationFirstPhase(record: IdempotencyRecord): boolean {
  return record.status === "creating" && record.leaseMs === 0 && record.result !== undefined;
}
