import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import {
  defineOperation,
  defineReservation,
  Idempotency,
  onEvent,
  StoreError,
  toVersion,
  type CallOptions,
  type Choice,
  type Claim,
  type ConditionalStore,
  type EffectContext,
  type EventName,
  type ExecuteRequest,
  type Executed,
  type FirstwriteEvents,
  type IdempotencyOptions,
  type Json,
  type OperationDefinition,
  type OperationOptions,
  type Reservation,
  type ReservationDefinition,
  type ReserveRequest,
  type Runtime,
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
  /** Waited for before each request reaches the store, and before its answer is heard. */
  travel: ((operation: Operation, name: string) => Promise<void>) | undefined;
  travelBack: ((operation: Operation, name: string) => Promise<void>) | undefined;

  constructor(inner: MemoryStore) {
    this.inner = inner;
    this.traits = inner.traits;
  }

  create(name: string, bytes: Uint8Array, options?: CallOptions): Promise<WriteOutcome> {
    return this.#pass("create", name, () => this.inner.create(name, bytes, options));
  }

  replace(name: string, expected: Version, bytes: Uint8Array, options?: CallOptions): Promise<WriteOutcome> {
    return this.#pass("replace", name, () => this.inner.replace(name, expected, bytes, options));
  }

  read(name: string, options?: CallOptions): Promise<StoredRecord | undefined> {
    return this.#pass("read", name, () => this.inner.read(name, options));
  }

  /** What was sent since the last call of this. */
  take(): Operation[] {
    return this.sent.splice(0);
  }

  async #pass<Answer>(operation: Operation, name: string, request: () => Promise<Answer>): Promise<Answer> {
    this.#note(operation);
    await this.travel?.(operation, name);
    const answer = await request();
    await this.travelBack?.(operation, name);
    return answer;
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
  /** One call, with time passing until it ends. */
  readonly execute: (
    operation: OperationDefinition<unknown, unknown>,
    call?: Partial<ExecuteRequest>,
    ofInput?: unknown,
  ) => Promise<Ending<Executed<unknown>>>;
  /** One call, that goes on while the test does other things. */
  readonly start: (
    operation: OperationDefinition<unknown, unknown>,
    call?: Partial<ExecuteRequest>,
    ofInput?: unknown,
  ) => Started;
  /** The record of `request` as it is stored. */
  readonly stored: (name?: string) => Promise<Record<string, Json>>;
}

export function bench(options: Partial<IdempotencyOptions> & { traits?: Partial<StoreTraits> } = {}): Bench {
  const { traits, ...rest } = options;
  const clock = new VirtualClock();
  const memory = new MemoryStore({ clock, ...(traits === undefined ? {} : { traits }) });
  const store = new WatchedStore(memory);
  const idempotency = new Idempotency({ store, runtime: withSaneTimers(clock), ...rest });
  const made: Bench = {
    clock,
    memory,
    store,
    idempotency,
    reserve: (call = {}, ofInput = input) =>
      ending(clock, idempotency.reserve(assign, { ...request, ...call }, ofInput, byOperationId)),
    execute: (operation, call, ofInput) => made.start(operation, call, ofInput).ends(),
    start(operation, call = {}, ofInput = input) {
      const promise = idempotency.execute(operation, { ...request, ...call }, ofInput);
      return watch(clock, promise);
    },
    async stored(name = recordName) {
      const found = await memory.read(name);
      assert.ok(found, "there is a record");
      return parse(found.bytes);
    },
  };
  benches.push(made);
  return made;
}

/** Made since the last test. */
const benches: Bench[] = [];
const signals: AbortSignal[] = [];

/** Aborts a call; its signal is looked at by {@link leavesNothing}. */
export function aborter(): AbortController {
  const abort = new AbortController();
  signals.push(abort.signal);
  return abort;
}

/** After each test of the suite: no timer and no abort listener is left, and no rejection went unheard. */
export function leavesNothing(): void {
  const unhandled: unknown[] = [];
  const note = (what: unknown): void => void unhandled.push(what);
  before(() => process.on("unhandledRejection", note).on("warning", note));
  after(() => process.off("unhandledRejection", note).off("warning", note));
  beforeEach(() => {
    benches.length = 0;
    signals.length = 0;
  });
  afterEach(async () => {
    await settle();
    assert.deepEqual(unhandled.splice(0), [], "no unhandled rejection, no warning");
    for (const { clock } of benches) assert.equal(clock.nextTimerMs, undefined, "no timer is left");
    for (const signal of signals) assert.deepEqual(getEventListeners(signal, "abort"), [], "no listener is left");
  });
}

