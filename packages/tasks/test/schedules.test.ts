import assert from "node:assert/strict";

import { fingerprintOf, IdempotencyConflictError, recordAddress, StoreError, type Json } from "@firstwrite/core";
import { MemoryStore, VirtualClock } from "@firstwrite/memory";
import {
  explore,
  type Checks,
  type Fault,
  type ModelRecord,
  type Scenario,
  type StartingRecord,
  type World,
} from "@firstwrite/simulator";
import { Tasks, type Submission, type SubmitOptions, type Task } from "@firstwrite/tasks";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const START = Date.UTC(2026, 0, 1);
const allFaults: Fault[] = ["lostRequest", "lostReply", "landsLate", "crashBefore", "crashAfter", "contended"];

interface Plan {
  readonly producers: number;
  readonly faultsMax: number;
  /** By default every fault. */
  readonly faults?: readonly Fault[];
  readonly jumpsMs?: readonly number[];
  readonly submit?: SubmitOptions;
  /** By producer; by default all submit the first. */
  readonly inputs?: readonly Json[];
  /** One more caller finishes whatever task it finds. */
  readonly worker?: boolean;
  /** What is stored before the first call. */
  readonly records?: () => Promise<StartingRecord[]>;
  readonly beginLate?: boolean;
  readonly removedAfterMs?: number;
}

type Done =
  | { readonly by: "producer"; readonly submission: Submission }
  | { readonly by: "worker"; readonly task: Task | undefined };

const firstInput: Json = { amount: 5 };

/** What was seen in a schedule so far. */
interface Seen {
  /** Task IDs that were claimed, input hashes they were claimed with, and task IDs that callers were answered with. */
  readonly operations: string[];
  readonly inputHashes: string[];
  readonly answered: string[];
  /** Task IDs that a caller was told to be the maker of. */
  readonly created: string[];
}

/** Every producer submits under the same key. */
async function scenario(plan: Plan): Promise<Scenario<Done, Seen>> {
  const { producers, faultsMax, jumpsMs = [], inputs = [firstInput], worker = false } = plan;
  const submit = { idempotencyKey: "k", ttlDays: 1, ...plan.submit };
  const records = (await plan.records?.()) ?? [];
  return {
    callers: producers + (worker ? 1 : 0),
    interchangeable: inputs.length === 1 && !worker,
    // While time stands still, a reply held back is no more than a caller that is slow to send its next request.
    faults: plan.faults ?? (jumpsMs.length > 0 ? [...allFaults, "heldReply"] : allFaults),
    faultsMax,
    jumpsMs,
    records,
    ...(plan.beginLate === undefined ? {} : { beginLate: plan.beginLate }),
    ...(plan.removedAfterMs === undefined ? {} : { removedAfterMs: plan.removedAfterMs }),
    async start({ index, store, runtime }) {
      const tasks = new Tasks({ store, runtime });
      if (worker && index === producers) {
        const { name } = recordAddress("idempotency/", "charge", "k");
        const record = await store.read(name).catch(() => undefined);
        return { by: "worker", task: record && (await tasks.finish(text(json(record.bytes)["task_id"]))) };
      }
      const input = inputs[index] ?? inputs[0];
      return { by: "producer", submission: await tasks.submit("charge", input, submit) };
    },
    model: () => seenIn(records),
    checks: rules(plan),
  };
}

function seenIn(records: StartingRecord[]): Seen {
  const seen: Seen = { operations: [], inputHashes: [], answered: [], created: [] };
  for (const { name, bytes } of records) if (name.startsWith("idempotency/")) noteRecord(seen, json(bytes));
  return seen;
}

function noteRecord({ operations, inputHashes }: Seen, record: Record<string, Json>): void {
  note(operations, text(record["task_id"]));
  note(inputHashes, text(record["input_hash"]));
}

function note(known: string[], what: string): void {
  if (!known.includes(what)) known.push(what);
}

