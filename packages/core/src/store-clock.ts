import type { Runtime } from "./runtime.ts";

/**
 * What time it is, by the later of this machine's clock and the store's last answer: a machine whose clock is behind
 * takes no key for younger than the store knows it to be (rule E8).
 */
export class StoreClock {
  readonly #runtime: Runtime;
  #aheadMs = Number.NEGATIVE_INFINITY;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Epoch milliseconds. */
  now(): number {
    return Math.max(this.#runtime.now(), this.#runtime.monotonicMs() + this.#aheadMs);
  }

  /** The store answered just now, and said it was `at`, in epoch milliseconds. */
  note(at: number): void {
    this.#aheadMs = at - this.#runtime.monotonicMs();
  }
}
