import {
  checkNames,
  days,
  encodeScope,
  extendReservation,
  fingerprintOf,
  formatTime,
  Idempotency,
  IdempotencyConflictError,
  InvalidArgumentError,
  isJsonObject,
  objectNameFault,
  recordAddress,
  reserveIn,
  settleWrite,
  SingleFlight,
  StoreError,
  toJson,
  uuidV4,
  type Digest,
  type FlightLife,
  type HeldRecord,
  type IdempotencyOptions,
  type Json,
  type JsonObject,
  type RecordAddress,
  type ReservationAttempt,
  type StoreSession,
  type Version,
} from "@firstwrite/core";

import { decodeTask, encodeTask, encodeTombstone, taskKeyOf, type Task, type TaskContent } from "./task.ts";
import { TaskGoneError } from "./task-gone-error.ts";

/** What {@link Tasks} is made of. */
export type TasksOptions = Omit<IdempotencyOptions, "prefix">;

/** How one task is submitted. */
export interface SubmitOptions {
  /** 1 to 255 characters, the same for every sending of one request. Without it every call makes a task. */
  readonly idempotencyKey?: string | undefined;
  /**
   * Where the key counts: by default among tasks of the same type; `"queue"` for the whole queue; any other string is a
   * namespace of your own. One that is named like a task type shares that type's keys, as in the older layout.
   */
  readonly scope?: string | undefined;
  /** How long the key is remembered after the last write of its record, in days; at least 1. Default 30. */
  readonly ttlDays?: number | undefined;
  /**
   * 2 confirms in the record that the task was made, at one more write. A task that is gone later is then reported
   * (`TaskGoneError`) where with 1, the default, it would be made again.
   */
  readonly phases?: 1 | 2 | undefined;
  /** Stored with the task for its worker, as JSON. Other options under the same key are a conflict. */
  readonly options?: Readonly<Record<string, unknown>> | undefined;
  /** The most this call takes, in milliseconds; under an hour. */
  readonly deadlineMs?: number | undefined;
  /** Ends this call, with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What {@link Tasks.submit} answers. */
export interface Submission {
  /** The one task of the key, the same whoever asks. */
  readonly task: Task;
  /** The key was new, and this call took it. */
  readonly created: boolean;
  /**
   * The key was taken by another producer that had not made the task: it died, or was slower. This call made it, by the
   * store's own answer: where that was lost, nobody can tell whose the task is, and nobody is told.
   */
  readonly recovered: boolean;
}

const SUBMIT_OPTIONS = ["idempotencyKey", "scope", "ttlDays", "phases", "options", "deadlineMs", "signal"];
const DAY_MS = days(1);
const HOUR_MS = 3_600_000;
const TTL_DAYS_MAX = 36_500;

/**
 * A queue's idempotent submit on a bucket: one key, one task. The key's record is
 * `idempotency/{scope}/{hash}.json`, the task `tasks/{shard}/{id}.json`.
 *
 * Requests to the store: without a key 1; with one, 2 for the first call and 3 for a repeat.
 */
export class Tasks {
  readonly #idempotency: Idempotency;
  readonly #submissions: SingleFlight<Submission>;
  readonly #calls: SingleFlight<Task | undefined>;

  /** @throws {InvalidArgumentError} */
  constructor(options: TasksOptions) {
    this.#idempotency = new Idempotency(options);
    this.#submissions = new SingleFlight(this.#idempotency.runtime, options.store.traits.name);
    this.#calls = new SingleFlight(this.#idempotency.runtime, options.store.traits.name);
  }

  /**
   * Makes the task of a key, or finds it.
   *
   * @throws {IdempotencyConflictError} when the key was used with another input, other options or another task type.
   * @throws {TaskGoneError} when a confirmed task was deleted while its key lived.
   * @throws {InvalidArgumentError} before any request, saying what to change.
   * @throws {StoreError} `UNAVAILABLE` when the deadline passes first: safe to send again with the same key, and only then.
   */
  async submit(taskType: string, input: unknown, options: SubmitOptions = {}): Promise<Submission> {
    const order = this.#check(taskType, input, options);
    const advice =
      order.address === undefined
        ? "the task may have been made; without an idempotency key, sending it again can make a second one"
        : undefined;
    const limits = { deadlineMs: order.deadlineMs, signal: options.signal, advice };
    // Calls without a key are never the same call.
    const flight =
      order.address === undefined
        ? uuidV4(this.#idempotency.runtime)
        : JSON.stringify([order.address.name, taskType, order.inputHash, order.optionsHash, order.ttlMs, order.phases]);
    const { result, first } = await this.#submissions.run(flight, limits, (life) =>
      order.address === undefined ? this.#make(life, order) : this.#submit(life, order, order.address),
    );
    return {
      task: structuredClone(result.task),
      created: result.created && first,
      recovered: result.recovered && first,
    };
  }