/** What `protocol.md` §6 promises, checked at every write, at every answer and at the end. */
function rules({ jumpsMs = [], inputs = [firstInput], worker = false, submit = {} }: Plan): Checks<Done, Seen> {
  return {
    onWritten({ name, before, after }, world) {
      const now = json(after.bytes);
      if (name.startsWith("idempotency/")) {
        noteRecord(world.model, now);
        currentRecord(world);
        if (before === undefined) return;
        const was = json(before.bytes);
        const same = now["task_id"] === was["task_id"];
        assert.equal(now["created_at"] === was["created_at"], same, "created_at is kept");
        assert.ok(same || isOver(before, world.now), "T8: a record that is not over was overwritten by a new claim");
        return;
      }
      if (before !== undefined) {
        assert.ok(worker, "a task object is written once");
        assert.equal(json(before.bytes)["state"], undefined, "T6: a tombstone stays");
        assert.equal(now["state"], "finished", "T6: a task is replaced by its tombstone alone");
        return;
      }
      const record = currentRecord(world);
      assert.ok(record !== undefined, "T1: a task is made after its record");
      const claimed = json(record.bytes);
      assert.equal(now["task_id"], claimed["task_id"], "T5: a task was made for a key that has moved on");
      assert.ok(!isOver(record, world.now), "T5: a task was made for a record that is over");
      assert.equal(fingerprintOf(now["input"]), claimed["input_hash"], "T4: the task has the input that was submitted");
    },
    onEnded(ending, caller, world) {
      const { operations, inputHashes, answered, created } = world.model;
      if (ending.kind === "threw") {
        const { error } = ending;
        if (IdempotencyConflictError.is(error)) {
          assert.ok(inputHashes.length > 1 || inputs.length > 1, "T3: a conflict needs another input");
          assert.ok(
            operations.includes(error.operationId ?? ""),
            "T3: a conflict names the operation that has the key",
          );
          return;
        }
        assert.ok(jumpsMs.length > 0 && StoreError.is(error), `caller ${caller} threw ${String(error)}`);
        assert.equal(error.code, "UNAVAILABLE");
        return;
      }
      if (ending.result.by === "worker") {
        assert.notEqual(ending.result.task?.state, "pending", "T6: what was finished is finished");
        return;
      }
      const { task, created: isMaker } = ending.result.submission;
      const record = [...world.records].find(([name]) => name.startsWith("idempotency/"));
      if (submit.phases === 2 && record !== undefined) {
        const { task_id: current, status } = json(record[1].bytes);
        assert.ok(current !== task.taskId || status === "ready", "T7: what was answered is confirmed");
      }
      note(answered, task.taskId);
      assert.ok(operations.includes(task.taskId), "an answer names a task that was claimed");
      if (task.state === "pending") {
        assert.deepEqual(task.input, inputs[caller] ?? inputs[0], "T3: nobody is answered with another input's task");
      }
      if (!isMaker) return;
      assert.ok(!created.includes(task.taskId), "two callers were told that the task is theirs");
      created.push(task.taskId);
    },
    async atRest(retry, world) {
      const ending = await retry();
      const tasks = [...world.records.keys()].filter((name) => name.startsWith("tasks/"));
      assert.ok(tasks.length <= world.model.operations.length, "no more tasks than claims");
      if (ending.kind === "threw") {
        // The retry has the first input.
        assert.ok(IdempotencyConflictError.is(ending.error) && inputs.length > 1, "a retry without faults succeeds");
        return;
      }
      if (ending.result.by === "worker") return;
      const { task } = ending.result.submission;
      assert.ok(tasks.includes(task.taskKey), "the task that was answered exists");
      if (world.model.operations.length > 1) return;
      assert.equal(tasks.length, 1, "one key, one task");
      for (const taskId of world.model.answered) assert.equal(taskId, task.taskId, "everyone got the same task");
    },
  };
}

/** The key's one record, whatever the name it stands under. */
function currentRecord(world: World<Seen>): ModelRecord | undefined {
  const [current, ...others] = [...world.records].filter(([name]) => name.startsWith("idempotency/"));
  assert.equal(others.length, 0, "one key, one register");
  return current?.[1];
}

function isOver({ bytes, modifiedAt }: ModelRecord, now: number): boolean {
  const { ttl_ms: ttlMs, expires_at: expiresAt } = json(bytes);
  return ttlMs === undefined ? now > Date.parse(text(expiresAt)) : now - modifiedAt > Number(ttlMs);
}

