import type { ConditionalStore, Runtime, StoreTraits } from "@firstwrite/core";
import { settle } from "@firstwrite/memory";

import { World, type Change, type Fault, type StartingRecord } from "./world.ts";

/** One caller of the code under test: a process of its own. */
export interface CallerSetup {
  readonly index: number;
  readonly store: ConditionalStore;
  readonly runtime: Runtime;
}

/** How a caller's call ended. */
export type Ending<Result> =
  | { readonly kind: "returned"; readonly result: Result }
  | { readonly kind: "threw"; readonly error: unknown };

/** What is explored. */
export interface Scenario<Result> {
  readonly callers: number;
  /**
   * The callers do the same, so that of those that nothing has happened to yet it does not matter which one goes first:
   * only the first of them is tried. Cuts the number of schedules by nearly the factorial of `callers`.
   */
  readonly interchangeable?: boolean;
  /** Calls begin when the schedule says so, after any jump: by default all begin before anything else happens. */
  readonly beginLate?: boolean;
  /** What is stored when the schedule begins. */
  readonly records?: readonly StartingRecord[];
  /** From this age on a lifecycle rule may remove a record at any moment, in milliseconds; by default none does. */
  readonly removedAfterMs?: number;
  /** Begins the call of one caller. Called anew for every schedule, so that no state is shared between schedules. */
  readonly start: (caller: CallerSetup) => Promise<Result>;
  readonly faults: readonly Fault[];
  /** How many faults a schedule may have. */
  readonly faultsMax: number;
  /** Jumps of time, in milliseconds, each of which may happen at any moment, in this order. */
  readonly jumpsMs?: readonly number[];
  /** How long a request may be in flight, in milliseconds; by default an hour. */
  readonly inFlightMsMax?: number;
  readonly traits?: Partial<StoreTraits>;
  /** Makes the checks of one schedule. Each throws when a rule is broken. */
  readonly checks: () => Checks<Result>;
}

export interface Checks<Result> {
  /** After each write that changed the store. */
  readonly onWritten?: (change: Change, world: World) => void;
  /** When a call has ended. */
  readonly onEnded?: (ending: Ending<Result>, caller: number, world: World) => void;
  /** When nothing more can happen. `retry` begins one more call, without faults, and plays it to its end. */
  readonly atRest?: (retry: () => Promise<Ending<Result>>, world: World) => Promise<void>;
}

/** What {@link explore} went through. */
export interface Explored {
  /** Schedules played to their end, or to a state that another schedule had been in. */
  readonly schedules: number;
  /** Distinct states: the store's content, what is in flight, and all that each caller has been told. */
  readonly states: number;
}

/** A rule was broken. `schedule` replays it: `await replay(scenario, schedule)`. */
export class Violation extends Error {
  readonly schedule: readonly string[];
  constructor(schedule: readonly string[], cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    super(`${reason}\nby the schedule ${JSON.stringify(schedule)}`, { cause });
    this.schedule = schedule;
  }
}

/**
 * Plays every schedule of the scenario: every order of the callers' requests, with every fault at every request. A state
 * that was met before is not gone on from again, since nothing new can follow.
 *
 * @throws {Violation} for the first schedule that breaks a rule.
 */
export async function explore<Result>(scenario: Scenario<Result>): Promise<Explored> {
  const seen = new Set<string>();
  const todo: string[][] = [[]];
  let schedules = 0;
  for (let schedule = todo.pop(); schedule !== undefined; schedule = todo.pop()) {
    schedules += 1;
    const run = new Run(scenario);
    await run.begin();
    for (const event of schedule) await run.play(event);
    for (;;) {
      const state = run.fingerprint();
      if (seen.has(state)) break;
      seen.add(state);
      const [next, ...others] = run.choices();
      if (next === undefined) {
        await run.rest();
        break;
      }
      // The rest of this run goes on with the first choice; each other choice is played from the beginning later.
      for (const other of others) todo.push([...run.schedule, other]);
      await run.play(next);
    }
  }
  return { schedules, states: seen.size };
}

/** Plays one schedule, then whatever is left without faults. @throws {Violation} */
export async function replay<Result>(scenario: Scenario<Result>, schedule: readonly string[]): Promise<void> {
  const run = new Run(scenario);
  await run.begin();
  for (const event of schedule) await run.play(event);
  for (let next = run.choices()[0]; next !== undefined; next = run.choices()[0]) await run.play(next);
  await run.rest();
}

const TRAITS: StoreTraits = {
  name: "model",
  nameBytesMax: 1024,
  recordBytesMax: 1024 * 1024,
  clockGranularityMs: 0,
};

