import { Backoff } from "./backoff.ts";
import type { Version } from "./conditional-store.ts";
import { InvalidArgumentError } from "./errors.ts";
import { look, type Found } from "./execution.ts";
import type { RecordAddress } from "./object-name.ts";
import {
  decodeRecord,
  encodeRecord,
  stamp,
  type IdempotencyRecord,
  type InlineResult,
  type RecordResult,
  type WritableRecord,
} from "./record.ts";
import type { Runtime } from "./runtime.ts";
import { settleWrite, type SettledWrite } from "./settled-write.ts";
import { SessionEnded, type StoreSession } from "./store-session.ts";

/** A claim that was won, and what its lease goes by. */
export interface LeaseOptions {
  readonly runtime: Runtime;
  /** Opens a session that lives as long as the flight, and gives one request up after `requestMsMax`. */
  readonly openSession: (requestMsMax?: number) => StoreSession;
  readonly address: RecordAddress;
  readonly record: WritableRecord;
  readonly version: Version;
  /** By the monotonic clock, before the first sending of the claim's bytes. */
  readonly firstSentAtMs: number;
  /** How long the owner counts its own lease, in milliseconds. The record says how long others do, which is longer. */
  readonly leaseMs: number;
  /** From then on after `firstSentAtMs` the lease is not renewed, in milliseconds. */
  readonly maxRunMs: number;
  /** Told once, as soon as another's record was found. */
  readonly onLost: () => void;
  /** Told when the lease is over, and will not be renewed. */
  readonly onGivenUp: () => void;
}

/** How the settling write of an owner ended. */
export type Settlement =
  | { readonly kind: "written"; readonly record: WritableRecord; readonly firstSentAtMs: number }
  /** The effect has settled it in a transaction of its own. */
  | { readonly kind: "withEffect"; readonly found: Found; readonly result: RecordResult }
  /** Another's record is there: nothing more may be written. */
  | { readonly kind: "lost" }
  /** The record would be larger than asked for. Nothing was sent, and the lease goes on. */
  | { readonly kind: "tooLarge" };

interface EncodedRecord {
  readonly record: WritableRecord;
  readonly bytes: Uint8Array;
}

/**
 * One attempt's ownership of a record (rules E3 and E5): from the claim to the settling write the lease is renewed when a
 * third of it has passed. One write of an owner is under way at a time.
 */
