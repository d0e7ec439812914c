import { InProgressError, type EffectContext, type Runtime } from "@firstwrite/core";

/** The longest between two looks at another process's record, in milliseconds. */
const PAUSE_MS_MAX = 1_000;
const RETRY_AFTER_MS = 1_000;

interface Waiting {
  /** Waits for the lease of another process, a little longer each time; false when there is no time, or nobody, left. */
  readonly pause: (looks: number) => Promise<boolean>;
  /** Resolves when the time, or the client, is gone. */
  readonly over: Promise<void>;
  readonly end: () => void;
}

/**
 * Which operations this process is running now. The engine lets calls of one key and payload share a run, and each waits for
 * it; whoever came to a run that somebody else began is to wait no longer than its own `waitMs`.
 */
export class LocalRuns {
  readonly #runtime: Runtime;
  readonly #running = new Map<string, { readonly call: object; readonly operationId: string }>();
  /** Those who are told when a run of another begins. */
  readonly #present = new Map<string, Set<() => void>>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** An effect of `call` begins. Returns what ends it; one that has lost its operation ends by itself. */
  begins(call: object, name: string, { operationId, signal }: EffectContext): () => void {
    const run = { call, operationId };
    this.#running.set(name, run);
    const ends = (): void => {
      if (this.#running.get(name) === run) this.#running.delete(name);
    };
    signal.addEventListener("abort", ends, { once: true });
    for (const tell of this.#present.get(name) ?? []) tell();
    return () => {
      signal.removeEventListener("abort", ends);
      ends();
    };
  }

  /**
   * What `execute` comes to; from the moment another call's effect is going on, only while `wait` lasts.
   *
   * @throws {InProgressError}
   */
  async unlessAnother<Result>(
    call: object,
    name: string,
    wait: Waiting,
    execute: () => Promise<Result>,
  ): Promise<Result> {
    const { promise: left, reject: leave } = Promise.withResolvers<never>();
    let watched = false;
    const look = (): void => {
      const run = this.#running.get(name);
      if (watched || run === undefined || run.call === call) return;
      watched = true;
      const { operationId } = run;
      void wait.over.then(() => leave(inProgress(operationId)));
    };
    const present = this.#present.get(name) ?? new Set();
    this.#present.set(name, present.add(look));
    try {
      const executed = execute();
      look();
      return await Promise.race([executed, left]);
    } finally {
      present.delete(look);
      if (present.size === 0) this.#present.delete(name);
    }
  }

  /** The time that one request may wait, from now on. */
  wait(waitMs: number, gone: AbortSignal): Waiting {
    const { promise: over, resolve } = Promise.withResolvers<void>();
    const endsAtMs = this.#runtime.monotonicMs() + waitMs;
    const cancel = waitMs === 0 ? () => {} : this.#runtime.setTimer(waitMs, resolve);
    const leave = (): void => resolve();
    gone.addEventListener("abort", leave, { once: true });
    if (waitMs === 0 || gone.aborted) resolve();
    return {
      over,
      pause: (looks) => this.#pause(looks, endsAtMs, gone),
      end() {
        cancel();
        gone.removeEventListener("abort", leave);
      },
    };
  }

  #pause(looks: number, endsAtMs: number, gone: AbortSignal): Promise<boolean> {
    const leftMs = endsAtMs - this.#runtime.monotonicMs();
    if (leftMs <= 0 || gone.aborted) return Promise.resolve(false);
    const pauseMs = Math.min(PAUSE_MS_MAX, 50 * 2 ** Math.min(looks, 10)) * (0.5 + this.#runtime.random() / 2);
    return new Promise((resolve) => {
      const finish = (goOn: boolean): void => {
        cancel();
        gone.removeEventListener("abort", leave);
        resolve(goOn);
      };
      const leave = (): void => finish(false);
      const cancel = this.#runtime.setTimer(Math.min(leftMs, pauseMs), () => finish(true));
      gone.addEventListener("abort", leave, { once: true });
    });
  }
}

function inProgress(operationId: string): InProgressError {
  return new InProgressError("another request of this process is at it", RETRY_AFTER_MS, { operationId });
}
