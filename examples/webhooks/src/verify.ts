import {
  canonicalJson,
  parseJsonObject,
  recordAddress,
  type ConditionalStore,
  type ListedObject,
} from "@firstwrite/core";
import { Tasks } from "@firstwrite/tasks";

import { TASK_TYPE_PREFIX, webhooks } from "./webhooks.ts";

/** What the store holds after a run. All but `tasks` must be 0. */
export interface Verdict {
  /** Tasks of webhooks in the store. */
  tasks: number;
  /** Webhooks without a task. */
  lost: number;
  /** Tasks that no webhook's key names: a second task of some webhook. */
  doubled: number;
  /** Tasks whose payload or type is not their webhook's. */
  wrong: number;
}

/** How many tasks the store holds, of whatever type. */
export async function countTasks(store: ConditionalStore): Promise<number> {
  let count = 0;
  for await (const _ of listTasks(store)) count += 1;
  return count;
}

/** Reads the store, and trusts nothing that a producer said: one task with the right payload for every webhook. */
export async function verify(store: ConditionalStore): Promise<Verdict> {
  const tasks = new Tasks({ store });
  const verdict: Verdict = { tasks: 0, lost: 0, doubled: 0, wrong: 0 };
  const named = new Set<string>();
  for (const { taskType, key, payload } of webhooks) {
    const record = await store.read(recordAddress("idempotency/", taskType, key).name);
    const taskId = record && parseJsonObject(record.bytes)?.["task_id"];
    const task = typeof taskId === "string" ? await tasks.get(taskId) : undefined;
    if (task === undefined) {
      verdict.lost += 1;
      continue;
    }
    named.add(task.taskId);
    const same = task.taskType === taskType && canonicalJson(task.input, "a") === canonicalJson(payload, "b");
    if (!same) verdict.wrong += 1;
  }
  for await (const { name } of listTasks(store)) {
    const [taskId = ""] = name
      .split("/")
      .slice(-1)
      .map((file) => file.replace(/\.json$/, ""));
    const task = await tasks.get(taskId);
    // Other programs may keep their tasks in the same store.
    if (task === undefined || !task.taskType.startsWith(TASK_TYPE_PREFIX)) continue;
    verdict.tasks += 1;
    if (!named.has(taskId)) verdict.doubled += 1;
  }
  return verdict;
}

function listTasks(store: ConditionalStore): AsyncIterable<ListedObject> {
  if (store.list === undefined) throw new Error("this store cannot list its objects, so doubles would not be seen");
  return store.list("tasks/");
}
