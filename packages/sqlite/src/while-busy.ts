import { setTimeout as sleep } from "node:timers/promises";

import { isBusy } from "./sqlite-error.ts";

/** Somebody else held the lock for the whole time; nothing was done. */
export const busy: unique symbol = Symbol("busy");

const PAUSE_MS_MAX = 10;

/**
 * Runs a statement again while another connection holds the lock, or it says so itself, for at most `timeoutMs`. SQLite's own busy handler
 * would do the same with the event loop standing still.
 */
export async function whileBusy<Answer>(
  timeoutMs: number,
  signal: AbortSignal | undefined,
  statement: () => Answer | typeof busy,
): Promise<Answer | typeof busy> {
  for (const startedAtMs = performance.now(); ;) {
    try {
      const answer = statement();
      if (answer !== busy) return answer;
    } catch (error) {
      if (!isBusy(error)) throw error;
    }
    if (signal?.aborted === true || performance.now() - startedAtMs > timeoutMs) return busy;
    // At random, so that waiters do not keep step.
    await sleep(Math.random() * PAUSE_MS_MAX);
  }
}