  /**
   * Checks a submit as {@link submit} does before any request.
   *
   * @throws {InvalidArgumentError} saying what to change.
   */
  check(taskType: string, input: unknown, options: SubmitOptions = {}): void {
    this.#check(taskType, input, options);
  }

  /**
   * The task of that ID; `undefined` where there is none.
   *
   * @throws {InvalidArgumentError} for an ID that is no UUID.
   * @throws {StoreError}
   */
  async get(taskId: string, options: Pick<SubmitOptions, "deadlineMs" | "signal"> = {}): Promise<Task | undefined> {
    const taskKey = taskKeyOf(taskId);
    return this.#call(options, async (life) => (await readTask(this.#idempotency.session(life), taskKey))?.task);
  }

  /**
   * Replaces a task that is done by a tombstone at the same name. Never delete one instead while its key lives: a copy of
   * the submit that is still under way would bring it back (rule T6). Finishing twice changes nothing.
   *
   * @returns the finished task; `undefined` where there is none.
   * @throws {InvalidArgumentError} for an ID that is no UUID.
   * @throws {StoreError}
   */
  async finish(taskId: string, options: Pick<SubmitOptions, "deadlineMs" | "signal"> = {}): Promise<Task | undefined> {
    const taskKey = taskKeyOf(taskId);
    return this.#call(options, async (life) => finishTask(this.#idempotency.session(life), taskKey));
  }

  /** Rules T1 to T8. */
  async #submit(life: FlightLife, order: Order, address: RecordAddress): Promise<Submission> {
    const session = this.#idempotency.session(life);
    const attempt: ReservationAttempt = {
      operation: "tasks.submit",
      ttlMs: order.ttlMs,
      address,
      inputHash: order.inputHash,
      olderName: this.#olderName(address),
      choose: ({ operationId }) => ({
        value: operationId,
        fields: recordFields(order, operationId),
        phases: order.phases,
      }),
    };
    let claimed: string | undefined;
    let recovered: string | undefined;
    for (;;) {
      const reservation = await reserveIn(session, attempt);
      const { held } = reservation;
      const { taskId, taskKey } = taskOf(session, held);
      if (reservation.created) claimed = taskId;
      checkSameRequest(held, order, taskId);

      // Whoever has just made the claim knows that there is no task yet.
      const found = reservation.created ? undefined : await readTask(session, taskKey);
      if (found !== undefined) {
        if (awaitsConfirmation(held) && (await this.#rewrite(session, order, held, true)) === undefined) continue;
        return { task: found.task, created: claimed === taskId, recovered: recovered === taskId };
      }
      if (isConfirmed(held)) throw new TaskGoneError(taskId);

      const current = await this.#keepAlive(session, order, held, reservation.created);
      if (current === undefined) continue;
      const made = await makeTask(session, { ...order, taskId, createdAt: held.record.createdAt });
      if (made === undefined) continue;
      if (made.byUs && claimed !== taskId) recovered = taskId;
      if (awaitsConfirmation(current) && (await this.#rewrite(session, order, current, true)) === undefined) continue;
      return { task: made.task, created: claimed === taskId, recovered: recovered === taskId };
    }
  }

  /**
   * A task create is sent only while the record will live longer than the call and an hour, and a missing task is made
   * again only after a rewrite (rule T5): otherwise a producer that stalls across the expiry makes a second task.
   * `undefined`: another write of the record came first.
   */
  async #keepAlive(
    session: StoreSession,
    order: Order,
    held: HeldRecord,
    justClaimed: boolean,
  ): Promise<HeldRecord | undefined> {
    let current: HeldRecord | undefined = justClaimed ? held : await this.#rewrite(session, order, held, false);
    while (current !== undefined && !livesLongEnough(session, current, order.deadlineMs)) {
      current = await this.#rewrite(session, order, current, false);
    }
    return current;
  }

  async #rewrite(
    session: StoreSession,
    order: Order,
    held: HeldRecord,
    confirm: boolean,
  ): Promise<HeldRecord | undefined> {
    // No shorter than `ttlDays` may be: a record that dies within the call could not be kept alive by any rewrite.
    const ttlMs = Math.max(held.record.ttlMs ?? order.ttlMs, DAY_MS);
    return extendReservation(session, held, { ttlMs, confirm });
  }

  /** Without a key: one create. */
  async #make(life: FlightLife, order: Order): Promise<Submission> {
    const session = this.#idempotency.session(life);
    const taskId = uuidV4(session.runtime);
    const createdAt = formatTime(session.runtime.now());
    const made = await makeTask(session, { ...order, taskId, createdAt });
    if (made === undefined) throw new TaskGoneError(taskId);
    return { task: made.task, created: true, recovered: false };
  }

