import { InProgressError, OutcomeUnknownError, type OperationFacts } from "./errors.ts";
import type { ExecutionFacts } from "./result.ts";
import type { Runtime } from "./runtime.ts";
import { StoreError } from "./store-error.ts";
import { SessionEnded, type FlightLife } from "./store-session.ts";

/** How long one caller waits. */
export interface ExecutionLimits {
  /** The most this caller waits, in milliseconds. */
  readonly deadlineMs: number;
  /** The most it waits for another owner's lease, in milliseconds. */
  readonly waitMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** What an execution came to. */
export interface ExecutionOutcome extends ExecutionFacts {
  /** Returns the value, a copy for each caller, or throws the failure. */
  readonly give: () => unknown;
}

/** What was last read of the record, while this flight does not own it. */
export interface SeenClaim extends OperationFacts {
  readonly leaseLeftMs: number;
}

interface Joiner {
  readonly endsAtMs: number;
  readonly limits: ExecutionLimits;
  /** How often the record had been looked at when it joined: what was seen then may be over. */
  readonly looksBefore: number;
  readonly leave: (how: Leaving) => void;
  cancelWaitTimer: (() => void) | undefined;
  /** Its `waitMs` has passed, maybe while nobody's lease was waited for. */
  waited: boolean;
}

type Leaving =
  | { readonly kind: "error"; readonly error: unknown }
  | { readonly kind: "landed" | "left"; readonly outcome: ExecutionOutcome };

/** Asked to end a claim that nobody waits for any more; made once, since an error's stack costs more than the rest. */
const nobodyWaits = new SessionEnded(undefined);

/** A joiner that has come to its deadline or cancelled is told at most this much. */
const RETRY_AFTER_MS_MAX = 1_000;

/**
 * The calls of one key that share one claim, one effect and one answer (rule I1). Each caller keeps its own deadline,
 * `waitMs` and signal. Before the effect begins the flight ends with its last caller; after, it goes on without them.
 */
export class ExecutionFlight {
  readonly life: FlightLife;
  readonly #runtime: Runtime;
  readonly #store: string;
  readonly #fly: () => Promise<ExecutionOutcome>;
  readonly #end = new AbortController();
  readonly #joiners = new Set<Joiner>();
  #landing: Promise<Leaving> | undefined;
  #phase: "claiming" | "waiting" | "running" | "settling" | "lost" = "claiming";
  #endsAtMs = 0;
  #deadlineMsMax = 0;
  #looks = 0;
  #taken = false;
  #landed = false;
  #givenUp = false;
  #seen: SeenClaim | undefined;
  #facts: OperationFacts;
  #unrecorded: ExecutionOutcome | undefined;
  /** Set while the flight waits for another's lease. */
  onJoin: () => void = () => {};
  /** Set while the effect goes on. */
  onCancel: (reason: unknown) => void = () => {};

  /** `fly` is what the flight does, begun by the first caller. */
  constructor(runtime: Runtime, store: string, keyHash: string, fly: () => Promise<ExecutionOutcome>) {
    this.#fly = fly;
    this.#runtime = runtime;
    this.#store = store;
    this.#facts = { keyHash };
    const endsAtMs = (): number => this.#endsAtMs;
    this.life = {
      signal: this.#end.signal,
      get endsAtMs() {
        return endsAtMs();
      },
      onRead: () => {
        this.#looks += 1;
      },
    };
  }

  /**
   * Whether another call may still join: not once ownership was lost, for then this flight only reads, nor when its run hangs or
   * was cancelled.
   */
  get isOpen(): boolean {
    return this.#phase !== "lost" && !this.#landed && !this.#givenUp && !this.#end.signal.aborted;
  }

  /** Whether the effect, or the question whether it happened, was begun. */
  get #hasBegun(): boolean {
    return this.#phase !== "claiming" && this.#phase !== "waiting";
  }

