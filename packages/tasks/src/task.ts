/** The task object: where it stands, and bytes ⇄ task. */

import {
  canonicalJson,
  InvalidArgumentError,
  isJsonObject,
  parseJsonObject,
  StoreError,
  type Json,
  type JsonObject,
} from "@firstwrite/core";

/** A submitted task, as its object in the store says. */
export interface Task {
  /** A UUID. With an idempotency key it is the operation's ID. */
  readonly taskId: string;
  readonly taskType: string;
  /** The object's name: `tasks/{first hex digit of the ID}/{ID}.json`. */
  readonly taskKey: string;
  /** `finished`: a tombstone, which keeps the name taken so that a late copy of the submit finds it (rule T6). */
  readonly state: "pending" | "finished";
  /** What was submitted; `undefined` once finished. */
  readonly input: Json | undefined;
  readonly options: JsonObject;
  /** RFC 3339, by the clock of the producer that made the claim. */
  readonly createdAt: string;
  /** RFC 3339, by the clock of whoever finished it. */
  readonly finishedAt: string | undefined;
}

/** What a new task is made of. Every producer that makes the same task makes the same bytes of it. */
export interface TaskContent {
  readonly taskId: string;
  readonly taskType: string;
  readonly input: Json;
  readonly options: JsonObject;
  readonly createdAt: string;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** @throws {InvalidArgumentError} for an ID that is no UUID in lower case. */
export function taskKeyOf(taskId: string): string {
  if (typeof taskId !== "string" || !uuid.test(taskId)) {
    throw new InvalidArgumentError("a task ID is a UUID in lower case, as submit returned it");
  }
  return `tasks/${taskId.slice(0, 1)}/${taskId}.json`;
}

/** RFC 8785, so that the bytes follow from the content alone. */
export function encodeTask({ taskId, taskType, input, options, createdAt }: TaskContent): Uint8Array {
  return encode({ task_id: taskId, task_type: taskType, input, options, created_at: createdAt });
}

export function encodeTombstone(task: Task, finishedAt: string): Uint8Array {
  return encode({
    task_id: task.taskId,
    task_type: task.taskType,
    options: task.options,
    created_at: task.createdAt,
    state: "finished",
    finished_at: finishedAt,
  });
}

/**
 * The task in `bytes`. A task of the older layout has its ID in `id`; what else it lacks has a plain default, since a
 * producer only has to know that the task is there.
 *
 * @throws {StoreError} `CORRUPT` for bytes that are not the task of that name.
 */
export function decodeTask(store: string, taskKey: string, bytes: Uint8Array): Task {
  const corrupt = (why: string): StoreError => new StoreError("CORRUPT", store, `the task ${taskKey} ${why}`);
  const json = parseJsonObject(bytes);
  if (json === undefined) throw corrupt("is not a JSON object");
  const { task_id: ownId, id: olderId, task_type, input, options, created_at, state, finished_at } = json;
  const taskId = ownId ?? olderId;
  if (typeof taskId !== "string" || !taskKey.endsWith(`/${taskId}.json`)) throw corrupt("has another task's ID");
  return {
    taskId,
    taskType: typeof task_type === "string" ? task_type : "",
    taskKey,
    state: state === "finished" ? "finished" : "pending",
    input,
    options: isJsonObject(options) ? options : {},
    createdAt: typeof created_at === "string" ? created_at : "",
    finishedAt: typeof finished_at === "string" ? finished_at : undefined,
  };
}

function encode(json: JsonObject): Uint8Array {
  return new TextEncoder().encode(canonicalJson(json, "the task"));
}
