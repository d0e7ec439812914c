/**
 * A store for unit tests of code that must be idempotent. It keeps the contract of `ConditionalStore` to the letter, and
 * on demand does what a network does to a request. The faults it can inject, each on the next matching calls:
 *
 * | fault         | a write                                              | a read                  |
 * | ------------- | ---------------------------------------------------- | ----------------------- |
 * | `lostRequest` | `unknown`; nothing is stored                         | rejects `UNAVAILABLE`   |
 * | `lostReply`   | done as asked, then `unknown`                        | rejects `UNAVAILABLE`   |
 * | `landsLate`   | `unknown`; decided only when {@link MemoryStore.land} is called | not possible |
 * | `contended`   | `contended`; nothing is stored                       | not possible            |
 * | `hangs`       | no answer until the call's signal aborts, then `unknown`; nothing is stored | as a write, then rejects `UNAVAILABLE` |
 * | `denied`      | rejects `PERMISSION_DENIED`; nothing is stored       | the same                |
 * | `away`        | rejects `UNAVAILABLE`; nothing is stored             | the same                |
 *
 * It does not lie in any other way: an answered write is as it says, and a read is never stale.
 */

import { types } from "node:util";

import {
  checkNotAborted,
  checkObjectName,
  checkWrite,
  InvalidArgumentError,
  nodeRuntime,
  StoreError,
  toVersion,
  type CallOptions,
  type ConditionalStore,
  type ListedObject,
  type RemoveOutcome,
  type StoredRecord,
  type StoreTraits,
  type Version,
  type WriteOutcome,
} from "@firstwrite/core";

export type Operation = "create" | "replace" | "read" | "remove";

export type Fault = "lostRequest" | "lostReply" | "landsLate" | "contended" | "hangs" | "denied" | "away";

/** Which calls a fault is for. Each member left out matches everything. */
export interface FaultTarget {
  readonly on?: Operation | "write";
  /** The whole object name, or a pattern for it. */
  readonly name?: string | RegExp;
  /** How many matching calls; by default 1, and `Infinity` lasts until {@link MemoryStore.heal}. */
  readonly times?: number;
}

export interface MemoryStoreOptions {
  /** What the store's clock is; a `VirtualClock` in tests. By default the machine's. */
  readonly clock?: { now(): number };
  readonly traits?: Partial<StoreTraits>;
}

interface Entry {
  readonly bytes: Uint8Array;
  readonly version: Version;
  readonly modifiedAt: number;
}

/** The faults and the targets at run time, for callers without types; one that is missing here does not compile. */
const faults: Readonly<Record<Fault, true>> = {
  lostRequest: true,
  lostReply: true,
  landsLate: true,
  contended: true,
  hangs: true,
  denied: true,
  away: true,
};
const targets: Readonly<Record<Operation | "write", true>> = {
  create: true,
  replace: true,
  remove: true,
  read: true,
  write: true,
};
const targetMembers: Readonly<Record<keyof FaultTarget, true>> = { on: true, name: true, times: true };

interface InjectedFault {
  readonly fault: Fault;
  readonly target: FaultTarget;
  left: number;
}

export class MemoryStore implements ConditionalStore {
  readonly traits: StoreTraits;
  readonly #clock: { now(): number };
  readonly #entries = new Map<string, Entry>();
  readonly #late: (() => void)[] = [];
  #faults: InjectedFault[] = [];
  #writes = 0;

  constructor(options: MemoryStoreOptions = {}) {
    this.#clock = options.clock ?? nodeRuntime;
    this.traits = {
      name: "memory",
      nameBytesMax: 1024,
      recordBytesMax: 16 * 1024 * 1024,
      clockGranularityMs: 0,
      ...options.traits,
    };
  }

  async create(name: string, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    const copy = copyOf(bytes);
    return this.#write("create", name, options, () => (this.#entries.has(name) ? refused : this.#put(name, copy)));
  }

