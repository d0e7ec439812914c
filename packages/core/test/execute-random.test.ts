import assert from "node:assert/strict";
import {
  array,
  assert as check,
  asyncProperty,
  boolean,
  constantFrom,
  integer,
  record,
  type Arbitrary,
} from "fast-check";
import {
  executionOf,
  IdempotencyConflictError,
  InProgressError,
  OperationHeldError,
  OutcomeUnknownError,
  StoreError,
  type EffectContext,
  type OperationOptions,
  type Reconciled,
} from "@firstwrite/core";
import { settle, type Fault } from "@firstwrite/memory";
import {
  bench,
  operationOf,
  parse,
  processOf,
  recordName,
  returned,
  threw,
  type Bench,
  type Process,
  type Started,
} from "./setup.ts";

const recoverAfterMs = 10_000;

/** What one call's effect does, and when. */
interface Effect {
  /** Before it sends to the ledger. */
  readonly thinksMs: number;
  /** How long what it sent stays in flight: not longer than `recoverAfterMs`. */
  readonly travelsMs: number;
  /** `declined`: the ledger was not asked. `timeout`: it gives up before its answer. */
  readonly ends: "paid" | "declined" | "nothing happened" | "timeout";
}

interface Call {
  readonly process: number;
  readonly atMs: number;
  readonly deadlineMs: number;
  readonly waitMs: number;
  readonly readFirst: boolean;
  readonly otherInput: boolean;
  /** Cancels, so long after it was made. */
  readonly cancelsMs: number | undefined;
  readonly effect: Effect;
}

interface Scenario {
  readonly seed: number;
  readonly policy: keyof typeof policies;
  readonly calls: readonly Call[];
  /** The nth request meets it. */
  readonly faults: readonly (Fault | undefined)[];
  readonly landings: readonly number[];
  readonly slowMs: readonly number[];
  readonly crashes: readonly { readonly process: number; readonly atMs: number }[];
  readonly freezes: readonly { readonly process: number; readonly atMs: number; readonly forMs: number }[];
}

type Policy = (ledger: Ledger) => OperationOptions<unknown, unknown>["recovery"];

const policies = {
  /** The ledger is unique on the operation ID, which is all that `rerun` rests on. */
  rerun: () => "rerun",
  hold: () => "hold",
  reconcile: (ledger) => ({ reconcile: (_, context) => ledger.reconcile(context) }),
  fenced: (ledger) => ({ absentIsFinal: true, reconcile: (_, context) => ledger.reconcile(context, true) }),
} as const satisfies Record<string, Policy>;

class Declined extends Error {}
class NothingHappened extends Error {}
class Timeout extends Error {}

/** Unique on the operation ID, as a payment provider is by its idempotency key; fenced where it is told to be. */
class Ledger {
  readonly rows = new Map<string, string>();
  readonly runs: { readonly operationId: string; readonly attempt: number; readonly process: number }[] = [];
  readonly #fences = new Map<string, number>();

