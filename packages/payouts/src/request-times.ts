/** Where the time of a request went. */

import { AsyncLocalStorage } from "node:async_hooks";

import { onEvent } from "@firstwrite/core";

/**
 * - `store`: requests to the idempotency store
 * - `lock_wait`: the ledger's locks and connections, and another request of the same key
 * - `ledger`: everything else of the ledger
 * - `serialization`: JSON, headers, the fingerprint's input
 * - `own`: what is left
 */
export type Part = "store" | "lock_wait" | "ledger" | "serialization" | "own";

export const parts: readonly Part[] = ["store", "lock_wait", "ledger", "serialization", "own"];

export type Times = Record<Exclude<Part, "own">, number>;

/** What a request spends is known by where the code that spends it was called from, through the engine and the ledger. */
export class RequestTimes {
  readonly #current = new AsyncLocalStorage<Times>();
  readonly #stop: () => void;

  constructor() {
    this.#stop = onEvent("firstwrite:store-request", ({ durationMs }) => this.add("store", durationMs));
  }

  /** Of a service that shares its process with others, only its own requests are counted. */
  isWithin(): boolean {
    return this.#current.getStore() !== undefined;
  }

  during<Result>(times: Times, work: () => Promise<Result>): Promise<Result> {
    return this.#current.run(times, work);
  }

  readonly add = (part: keyof Times, ms: number): void => {
    const times = this.#current.getStore();
    if (times !== undefined) times[part] += ms;
  };

  /** Times `work`, which waits for nothing. */
  serializing<Result>(work: () => Result): Result {
    const startedAtMs = performance.now();
    try {
      return work();
    } finally {
      this.add("serialization", performance.now() - startedAtMs);
    }
  }

  stop(): void {
    this.#stop();
  }
}

export function noTimes(): Times {
  return { store: 0, lock_wait: 0, ledger: 0, serialization: 0 };
}

export function spent(times: Times): number {
  return times.store + times.lock_wait + times.ledger + times.serialization;
}
