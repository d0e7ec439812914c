import type { ConditionalStore, RemoveOutcome, StoredRecord, Version, WriteOutcome } from "./conditional-store.ts";
import { Backoff } from "./backoff.ts";
import { publish, type FirstwriteEvents } from "./events.ts";
import type { Runtime } from "./runtime.ts";
import type { StoreClock } from "./store-clock.ts";
import { StoreError } from "./store-error.ts";

/** How long the calls of a session may go on. Looked at anew before each request. */
export interface FlightLife {
  /** Ends the session: its calls then reject with {@link SessionEnded}. */
  readonly signal: AbortSignal;
  /**
   * From this time by the runtime's monotonic clock nothing is sent, whether or not a timer has told `signal` yet: a
   * process that was frozen wakes to answers before it wakes to timers.
   */
  readonly endsAtMs: number;
  /** Told before each read is sent. */
  readonly onRead?: () => void;
}

/** What a {@link StoreSession} works with. */
export interface SessionOptions {
  readonly runtime: Runtime;
  readonly life: FlightLife;
  /** Told the store's time with each of its answers. */
  readonly clock?: StoreClock;
  /** After this long one request is given up and its outcome is unknown, in milliseconds. */
  readonly requestTimeoutMs: number;
}

/** One conditional write: a `create`, or a `replace` at `expected`. */
export interface ConditionalWrite {
  readonly name: string;
  readonly expected?: Version | undefined;
  readonly bytes: Uint8Array;
}

/** A record, and when its read was sent: its age at any later time is at most `readAt - modifiedAt` plus the time since. */
export interface TimedRead extends StoredRecord {
  /** By the monotonic clock of the reader. */
  readonly sentAtMs: number;
}

/** Why a session's call never returned: the caller's deadline or signal. `trouble`: what the store last said. */
export class SessionEnded extends Error {
  readonly trouble: unknown;
  constructor(trouble: unknown) {
    super("the deadline passed, or the call was cancelled");
    this.trouble = trouble;
  }
}

/** How often a record whose checksum does not fit is read before a person is called (P3). */
const CORRUPT_READS_MAX = 3;

/**
 * A store as the engine calls it: every request ends in time whether or not the store's client does, and retries have
 * one owner. One session serves one call, or one flight of calls.
 */
export class StoreSession {
  readonly store: ConditionalStore;
  readonly runtime: Runtime;
  readonly #life: FlightLife;
  readonly #requestTimeoutMs: number;
  readonly #clock: StoreClock | undefined;
  #trouble: unknown;
  #finished = false;
  #wake: (() => void) | undefined;

  constructor(store: ConditionalStore, options: SessionOptions) {
    this.store = store;
    this.runtime = options.runtime;
    this.#life = options.life;
    this.#requestTimeoutMs = options.requestTimeoutMs;
    this.#clock = options.clock;
  }

  /** What the store last said that was no answer. */
  get trouble(): unknown {
    return this.#trouble;
  }

  /** Lets the request that is under way end, and sends no other. */
  finish(): void {
    this.#finished = true;
    this.#wake?.();
  }

  /** Ends a {@link pause}, if there is one. */
  wake(): void {
    this.#wake?.();
  }