/** Node's timers fire at once when told to wait longer than this. */
const TIMER_MS_MAX = 2 ** 31 - 1;

function withSaneTimers(clock: VirtualClock): Runtime {
  return {
    now: () => clock.now(),
    monotonicMs: () => clock.monotonicMs(),
    setTimer(ms, fire) {
      assert.ok(ms >= 0 && ms <= TIMER_MS_MAX, `no timer can wait ${ms} ms`);
      return clock.setTimer(ms, fire);
    },
    random: () => clock.random(),
    randomBytes: (length) => clock.randomBytes(length),
  };
}

/** The time of `clock`, and randomness of its own. */
export function clockLike(clock: VirtualClock, seed: number): Runtime {
  const own = new VirtualClock({ seed });
  return {
    ...withSaneTimers(clock),
    random: () => own.random(),
    randomBytes: (length) => own.randomBytes(length),
  };
}

export function sleep(clock: VirtualClock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.setTimer(ms, resolve));
}

/** Another process on the same store. */
export interface Process {
  readonly idempotency: Idempotency;
  readonly start: Bench["start"];
  readonly execute: Bench["execute"];
  /** From now on nothing it sends arrives, nothing is answered, and no timer of it fires. */
  readonly die: () => void;
  /** Until it thaws no answer reaches it and no timer of it fires; its clocks go on. */
  readonly freeze: () => () => void;
}

export function processOf(on: Bench, seed: number, options: Partial<IdempotencyOptions> = {}): Process {
  const { clock } = on;
  const { store = on.store, runtime: like = clockLike(clock, seed), ...rest } = options;
  let alive = true;
  let thawed: Promise<void> | undefined;
  const timers = new Set<() => void>();
  const runtime: Runtime = {
    ...like,
    setTimer(ms, fire) {
      if (!alive) return () => {};
      let cancelled = false;
      const due = (): void => {
        if (alive && !cancelled) fire();
      };
      const cancel = like.setTimer(ms, () => {
        timers.delete(cancel);
        if (thawed === undefined) due();
        else void thawed.then(due);
      });
      timers.add(cancel);
      return () => {
        cancelled = true;
        timers.delete(cancel);
        cancel();
      };
    },
  };
  const heard = async <Answer>(request: () => Promise<Answer>): Promise<Answer> => {
    const never = new Promise<never>(() => {});
    if (!alive) return never;
    const answer = await request();
    await thawed;
    return alive ? answer : never;
  };
  const idempotency = new Idempotency({
    store: {
      traits: store.traits,
      create: (...call) => heard(() => store.create(...call)),
      replace: (...call) => heard(() => store.replace(...call)),
      read: (...call) => heard(() => store.read(...call)),
    },
    runtime,
    ...rest,
  });
  const start: Bench["start"] = (operation, call = {}, ofInput = input) =>
    watch(clock, idempotency.execute(operation, { ...request, ...call }, ofInput));
  return {
    idempotency,
    start,
    execute: (...call) => start(...call).ends(),
    die() {
      alive = false;
      for (const cancel of timers) cancel();
      timers.clear();
    },
    freeze() {
      const { promise, resolve } = Promise.withResolvers<void>();
      thawed = promise;
      return () => {
        thawed = undefined;
        resolve();
      };
    },
  };
}

/** What most tests of `execute` run: its effect returns what it was to pay. */
export function operationOf(
  options: Partial<OperationOptions<unknown, unknown>> = {},
): OperationDefinition<unknown, unknown> {
  return defineOperation<unknown, unknown>({
    name: "pay",
    recovery: "rerun",
    run: () => ({ paid: 5 }),
    ...options,
  });
}

/** One run, whose end the test decides. */
export interface Run {
  readonly input: unknown;
  readonly context: EffectContext;
  readonly finish: (value?: unknown) => void;
  readonly fail: (error: unknown) => void;
}

/** An effect whose every run waits for the test. */
export class Effect {
  readonly runs: Run[] = [];
  readonly run = (ofInput: unknown, context: EffectContext): Promise<unknown> => {
    const { promise, resolve: finish, reject: fail } = Promise.withResolvers<unknown>();
    this.runs.push({ input: ofInput, context, finish, fail });
    return promise;
  };

