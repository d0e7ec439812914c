import { checkNames } from "./check-argument.ts";
import { InvalidArgumentError } from "./errors.ts";

const DAY_MS = 86_400_000;
/** A hundred years: the end of a longer one cannot be written as an RFC 3339 time for ever. */
const TTL_MS_MAX = 36_500 * DAY_MS;

/** Days in milliseconds. */
export function days(count: number): number {
  return count * DAY_MS;
}

/**
 * How long a key must be remembered, and for what reason; all in milliseconds. The TTL counts from the last write of the
 * record, by the store's clock. After it nothing is promised: the same key is a new operation.
 */
export interface Retention {
  /** The longest after its first sending that a client still retries. Default 0. */
  readonly retryWindowMs?: number;
  /** The longest a queue or broker in between can hold a copy back. Default 0. */
  readonly brokerDelayMs?: number;
  /** How long the record must be there to be looked at. Default 0. */
  readonly auditMs?: number;
  /** How long the record is kept; at most 36,500 days. Default 30 days. */
  readonly ttlMs?: number;
}

/**
 * The retention with its defaults.
 *
 * @throws {InvalidArgumentError} for a TTL that is not a day longer than what it has to cover (rule E8).
 */
export function checkRetention(retention: Retention = {}): Required<Retention> {
  checkNames(retention, ["retryWindowMs", "brokerDelayMs", "auditMs", "ttlMs"], "retention");
  const { retryWindowMs = 0, brokerDelayMs = 0, auditMs = 0, ttlMs = days(30) } = retention;
  for (const [name, value] of Object.entries({ retryWindowMs, brokerDelayMs, auditMs, ttlMs })) {
    if (!Number.isSafeInteger(value) || value < 0) {
      throw new InvalidArgumentError(`retention.${name} is ${value}: give whole milliseconds, 0 or more`);
    }
  }
  if (ttlMs > TTL_MS_MAX) {
    throw new InvalidArgumentError(`retention.ttlMs is ${ttlMs}: give at most ${TTL_MS_MAX}, 36,500 days`);
  }
  const ttlMinMs = Math.max(retryWindowMs + brokerDelayMs, auditMs) + DAY_MS;
  if (ttlMs < ttlMinMs) {
    throw new InvalidArgumentError(
      `retention.ttlMs is ${ttlMs}, less than max(retryWindowMs + brokerDelayMs, auditMs) and a day: give at least ${ttlMinMs}`,
    );
  }
  return { retryWindowMs, brokerDelayMs, auditMs, ttlMs };
}