export class Lease {
  readonly address: RecordAddress;
  readonly #options: LeaseOptions;
  /** Of the effect that began last. */
  #abort = new AbortController();
  #cancelled: { readonly reason: unknown } | undefined;
  /** What this attempt wrote to live by. */
  readonly #leaseIds: string[] = [];
  /** What it wrote to settle. */
  readonly #settlingIds: string[] = [];
  /** What its effect was given to settle with. */
  readonly #effectsIds: string[] = [];
  #record: WritableRecord;
  #version: Version;
  #ownedUntilMs: number;
  #lost = false;
  #stopped = false;
  #renewal: { readonly session: StoreSession; readonly done: Promise<void> } | undefined;
  #cancelTimer: () => void = () => {};
  #cancelProofTimer: () => void = () => {};

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.address = options.address;
    this.#record = options.record;
    this.#version = options.version;
    this.#leaseIds.push(options.record.writeId);
    this.#ownedUntilMs = options.firstSentAtMs + options.leaseMs;
    this.#schedule(options.firstSentAtMs);
  }

  get record(): WritableRecord {
    return this.#record;
  }

  /**
   * The signal of an effect that begins now, while ownership is proved: aborts when it is lost, or can no longer be proved, or
   * by {@link cancel}. What a lease went through before is not this effect's.
   */
  begin(): AbortSignal {
    this.#abort = new AbortController();
    if (this.#cancelled !== undefined) this.#abort.abort(this.#cancelled.reason);
    return this.#abort.signal;
  }

  /** The reason with which the last caller cancelled. */
  get cancelled(): { readonly reason: unknown } | undefined {
    return this.#cancelled;
  }

  get lost(): boolean {
    return this.#lost;
  }

  /** Whether this process owns the operation, for all that it knows. Looks at the clock: timers may be late. */
  isProved(): boolean {
    return !this.#lost && this.#options.runtime.monotonicMs() < this.#ownedUntilMs;
  }

  /**
   * Renews until ownership is proved (rule E3: `run` starts only while it is). False: it is lost, or `maxRunMs` has passed.
   *
   * @throws {SessionEnded}
   */
  async prove(): Promise<boolean> {
    const { runtime, openSession, firstSentAtMs, maxRunMs } = this.#options;
    const backoff = new Backoff(runtime);
    const session = openSession();
    while (!this.isProved()) {
      session.throwIfEnded();
      if (this.#lost || runtime.monotonicMs() >= firstSentAtMs + maxRunMs) return false;
      this.#cancelTimer();
      await this.#renew();
      if (!this.isProved()) await session.pause(backoff);
    }
    return true;
  }

  /** Aborts the effect's signal, as its last caller asked. The lease goes on: the effect may have started. */
  cancel(reason: unknown): void {
    this.#cancelled = { reason };
    this.#abort.abort(reason);
  }

  /** Has the effect's signal aborted, or should it have by the clock? */
  isOver(): boolean {
    if (!this.isProved()) this.#abortUnproved();
    return this.#abort.signal.aborted;
  }

  /** Whether the effect was given bytes to settle with: the record may be settled, whatever the effect says. */
  get mayBeSettled(): boolean {
    return this.#effectsIds.length > 0;
  }

  /**
   * Ends the renewing, for an effect that is to settle the record in its own transaction: at the version that this gives. A
   * renewal under way is waited for until it is decided, since one that lands later would be in the transaction's way.
   *
   * @throws the reason of the effect's signal, when it has aborted.
   * @throws {InvalidArgumentError} once the effect has ended.
   */
  async prepare(): Promise<Version> {
    const { signal } = this.#abort;
    if (this.#renewal !== undefined) await Promise.race([this.#renewal.done, abortOf(signal)]);
    if (this.isOver()) throw signal.reason;
    this.#checkGoingOn();
    this.#scheduleEnd();
    return this.#version;
  }

  /**
   * A settled record for the effect's own transaction; another one each time.
   *
   * @throws {InvalidArgumentError} for one longer than `bytesMax`: no transaction has room for an upload; and once the effect has
   *   ended.
   */
  encodeReady(result: InlineResult, bytesMax: number): Uint8Array {
    this.#checkGoingOn();
    const { record, bytes } = this.#next((live) => readyRecord(live, result));
    if (bytes.byteLength > bytesMax) {
      throw new InvalidArgumentError(
        `the record would be ${bytes.byteLength} bytes long, and at most ${bytesMax} are kept in one: return a smaller value, or do without settlingWrite`,
      );
    }
    this.#effectsIds.push(record.writeId);
    return bytes;
  }

  /**
   * The settling write: what `make` makes of the attempt's record, at the version held. Ends the renewing, unless the
   * record is larger than `bytesMax`.
   *
   * @throws {SessionEnded} when it could not be found out before the session ended: it may be written now, later or never.
   * @throws {StoreError} that no retry can mend, and what a record that cannot be read throws.
   */
  async settle(make: (record: WritableRecord) => WritableRecord, bytesMax: number = Infinity): Promise<Settlement> {
    let write = this.#next(make);
    if (write.bytes.byteLength > bytesMax) return { kind: "tooLarge" };
    await this.stop();
    const session = this.#options.openSession();
    const backoff = new Backoff(this.#options.runtime);
    if (this.mayBeSettled) {
      const found = await look(session, this);
      const settled = this.#settledByEffect(found);
      if (settled !== undefined) return settled;
      if (!this.#goOnFrom(found)) return { kind: "lost" };
    }
    while (!this.#lost) {
      const { record } = write;
      const firstSentAtMs = this.#options.runtime.monotonicMs();
      this.#settlingIds.push(record.writeId);
      const settled = await this.#write(session, write, this.#settlingIds);
      if (settled.kind === "mine") return { kind: "written", record, firstSentAtMs };
      const found = foundBy(settled);
      const byEffect = this.#settledByEffect(found);
      if (byEffect !== undefined) return byEffect;
      if (!this.#goOnFrom(found)) break;
      await session.pause(backoff);
      write = this.#next(make);
    }
    return { kind: "lost" };
  }

  /** Ends the renewing. A renewal that is not decided is left as it is: its request is waited for, and not repeated. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancelTimer();
    this.#cancelProofTimer();
    const renewal = this.#renewal;
    if (renewal === undefined) return;
    renewal.session.finish();
    await renewal.done;
  }

  /** What a transaction does that `run` has left behind is nobody's to wait for, or to tell. */
  #checkGoingOn(): void {
    if (!this.#stopped) return;
    // It may go on for longer than its owner owned the record.
    this.#abort.signal.throwIfAborted();
    throw new InvalidArgumentError(
      "run has ended: await the transaction of its settlingWrite before it returns or throws",
    );
  }

  #next(make: (record: WritableRecord) => WritableRecord): EncodedRecord {
    const record = make({ ...this.#record, ...stamp(this.#options.runtime, this.#record.ttlMs) });
    return { record, bytes: encodeRecord(record) };
  }

  #schedule(sentAtMs: number): void {
    const { leaseMs, maxRunMs, firstSentAtMs } = this.#options;
    const renewAtMs = sentAtMs + leaseMs / 3;
    if (renewAtMs < firstSentAtMs + maxRunMs) this.#setTimer(renewAtMs, () => void this.#renew());
    else this.#scheduleEnd();
  }

  /** It is not renewed any more. */
  #scheduleEnd(): void {
    this.#setTimer(this.#ownedUntilMs, () => {
      this.#abortUnproved();
      this.#options.onGivenUp();
    });
  }

  #setTimer(atMs: number, fire: () => void): void {
    const { runtime } = this.#options;
    this.#cancelTimer();
    this.#cancelTimer = runtime.setTimer(Math.max(0, atMs - runtime.monotonicMs()), fire);
  }

  /** Never rejects. Joins a renewal that is under way. */
  async #renew(): Promise<void> {
    if (this.#stopped || this.#lost) return;
    if (this.#renewal === undefined) {
      // A request that hangs must leave time for another one before the lease is over.
      const session = this.#options.openSession(this.#options.leaseMs / 3);
      this.#armProofTimer();
      const done = this.#renewIn(session).finally(() => {
        this.#renewal = undefined;
      });
      this.#renewal = { session, done };
    }
    await this.#renewal.done;
  }

  async #renewIn(session: StoreSession): Promise<void> {
    const { runtime, leaseMs } = this.#options;
    const backoff = new Backoff(runtime);
    try {
      for (;;) {
        const record: WritableRecord = { ...this.#record, ...stamp(runtime, this.#record.ttlMs) };
        const firstSentAtMs = runtime.monotonicMs();
        this.#leaseIds.push(record.writeId);
        const bytes = encodeRecord(record);
        const settled = await this.#write(session, { record, bytes }, [record.writeId]);
        if (settled.kind === "mine") {
          this.#record = record;
          this.#version = settled.version;
          this.#ownedUntilMs = firstSentAtMs + leaseMs;
          this.#cancelProofTimer();
          if (!this.#stopped) this.#schedule(firstSentAtMs);
          return;
        }
        if (!this.#goOnFrom(foundBy(settled))) return;
        await session.pause(backoff);
      }
    } catch (error) {
      // What the store said cannot be mended by sending again at once; the owner stays one until its lease ends.
      if (!(error instanceof SessionEnded) && !this.#stopped) this.#schedule(runtime.monotonicMs());
    }
  }

  #settledByEffect(found: Found | undefined): Extract<Settlement, { kind: "withEffect" }> | undefined {
    const { writeId, result } = found?.record ?? {};
    if (found === undefined || writeId === undefined || result === undefined) return undefined;
    return this.#effectsIds.includes(writeId) ? { kind: "withEffect", found, result } : undefined;
  }

  /** Whether the record that was found is still this attempt's, to be written again at its version (E5). */
  #goOnFrom(found: Found | undefined): boolean {
    if (found?.record.writeId !== undefined && this.#leaseIds.includes(found.record.writeId)) {
      this.#version = found.stored.version;
      return true;
    }
    this.#lost = true;
    this.#cancelTimer();
    this.#cancelProofTimer();
    this.#abort.abort(new Error("another process has taken the operation over: nothing more may be sent for it"));
    this.#options.onLost();
    return false;
  }

  #write(
    session: StoreSession,
    { bytes }: EncodedRecord,
    ours: readonly string[],
  ): Promise<SettledWrite<IdempotencyRecord>> {
    return settleWrite(session, {
      name: this.address.name,
      expected: this.#version,
      bytes,
      inspect: (stored) => {
        const seen = decodeRecord(session.store.traits.name, this.address, stored);
        return { ours: seen.writeId !== undefined && ours.includes(seen.writeId), seen };
      },
    });
  }

  #armProofTimer(): void {
    const { runtime } = this.#options;
    this.#cancelProofTimer();
    this.#cancelProofTimer = runtime.setTimer(Math.max(0, this.#ownedUntilMs - runtime.monotonicMs()), () =>
      this.#abortUnproved(),
    );
  }

  #abortUnproved(): void {
    this.#abort.abort(new Error("the lease could not be renewed in time: another process may take the operation over"));
  }
}

export function readyRecord(record: WritableRecord, result: WritableRecord["result"]): WritableRecord {
  return { ...record, status: "ready", leaseMs: undefined, result };
}

/** Resolves when `signal` aborts. */
function abortOf(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** What a write that was refused found. */
function foundBy(settled: Exclude<SettledWrite<IdempotencyRecord>, { kind: "mine" }>): Found | undefined {
  return settled.kind === "other" ? { record: settled.seen, stored: settled.stored } : undefined;
}
