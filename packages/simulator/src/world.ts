/**
 * The world a schedule is played in: one store, one time, and a few callers of real code, each of whose requests waits
 * until the schedule says what becomes of it.
 *
 * What the model can do to a request: apply it and answer; lose it; apply it and lose the answer; let it land at any
 * later time; apply it and hold the answer back; crash its caller before or after it was applied; answer `contended`.
 * A lifecycle rule may remove a record of a certain age.
 * Time stands still but for the schedule's jumps, and a sleeping caller wakes when the schedule says so: jitter is zero,
 * so that no backoff hides an order of events. A request is in flight for at most `inFlightMsMax`; what has not landed by
 * then never does, which is what the protocol assumes of a network (rules P9, T5).
 */

import {
  StoreError,
  toVersion,
  type CallOptions,
  type ConditionalStore,
  type Runtime,
  type StoredRecord,
  type StoreTraits,
  type Version,
  type WriteOutcome,
} from "@firstwrite/core";
import { createHash } from "node:crypto";

/** What may go wrong with one request. Each counts against the scenario's number of faults. */
export type Fault =
  | "lostRequest"
  | "lostReply"
  | "landsLate"
  | "heldReply"
  | "crashBefore"
  | "crashAfter"
  | "contended";

export interface WorldOptions {
  readonly callers: number;
  readonly startAt: number;
  readonly inFlightMsMax: number;
  /** What is stored when the schedule begins. */
  readonly records: readonly StartingRecord[];
  /** From this age on a record may be removed at any moment, as by a lifecycle rule. */
  readonly removedAfterMs: number;
  readonly traits: StoreTraits;
  /** Called after each write that changed the store, with what stood there before. */
  readonly onWritten: (change: Change) => void;
}

/** One write that changed the store. */
export interface Change {
  readonly name: string;
  readonly before: ModelRecord | undefined;
  readonly after: ModelRecord;
}

export interface ModelRecord {
  readonly bytes: Uint8Array;
  readonly modifiedAt: number;
}

/** A record that is there before the first call. */
export interface StartingRecord {
  readonly name: string;
  readonly bytes: Uint8Array;
  /** How long ago it was written, in milliseconds. */
  readonly ageMs: number;
}

interface Request {
  readonly operation: "create" | "replace" | "read";
  readonly name: string;
  readonly expected: Version | undefined;
  readonly bytes: Uint8Array | undefined;
  readonly sentAt: number;
  readonly answer: (answer: Answer) => void;
}

type Answer =
  | { readonly kind: "outcome"; readonly outcome: WriteOutcome }
  | { readonly kind: "record"; readonly record: StoredRecord | undefined }
  | { readonly kind: "failed" };

interface Caller {
  pending: Request | undefined;
  held: { readonly request: Request; readonly answer: Answer } | undefined;
  crashed: boolean;
  /** All that the caller's code has been told: two callers told the same are in the same state. */
  history: string;
  timers: { readonly at: number; readonly fire: () => void }[];
  random: number;
}

export class World {
  readonly #options: WorldOptions;
  readonly #records = new Map<string, ModelRecord>();
  readonly #callers: Caller[];
  #late: Request[] = [];
  #now: number;

