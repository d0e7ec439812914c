import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";

import { IdempotencyConflictError, InvalidArgumentError } from "@firstwrite/core";

import { exitCode, type ExitCode } from "./exit-code.ts";
import { withTasks } from "./store-option.ts";
import { viewTask } from "./task-view.ts";

export interface SubmitArguments {
  readonly input: string;
  readonly key?: string;
  readonly scope?: string;
  readonly ttlDays?: number;
  readonly phases?: 1 | 2;
  readonly store?: string;
}

/** Submits one task, and prints it as JSON with `"new"`: whether this call made it. */
export async function submit(taskType: string, options: SubmitArguments): Promise<ExitCode> {
  const input = parseInput(options.input === "-" ? await text(process.stdin) : await readFile(options.input, "utf8"));
  try {
    const { task, created, recovered } = await withTasks(options.store, (tasks) =>
      tasks.submit(taskType, input, {
        idempotencyKey: options.key,
        scope: options.scope,
        ttlDays: options.ttlDays,
        phases: options.phases,
      }),
    );
    console.log(JSON.stringify({ new: created, recovered: recovered || undefined, ...viewTask(task) }, undefined, 2));
    return exitCode.ok;
  } catch (error) {
    if (!IdempotencyConflictError.is(error)) throw error;
    console.error(`conflict: ${error.message} (the task of this key is ${error.operationId})`);
    return exitCode.conflict;
  }
}

function parseInput(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (error) {
    throw new InvalidArgumentError(`the input is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}