  /** When the last deadline of those who wait is, by the monotonic clock. */
  get deadlineAtMs(): number {
    let latestMs = Number.NEGATIVE_INFINITY;
    for (const { endsAtMs } of this.#joiners) latestMs = Math.max(latestMs, endsAtMs);
    return latestMs;
  }

  /**
   * Waits as one of the flight's callers, whose signal has not aborted yet.
   *
   * @throws {InProgressError} when its `waitMs`, or its deadline, passes while another owner may be alive.
   * @throws {OutcomeUnknownError} when its deadline passes, or it cancels, after the effect began.
   * @throws {StoreError} `UNAVAILABLE` when its deadline passes before anything was learnt.
   * @throws its signal's reason when it cancels before the effect began.
   * @throws what the flight throws.
   */
  async join(limits: ExecutionLimits): Promise<{ readonly outcome: ExecutionOutcome; readonly first: boolean }> {
    const { signal, deadlineMs } = limits;
    const endsAtMs = this.#runtime.monotonicMs() + deadlineMs;
    this.#deadlineMsMax = Math.max(this.#deadlineMsMax, deadlineMs);
    if (!this.#hasBegun) this.#endsAtMs = Math.max(this.#endsAtMs, endsAtMs);

    const { promise: left, resolve: leave } = Promise.withResolvers<Leaving>();
    const joiner: Joiner = {
      endsAtMs,
      limits,
      looksBefore: this.#looks,
      leave,
      cancelWaitTimer: undefined,
      waited: limits.waitMs <= 0,
    };
    this.#joiners.add(joiner);
    const cancelTimer = this.#runtime.setTimer(deadlineMs, () => {
      // The last one ends a flight that has begun nothing: how that ends says what the store said.
      if (this.#hasBegun || endsAtMs < this.#endsAtMs) leave(this.#leaving());
      else this.#end.abort(nobodyWaits);
    });
    const onAbort = (): void => leave(this.#leaving({ reason: signal?.reason }));
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#landing ??= this.#land();
    this.onJoin();
    let cancelled = false;
    try {
      const how = await Promise.race([this.#landing, left]);
      cancelled = how.kind !== "landed" && signal?.aborted === true;
      if (how.kind === "error") throw how.error;
      const first = !this.#taken;
      this.#taken = true;
      return { outcome: how.outcome, first };
    } finally {
      cancelTimer();
      joiner.cancelWaitTimer?.();
      signal?.removeEventListener("abort", onAbort);
      this.#joiners.delete(joiner);
      if (this.#joiners.size === 0) this.#left(cancelled ? { reason: signal?.reason } : undefined);
    }
  }

  /**
   * The record says that another owner may be alive: callers wait as their `waitMs` says. Returns whether the record was
   * looked at after all of them had joined.
   */
  waits(seen: SeenClaim): boolean {
    this.#phase = "waiting";
    this.#seen = seen;
    let isNew = true;
    for (const joiner of this.#joiners) {
      if (joiner.looksBefore >= this.#looks) isNew = false;
      else if (joiner.waited) joiner.leave({ kind: "error", error: this.#inProgress() });
      else {
        joiner.cancelWaitTimer ??= this.#runtime.setTimer(joiner.limits.waitMs, () => {
          joiner.waited = true;
          if (this.#phase === "waiting") joiner.leave({ kind: "error", error: this.#inProgress() });
        });
      }
    }
    return isNew;
  }

  /** There is no other owner to wait for: the flight goes on claiming, or reads a result. `seen`: who may have died. */
  claims(seen: SeenClaim | undefined): void {
    this.#phase = "claiming";
    this.#seen = seen;
  }

  /** The effect, or the question whether it happened, is about to begin. */
  begins(facts: OperationFacts): void {
    this.#phase = "running";
    this.#facts = { ...this.#facts, ...facts };
    this.#endsAtMs = Infinity;
  }

  /** The effect has ended, and `unrecorded` is what it came to unless it can be recorded in time (rule E5). */
  settles(unrecorded: ExecutionOutcome | undefined): void {
    if (this.#phase === "lost") return;
    if (this.#phase !== "settling") this.#endsAtMs = this.#runtime.monotonicMs() + this.#deadlineMsMax;
    this.#phase = "settling";
    this.#unrecorded = unrecorded;
  }

  /**
   * Another owner has the record: after this flight's effect began it is only to be read, until the last caller has left.
   */
  loses(): void {
    if (!this.#hasBegun) return;
    this.#phase = "lost";
    this.#unrecorded = undefined;
    this.#endsAtMs = this.deadlineAtMs;
    if (this.#joiners.size === 0) this.#end.abort(nobodyWaits);
  }

  /** The effect goes on longer than it may (`maxRunMs`): the next call takes it over, as any other process may. */
  givesUp(): void {
    this.#givenUp = true;
  }

  /** Never rejects. */
  async #land(): Promise<Leaving> {
    try {
      // Calls made at once have all joined before the first look is sent, which then is new to each of them.
      await Promise.resolve();
      return { kind: "landed", outcome: await this.#fly() };
    } catch (error) {
      return error instanceof SessionEnded ? this.#leaving(undefined, error.trouble) : { kind: "error", error };
    } finally {
      this.#landed = true;
    }
  }

  /** With what a caller leaves that waits no longer. */
  #leaving(cancelled?: { readonly reason: unknown }, trouble?: unknown): Leaving {
    if (!this.#hasBegun) {
      if (cancelled !== undefined) return { kind: "error", error: cancelled.reason };
      return {
        kind: "error",
        error: this.#seen === undefined ? this.#unavailable(trouble) : this.#inProgress(trouble),
      };
    }
    if (this.#unrecorded !== undefined) return { kind: "left", outcome: this.#unrecorded };
    return { kind: "error", error: this.#unknown(cancelled === undefined ? trouble : cancelled.reason) };
  }

  #left(cancelled: { readonly reason: unknown } | undefined): void {
    if (this.#landed) return;
    if (this.#phase === "running") {
      if (cancelled === undefined) return;
      // Who calls now is not to be answered with what a cancelled effect came to.
      this.#givenUp = true;
      this.onCancel(cancelled.reason);
    } else if (this.#phase !== "settling") this.#end.abort(nobodyWaits);
  }

  #inProgress(cause?: unknown): InProgressError {
    const { leaseLeftMs = 0, operationId } = this.#seen ?? {};
    return new InProgressError(
      "the operation is in progress elsewhere: send it again later with the same key",
      Math.max(1, Math.min(Math.ceil(leaseLeftMs), RETRY_AFTER_MS_MAX)),
      { ...this.#facts, operationId },
      cause === undefined ? {} : { cause },
    );
  }

  #unavailable(cause: unknown): StoreError {
    return new StoreError(
      "UNAVAILABLE",
      this.#store,
      "not decided before the deadline, and no effect was started: send it again with the same key",
      { cause },
    );
  }

  #unknown(cause: unknown): OutcomeUnknownError {
    return new OutcomeUnknownError(
      "the operation's effect may have started, and nothing was recorded before the call ended: send it again with the same key",
      this.#facts,
      cause === undefined ? {} : { cause },
    );
  }
}