  /** Waits as `backoff` says, or until the session is over. */
  async pause(backoff: Backoff): Promise<void> {
    const { signal } = this.#life;
    if (this.#finished || signal.aborted) return;
    const ms = backoff.nextMs();
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        cancel();
        this.#wake = undefined;
        signal.removeEventListener("abort", wake);
        resolve();
      };
      const cancel = this.runtime.setTimer(ms, wake);
      this.#wake = wake;
      signal.addEventListener("abort", wake, { once: true });
    });
  }

  /** @throws {SessionEnded} once the session is over. */
  throwIfEnded(): void {
    this.timeLeftMs();
  }

  /** Milliseconds until the session is over; above 0. @throws {SessionEnded} once it is. */
  timeLeftMs(): number {
    const leftMs = this.#life.endsAtMs - this.runtime.monotonicMs();
    if (this.#finished || this.#life.signal.aborted || leftMs <= 0) throw new SessionEnded(this.#trouble);
    return leftMs;
  }

  /**
   * The latest record. A read that fails is sent again, with backoff, until the session ends.
   *
   * @throws {StoreError} that no retry can mend.
   * @throws {SessionEnded}
   */
  async read(name: string): Promise<TimedRead | undefined> {
    const backoff = new Backoff(this.runtime);
    for (let corrupt = 0; ;) {
      this.throwIfEnded();
      this.#life.onRead?.();
      const sentAtMs = this.runtime.monotonicMs();
      try {
        const stored = await this.#request("read", (signal) => this.store.read(name, { signal }));
        if (stored === undefined) return undefined;
        this.#clock?.note(stored.readAt);
        return { ...stored, sentAtMs };
      } catch (error) {
        this.#note(error);
        if (StoreError.is(error) && error.code === "CORRUPT") corrupt += 1;
        if (isFinal(error) || corrupt >= CORRUPT_READS_MAX) throw error;
        await this.pause(backoff);
      }
    }
  }

  /**
   * Sends the write once. A store that rejects with anything but a {@link StoreError}, or does not answer in time, has
   * said nothing: `unknown`.
   *
   * @throws {StoreError} when nothing was written.
   * @throws {SessionEnded} before sending.
   */
  async write({ name, expected, bytes }: ConditionalWrite): Promise<WriteOutcome> {
    this.throwIfEnded();
    try {
      const outcome = await (expected === undefined
        ? this.#request("create", (signal) => this.store.create(name, bytes, { signal }))
        : this.#request("replace", (signal) => this.store.replace(name, expected, bytes, { signal })));
      if (!outcomeKinds.has(outcome.kind)) throw new TypeError("the store's answer is none of a store's outcomes");
      if (outcome.kind === "unknown") this.#note(outcome.cause);
      else if (outcome.kind === "written") this.#clock?.note(outcome.at);
      return outcome;
    } catch (error) {
      this.#note(error);
      if (StoreError.is(error)) throw error;
      return { kind: "unknown", cause: error };
    }
  }

  /**
   * Sends a conditional delete once, as {@link write}.
   *
   * @throws {StoreError} `UNSUPPORTED` where the store has none; others when nothing was removed.
   * @throws {SessionEnded} before sending.
   */
  async remove(name: string, expected: Version): Promise<RemoveOutcome> {
    this.throwIfEnded();
    const { store } = this;
    if (store.remove === undefined) {
      throw new StoreError("UNSUPPORTED", store.traits.name, "the store has no conditional delete");
    }
    const remove = store.remove.bind(store);
    try {
      return await this.#request("remove", (signal) => remove(name, expected, { signal }));
    } catch (error) {
      this.#note(error);
      if (StoreError.is(error)) throw error;
      return { kind: "unknown", cause: error };
    }
  }

  /** What the session's own end did to a request says less than what the store said before. */
  #note(trouble: unknown): void {
    if (!this.#life.signal.aborted) this.#trouble = trouble;
    else this.#trouble ??= trouble;
  }

  /** One request, which ends with its timeout or the session's end, in case the store's client heeds no signal. */
  #request<Answer extends WriteOutcome | RemoveOutcome | StoredRecord | undefined>(
    operation: FirstwriteEvents["firstwrite:store-request"]["operation"],
    send: (signal: AbortSignal) => Promise<Answer>,
  ): Promise<Answer> {
    const { runtime } = this;
    const { signal } = this.#life;
    const startedAtMs = runtime.monotonicMs();
    const abort = new AbortController();
    return new Promise((resolve, reject) => {
      let ended = false;
      const end = (outcome: FirstwriteEvents["firstwrite:store-request"]["outcome"]): boolean => {
        if (ended) return false;
        ended = true;
        cancelTimer();
        signal.removeEventListener("abort", onSessionEnd);
        publish("firstwrite:store-request", () => ({
          store: this.store.traits.name,
          operation,
          outcome,
          durationMs: runtime.monotonicMs() - startedAtMs,
        }));
        return true;
      };
      const giveUp = (why: string): void => {
        abort.abort(new Error(why));
        if (end("failed")) reject(new RequestGivenUp(why));
      };
      const onSessionEnd = (): void => giveUp(`no answer to a ${operation} before the call ended`);
      const cancelTimer = runtime.setTimer(this.#requestTimeoutMs, () =>
        giveUp(`no answer to a ${operation} within ${this.#requestTimeoutMs} ms`),
      );
      signal.addEventListener("abort", onSessionEnd, { once: true });
      const failed = (error: unknown): void => {
        if (end("failed")) reject(error);
      };
      const answered = (answer: Answer): void => {
        if (end(outcomeOfAnswer(answer))) resolve(answer);
      };
      try {
        send(abort.signal).then(answered, failed);
      } catch (error) {
        // Thrown before there was a promise, by a store that does not keep its contract.
        failed(error);
      }
    });
  }
}

/** For the event. What is no answer of a store's is judged by whoever asked. */
function outcomeOfAnswer(
  answer: WriteOutcome | RemoveOutcome | StoredRecord | undefined,
): FirstwriteEvents["firstwrite:store-request"]["outcome"] {
  if (answer === undefined) return "absent";
  if (typeof answer !== "object" || answer === null) return "failed";
  return "kind" in answer ? answer.kind : "found";
}

class RequestGivenUp extends Error {}

const outcomeKinds: ReadonlySet<unknown> = new Set<WriteOutcome["kind"]>([
  "written",
  "refused",
  "contended",
  "unknown",
]);

/** Whether a store's failure stays whatever is sent again. */
export function isFinal(error: unknown): boolean {
  return (
    StoreError.is(error) &&
    (error.code === "INVALID_ARGUMENT" || error.code === "PERMISSION_DENIED" || error.code === "UNSUPPORTED")
  );
}