  async #call(
    { deadlineMs, signal }: Pick<SubmitOptions, "deadlineMs" | "signal">,
    start: (life: FlightLife) => Promise<Task | undefined>,
  ): Promise<Task | undefined> {
    const advice = "it can be called again, which changes nothing more";
    const limits = { deadlineMs: this.#idempotency.deadline(deadlineMs), signal, advice };
    return (await this.#calls.run(uuidV4(this.#idempotency.runtime), limits, start)).result;
  }

  /** Where the older layout, which did not encode scopes, has the record of a scope that is encoded here. */
  #olderName({ scope, name }: RecordAddress): string | undefined {
    const folder = encodeScope(scope);
    if (folder === scope) return undefined;
    const older = name.replace(`/${folder}/`, () => `/${scope}/`);
    return objectNameFault(this.#idempotency.store.traits, older) === undefined ? older : undefined;
  }

  #check(taskType: string, input: unknown, options: SubmitOptions): Order {
    checkNames(options, SUBMIT_OPTIONS, "the options of submit");
    const { idempotencyKey: key, scope = taskType, ttlDays = 30, phases = 1 } = options;
    if (taskType === "") throw new InvalidArgumentError("the task type must be a string that is not empty");
    encodeScope(taskType);
    if (taskType === "queue") {
      throw new InvalidArgumentError('a task type named "queue" would share the keys of the whole queue: rename it');
    }
    if (!Number.isFinite(ttlDays) || ttlDays < 1 || ttlDays > TTL_DAYS_MAX) {
      throw new InvalidArgumentError(`ttlDays is ${ttlDays}: give at least 1, and at most ${TTL_DAYS_MAX}`);
    }
    if (phases !== 1 && phases !== 2) throw new InvalidArgumentError(`phases is ${String(phases)}: give 1 or 2`);
    if (key === undefined && options.scope !== undefined) {
      throw new InvalidArgumentError("a scope without an idempotencyKey does nothing: give the key, or leave it out");
    }
    const own = toJson(options.options ?? {}, "the task's options");
    if (!isJsonObject(own)) throw new InvalidArgumentError("the task's options must be an object");
    const json = toJson(input, "the task's input");
    this.#checkSize({ taskType, input: json, options: own });
    return {
      taskType,
      input: json,
      inputHash: fingerprintOf(json, "the task's input"),
      options: own,
      optionsHash: Object.keys(own).length === 0 ? undefined : fingerprintOf(own, "the task's options"),
      address: key === undefined ? undefined : recordAddress("idempotency/", scope, key),
      ttlMs: Math.round(ttlDays * DAY_MS),
      phases,
      deadlineMs: this.#idempotency.deadline(options.deadlineMs),
    };
  }

  /** Before the key is claimed: a task that no store request can make would hold its key until the TTL. */
  #checkSize(content: Pick<TaskContent, "taskType" | "input" | "options">): void {
    const { recordBytesMax } = this.#idempotency.store.traits;
    // An ID and a time of the length that all of them have.
    const bytes = encodeTask({ ...content, taskId: "0".repeat(36), createdAt: formatTime(0) }).byteLength;
    if (bytes <= recordBytesMax) return;
    throw new InvalidArgumentError(
      `the task is ${bytes} bytes long; the store takes ${recordBytesMax}: keep what is large elsewhere, and submit its address`,
    );
  }
}

