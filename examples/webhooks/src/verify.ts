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
  await forEach(webhooks, async ({ taskType, key, payload }) => {
    const record = await store.read(recordAddress("idempotency/", taskType, key).name);
    const taskId = record && parseJsonObject(record.bytes)?.["task_id"];
    const task = typeof taskId === "string" ? await tasks.get(taskId) : undefined;
    if (task === undefined) {
      verdict.lost += 1;
      return;
    }
    named.add(task.taskId);
    const same = task.taskType === taskType && canonicalJson(task.input, "a") === canonicalJson(payload, "b");
    if (!same) verdict.wrong += 1;
  });
  await forEach(listTasks(store), async ({ name }) => {
    const [taskId = ""] = name
      .split("/")
      .slice(-1)
      .map((file) => file.replace(/\.json$/, ""));
    const task = await tasks.get(taskId);
    // Other programs may keep their tasks in the same store.
    if (task === undefined || !task.taskType.startsWith(TASK_TYPE_PREFIX)) return;
    verdict.tasks += 1;
    if (!named.has(taskId)) verdict.doubled += 1;
  });
  return verdict;
}

/** A few at a time, all from the one iterator. */
async function forEach<Item>(
  items: Iterable<Item> | AsyncIterable<Item>,
  visit: (item: Item) => Promise<void>,
): Promise<void> {
  async function* rest(): AsyncGenerator<Item, void, void> {
    yield* items;
  }
  const shared = rest();
  const worker = async (): Promise<void> => {
    for (let next = await shared.next(); next.done !== true; next = await shared.next()) await visit(next.value);
  };
  await Promise.all(Array.from({ length: 16 }, worker));
}

function listTasks(store: ConditionalStore): AsyncIterable<ListedObject> {
  if (store.list === undefined) throw new Error("this store cannot list its objects, so doubles would not be seen");
  return store.list("tasks/");
}