/** What a producer left that claimed the key `ageMs` ago and died before it made the task. */
async function claimed(ageMs: number, input: Json = firstInput, submit: SubmitOptions = {}): Promise<StartingRecord[]> {
  const clock = new VirtualClock({ startAt: START - ageMs, seed: 99 });
  const store = new MemoryStore({ clock });
  store.inject("denied", { on: "create", name: /^tasks\// });
  await assert.rejects(
    new Tasks({ store, runtime: clock }).submit("charge", input, { idempotencyKey: "k", ttlDays: 1, ...submit }),
  );
  const { name } = recordAddress("idempotency/", "charge", "k");
  return [{ name, bytes: (await store.read(name))?.bytes ?? Buffer.of(), ageMs }];
}

/** A record of the older layout in a scope that is encoded now. */
async function older(expiresInMs: number): Promise<StartingRecord[]> {
  const { key, keyHash } = recordAddress("idempotency/", "a b", "k");
  const taskId = "3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11";
  const fields = {
    key,
    key_hash: keyHash,
    task_id: taskId,
    task_key: `tasks/3/${taskId}.json`,
    created_at: new Date(START - 30 * DAY_MS).toISOString(),
    expires_at: new Date(START + expiresInMs).toISOString(),
    task_type: "charge",
    input_hash: fingerprintOf(firstInput),
  };
  const name = `idempotency/a b/${keyHash.slice("sha256:".length)}.json`;
  return [{ name, bytes: Buffer.from(JSON.stringify(fields)), ageMs: 30 * DAY_MS }];
}

function json(bytes: Uint8Array): Record<string, Json> {
  return JSON.parse(Buffer.from(bytes).toString("utf8"));
}

function text(value: Json | undefined): string {
  assert.ok(typeof value === "string");
  return value;
}

describe("tasks, every schedule", () => {
  const twoInputs: readonly Json[] = [firstInput, { amount: 6 }];
  const plans: Record<string, Plan> = {
    "two producers, two faults": { producers: 2, faultsMax: 2 },
    "two producers, one fault, two phases (T7)": { producers: 2, faultsMax: 1, submit: { phases: 2 } },
    "three producers, one fault": { producers: 3, faultsMax: 1 },
    "two producers, one fault, the expiry (T8)": {
      producers: 2,
      faultsMax: 1,
      faults: ["landsLate", "heldReply"],
      jumpsMs: [DAY_MS + 1],
      beginLate: true,
    },
    "one producer, one fault, a task missing just before the expiry, and a stall across it (T5)": {
      producers: 1,
      faultsMax: 1,
      records: () => claimed(23.5 * HOUR_MS),
      jumpsMs: [0.75 * HOUR_MS],
    },
    "two producers, an expiry within their calls (T5, T8)": {
      producers: 2,
      faultsMax: 0,
      records: () => claimed(DAY_MS - 5_000),
      // Shorter than a request's timeout.
      jumpsMs: [9_000],
    },
    "two producers of two inputs, one fault (T3)": { producers: 2, faultsMax: 1, inputs: twoInputs },
    "two producers of two inputs, one fault, a record that is over (T8)": {
      producers: 2,
      faultsMax: 1,
      inputs: twoInputs,
      records: () => claimed(DAY_MS + 1, "something else"),
    },
    "two producers, one fault, an unconfirmed record that is over (T7)": {
      producers: 2,
      faultsMax: 1,
      records: () => claimed(DAY_MS + 1, firstInput, { phases: 2 }),
    },
    "two producers, one fault, a record of the older layout": {
      producers: 2,
      faultsMax: 1,
      submit: { scope: "a b" },
      records: () => older(HOUR_MS),
    },
    "two producers, one fault, a record of the older layout that is over": {
      producers: 2,
      faultsMax: 1,
      submit: { scope: "a b" },
      records: () => older(-1),
    },
    "two producers, a lifecycle rule that removes an old record": {
      producers: 2,
      faultsMax: 0,
      records: () => claimed(2 * DAY_MS + 1),
      removedAfterMs: 2 * DAY_MS,
    },
    "one producer and a worker that finishes, one fault (T6)": { producers: 1, worker: true, faultsMax: 1 },
  };
  // Minutes each: `pnpm explore`.
  const large: Record<string, Plan> = {
    "two producers, two faults, two phases": { producers: 2, faultsMax: 2, submit: { phases: 2 } },
    "three producers, one fault, two phases": { producers: 3, faultsMax: 1, submit: { phases: 2 } },
    "two producers, two faults, the expiry": {
      producers: 2,
      faultsMax: 2,
      jumpsMs: [DAY_MS + 1],
      beginLate: true,
    },
    "two producers, one fault, a lifecycle rule": {
      producers: 2,
      faultsMax: 1,
      records: () => claimed(2 * DAY_MS + 1),
      removedAfterMs: 2 * DAY_MS,
    },
    "two producers, one fault, stalls to and across the expiry": {
      producers: 2,
      faultsMax: 1,
      jumpsMs: [23.5 * HOUR_MS, 0.75 * HOUR_MS],
      beginLate: true,
    },
    "two producers, one fault, a task missing just before the expiry": {
      producers: 2,
      faultsMax: 1,
      records: () => claimed(23.5 * HOUR_MS),
      jumpsMs: [0.75 * HOUR_MS],
      beginLate: true,
    },
    "two producers and a worker that finishes, two faults": { producers: 2, worker: true, faultsMax: 2 },
  };
  const chosen = process.env["FIRSTWRITE_EXPLORE"] === "full" ? { ...plans, ...large } : plans;
  for (const [title, plan] of Object.entries(chosen)) {
    it(title, async function () {
      this.timeout(0);
      const { schedules, states } = await explore(await scenario(plan));
      console.log(`      ${schedules} schedules, ${states} states`);
      assert.ok(schedules > 100, "the exploration was not cut short");
    });
  }
});