  /** The run that was begun last. */
  get last(): Run {
    const run = this.runs.at(-1);
    assert.ok(run, "the effect was begun");
    return run;
  }
}

/** Each crash is another process's: two that drew the same IDs would take each other's writes for their own. */
let crashes = 0;

/** Leaves the record as a process does that died in the middle of its run or `reconcile`. Returns the operation's ID. */
export async function crashIn(
  on: Bench,
  operation: OperationDefinition<unknown, unknown>,
  call: Partial<ExecuteRequest> = {},
): Promise<string> {
  crashes += 1;
  const other = processOf(on, 4242 + crashes);
  const effect = new Effect();
  const reconcile = (...given: Parameters<Effect["run"]>): Promise<never> =>
    effect.run(...given).then(() => assert.fail("it died"));
  const { recovery } = operation;
  const dying = { ...operation, run: effect.run, recovery: typeof recovery === "string" ? recovery : { reconcile } };
  other.start(dying, call);
  await settle();
  other.die();
  on.store.take();
  return effect.last.context.operationId;
}

/** Changes a record where it stands, as a person or another version may have left it. */
export async function rewrite({ memory }: Bench, changes: Readonly<Record<string, unknown>>): Promise<void> {
  const found = await memory.read(recordName);
  assert.ok(found, "there is a record");
  const outcome = await memory.replace(recordName, found.version, bytesOf({ ...parse(found.bytes), ...changes }));
  assert.equal(outcome.kind, "written");
}

export type Ending<Value> =
  | { readonly kind: "returned"; readonly value: Value; readonly tookMs: number }
  | { readonly kind: "threw"; readonly error: unknown; readonly tookMs: number };

/** A call that goes on. */
export interface Started<Value = Executed<unknown>> {
  /** How it ended; `undefined` while it goes on. */
  readonly end: Ending<Value> | undefined;
  /** Lets time pass until it ends. */
  readonly ends: () => Promise<Ending<Value>>;
}

function watch<Value>(clock: VirtualClock, call: Promise<Value>): Started<Value> {
  const startedAt = clock.monotonicMs();
  const state: { end?: Ending<Value> } = {};
  const watched = call.then(
    (value) => (state.end = { kind: "returned", value, tookMs: clock.monotonicMs() - startedAt }),
    (error: unknown) => (state.end = { kind: "threw", error, tookMs: clock.monotonicMs() - startedAt }),
  );
  return {
    get end() {
      return state.end;
    },
    async ends() {
      await settle();
      while (state.end === undefined) {
        const nextMs = clock.nextTimerMs;
        assert.ok(nextMs !== undefined, "the call waits for nothing: it would hang for ever");
        await clock.advance(nextMs);
      }
      return watched;
    },
  };
}

/** Lets time pass until all of them have ended. */
export async function allEnd<Value>(calls: readonly Started<Value>[]): Promise<Ending<Value>[]> {
  const ends: Ending<Value>[] = [];
  for (const call of calls) ends.push(await call.ends());
  return ends;
}

/** Lets time pass until the call ends. */
export function ending<Value>(clock: VirtualClock, call: Promise<Value>): Promise<Ending<Value>> {
  return watch(clock, call).ends();
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

export const eventNames: readonly EventName[] = [
  "firstwrite:store-request",
  "firstwrite:unknown-resolved",
  "firstwrite:reserved",
  "firstwrite:executed",
  "firstwrite:taken-over",
  "firstwrite:ownership-lost",
  "firstwrite:not-recorded",
  "firstwrite:held",
  "firstwrite:conflict",
];

type Heard = [EventName, FirstwriteEvents[EventName]];

/** Everything that is emitted until `stop`. */
export function listen(): { readonly heard: Heard[]; readonly stop: () => void } {
  const heard: Heard[] = [];
  const stops = eventNames.map((name) => onEvent(name, (message) => heard.push([name, message])));
  return { heard, stop: () => stops.forEach((stop) => stop()) };
}

export async function heardDuring(run: () => Promise<unknown>): Promise<Heard[]> {
  const { heard, stop } = listen();
  await run();
  stop();
  return heard;
}

/** Calls as JavaScript does, past the types. */
export function untyped(target: (...args: never[]) => unknown, self: unknown, args: readonly unknown[]): unknown {
  return Reflect.apply(target, self, args);
}
