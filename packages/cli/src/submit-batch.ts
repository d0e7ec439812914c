import { IdempotencyConflictError, InvalidArgumentError, StoreError } from "@firstwrite/core";
import type { Tasks } from "@firstwrite/tasks";
import { SingleBar } from "cli-progress";
import Table from "cli-table3";

import { checkBatch, readBatch, type BatchLine } from "./batch-file.ts";
import { exitCode, type ExitCode } from "./exit-code.ts";
import { describeError, withTasks } from "./store-option.ts";

export interface BatchArguments {
  readonly concurrency: number;
  readonly json?: boolean;
  readonly store?: string;
}

/** What became of the lines. */
interface BatchSummary {
  readonly lines: number;
  /** Tasks that this run made. */
  created: number;
  /** Tasks that were there already. */
  found: number;
  /** Tasks of keys that another producer had taken without making the task; made by this run. */
  recovered: number;
  /** Keys used before for something else: nothing was written. */
  conflicts: number;
  failed: number;
  /** Lines not come to when the run was stopped. */
  notSent: number;
}

const FAULTS_SHOWN = 10;

/**
 * Submits every line of the file, a few at a time. Stopped at any point and started again it ends with the same tasks.
 * The table goes to standard output, or with `json` one JSON object; progress and faults go to standard error.
 */
export async function submitBatch(path: string, options: BatchArguments): Promise<ExitCode> {
  if (!Number.isSafeInteger(options.concurrency) || options.concurrency < 1 || options.concurrency > 256) {
    throw new InvalidArgumentError("the concurrency must be a whole number from 1 to 256");
  }
  return withTasks(options.store, (tasks) => submitLines(tasks, path, options));
}

/**
 * As {@link submitBatch}, on a store that is open.
 *
 * @throws {StoreError} what every further line would fail with too, once what was done until then is reported.
 */
export async function submitLines(
  tasks: Tasks,
  path: string,
  { concurrency, json = false }: Omit<BatchArguments, "store">,
): Promise<ExitCode> {
  const stop = stopOnSignal();
  const run = await runLines(tasks, path, concurrency, stop).finally(() => stop.forget());
  report(run, json);
  if (run.fatal !== undefined) throw run.fatal;
  if (run.summary.notSent > 0) return exitCode.interrupted;
  return run.summary.failed > 0 ? exitCode.failed : exitCode.ok;
}

async function runLines(
  tasks: Tasks,
  path: string,
  concurrency: number,
  stop: { readonly requested: boolean },
): Promise<BatchRun> {
  const lines = await checkBatch(path, ({ type, input, key, scope, ttlDays }) =>
    tasks.check(type, input, { idempotencyKey: key, scope, ttlDays }),
  );
  const batch = new BatchRun(lines, concurrency);
  const rest = readBatch(path);
  const worker = async (): Promise<void> => {
    while (!stop.requested && batch.fatal === undefined) {
      const next = await rest.next();
      if (next.done === true) return;
      await batch.submit(tasks, next.value);
    }
  };
  const ends = await Promise.allSettled(Array.from({ length: concurrency }, worker));
  batch.end();
  // Not before every line under way has ended: the store is closed next.
  for (const end of ends) if (end.status === "rejected") throw end.reason;
  return batch;
}

class BatchRun {
  readonly summary: BatchSummary;
  readonly faults: string[] = [];
  /** What every other line would fail with too. */
  fatal: StoreError | undefined;
  readonly #bar: SingleBar | undefined;
  readonly #concurrency: number;
  #unavailableInARow = 0;

  constructor(lines: number, concurrency: number) {
    this.#concurrency = concurrency;
    this.summary = { lines, created: 0, found: 0, recovered: 0, conflicts: 0, failed: 0, notSent: lines };
    if (!process.stderr.isTTY) return;
    this.#bar = new SingleBar({
      stream: process.stderr,
      format: "{bar} {percentage}% | {value}/{total} lines | {eta_formatted}",
    });
    this.#bar.start(lines, 0);
  }

  async submit(tasks: Tasks, line: BatchLine): Promise<void> {
    const { summary } = this;
    try {
      const { created, recovered } = await tasks.submit(line.type, line.input, {
        idempotencyKey: line.key,
        scope: line.scope,
        ttlDays: line.ttlDays,
      });
      if (created) summary.created += 1;
      else if (recovered) summary.recovered += 1;
      else summary.found += 1;
      this.#unavailableInARow = 0;
    } catch (error) {
      if (IdempotencyConflictError.is(error)) summary.conflicts += 1;
      else summary.failed += 1;
      this.faults.push(`line ${line.number}: ${describeError(error)}`);
      if (StoreError.is(error) && this.#isFatal(error)) this.fatal ??= error;
    }
    summary.notSent -= 1;
    this.#bar?.increment();
  }

  end(): void {
    this.#bar?.stop();
  }

  /** A store that is away fails a line only after its whole deadline: one for each that is under way says enough. */
  #isFatal({ code }: StoreError): boolean {
    this.#unavailableInARow = code === "UNAVAILABLE" ? this.#unavailableInARow + 1 : 0;
    const isAway = this.#unavailableInARow >= this.#concurrency;
    return code === "PERMISSION_DENIED" || code === "UNSUPPORTED" || isAway;
  }
}

function report({ summary, faults }: BatchRun, json: boolean): void {
  for (const fault of faults.slice(0, FAULTS_SHOWN)) console.error(fault);
  if (faults.length > FAULTS_SHOWN) console.error(`… and ${faults.length - FAULTS_SHOWN} more`);
  if (json) {
    console.log(JSON.stringify({ ...summary, faults }, undefined, 2));
    return;
  }
  const table = new Table({ colAligns: ["left", "right"], style: { head: [], border: [] } });
  table.push(
    ["lines", summary.lines],
    ["new tasks", summary.created],
    ["found", summary.found],
    ["made by recovery", summary.recovered],
    ["conflicts", summary.conflicts],
    ["failed", summary.failed],
    ["not sent", summary.notSent],
  );
  console.log(table.toString());
}

/** The first Ctrl-C or SIGTERM lets what is under way end; a second one ends the process as usual. */
function stopOnSignal(): { readonly requested: boolean; forget(): void } {
  const state = { requested: false };
  const request = (): void => {
    state.requested = true;
    forget();
  };
  const forget = (): void => {
    process.off("SIGINT", request);
    process.off("SIGTERM", request);
  };
  process.on("SIGINT", request);
  process.on("SIGTERM", request);
  return {
    get requested() {
      return state.requested;
    },
    forget,
  };
}
