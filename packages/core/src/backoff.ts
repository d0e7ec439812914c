import type { Runtime } from "./runtime.ts";

const BASE_MS = 25;
const CAP_MS = 2_000;

/**
 * Exponential backoff with full jitter: each wait is uniform between nothing and a ceiling that doubles from 25 ms to
 * 2 s. Full jitter spreads callers that met at once better than a fixed part with jitter on top
 * (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
 */
export class Backoff {
  readonly #runtime: Runtime;
  #attempts = 0;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** How long to wait before the next attempt, in milliseconds. */
  nextMs(): number {
    const ceilingMs = Math.min(CAP_MS, BASE_MS * 2 ** this.#attempts);
    this.#attempts += 1;
    return this.#runtime.random() * ceilingMs;
  }
}
