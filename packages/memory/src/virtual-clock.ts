import type { Runtime } from "@firstwrite/core";

/** Waits until every promise callback that is ready has run, without letting any virtual time pass. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/**
 * Time that passes only when told to, and randomness that comes from a seed: a {@link Runtime} for tests. A lease of
 * thirty days is over after `await clock.advance(days(30))`, and the same seed gives the same operation IDs.
 */
export class VirtualClock implements Runtime {
  #now: number;
  #monotonic = 0;
  #random: () => number;
  #timers: { readonly at: number; readonly fire: () => void }[] = [];

  /** `startAt`: epoch milliseconds, by default 2026-01-01T00:00:00Z. `seed`: any integer. */
  constructor(options: { startAt?: number; seed?: number } = {}) {
    this.#now = options.startAt ?? Date.UTC(2026, 0, 1);
    this.#random = mulberry32(options.seed ?? 1);
  }

  now(): number {
    return this.#now;
  }

  monotonicMs(): number {
    return this.#monotonic;
  }

  random(): number {
    return this.#random();
  }

  randomBytes(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => Math.floor(this.#random() * 256));
  }

  setTimer(ms: number, fire: () => void): () => void {
    const timer = { at: this.#monotonic + Math.max(0, ms), fire };
    // Kept in the order they fire; among equals the one set first fires first.
    const later = this.#timers.findIndex((other) => other.at > timer.at);
    this.#timers.splice(later === -1 ? this.#timers.length : later, 0, timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Milliseconds until the next timer is due; `undefined` when none is set. */
  get nextTimerMs(): number | undefined {
    const next = this.#timers[0];
    return next && Math.max(0, next.at - this.#monotonic);
  }

  /** Lets `ms` milliseconds pass: each timer that comes due fires in its turn, with what it wakes run before the next. */
  async advance(ms: number): Promise<void> {
    const end = this.#monotonic + ms;
    await settle();
    for (let next = this.#timers[0]; next !== undefined && next.at <= end; next = this.#timers[0]) {
      this.#timers.shift();
      this.#pass(next.at - this.#monotonic);
      next.fire();
      await settle();
    }
    this.#pass(end - this.#monotonic);
  }

  /** Moves the wall clock alone, as an NTP step or an operator does; timers and the monotonic clock do not notice. */
  jump(ms: number): void {
    this.#now += ms;
  }

  #pass(ms: number): void {
    this.#monotonic += ms;
    this.#now += ms;
  }
}

/** A small seeded generator, good enough to vary jitter and IDs in a test (Tommy Ettinger's mulberry32). */
function mulberry32(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
