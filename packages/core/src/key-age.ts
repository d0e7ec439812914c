/** How old an idempotency key is, and how old it may be (rule E8). */

import { InvalidArgumentError, KeyTooOldError, type OperationFacts } from "./errors.ts";
import { days, type Retention } from "./retention.ts";

/** When a key was issued, and for how long after that it may still begin an operation. */
export interface KeyAge {
  /** Epoch milliseconds, by the clock of whoever made the key. */
  readonly issuedAt: number;
  readonly windowMs: number;
}

/** A key from further ahead than this is a mistake, not skew between two clocks. */
const AHEAD_MS_MAX = days(1);

/**
 * The window is what the retention says a sending may be late by; a retention that says nothing leaves the TTL less a
 * day.
 */
export function keyAge(issuedAt: number, { retryWindowMs, brokerDelayMs, ttlMs }: Required<Retention>): KeyAge {
  const windowMs = retryWindowMs + brokerDelayMs;
  return { issuedAt, windowMs: windowMs > 0 ? windowMs : ttlMs - days(1) };
}

/**
 * The time in a key that is a UUID of version 7 (RFC 9562 §5.7) or a ULID (https://github.com/ulid/spec), in epoch
 * milliseconds.
 *
 * @throws {InvalidArgumentError} for any other key.
 */
export function timeOfKey(key: string): number {
  const uuid = /^([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i.exec(key);
  if (uuid !== null) return Number.parseInt(`${uuid[1]}${uuid[2]}`, 16);
  // Crockford's base 32, its first ten characters 48 bits of time; a ULID above 7ZZ… would need more.
  if (/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i.test(key)) {
    const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    return Array.from(key.slice(0, 10).toUpperCase()).reduce((time, digit) => time * 32 + digits.indexOf(digit), 0);
  }
  throw new InvalidArgumentError("the idempotency key must be a UUID of version 7 or a ULID: keyTime reads its time");
}

/** @throws {InvalidArgumentError} for a time that is none, or more than a day ahead of `nowMs`. */
export function checkIssuedAt(issuedAt: number, nowMs: number): void {
  if (!Number.isFinite(issuedAt) || issuedAt < 0) {
    throw new InvalidArgumentError(`issuedAt is ${String(issuedAt)}: give the key's time in epoch milliseconds`);
  }
  if (issuedAt - nowMs > AHEAD_MS_MAX) {
    throw new InvalidArgumentError("the idempotency key was issued more than a day in the future: look at its clock");
  }
}

/** Whether at `nowMs` the key can no longer begin an operation: its first one may have been forgotten. */
export function isTooOld({ issuedAt, windowMs }: KeyAge, nowMs: number): boolean {
  return nowMs - issuedAt > windowMs;
}

export function keyTooOld({ windowMs }: KeyAge, facts: OperationFacts): KeyTooOldError {
  return new KeyTooOldError(
    `the idempotency key was issued more than ${windowMs} ms ago, the retry window, and nothing is remembered of it: ` +
      "find out whether its request was done, and use a new key for a new one",
    facts,
  );
}
