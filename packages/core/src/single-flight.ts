import type { Runtime } from "./runtime.ts";
import { StoreError } from "./store-error.ts";
import { SessionEnded } from "./store-session.ts";

/** How long one caller waits. */
export interface CallLimits {
  /** The most this caller waits, in milliseconds. */
  readonly deadlineMs: number;
  /** Ends this caller's wait, with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What the callers of one flight get. */
export interface Landed<Result> {
  readonly result: Result;
  /** True for exactly one of the callers that are still there when the flight ends. */
  readonly first: boolean;
}

interface Flight<Result> {
  readonly startedAtMs: number;
  readonly end: AbortController;
  readonly outcome: Promise<Result>;
  callers: number;
  taken: boolean;
}

/**
 * Calls of one key share one flight: a thousand at once cost the store as much as one (rule I1). Each caller keeps its
 * own deadline and signal; a flight ends with its last caller.
 */
export class SingleFlight<Result> {
  readonly #runtime: Runtime;
  readonly #store: string;
  readonly #flights = new Map<string, Flight<Result>>();

  /** `store` names the store in the error of a deadline. */
  constructor(runtime: Runtime, store: string) {
    this.#runtime = runtime;
    this.#store = store;
  }

  /**
   * Joins the flight of `key`, or starts one. A flight that has been going on for longer than this caller's own deadline
   * takes no new callers, so that none goes on for ever.
   *
   * @throws {StoreError} `UNAVAILABLE` when the deadline passes first.
   */
  async run(key: string, limits: CallLimits, start: (signal: AbortSignal) => Promise<Result>): Promise<Landed<Result>> {
    limits.signal?.throwIfAborted();
    const known = this.#flights.get(key);
    const joinable = known !== undefined && this.#runtime.monotonicMs() - known.startedAtMs < limits.deadlineMs;
    const flight = joinable ? known : this.#start(key, start);
    flight.callers += 1;
    try {
      const result = await this.#wait(flight, limits);
      const first = !flight.taken;
      flight.taken = true;
      return { result, first };
    } finally {
      flight.callers -= 1;
      if (flight.callers === 0) {
        this.#forget(key, flight);
        flight.end.abort();
      }
    }
  }

  #start(key: string, start: (signal: AbortSignal) => Promise<Result>): Flight<Result> {
    const end = new AbortController();
    const flight: Flight<Result> = {
      startedAtMs: this.#runtime.monotonicMs(),
      end,
      outcome: start(end.signal).finally(() => this.#forget(key, flight)),
      callers: 0,
      taken: false,
    };
    // A flight that everyone has left rejects with nobody to hear it.
    flight.outcome.catch(() => {});
    this.#flights.set(key, flight);
    return flight;
  }

  #forget(key: string, flight: Flight<Result>): void {
    if (this.#flights.get(key) === flight) this.#flights.delete(key);
  }

  async #wait(flight: Flight<Result>, { deadlineMs, signal }: CallLimits): Promise<Result> {
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const cancelTimer = this.#runtime.setTimer(deadlineMs, () => {
      // The last caller's leaving ends the flight, whose error then says what the store's trouble was.
      if (flight.callers === 1) flight.end.abort();
      else reject(this.#deadlineError(deadlineMs, undefined));
    });
    const onAbort = (): void => reject(signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([flight.outcome, ended]);
    } catch (error) {
      throw error instanceof SessionEnded ? this.#deadlineError(deadlineMs, error.trouble) : error;
    } finally {
      cancelTimer();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #deadlineError(deadlineMs: number, trouble: unknown): StoreError {
    return new StoreError(
      "UNAVAILABLE",
      this.#store,
      `not decided within ${deadlineMs} ms: send it again with the same key, which cannot double anything`,
      { cause: trouble },
    );
  }
}
