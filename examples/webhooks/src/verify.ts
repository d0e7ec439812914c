import {
  canonicalJson,
  parseJsonObject,
  recordAddress,
  type ConditionalStore,
  type ListedObject,
} from "@firstwrite/core";
import { Tasks } from "@firstwrite/tasks";

import { TASK_TYPE_PREFIX, type Webhook } from "./webhooks.ts";

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
  /** The ID of each webhook's task, by its place in `webhooks`. */
  readonly taskIds: ReadonlyMap<number, string>;
}

/** The IDs of all tasks that the store holds, of whatever type. */
export async function listTaskIds(store: ConditionalStore): Promise<Set<string>> {
  const ids = new Set<string>();
  for await (const object of listTasks(store)) ids.add(taskIdIn(object));
  return ids;
}

/** Reads the store, and trusts nothing that a producer said: one task with the right payload for every webhook. */
export async function verify(store: ConditionalStore, webhooks: readonly Webhook[]): Promise<Verdict> {
  const tasks = new Tasks({ store });
  const taskIds = new Map<number, string>();
  const verdict: Verdict = { tasks: 0, lost: 0, doubled: 0, wrong: 0, taskIds };
  const named = new Set<string>();
  await forEach(webhooks.entries(), async ([webhook, { taskType, key, payload }]) => {
    const record = await store.read(recordAddress("idempotency/", taskType, key).name);
    const taskId = record && parseJsonObject(record.bytes)?.["task_id"];
    const task = typeof taskId === "string" ? await tasks.get(taskId) : undefined;
    if (task === undefined) {
      verdict.lost += 1;
      return;
    }
    named.add(task.taskId);
    taskIds.set(webhook, task.taskId);
    const same = task.taskType === taskType && canonicalJson(task.input, "a") === canonicalJson(payload, "b");
    if (!same) verdict.wrong += 1;
  });
  await forEach(listTasks(store), async (object) => {
    const taskId = taskIdIn(object);
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

/** A task's object is called after its ID. */
function taskIdIn({ name }: ListedObject): string {
  return name.slice(name.lastIndexOf("/") + 1).replace(/\.json$/, "");
}
