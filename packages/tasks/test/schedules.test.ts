import assert from "node:assert/strict";

import { StoreError, type Json } from "@firstwrite/core";
import { explore, type Checks, type Fault, type Scenario, type World } from "@firstwrite/simulator";
import { Tasks, type Submission, type SubmitOptions } from "@firstwrite/tasks";

const HOUR_MS = 3_600_000;
const input = { amount: 5 };
const faults: Fault[] = ["lostRequest", "lostReply", "landsLate", "crashBefore", "crashAfter", "contended"];

interface Plan {
  readonly producers: number;
  readonly faultsMax: number;
  readonly jumpsMs?: readonly number[];
  readonly submit?: SubmitOptions;
}

/** Every producer submits the same task under the same key. */
function scenario({ producers, faultsMax, jumpsMs = [], submit = {} }: Plan): Scenario<Submission> {
  return {
    callers: producers,
    interchangeable: true,
    // While time stands still, a reply held back is no more than a caller that is slow to send its next request.
    faults: jumpsMs.length > 0 ? [...faults, "heldReply"] : faults,
    faultsMax,
    jumpsMs,
    start: ({ store, runtime }) =>
      new Tasks({ store, runtime }).submit("charge", input, { idempotencyKey: "k", ttlDays: 1, ...submit }),
    checks: () => rules(jumpsMs.length > 0),
  };
}

/** What `protocol.md` §6 promises, checked at every write, at every answer and at the end. */
function rules(timePasses: boolean): Checks<Submission> {
  const operations = new Set<string>();
  const createdBy = new Map<string, number>();
  const answered = new Set<string>();
  return {
    onWritten({ name, before, after }, world) {
      if (name.startsWith("idempotency/")) {
        const now = json(after.bytes);
        operations.add(text(now["operation_id"]));
        if (before === undefined) return;
        const was = json(before.bytes);
        assert.equal(
          now["created_at"] === was["created_at"],
          now["operation_id"] === was["operation_id"],
          "created_at is kept",
        );
        if (now["operation_id"] === was["operation_id"]) return;
        const age = world.now - before.modifiedAt;
        assert.ok(age > Number(was["ttl_ms"]), `T8: a record ${age} ms old was overwritten by a new claim`);
        return;
      }
      assert.equal(before, undefined, "a task object is written once");
      const record = currentRecord(world);
      assert.ok(record !== undefined, "T1: a task is made after its record");
      assert.equal(json(after.bytes)["task_id"], record.operationId, "T5: a task was made for a key that has moved on");
      assert.ok(world.now - record.modifiedAt <= 24 * HOUR_MS, "T5: a task was made for a record that is over");
      assert.deepEqual(json(after.bytes)["input"], input, "T4: the task has the input that was submitted");
    },
    onEnded(ending, caller) {
      if (ending.kind === "threw") {
        assert.ok(timePasses && StoreError.is(ending.error), `caller ${caller} threw ${String(ending.error)}`);
        assert.equal(ending.error.code, "UNAVAILABLE");
        return;
      }
      const { task, created } = ending.result;
      answered.add(task.taskId);
      assert.ok(operations.has(task.taskId), "an answer names a task that was claimed");
      if (created) createdBy.set(task.taskId, (createdBy.get(task.taskId) ?? 0) + 1);
      assert.ok((createdBy.get(task.taskId) ?? 0) <= 1, "two callers were told that the task is theirs");
    },
    async atRest(retry, world) {
      const ending = await retry();
      assert.equal(ending.kind, "returned", "a retry without faults succeeds");
      if (ending.kind !== "returned") return;
      const tasks = [...world.records.keys()].filter((name) => name.startsWith("tasks/"));
      assert.ok(tasks.includes(ending.result.task.taskKey), "the task that was answered exists");
      assert.ok(tasks.length <= operations.size, "no more tasks than claims");
      if (operations.size > 1) return;
      assert.equal(tasks.length, 1, "one key, one task");
      for (const taskId of answered) assert.equal(taskId, ending.result.task.taskId, "everyone got the same task");
    },
  };
}

function currentRecord(world: World): { operationId: string; modifiedAt: number } | undefined {
  for (const [name, { bytes, modifiedAt }] of world.records) {
    if (name.startsWith("idempotency/")) return { operationId: text(json(bytes)["operation_id"]), modifiedAt };
  }
  return undefined;
}

function json(bytes: Uint8Array): Record<string, Json> {
  return JSON.parse(Buffer.from(bytes).toString("utf8"));
}

function text(value: Json | undefined): string {
  assert.ok(typeof value === "string");
  return value;
}

describe("tasks, every schedule", () => {
  const toTheExpiry = [23.5 * HOUR_MS, 0.75 * HOUR_MS];
  const plans: Record<string, Plan> = {
    "two producers, two faults": { producers: 2, faultsMax: 2 },
    "two producers, one fault, two phases (T7)": { producers: 2, faultsMax: 1, submit: { phases: 2 } },
    "three producers, one fault": { producers: 3, faultsMax: 1 },
    "two producers, one fault, the expiry (T8)": { producers: 2, faultsMax: 1, jumpsMs: [24 * HOUR_MS + 1] },
    "two producers, one fault, a stall to just before the expiry, then one across it (T5)": {
      producers: 2,
      faultsMax: 1,
      jumpsMs: toTheExpiry,
    },
  };
  // Minutes each: `pnpm explore`.
  const large: Record<string, Plan> = {
    "two producers, two faults, two phases": { producers: 2, faultsMax: 2, submit: { phases: 2 } },
    "three producers, one fault, two phases": { producers: 3, faultsMax: 1, submit: { phases: 2 } },
    "two producers, two faults, the expiry": { producers: 2, faultsMax: 2, jumpsMs: [24 * HOUR_MS + 1] },
  };
  const chosen = process.env["FIRSTWRITE_EXPLORE"] === "full" ? { ...plans, ...large } : plans;
  for (const [title, plan] of Object.entries(chosen)) {
    it(title, async function () {
      this.timeout(0);
      const { schedules, states } = await explore(scenario(plan));
      console.log(`      ${schedules} schedules, ${states} states`);
      assert.ok(schedules > 1000, "the exploration was not cut short");
    });
  }
});