class Run<Result> {
  readonly schedule: string[] = [];
  readonly #scenario: Scenario<Result>;
  readonly #world: World;
  readonly #checks: Checks<Result>;
  readonly #endings = new Map<number, Ending<Result>>();
  readonly #started = new Set<number>();
  /** Callers below this number have had something happen to them. */
  #begun = 0;
  #faultsLeft: number;
  #jumps: readonly number[];

  constructor(scenario: Scenario<Result>) {
    this.#scenario = scenario;
    this.#checks = scenario.checks();
    this.#faultsLeft = scenario.faultsMax;
    this.#jumps = scenario.jumpsMs ?? [];
    this.#world = new World({
      // One more for the retry at the end.
      callers: scenario.callers + 1,
      startAt: Date.UTC(2026, 0, 1),
      inFlightMsMax: scenario.inFlightMsMax ?? 3_600_000,
      records: scenario.records ?? [],
      removedAfterMs: scenario.removedAfterMs ?? Infinity,
      traits: { ...TRAITS, ...scenario.traits },
      onWritten: (change) => this.#check(() => this.#checks.onWritten?.(change, this.#world)),
    });
  }

  async begin(): Promise<void> {
    if (this.#scenario.beginLate === true) return;
    for (let index = 0; index < this.#scenario.callers; index += 1) this.#start(index);
    await settle();
    this.#throwIfBroken();
  }

  /** What can happen next, moves without a fault first. Empty: nothing more can. */
  choices(): string[] {
    const { callers: count, interchangeable } = this.#scenario;
    const inTurn = interchangeable === true ? Math.min(this.#begun + 1, count) : count;
    const callers = Array.from({ length: inTurn }, (_, index) => index).filter(
      (index) => !this.#endings.has(index) && !this.#world.isCrashed(index),
    );
    const moves = callers.flatMap((index) =>
      this.#started.has(index) ? this.#world.moves(index) : [`begin ${index}`],
    );
    const landings = this.#world.landings();
    const faults =
      this.#faultsLeft > 0 ? callers.flatMap((index) => this.#world.faults(index, this.#scenario.faults)) : [];
    const jumps = callers.length > 0 && this.#jumps[0] !== undefined ? [`jump ${this.#jumps[0]}`] : [];
    const removals = callers.length > 0 ? this.#world.removals() : [];
    return [...moves, ...landings, ...faults, ...jumps, ...removals];
  }

  async play(event: string): Promise<void> {
    this.schedule.push(event);
    const [what = "", of] = event.split(" ");
    if (what !== "jump" && what !== "land" && what !== "remove") this.#begun = Math.max(this.#begun, Number(of) + 1);
    if (what === "jump") this.#jumps = this.#jumps.slice(1);
    else if (this.#scenario.faults.some((fault) => fault === what)) this.#faultsLeft -= 1;
    if (what === "begin") this.#start(Number(of));
    else this.#world.play(event);
    await settle();
    this.#throwIfBroken();
  }

  fingerprint(): string {
    return `${this.#world.fingerprint()} ${this.#faultsLeft} ${this.#jumps.length}`;
  }

  async rest(): Promise<void> {
    try {
      await this.#checks.atRest?.(() => this.#retry(), this.#world);
    } catch (error) {
      throw error instanceof Violation ? error : new Violation(this.schedule, error);
    }
  }

  async #retry(): Promise<Ending<Result>> {
    const index = this.#scenario.callers;
    this.#start(index);
    await settle();
    while (!this.#endings.has(index)) {
      const [move] = this.#world.moves(index);
      if (move === undefined) throw new Error("a call without faults did not end");
      this.#world.play(move);
      await settle();
      this.#throwIfBroken();
    }
    const ending = this.#endings.get(index);
    if (ending === undefined) throw new Error("a call without faults did not end");
    return ending;
  }

  #start(index: number): void {
    const world = this.#world;
    this.#started.add(index);
    const end = (ending: Ending<Result>): void => {
      if (world.isCrashed(index)) return;
      this.#endings.set(index, ending);
      world.note(index, ending.kind === "returned" ? JSON.stringify(ending.result) : String(ending.error));
      this.#check(() => this.#checks.onEnded?.(ending, index, world));
    };
    void this.#scenario.start({ index, store: world.storeFor(index), runtime: world.runtimeFor(index) }).then(
      (result) => end({ kind: "returned", result }),
      (error: unknown) => end({ kind: "threw", error }),
    );
  }

  // A check may fail inside a promise callback, where a throw would be taken for the code's own.
  #broken: unknown;

  #check(check: () => void): void {
    try {
      check();
    } catch (error) {
      this.#broken ??= error;
    }
  }

  #throwIfBroken(): void {
    if (this.#broken !== undefined) throw new Violation(this.schedule, this.#broken);
  }
}
