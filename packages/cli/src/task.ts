import type { Task, Tasks } from "@firstwrite/tasks";

import { exitCode, type ExitCode } from "./exit-code.ts";
import { withTasks } from "./store-option.ts";
import { viewTask } from "./task-view.ts";

/** Prints a task as JSON. */
export async function getTask(taskId: string, { store }: { store?: string }): Promise<ExitCode> {
  return show(taskId, store, (tasks) => tasks.get(taskId));
}

/** Marks a task as done, and prints what is left of it. */
export async function finishTask(taskId: string, { store }: { store?: string }): Promise<ExitCode> {
  return show(taskId, store, (tasks) => tasks.finish(taskId));
}

async function show(
  taskId: string,
  store: string | undefined,
  find: (tasks: Tasks) => Promise<Task | undefined>,
): Promise<ExitCode> {
  const task = await withTasks(store, find);
  if (task === undefined) {
    console.error(`there is no task ${taskId} in this store`);
    return exitCode.notFound;
  }
  console.log(JSON.stringify(viewTask(task), undefined, 2));
  return exitCode.ok;
}