  async replace(name: string, expected: Version, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    const copy = copyOf(bytes);
    return this.#write("replace", name, options, () =>
      this.#entries.get(name)?.version === expected ? this.#put(name, copy) : refused,
    );
  }

  async read(name: string, options: CallOptions = {}): Promise<StoredRecord | undefined> {
    checkObjectName(this.traits, name);
    checkNotAborted(this.traits, options);
    const fault = this.#take("read", name);
    if (fault === "hangs") await aborted(options.signal);
    if (fault !== undefined) throw this.#failure(fault);
    const entry = this.#entries.get(name);
    return entry && { ...entry, bytes: copyOf(entry.bytes), readAt: this.#clock.now() };
  }

  async remove(name: string, expected: Version, options: CallOptions = {}): Promise<RemoveOutcome> {
    checkObjectName(this.traits, name);
    return this.#write<RemoveOutcome>("remove", name, options, () => {
      if (this.#entries.get(name)?.version !== expected) return refused;
      this.#entries.delete(name);
      return { kind: "removed" };
    });
  }

  async *list(prefix: string, options: CallOptions = {}): AsyncGenerator<ListedObject, void, void> {
    checkNotAborted(this.traits, options);
    for (const [name, { modifiedAt }] of Array.from(this.#entries)) {
      checkNotAborted(this.traits, options);
      if (name.startsWith(prefix)) yield { name, modifiedAt };
    }
  }

  /**
   * Makes the next matching calls fail. Faults are used up in the order they were injected.
   *
   * @throws {InvalidArgumentError} for a fault or a target that is none: no call would ever fail, and the test that
   *   waits for it would prove nothing.
   * @throws {StoreError} `INVALID_ARGUMENT` for a fault that no read can have, asked for reads.
   */
  inject(fault: Fault, target: FaultTarget = {}): void {
    checkInjection(fault, target);
    if (target.on === "read" && (fault === "landsLate" || fault === "contended")) {
      throw new StoreError("INVALID_ARGUMENT", this.traits.name, `a read cannot be "${fault}": inject it on writes`);
    }
    this.#faults.push({ fault, target, left: target.times ?? 1 });
  }

  /** Forgets every fault not used up. Writes held by `landsLate` stay held. */
  heal(): void {
    this.#faults = [];
  }

  /** How many writes held by `landsLate` have not landed. */
  get lateWrites(): number {
    return this.#late.length;
  }

  /** Lets the oldest write held by `landsLate` reach the store: it is done if its condition holds now. */
  land(): void {
    const decide = this.#late.shift();
    if (decide === undefined) {
      throw new StoreError("INVALID_ARGUMENT", this.traits.name, 'no write is held: inject "landsLate" first');
    }
    decide();
  }

  /** Removes a record, as a lifecycle rule of a bucket does. */
  expire(name: string): void {
    this.#entries.delete(name);
  }

  async #write<Outcome>(
    operation: Exclude<Operation, "read">,
    name: string,
    options: CallOptions,
    decide: () => Outcome | typeof refused,
  ): Promise<Outcome | Undecided> {
    checkNotAborted(this.traits, options);
    const fault = this.#take(operation, name);
    switch (fault) {
      case undefined:
        return decide();
      case "lostRequest":
        return unknown("the request was lost");
      case "lostReply":
        decide();
        return unknown("the reply was lost");
      case "landsLate":
        this.#late.push(decide);
        return unknown("no reply yet; the request is still under way");
      case "contended":
        return { kind: "contended" };
      case "hangs":
        await aborted(options.signal);
        return unknown("aborted while waiting for the reply");
      case "denied":
      case "away":
        throw this.#failure(fault);
    }
  }

  #put(name: string, bytes: Uint8Array): WriteOutcome {
    this.#writes += 1;
    const version = toVersion(`m${this.#writes}`);
    const at = this.#clock.now();
    this.#entries.set(name, { bytes, version, modifiedAt: at });
    return { kind: "written", version, at };
  }

  #take(operation: Operation, name: string): Fault | undefined {
    const found = this.#faults.find(
      ({ fault, target, left }) =>
        left > 0 &&
        (target.on === undefined || target.on === operation || (target.on === "write" && operation !== "read")) &&
        (operation !== "read" || (fault !== "landsLate" && fault !== "contended")) &&
        (target.name === undefined ||
          // Not `test`, which remembers where a pattern with the flag g or y left off.
          (typeof target.name === "string" ? target.name === name : name.search(target.name) !== -1)),
    );
    if (found === undefined) return undefined;
    found.left -= 1;
    return found.fault;
  }

  #failure(fault: Fault): StoreError {
    return fault === "denied"
      ? new StoreError("PERMISSION_DENIED", this.traits.name, "access denied (injected)")
      : new StoreError("UNAVAILABLE", this.traits.name, `no answer (injected: ${fault})`);
  }
}

/** @throws {InvalidArgumentError} */
function checkInjection(fault: Fault, target: FaultTarget): void {
  checkOneOf(faults, fault, "a fault");
  if (typeof target !== "object" || target === null) {
    throw new InvalidArgumentError("what a fault is for must be an object: { on, name, times }");
  }
  for (const member of Object.keys(target)) checkOneOf(targetMembers, member, "what a fault is for");
  const { on, name, times = 1 } = target;
  if (on !== undefined) checkOneOf(targets, on, "what a fault is on");
  if (name !== undefined && typeof name !== "string" && !types.isRegExp(name)) {
    throw new InvalidArgumentError("the name a fault is for must be a string or a pattern");
  }
  if (times !== Infinity && !(Number.isSafeInteger(times) && times > 0)) {
    throw new InvalidArgumentError(`a fault cannot be injected ${String(times)} times: give 1 or more, or Infinity`);
  }
}

function checkOneOf(known: Readonly<Record<string, true>>, given: string, what: string): void {
  if (Object.hasOwn(known, given)) return;
  throw new InvalidArgumentError(`${what} cannot be ${JSON.stringify(given)}: it is ${Object.keys(known).join(", ")}`);
}

const refused = { kind: "refused" } as const;

/** By way of Node's pool of small buffers: an `ArrayBuffer` for each record costs more than the rest of a call. */
function copyOf(bytes: Uint8Array): Uint8Array {
  const { buffer, byteOffset, byteLength } = Buffer.from(bytes);
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** What a fault makes of a write's outcome, or of a remove's. */
type Undecided = Extract<WriteOutcome, { kind: "refused" | "contended" | "unknown" }>;

function unknown(why: string): Undecided {
  return { kind: "unknown", cause: new Error(`${why} (injected)`) };
}

function aborted(signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => signal?.addEventListener("abort", () => resolve(), { once: true }));
}
