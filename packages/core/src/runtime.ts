import { randomFillSync } from "node:crypto";

/**
 * Clocks, timers and randomness: the one place the engine gets them from, so that a test can own all three. Nothing
 * else in this package may reach for the globals; a lint rule says so.
 */
export interface Runtime {
  /** The wall clock, in epoch milliseconds. Written into records for people to read; decides nothing about a lease. */
  now(): number;
  /** A clock that never goes back, in milliseconds from an arbitrary start. */
  monotonicMs(): number;
  /** Calls `fire` once after `ms` milliseconds. Returns what cancels it. */
  setTimer(ms: number, fire: () => void): () => void;
  /** Uniform in [0, 1): the jitter of a backoff. */
  random(): number;
  /** Unpredictable bytes: operation IDs and write IDs. */
  randomBytes(length: number): Uint8Array;
}

/** The real thing. */
export const nodeRuntime: Runtime = {
  now: () => Date.now(),
  monotonicMs: () => performance.now(),
  setTimer(ms, fire) {
    // Node's timers fire up to a millisecond early by `performance.now()`; a deadline is not to end before its time.
    const waitMs = Math.ceil(ms) + 1;
    if (waitMs > TIMER_MS_MAX) return setLongTimer(waitMs, fire);
    const timer = setTimeout(fire, waitMs);
    return () => clearTimeout(timer);
  },
  random: () => Math.random(),
  randomBytes,
};

/** One that is longer fires at once (https://nodejs.org/api/timers.html#settimeoutcallback-delay-args). */
const TIMER_MS_MAX = 2 ** 31 - 1;

function setLongTimer(ms: number, fire: () => void): () => void {
  let cancel = (): void => {};
  const arm = (leftMs: number): void => {
    const waitMs = Math.min(leftMs, TIMER_MS_MAX);
    const timer = setTimeout(() => (leftMs > waitMs ? arm(leftMs - waitMs) : fire()), waitMs);
    cancel = () => clearTimeout(timer);
  };
  arm(ms);
  return () => cancel();
}

const pool = Buffer.allocUnsafe(4096);
let poolUsed = pool.length;

/** Drawn many at a time: one call of the system for each would be a fifth of an operation's CPU time. */
function randomBytes(length: number): Uint8Array {
  if (length > pool.length - poolUsed) {
    if (length > pool.length) return randomFillSync(Buffer.allocUnsafe(length));
    randomFillSync(pool);
    poolUsed = 0;
  }
  // A copy: what was handed out is nobody else's, and is not drawn again.
  const bytes = Uint8Array.prototype.slice.call(pool, poolUsed, poolUsed + length);
  poolUsed += length;
  return bytes;
}

/** A random UUID, version 4 (RFC 9562 §5.4), from the runtime's bytes. */
export function uuidV4(runtime: Runtime): string {
  const bytes = runtime.randomBytes(16);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Buffer.from(bytes).toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** RFC 3339 in UTC with milliseconds, from epoch milliseconds. */
export function formatTime(epochMs: number): string {
  // A claim writes the same two times as another one in its millisecond.
  const known = lastTimes.find((last) => last.epochMs === epochMs);
  if (known !== undefined) return known.text;
  const text = new Date(epochMs).toISOString();
  lastTimes = [{ epochMs, text }, ...lastTimes.slice(0, 1)];
  return text;
}

let lastTimes: readonly { readonly epochMs: number; readonly text: string }[] = [];

// With its offset: `Date.parse` takes a time without one as local to the machine that reads it.
const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i;

/** Epoch milliseconds of an RFC 3339 time; `undefined` for anything else. */
export function parseTime(text: string): number | undefined {
  const epochMs = Date.parse(text);
  return rfc3339.test(text) && Number.isFinite(epochMs) ? epochMs : undefined;
}