  constructor(options: WorldOptions) {
    this.#options = options;
    this.#now = options.startAt;
    for (const { name, bytes, ageMs } of options.records) {
      this.#records.set(name, { bytes, modifiedAt: options.startAt - ageMs });
    }
    this.#callers = Array.from({ length: options.callers }, (_, index) => ({
      pending: undefined,
      held: undefined,
      crashed: false,
      history: `${index}`,
      timers: [],
      random: 0,
    }));
  }

  get now(): number {
    return this.#now;
  }

  get records(): ReadonlyMap<string, ModelRecord> {
    return this.#records;
  }

  /** The store as caller `index` sees it: each call is a choice of the schedule's. */
  storeFor(index: number): ConditionalStore {
    const send = (request: Omit<Request, "sentAt" | "answer">, { signal }: CallOptions = {}): Promise<Answer> =>
      new Promise((resolve) => {
        const caller = this.#caller(index);
        if (caller.pending !== undefined || caller.held !== undefined) {
          throw new Error("a caller of the model sends one request at a time");
        }
        const answer = (given: Answer): void => {
          caller.pending = undefined;
          caller.held = undefined;
          caller.history = digest(caller.history, this.#now, describeAnswer(given));
          resolve(given);
        };
        caller.pending = { ...request, sentAt: this.#now, answer };
        // The caller gave the request up; what becomes of it no longer concerns the caller, but it may be under way.
        signal?.addEventListener("abort", () => this.#abandon(caller), { once: true });
      });
    const write = async (request: Omit<Request, "sentAt" | "answer">, options?: CallOptions): Promise<WriteOutcome> => {
      const answer = await send(request, options);
      if (answer.kind !== "outcome") throw new Error("a write was answered with a record");
      return answer.outcome;
    };
    return {
      traits: this.#options.traits,
      create: (name, bytes, options) => write({ operation: "create", name, expected: undefined, bytes }, options),
      replace: (name, expected, bytes, options) => write({ operation: "replace", name, expected, bytes }, options),
      read: async (name, options) => {
        const answer = await send({ operation: "read", name, expected: undefined, bytes: undefined }, options);
        if (answer.kind === "record") return answer.record;
        throw new StoreError("UNAVAILABLE", this.#options.traits.name, "the read was lost");
      },
    };
  }

  /** The clock and randomness of caller `index`; the bytes it draws depend on nothing but how many it drew before. */
  runtimeFor(index: number): Runtime {
    const caller = this.#caller(index);
    return {
      now: () => this.#now,
      monotonicMs: () => this.#now - this.#options.startAt,
      random: () => 0,
      randomBytes: (length) => {
        caller.random += 1;
        return createHash("sha256").update(`${index} ${caller.random}`).digest().subarray(0, length);
      },
      setTimer: (ms, fire) => {
        const timer = { at: this.#now + ms, fire };
        const later = caller.timers.findIndex((other) => other.at > timer.at);
        caller.timers.splice(later === -1 ? caller.timers.length : later, 0, timer);
        return () => {
          caller.timers = caller.timers.filter((other) => other !== timer);
        };
      },
    };
  }

  /** What can happen next to caller `index`, without a fault. */
  moves(index: number): string[] {
    const { pending, held, crashed, timers } = this.#caller(index);
    if (crashed) return [];
    const due = timers[0] !== undefined && timers[0].at <= this.#now ? [`wake ${index}`] : [];
    if (held !== undefined) return [`reply ${index}`, ...due];
    if (pending === undefined) return due;
    return [this.#tooLate(pending) ? `expire ${index}` : `apply ${index}`, ...due];
  }

  /** Which of `faults` can happen to what caller `index` has sent. */
  faults(index: number, faults: readonly Fault[]): string[] {
    const { pending, crashed } = this.#caller(index);
    if (crashed || pending === undefined) return [];
    const late = this.#tooLate(pending);
    return faults
      .filter((fault) => {
        if (late) return fault === "crashBefore";
        if (pending.operation !== "read") return true;
        // A lost read is one fault however it was lost, and a crash after a read is a crash before the next request.
        return fault === "lostRequest" || fault === "heldReply" || fault === "crashBefore";
      })
      .map((fault) => `${fault} ${index}`);
  }

  /** Writes in flight that no caller waits for. */
  landings(): string[] {
    return this.#late.map((_, index) => `land ${index}`);
  }

  /** Records that a lifecycle rule may remove now. */
  removals(): string[] {
    return Array.from(this.#records.values()).flatMap(({ modifiedAt }, index) =>
      this.#now - modifiedAt > this.#options.removedAfterMs ? [`remove ${index}`] : [],
    );
  }

  /** Plays one event of a schedule. */
  play(event: string): void {
    const [what, of] = event.split(" ");
    const index = Number(of);
    if (what === "jump") {
      this.#now += index;
      this.#late = this.#late.filter((request) => !this.#tooLate(request));
      return;
    }
    if (what === "land") {
      const [request] = this.#late.splice(index, 1);
      if (request === undefined) throw new Error(`nothing to land: ${event}`);
      this.#apply(request);
      return;
    }
    if (what === "remove") {
      const [name] = Array.from(this.#records.keys()).slice(index);
      if (name === undefined) throw new Error(`nothing to remove: ${event}`);
      this.#records.delete(name);
      return;
    }
    const caller = this.#caller(index);
    if (what === "wake") {
      const timer = caller.timers.shift();
      if (timer === undefined) throw new Error(`nobody to wake: ${event}`);
      caller.history = digest(caller.history, this.#now, "wake");
      timer.fire();
      return;
    }
    if (what === "reply") {
      if (caller.held === undefined) throw new Error(`no reply is held: ${event}`);
      caller.held.request.answer(caller.held.answer);
      return;
    }
    const request = caller.pending;
    if (request === undefined) throw new Error(`nothing was sent: ${event}`);
    switch (what) {
      case "apply":
        request.answer(this.#apply(request));
        return;
      case "expire":
      case "lostRequest":
        request.answer(lost(request));
        return;
      case "lostReply":
        this.#apply(request);
        request.answer(lost(request));
        return;
      case "landsLate":
        this.#late.push(request);
        request.answer(lost(request));
        return;
      case "heldReply":
        caller.held = { request, answer: this.#apply(request) };
        caller.pending = undefined;
        return;
      case "contended":
        request.answer({ kind: "outcome", outcome: { kind: "contended" } });
        return;
      case "crashAfter":
        this.#apply(request);
        this.#crash(caller);
        return;
      case "crashBefore":
        this.#crash(caller);
        return;
      default:
        throw new Error(`no such event: ${event}`);
    }
  }

  /** Equal for two worlds that cannot be told apart from here on. */
  fingerprint(): string {
    const records = Array.from(
      this.#records,
      ([name, { bytes, modifiedAt }]) => `${name} ${hash(bytes)} ${modifiedAt}`,
    );
    const late = this.#late.map((request) => describeRequest(request));
    const callers = this.#callers.map(({ history, pending, held, crashed, timers }) =>
      crashed
        ? "crashed"
        : [
            history,
            pending && describeRequest(pending),
            held && describeAnswer(held.answer),
            timers.map(({ at }) => at),
          ],
    );
    return hash(JSON.stringify([this.#now, records.toSorted(), late.toSorted(), callers]));
  }

  /** Adds to what caller `index` is known to have been told: what its call ended in. */
  note(index: number, text: string): void {
    const caller = this.#caller(index);
    caller.history = digest(caller.history, this.#now, text);
  }

  isCrashed(index: number): boolean {
    return this.#caller(index).crashed;
  }

  #apply({ operation, name, expected, bytes }: Request): Answer {
    const before = this.#records.get(name);
    if (operation === "read" || bytes === undefined) {
      const record = before && {
        bytes: Uint8Array.from(before.bytes),
        version: versionOf(before),
        modifiedAt: before.modifiedAt,
        readAt: this.#now,
      };
      return { kind: "record", record };
    }
    const holds =
      operation === "create" ? before === undefined : before !== undefined && versionOf(before) === expected;
    if (!holds) return { kind: "outcome", outcome: { kind: "refused" } };
    const after: ModelRecord = { bytes: Uint8Array.from(bytes), modifiedAt: this.#now };
    this.#records.set(name, after);
    this.#options.onWritten({ name, before, after });
    return { kind: "outcome", outcome: { kind: "written", version: versionOf(after), at: this.#now } };
  }

  #tooLate({ operation, sentAt }: Request): boolean {
    return operation !== "read" && this.#now - sentAt > this.#options.inFlightMsMax;
  }

  #abandon(caller: Caller): void {
    const { pending } = caller;
    if (pending !== undefined && pending.operation !== "read" && !this.#tooLate(pending)) this.#late.push(pending);
    caller.pending = undefined;
    caller.held = undefined;
  }

  #crash(caller: Caller): void {
    caller.crashed = true;
    caller.pending = undefined;
    caller.held = undefined;
    caller.timers = [];
  }

  #caller(index: number): Caller {
    const caller = this.#callers[index];
    if (caller === undefined) throw new Error(`there is no caller ${index}`);
    return caller;
  }
}

function lost({ operation }: Request): Answer {
  if (operation === "read") return { kind: "failed" };
  return { kind: "outcome", outcome: { kind: "unknown", cause: new Error("lost") } };
}

/** A content hash, as S3's ETags are: equal bytes bring an old version back (rule P8). */
function versionOf({ bytes }: ModelRecord): Version {
  return toVersion(hash(bytes).slice(0, 16));
}

function describeRequest({ operation, name, expected, bytes, sentAt }: Request): string {
  return JSON.stringify([operation, name, expected, bytes && hash(bytes), sentAt]);
}

function describeAnswer(answer: Answer): string {
  if (answer.kind === "failed") return "failed";
  if (answer.kind === "record") {
    const { record } = answer;
    return record === undefined ? "absent" : JSON.stringify([record.version, record.modifiedAt, record.readAt]);
  }
  const { outcome } = answer;
  return outcome.kind === "written" ? JSON.stringify(outcome) : outcome.kind;
}

function digest(history: string, now: number, told: string): string {
  return hash(`${history}\n${now}\n${told}`);
}

function hash(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}