  commit({ operationId, attempt }: EffectContext): string | undefined {
    if (attempt < (this.#fences.get(operationId) ?? 0)) return undefined;
    const row = this.rows.get(operationId) ?? `paid by attempt ${attempt}`;
    this.rows.set(operationId, row);
    return row;
  }

  reconcile({ operationId, attempt }: EffectContext, fences = false): Reconciled<unknown> {
    const row = this.rows.get(operationId);
    if (row !== undefined) return { found: row };
    if (fences) this.#fences.set(operationId, attempt);
    return "absent";
  }
}

function delay(on: Bench, ms: number): Promise<void> {
  return new Promise((resolve) => on.clock.setTimer(ms, resolve));
}

/** The nth run of all does what the nth of `effects` says. */
function effectOf(on: Bench, ledger: Ledger, process: number, effects: readonly Effect[]) {
  return async (_: unknown, context: EffectContext): Promise<string> => {
    const effect = effects[ledger.runs.length % effects.length];
    assert.ok(effect);
    const { thinksMs, travelsMs, ends } = effect;
    ledger.runs.push({ operationId: context.operationId, attempt: context.attempt, process });
    // Its own timers, as an author's HTTP client has them: a process that died sends nothing any more.
    await processes(on)[process]?.sleep(thinksMs);
    context.signal.throwIfAborted();
    const row = ledger.rows.get(context.operationId);
    // A run that meets its own operation ID in the ledger returns that row, and never throws for it.
    if (row !== undefined) return row;
    if (ends === "declined") throw new Declined("no funds");
    if (ends === "nothing happened") throw new NothingHappened("the ledger was busy");
    const sent = delay(on, travelsMs).then(() => ledger.commit(context));
    await (ends === "timeout" ? processes(on)[process]?.sleep(Math.min(travelsMs, 500)) : undefined);
    if (ends === "timeout") throw new Timeout("no answer from the ledger");
    const paid = await sent;
    await processes(on)[process]?.sleep(0);
    if (paid === undefined) throw new Timeout("the ledger refuses this attempt");
    return paid;
  };
}

/** A process, with timers of its own that end with it. */
interface Actor extends Process {
  readonly sleep: (ms: number) => Promise<void>;
}

const actors = new WeakMap<Bench, Actor[]>();

function processes(on: Bench): readonly Actor[] {
  const known = actors.get(on);
  if (known !== undefined) return known;
  const made = [0, 1, 2].map((nth): Actor => {
    const process = processOf(on, on.clock.random() * 1e9 + nth, { requestTimeoutMs: 3_000 });
    const { runtime } = process.idempotency;
    return { ...process, sleep: (ms) => new Promise((resolve) => void runtime.setTimer(ms, resolve)) };
  });
  actors.set(on, made);
  return made;
}

/** What the record was after each request, in turn: §7 is about what it may become. */
function watchRecord(on: Bench): Record<string, unknown>[] {
  const states: Record<string, unknown>[] = [];
  const { store } = on;
  store.travelBack = async () => {
    const found = await on.memory.read(recordName);
    if (found === undefined) return;
    const state = parse(found.bytes);
    if (states.at(-1)?.["write_id"] !== state["write_id"]) states.push(state);
  };
  return states;
}

async function play(scenario: Scenario) {
  const on = bench();
  const { clock, memory, store } = on;
  // The bench's clock has a seed of its own; drawing from it makes each scenario another one.
  for (let drawn = 0; drawn < scenario.seed % 1000; drawn += 1) clock.random();
  const ledger = new Ledger();
  const all = processes(on);
  const faults = [...scenario.faults];
  const slow = [...scenario.slowMs];
  store.travel = async (operation) => {
    const fault = faults.shift();
    const possible = operation !== "read" || (fault !== "contended" && fault !== "landsLate");
    const ms = slow.shift() ?? 5;
    await delay(on, ms);
    if (fault !== undefined && possible) memory.inject(fault, { on: operation });
  };
  const states = watchRecord(on);
  const operation = operationOf({
    name: "pay",
    recovery: policies[scenario.policy](ledger),
    leaseMs: 5_000,
    recoverAfterMs,
    maxRunMs: 60_000,
    onError: (error) => (error instanceof Declined ? "replay" : error instanceof NothingHappened ? "retry" : "recover"),
  });

  const effects = scenario.calls.map(({ effect }) => effect);
  // One for each process, whose calls share flights.
  const definitions = all.map((_, nth) => ({ ...operation, run: effectOf(on, ledger, nth, effects) }));

  const made: { readonly call: Call; readonly started: Started; readonly startedAtMs: number }[] = [];
  const dead = new Set<number>();
  const events: (readonly [atMs: number, act: () => void])[] = [
    ...scenario.calls.map(
      (call) =>
        [
          call.atMs,
          () => {
            const process = all[call.process];
            if (process === undefined || dead.has(call.process)) return;
            const abort = new AbortController();
            const definition = definitions[call.process];
            assert.ok(definition);
            const { deadlineMs, waitMs, readFirst } = call;
            const limits = { deadlineMs, waitMs, readFirst, signal: abort.signal };
            const started = process.start(definition, limits, call.otherInput ? { amount: 6 } : { amount: 5 });
            made.push({ call, started, startedAtMs: clock.monotonicMs() });
            if (call.cancelsMs !== undefined) clock.setTimer(call.cancelsMs, () => abort.abort(new Error("hung up")));
          },
        ] as const,
    ),
    ...scenario.crashes.map(
      ({ process, atMs }) =>
        [
          atMs,
          () => {
            dead.add(process);
            all[process]?.die();
          },
        ] as const,
    ),
    ...scenario.freezes.map(
      ({ process, atMs, forMs }) =>
        [
          atMs,
          () => {
            const thaw = all[process]?.freeze();
            clock.setTimer(forMs, () => thaw?.());
          },
        ] as const,
    ),
    ...scenario.landings.map(
      (atMs) =>
        [
          atMs,
          () => {
            if (memory.lateWrites > 0) memory.land();
          },
        ] as const,
    ),
  ];
  for (const [atMs, act] of events) clock.setTimer(atMs, act);
  while (clock.nextTimerMs !== undefined) {
    assert.ok(clock.monotonicMs() < 3_600_000, "everything ends");
    await clock.advance(clock.nextTimerMs);
  }
  await settle();
  // Quiet: what was held up lands, and whoever died stays dead.
  faults.length = 0;
  slow.length = 0;
  memory.heal();
  while (memory.lateWrites > 0) {
    memory.land();
    await store.travelBack?.("read", recordName);
  }
  return { on, ledger, states, operation, made, dead };
}

/** The retry of somebody new, until it is told: each unknown outcome is asked about again when its time has come. */
async function retried(on: Bench, operation: Awaited<ReturnType<typeof play>>["operation"], ledger: Ledger) {
  const retry = processOf(on, 999_983);
  const run = async (_: unknown, context: EffectContext): Promise<string | undefined> => {
    ledger.runs.push({ operationId: context.operationId, attempt: context.attempt, process: -1 });
    return ledger.commit(context);
  };
  for (let round = 0; round < 5; round += 1) {
    const end = await retry.execute({ ...operation, run }, { deadlineMs: 20_000 }, { amount: 5 });
    if (end.kind === "returned" || !InProgressError.is(end.error)) return end;
    await on.clock.advance(20_000);
  }
  assert.fail("still in progress");
}

async function holds(scenario: Scenario): Promise<void> {
  const { on, ledger, states, operation, made, dead } = await play(scenario);
  const before = await on.memory.read(recordName);
  const end = await retried(on, operation, ledger);

  for (const { call, started } of made) {
    if (dead.has(call.process)) continue;
    const { end: ended } = started;
    assert.ok(ended, "7: every call ends");
    const frozen = scenario.freezes.some(({ process }) => process === call.process);
    if (!frozen) assert.ok(ended.tookMs <= call.deadlineMs, `7: by its deadline, not after ${ended.tookMs} ms`);
    if (ended.kind === "returned") continue;
    const { error } = ended;
    const known =
      StoreError.is(error) ||
      InProgressError.is(error) ||
      OutcomeUnknownError.is(error) ||
      OperationHeldError.is(error) ||
      IdempotencyConflictError.is(error) ||
      executionOf(error) !== undefined ||
      (error instanceof Error && error.message === "hung up");
    assert.ok(known, `7: in an outcome of the protocol, not ${String(error)}`);
  }

  const results = new Map<string, Set<string>>();
  const note = (operationId: unknown, result: unknown): void => {
    const known = results.get(String(operationId)) ?? new Set();
    known.add(JSON.stringify(result));
    results.set(String(operationId), known);
  };
  for (const state of states) if (state["status"] === "ready") note(state["operation_id"], state["result"]);
  for (const [, recorded] of results) assert.equal(recorded.size, 1, "1: at most one recorded result");
  for (const { started } of made) {
    const { end: ended } = started;
    if (ended?.kind !== "returned" || !ended.value.recorded) continue;
    const { operationId, value } = ended.value;
    const body = { kind: "value", encoding: "text", body: value };
    assert.deepEqual([...(results.get(operationId) ?? [])], [JSON.stringify(body)], "1: everyone gets that one");
  }

  for (const [operationId, those] of Map.groupBy(states, (state) => state["operation_id"])) {
    const attempts = those.map(({ attempt }) => Number(attempt));
    assert.deepEqual(
      attempts,
      attempts.toSorted((a, b) => a - b),
      "5: an owner that was overtaken writes nothing more",
    );
    const from = states.findIndex((state) => state["operation_id"] === operationId);
    assert.deepEqual(states.slice(from, from + those.length), those, "5: nor one whose key another input has");
  }
  const settledAt = states.findIndex(({ status }) => status === "ready");
  if (settledAt !== -1) assert.equal(settledAt, states.length - 1, "4: what is ready stays");
  states.forEach((state, nth) => {
    const before = states[nth - 1];
    if (before === undefined) return;
    const goesOn = state["operation_id"] === before["operation_id"];
    assert.equal(state["input_hash"] === before["input_hash"], goesOn, "3: an operation per input, and one per key");
    if (goesOn) return;
    assert.ok(isFree(before), "3: another fingerprint changes no record but one in which nothing happened");
    assert.deepEqual([state["status"], state["attempt"], state["takeover"]], ["creating", 1, undefined]);
  });

  const starts = Map.groupBy(ledger.runs, ({ operationId, attempt }) => `${operationId} ${attempt}`);
  for (const [attempt, runs] of starts) assert.equal(runs.length, 1, `${attempt} was started twice`);
  if (scenario.policy === "hold") {
    for (const { operationId, attempt } of ledger.runs) {
      if (attempt === 1) continue;
      const before = states.filter(
        (state) => state["operation_id"] === operationId && state["attempt"] === attempt - 1,
      );
      assert.ok(before.some(isFree), "2: hold starts again only after an honest retry");
    }
  }

  // Whoever claimed first may have been the one with the other input: then the key is theirs, unless nothing happened.
  if (end.kind === "threw" && IdempotencyConflictError.is(end.error)) {
    assert.ok(!isFree(await on.stored()), "7: a key under which nothing happened is anybody's");
    return;
  }
  if (scenario.policy === "hold" && end.kind === "threw" && OperationHeldError.is(end.error)) return;
  const after = await on.memory.read(recordName);
  assert.ok(after);
  const last = parse(after.bytes);
  if (before !== undefined && parse(before.bytes)["status"] === "ready") {
    assert.equal(after.version, before.version, "4: and is not written again");
  }
  assert.equal(last["status"], "ready", "6: as soon as anyone retries it is decided");
  const { operation_id: operationId } = last;
  assert.ok(typeof operationId === "string");
  const row = ledger.rows.get(operationId);
  assert.ok(ledger.rows.size <= 1, "6: one row at most");
  if (end.kind === "returned") assert.equal(returned(end).value, row, "6: a value has its row");
  else {
    assert.ok(executionOf(threw(end))?.recorded, String(threw(end)));
    assert.equal(row, undefined, "6: a failure has none");
  }
}

function isFree(state: Record<string, unknown>): boolean {
  return state["status"] === "released" && state["takeover"] === undefined;
}

const effects: Arbitrary<Effect> = record({
  thinksMs: constantFrom(0, 10, 1_000, 4_000, 9_000, 30_000),
  travelsMs: constantFrom(1, 20, 2_000, recoverAfterMs - 100),
  ends: constantFrom("paid", "paid", "paid", "declined", "nothing happened", "timeout"),
});

const scenarios: Arbitrary<Scenario> = record({
  seed: integer({ min: 0, max: 1_000_000 }),
  policy: constantFrom<Scenario["policy"]>("rerun", "hold", "reconcile", "fenced"),
  calls: array(
    record({
      process: integer({ min: 0, max: 2 }),
      atMs: constantFrom(0, 0, 1, 100, 3_000, 10_010, 14_999, 15_010, 16_000, 25_000, 40_000, 70_000),
      deadlineMs: constantFrom(500, 5_000, 20_000, 60_000, 60_000),
      waitMs: constantFrom(0, 300, 16_000, 60_000),
      readFirst: boolean(),
      otherInput: constantFrom(...Array<boolean>(5).fill(false), true),
      cancelsMs: constantFrom(...Array<undefined>(8).fill(undefined), 7, 2_000),
      effect: effects,
    }),
    { minLength: 1, maxLength: 7 },
  ),
  faults: array(
    constantFrom<Fault | undefined>(
      undefined,
      undefined,
      undefined,
      undefined,
      "lostRequest",
      "lostReply",
      "landsLate",
      "contended",
      "hangs",
      "away",
    ),
    { maxLength: 24 },
  ),
  landings: array(integer({ min: 0, max: 60_000 }), { maxLength: 6 }),
  slowMs: array(constantFrom(1, 50, 900, 2_900, 6_000), { maxLength: 12 }),
  crashes: array(
    record({ process: integer({ min: 0, max: 2 }), atMs: constantFrom(1, 30, 1_010, 4_000, 9_000, 20_000) }),
    {
      maxLength: 2,
    },
  ),
  freezes: array(
    record({
      process: integer({ min: 0, max: 2 }),
      atMs: constantFrom(1, 30, 1_010, 4_000, 9_000, 20_000),
      forMs: constantFrom(100, 4_000, 16_000, 40_000),
    }),
    { maxLength: 2 },
  ),
});

/** A longer search: FIRSTWRITE_EXPLORE=full. */
const runs = process.env["FIRSTWRITE_EXPLORE"] === "full" ? 20_000 : 400;

describe("execute, at random: several processes, faults, crashes, and a ledger that is unique on the operation ID", () => {
  it("§7: its invariants hold (a violation prints the seed and the smallest scenario that shows it)", async function () {
    this.timeout(Math.max(20_000, runs * 100));
    await check(asyncProperty(scenarios, holds), { numRuns: runs });
  });
});
