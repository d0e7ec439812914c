import { checkSignal } from "./check-argument.ts";
import type { Runtime } from "./runtime.ts";
import { StoreError } from "./store-error.ts";
import { SessionEnded, type FlightLife } from "./store-session.ts";

/** How long one caller waits. */
export interface CallLimits {
  /** The most this caller waits, in milliseconds. */
  readonly deadlineMs: number;
  /** Ends this caller's wait, with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** What to do when the deadline passes, for the error's message; by default what is true of a call with a key. */
  readonly advice?: string | undefined;
}

/** What the callers of one flight get. */
export interface Landed<Result> {
  readonly result: Result;
  /** True for exactly one of the callers that are still there when the flight ends. */
  readonly first: boolean;
}

/** Made once: every call ends its flight, and an error's stack costs more than the rest of it. */
const flightEnded = new SessionEnded(undefined);

interface Flight<Result> {
  readonly end: AbortController;
  readonly endsAtMs: number;
  readonly outcome: Promise<Result>;
  callers: number;
  taken: boolean;
}

/**
 * Calls of one key share one flight: a thousand at once cost the store as much as one (rule I1). A flight has the
 * deadline of the call that started it, and ends earlier with its last caller; each caller keeps its own deadline and
 * signal, and one with time left when a flight ends goes on with the next.
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
   * Joins the flight of `key`, or starts one.
   *
   * @throws {InvalidArgumentError} for a signal that is none.
   * @throws {StoreError} `UNAVAILABLE` when the deadline passes first.
   */
  async run(key: string, limits: CallLimits, start: (life: FlightLife) => Promise<Result>): Promise<Landed<Result>> {
    checkSignal(limits.signal);
    const endsAtMs = this.#runtime.monotonicMs() + limits.deadlineMs;
    let trouble: unknown;
    for (;;) {
      limits.signal?.throwIfAborted();
      const flight = this.#flights.get(key) ?? this.#start(key, endsAtMs, start);
      try {
        return await this.#join(key, flight, limits.signal, endsAtMs);
      } catch (error) {
        if (!(error instanceof SessionEnded)) throw error;
        trouble = error.trouble ?? trouble;
        if (this.#runtime.monotonicMs() < endsAtMs) continue;
        throw new StoreError(
          "UNAVAILABLE",
          this.#store,
          `not decided within ${limits.deadlineMs} ms: ${limits.advice ?? "send it again with the same key, which cannot double anything"}`,
          { cause: trouble },
        );
      }
    }
  }

  #start(key: string, endsAtMs: number, start: (life: FlightLife) => Promise<Result>): Flight<Result> {
    const end = new AbortController();
    const cancelTimer = this.#runtime.setTimer(endsAtMs - this.#runtime.monotonicMs(), () => end.abort(flightEnded));
    const flight: Flight<Result> = {
      end,
      endsAtMs,
      outcome: start({ signal: end.signal, endsAtMs }).finally(() => {
        cancelTimer();
        this.#forget(key, flight);
      }),
      callers: 0,
      taken: false,
    };
    // A flight that everyone has left rejects with nobody to hear it.
    flight.outcome.catch(() => {});
    this.#flights.set(key, flight);
    return flight;
  }

  async #join(
    key: string,
    flight: Flight<Result>,
    signal: AbortSignal | undefined,
    endsAtMs: number,
  ): Promise<Landed<Result>> {
    flight.callers += 1;
    const { promise: left, reject: leave } = Promise.withResolvers<never>();
    const cancelTimer = this.#runtime.setTimer(endsAtMs - this.#runtime.monotonicMs(), () => {
      if (this.#runtime.monotonicMs() < flight.endsAtMs) leave(new SessionEnded(undefined));
      // Due at once with the flight's own timer, and maybe before it: the error of the flight's end knows more.
      else flight.end.abort(flightEnded);
    });
    const onAbort = (): void => leave(signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      const result = await Promise.race([flight.outcome, left]);
      const first = !flight.taken;
      flight.taken = true;
      return { result, first };
    } finally {
      cancelTimer();
      signal?.removeEventListener("abort", onAbort);
      flight.callers -= 1;
      if (flight.callers === 0) {
        this.#forget(key, flight);
        flight.end.abort(flightEnded);
      }
    }
  }

  #forget(key: string, flight: Flight<Result>): void {
    if (this.#flights.get(key) === flight) this.#flights.delete(key);
  }
}
