import assert from "node:assert/strict";
import {
  defineReservation,
  Idempotency,
  StoreError,
  toVersion,
  type CallOptions,
  type Choice,
  type Claim,
  type ConditionalStore,
  type IdempotencyOptions,
  type Json,
  type Reservation,
  type ReservationDefinition,
  type ReserveRequest,
  type StoredRecord,
  type StoreErrorCode,
  type StoreTraits,
  type Version,
  type WriteOutcome,
} from "@firstwrite/core";
import { MemoryStore, settle, VirtualClock, type Fault, type Operation } from "@firstwrite/memory";

export const input: { readonly amount: number } = { amount: 5 };
export const request: ReserveRequest = { scope: "acme", key: "k1" };
/** Where the record of `request` stands: `printf acme:k1 | sha256sum`. */
export const recordName = "idempotency/acme/184b80b87a9fad25312e13c6af4ea93ea7e04c92a6a2ce9dee7183ab1e3fe4e6.json";
export const assign: ReservationDefinition<unknown> = defineReservation({ name: "assign" });
export const DAY_MS = 86_400_000;
/** The default TTL. */
export const TTL_MS: number = 30 * DAY_MS;

export const byOperationId = ({ operationId }: Claim): Choice<string> => ({ value: operationId });

/** Passes every call on to a store, and notes it. With a plan, the nth call meets the plan's nth fault. */
export class WatchedStore implements ConditionalStore {
  readonly inner: MemoryStore;
  readonly traits: StoreTraits;
  readonly sent: Operation[] = [];
  plan: readonly (Fault | undefined)[] = [];
  /** Called before each request. */
  before: (operation: Operation) => void = () => {};

  constructor(inner: MemoryStore) {
    this.inner = inner;
    this.traits = inner.traits;
  }

  async create(name: string, bytes: Uint8Array, options?: CallOptions): Promise<WriteOutcome> {
    this.#note("create");
    return this.inner.create(name, bytes, options);
  }

  async replace(name: string, expected: Version, bytes: Uint8Array, options?: CallOptions): Promise<WriteOutcome> {
    this.#note("replace");
    return this.inner.replace(name, expected, bytes, options);
  }

  async read(name: string, options?: CallOptions): Promise<StoredRecord | undefined> {
    this.#note("read");
    return this.inner.read(name, options);
  }

  /** What was sent since the last call of this. */
  take(): Operation[] {
    return this.sent.splice(0);
  }

  #note(operation: Operation): void {
    this.before(operation);
    const fault = this.plan[this.sent.length];
    this.sent.push(operation);
    const possible = operation !== "read" || (fault !== "contended" && fault !== "landsLate");
    if (fault !== undefined && possible) this.inner.inject(fault, { on: operation });
  }
}

export interface Bench {
  readonly clock: VirtualClock;
  readonly memory: MemoryStore;
  readonly store: WatchedStore;
  readonly idempotency: Idempotency;
  /** One call, with time passing until it ends. */
  readonly reserve: (call?: Partial<ReserveRequest>, ofInput?: unknown) => Promise<Ending<Reservation<string>>>;
  /** The record of `request` as it is stored. */
  readonly stored: (name?: string) => Promise<Record<string, Json>>;
}

export function bench(options: Partial<IdempotencyOptions> & { traits?: Partial<StoreTraits> } = {}): Bench {
  const { traits, ...rest } = options;
  const clock = new VirtualClock();
  const memory = new MemoryStore({ clock, ...(traits === undefined ? {} : { traits }) });
  const store = new WatchedStore(memory);
  const idempotency = new Idempotency({ store, runtime: clock, ...rest });
  return {
    clock,
    memory,
    store,
    idempotency,
    reserve: (call = {}, ofInput = input) =>
      ending(clock, idempotency.reserve(assign, { ...request, ...call }, ofInput, byOperationId)),
    async stored(name = recordName) {
      const found = await memory.read(name);
      assert.ok(found, "there is a record");
      return parse(found.bytes);
    },
  };
}

export type Ending<Value> =
  | { readonly kind: "returned"; readonly value: Value; readonly tookMs: number }
  | { readonly kind: "threw"; readonly error: unknown; readonly tookMs: number };

/** Lets time pass until the call ends. */
export async function ending<Value>(clock: VirtualClock, call: Promise<Value>): Promise<Ending<Value>> {
  const startedAt = clock.monotonicMs();
  const state: { end?: Ending<Value> } = {};
  const watched = call.then(
    (value) => (state.end = { kind: "returned", value, tookMs: clock.monotonicMs() - startedAt }),
    (error: unknown) => (state.end = { kind: "threw", error, tookMs: clock.monotonicMs() - startedAt }),
  );
  await settle();
  while (state.end === undefined) {
    const nextMs = clock.nextTimerMs;
    assert.ok(nextMs !== undefined, "the call waits for nothing: it would hang for ever");
    await clock.advance(nextMs);
  }
  return watched;
}

export function returned<Value>(end: Ending<Value>): Value {
  assert.ok(end.kind === "returned", end.kind === "threw" ? `threw ${String(end.error)}` : "");
  return end.value;
}

export function threw(end: Ending<unknown>): unknown {
  assert.ok(end.kind === "threw", "it was to throw");
  return end.error;
}

export function isStoreError(error: unknown, code: StoreErrorCode): asserts error is StoreError {
  assert.ok(StoreError.is(error), `not a StoreError: ${String(error)}`);
  assert.equal(error.code, code, error.message);
}

export function parse(bytes: Uint8Array): Record<string, Json> {
  return JSON.parse(Buffer.from(bytes).toString("utf8"));
}

export function bytesOf(json: unknown): Uint8Array {
  return Buffer.from(typeof json === "string" ? json : JSON.stringify(json));
}

export function storedAs(json: unknown, times: { modifiedAt?: number; readAt?: number } = {}): StoredRecord {
  return { bytes: bytesOf(json), version: toVersion("v1"), modifiedAt: 0, readAt: 0, ...times };
}

/** Calls as JavaScript does, past the types. */
export function untyped(target: (...args: never[]) => unknown, self: unknown, args: readonly unknown[]): unknown {
  return Reflect.apply(target, self, args);
}