/** A submit, checked. */
interface Order {
  readonly taskType: string;
  readonly input: Json;
  readonly inputHash: Digest;
  readonly options: JsonObject;
  readonly optionsHash: string | undefined;
  readonly address: RecordAddress | undefined;
  readonly ttlMs: number;
  readonly phases: 1 | 2;
  readonly deadlineMs: number;
}

/** The three fields of the older layout that the record itself does not have, and ours. */
function recordFields({ taskType, optionsHash, phases }: Order, taskId: string): Record<string, unknown> {
  return {
    task_id: taskId,
    task_key: taskKeyOf(taskId),
    task_type: taskType,
    options_hash: optionsHash,
    phases: phases === 2 ? 2 : undefined,
  };
}

function taskOf(session: StoreSession, { record, address }: HeldRecord): { taskId: string; taskKey: string } {
  const { task_id: taskId, task_key: taskKey } = record.fields;
  if (typeof taskId !== "string" || typeof taskKey !== "string" || taskKey !== taskKeyOf(taskId)) {
    throw new StoreError("CORRUPT", session.store.traits.name, `the record ${address.name} names no task`);
  }
  return { taskId, taskKey };
}

/** The input was compared by `reserve`; a wider scope has tasks of several types, and options are not in the input. */
function checkSameRequest({ record, address }: HeldRecord, order: Order, taskId: string): void {
  const facts = { operationId: taskId, keyHash: address.keyHash };
  if (record.fields["task_type"] !== order.taskType) {
    throw new IdempotencyConflictError("the idempotency key was used for a task of another type: use a new key", facts);
  }
  if (record.fields["options_hash"] !== order.optionsHash) {
    throw new IdempotencyConflictError("the idempotency key was used with other options: use a new key", facts);
  }
}

function awaitsConfirmation({ record }: HeldRecord): boolean {
  return record.fields["phases"] === 2 && record.status === "creating";
}

function isConfirmed({ record }: HeldRecord): boolean {
  return record.fields["phases"] === 2 && record.status === "ready";
}

function livesLongEnough(session: StoreSession, held: HeldRecord, deadlineMs: number): boolean {
  const sinceMs = session.runtime.monotonicMs() - held.asOfMs;
  return held.lifeLeftMs - sinceMs - session.store.traits.clockGranularityMs > deadlineMs + HOUR_MS;
}

async function readTask(session: StoreSession, taskKey: string): Promise<FoundTask | undefined> {
  const stored = await session.read(taskKey);
  return stored && { task: decodeTask(session.store.traits.name, taskKey, stored.bytes), version: stored.version };
}

interface FoundTask {
  readonly task: Task;
  readonly version: Version;
}

/**
 * Creates the task object. One that is there already is the task whatever its bytes: its ID is in its name and in its
 * body, and no two claims share one (rule T4). `undefined`: it was there, and then it was not.
 */
async function makeTask(
  session: StoreSession,
  content: TaskContent,
): Promise<{ readonly task: Task; readonly byUs: boolean } | undefined> {
  const taskKey = taskKeyOf(content.taskId);
  const bytes = encodeTask(content);
  const decode = (found: Uint8Array): Task => decodeTask(session.store.traits.name, taskKey, found);
  const settled = await settleWrite(session, {
    name: taskKey,
    bytes,
    inspect: (stored) => ({ ours: true, seen: decode(stored.bytes) }),
  });
  if (settled.kind === "absent") return undefined;
  return { task: settled.seen ?? decode(bytes), byUs: settled.seen === undefined };
}

async function finishTask(session: StoreSession, taskKey: string): Promise<Task | undefined> {
  const { name: store } = session.store.traits;
  let found = await readTask(session, taskKey);
  while (found !== undefined && found.task.state !== "finished") {
    const bytes = encodeTombstone(found.task, formatTime(session.runtime.now()));
    const settled = await settleWrite(session, {
      name: taskKey,
      expected: found.version,
      bytes,
      inspect(stored) {
        const task = decodeTask(store, taskKey, stored.bytes);
        return { ours: task.state === "finished", seen: { task, version: stored.version } };
      },
    });
    if (settled.kind === "mine") return settled.seen?.task ?? decodeTask(store, taskKey, bytes);
    found = settled.kind === "other" ? settled.seen : undefined;
  }
  return found?.task;
}
