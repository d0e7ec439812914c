/** One schedule, as far as it was played. */

import { Broken, PlayedWorld, type Setting } from "./world.ts";
import type { Ending } from "./scenario.ts";

export class Run<Result, Model> {
  readonly #setting: Setting<Result, Model>;
  readonly #world: PlayedWorld<Result, Model>;
  #faultsLeft: number;
  #jumps: readonly number[];
  /** Callers below this number have had something happen to them. */
  #touched = 0;
  /** What was played, the last event first. */
  #events: Played | undefined;

  private constructor(setting: Setting<Result, Model>, from?: Run<Result, Model>) {
    this.#setting = setting;
    this.#world = from === undefined ? new PlayedWorld(setting) : from.#world.copy();
    this.#faultsLeft = from === undefined ? setting.scenario.faultsMax : from.#faultsLeft;
    this.#jumps = (from === undefined ? setting.scenario.jumpsMs : from.#jumps) ?? [];
    if (from === undefined) return;
    this.#touched = from.#touched;
    this.#events = from.#events;
  }

  /** @throws {Broken} */
  static async begin<Result, Model>(setting: Setting<Result, Model>): Promise<Run<Result, Model>> {
    const run = new Run(setting);
    if (setting.scenario.beginLate === true) return run;
    for (let index = 0; index < setting.scenario.callers; index += 1) await run.#world.play(`begin ${index}`);
    return run;
  }

  copy(): Run<Result, Model> {
    return new Run(this.#setting, this);
  }

  /** What was played so far. */
  get schedule(): string[] {
    const events: string[] = [];
    for (let played = this.#events; played !== undefined; played = played.before) events.push(played.event);
    return events.toReversed();
  }

  /** What can happen next, moves without a fault first. Empty: nothing more can. */
  choices(): string[] {
    const { callers: count, interchangeable, clockJumpsMs = [] } = this.#setting.scenario;
    const inTurn = interchangeable === true ? Math.min(this.#touched + 1, count) : count;
    const callers = Array.from({ length: inTurn }, (_, index) => index).filter((index) => this.#world.isLive(index));
    const mayFail = this.#faultsLeft > 0 ? callers.filter((index) => this.#world.hasBegun(index)) : [];
    const [jump] = this.#jumps;
    return [
      ...this.#freeMoves(callers),
      ...this.#world.landings(),
      ...mayFail.flatMap((index) => this.#world.faults(index)),
      ...mayFail.flatMap((index) => clockJumpsMs.map((ms) => `clock ${index} ${ms}`)),
      ...(callers.length > 0 && jump !== undefined ? [`jump ${jump}`] : []),
      ...(callers.length > 0 ? this.#world.removals() : []),
    ];
  }

  /** @throws {Broken} @throws {Error} for an event that cannot happen now. */
  async play(event: string): Promise<void> {
    this.#events = { event, before: this.#events };
    const [what = "", of] = event.split(" ");
    if (what === "jump") this.#jumps = this.#jumps.slice(1);
    else if (!freeEvents.has(what)) this.#faultsLeft -= 1;
    if (!ofNobody.has(what)) this.#touched = Math.max(this.#touched, Number(of) + 1);
    await this.#world.play(event);
  }

  /** Equal for two runs of one exploration that cannot be told apart from here on. */
  fingerprint(): string {
    return `${this.#world.fingerprint()};${this.#faultsLeft};${this.#jumps.length};${this.#touched}`;
  }

  /** To be called when there are no choices left. @throws {Broken} */
  async rest(): Promise<void> {
    const world = this.#world;
    for (let index = 0; index < this.#setting.scenario.callers; index += 1) {
      if (world.isCrashed(index) || world.hasEnded(index)) continue;
      throw new Broken(new Error(`the call of caller ${index} never ends`));
    }
    try {
      await this.#setting.scenario.checks.atRest?.((afterMs) => this.#retry(afterMs), world);
    } catch (error) {
      throw error instanceof Broken ? error : new Broken(error);
    }
  }

  async #retry(afterMs = 0): Promise<Ending<Result>> {
    const index = this.#setting.scenario.callers;
    this.#setting.trace?.("   at rest: one more call, without faults");
    if (afterMs > 0) await this.#world.play(`jump ${afterMs}`);
    while (!this.#world.hasEnded(index)) {
      const [move] = this.#freeMoves([index]);
      if (move === undefined) throw new Error("a call without faults never ends");
      await this.#world.play(move);
    }
    return this.#world.endingOf(index);
  }

  /** What happens next if nothing goes wrong; where nobody does anything, time passes. */
  #freeMoves(callers: readonly number[]): string[] {
    const moves = callers.flatMap((index) => this.#world.moves(index));
    return moves.length === 0 && this.#world.mayPass() ? ["pass"] : moves;
  }
}

interface Played {
  readonly event: string;
  readonly before: Played | undefined;
}

const ofNobody: ReadonlySet<string> = new Set(["jump", "land", "remove", "pass"]);
const freeEvents: ReadonlySet<string> = new Set([...ofNobody, "begin", "apply", "expire", "reject", "reply", "wake"]);
