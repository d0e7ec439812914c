/** A rule was broken. Its message holds a call that replays it, and what happened step by step. */
export class Violation extends Error {
  /** What was played, without the events that a replay plays by itself: `await replay(scenario, schedule)`. */
  readonly schedule: readonly string[];
  /** What happened, a line an event. */
  readonly trace: readonly string[];
  /** The seed of the walk that found it. */
  readonly seed: number | undefined;

  constructor(cause: unknown, schedule: readonly string[], trace: readonly string[], seed?: number) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const found = seed === undefined ? "" : `\nfound by the walk of seed ${seed}`;
    const replayed = `await replay(scenario, ${JSON.stringify(schedule).replaceAll(",", ", ")});`;
    super(`${reason}${found}\n\n${replayed}\n\n${trace.join("\n")}`, { cause });
    this.schedule = schedule;
    this.trace = trace;
    this.seed = seed;
  }
}
