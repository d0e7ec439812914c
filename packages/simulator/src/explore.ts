import { VirtualClock } from "@firstwrite/memory";

import { Run } from "./run.ts";
import type { Scenario } from "./scenario.ts";
import { Violation } from "./violation.ts";
import { Broken, Setting } from "./world.ts";

/** What {@link explore} went through. */
export interface Explored {
  /** Schedules played to their end, or to a state that another schedule had been in. */
  readonly schedules: number;
  /** Distinct states: the store's content, what is in flight, and all that each caller has been told. */
  readonly states: number;
}

/**
 * Plays every schedule of the scenario: every order of the callers' requests, with every fault at every request. A state
 * that was met before is not gone on from again, since nothing new can follow.
 *
 * @throws {Violation} for the first schedule that breaks a rule.
 */
export async function explore<Result, Model = undefined>(scenario: Scenario<Result, Model>): Promise<Explored> {
  const setting = new Setting(scenario);
  const seen = new Set<string>();
  let schedules = 0;
  let current: Run<Result, Model> | undefined;
  try {
    const todo = [await Run.begin(setting)];
    for (current = todo.pop(); current !== undefined; current = todo.pop()) {
      const run: Run<Result, Model> = current;
      const choices = run.choices();
      if (choices.length === 0) {
        schedules += 1;
        await run.rest();
      }
      const nexts: Run<Result, Model>[] = [];
      for (const choice of choices) {
        current = run.copy();
        await current.play(choice);
        const state = current.fingerprint();
        if (seen.has(state)) {
          schedules += 1;
          continue;
        }
        seen.add(state);
        nexts.push(current);
      }
      // The first choice, which has no fault, is gone on with first.
      todo.push(...nexts.toReversed());
    }
  } catch (error) {
    throw await violation(scenario, current?.schedule ?? [], error);
  }
  return { schedules, states: seen.size + 1 };
}

/** How {@link walk} goes. */
export interface WalkOptions {
  /** Any integer. The same seed gives the same walks. */
  readonly seed: number;
  readonly walks: number;
  /** After this many events without an end a walk goes on without faults; by default 200. */
  readonly stepsMax?: number;
}

/** What {@link walk} went through. */
export interface Walked {
  readonly seed: number;
  readonly walks: number;
  /** Events played. */
  readonly steps: number;
}

/**
 * Plays schedules chosen at random, each choice as likely as every other: for scenarios that are too large to be
 * explored.
 *
 * @throws {Violation} for the first schedule that breaks a rule, with the seed.
 */
export async function walk<Result, Model = undefined>(
  scenario: Scenario<Result, Model>,
  { seed, walks, stepsMax = 200 }: WalkOptions,
): Promise<Walked> {
  const random = new VirtualClock({ seed });
  const setting = new Setting(scenario);
  let steps = 0;
  let run: Run<Result, Model> | undefined;
  try {
    const first = await Run.begin(setting);
    for (let count = 0; count < walks; count += 1) {
      run = first.copy();
      let taken = 0;
      for (let choices = run.choices(); choices.length > 0; choices = run.choices()) {
        const chosen = taken < stepsMax ? Math.floor(random.random() * choices.length) : 0;
        await run.play(choices[chosen] ?? "");
        taken += 1;
      }
      await run.rest();
      steps += taken;
    }
  } catch (error) {
    throw await violation(scenario, run?.schedule ?? [], error, seed);
  }
  return { seed, walks, steps };
}

/**
 * Plays one schedule, then whatever is left without faults.
 *
 * @throws {Violation} when a rule is broken.
 * @throws {Error} for a schedule that is not one of this scenario.
 */
export async function replay<Result, Model = undefined>(
  scenario: Scenario<Result, Model>,
  schedule: readonly string[],
): Promise<void> {
  const { broken, trace } = await attempt(scenario, schedule, "strict");
  if (broken !== undefined) throw new Violation(broken.cause, schedule, trace);
}

interface Attempt {
  /** What was played of what was asked. */
  readonly schedule: readonly string[];
  readonly trace: readonly string[];
  readonly broken: Broken | undefined;
}

/** `lenient` leaves out what cannot happen. */
async function attempt<Result, Model>(
  scenario: Scenario<Result, Model>,
  schedule: readonly string[],
  how: "strict" | "lenient",
): Promise<Attempt> {
  const trace: string[] = [];
  const played: string[] = [];
  try {
    const run = await Run.begin(new Setting(scenario, (line) => trace.push(line)));
    for (const event of schedule) {
      const choices = run.choices();
      if (choices.includes(event)) {
        played.push(event);
        await run.play(event);
      } else if (how === "strict") {
        throw new Error(`"${event}" cannot happen after ${JSON.stringify(run.schedule)}, but ${choices.join(", ")}`);
      }
    }
    for (let [next] = run.choices(); next !== undefined; [next] = run.choices()) await run.play(next);
    await run.rest();
    return { schedule: played, trace, broken: undefined };
  } catch (error) {
    if (error instanceof Broken) return { schedule: played, trace, broken: error };
    throw error;
  }
}

/** What to throw for what a schedule threw: by as short a schedule as leaving out events gives. */
async function violation<Result, Model>(
  scenario: Scenario<Result, Model>,
  schedule: readonly string[],
  error: unknown,
  seed?: number,
): Promise<unknown> {
  if (!(error instanceof Broken)) return error;
  let shortest = await attempt(scenario, schedule, "strict");
  if (shortest.broken === undefined) {
    const why = error.cause instanceof Error ? error.cause.message : String(error.cause);
    const reason = `${why} (but not when the schedule is played again: the code or a check depends on more than what it is given)`;
    return new Violation(new Error(reason, { cause: error.cause }), schedule, shortest.trace, seed);
  }
  for (let size = shortest.schedule.length; size > 0; size -= 1) {
    for (let at = 0; at + size <= shortest.schedule.length; at += 1) {
      const without = await attempt(scenario, shortest.schedule.toSpliced(at, size), "lenient");
      if (without.broken !== undefined && without.schedule.length < shortest.schedule.length) shortest = without;
    }
  }
  return new Violation(shortest.broken?.cause, shortest.schedule, shortest.trace, seed);
}
