import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import {
  IdempotencyConflictError,
  parseJsonObject,
  recordAddress,
  StoreError,
  type ConditionalStore,
  type WriteOutcome,
} from "@firstwrite/core";
import { Tasks, type SubmitOptions } from "@firstwrite/tasks";

import type { MatrixSuite } from "../suites.ts";

const PRODUCERS = 12;

/**
 * Rules T1 to T7 on a real store, its real races in place of the schedules that the package's own tests go through. T5
 * and T8 need days to pass, which no server can be told to let.
 */
export const tasks: MatrixSuite = {
  name: "tasks",
  register({ open, openSecond }) {
    let stores: readonly [ConditionalStore, ConditionalStore];
    let idempotencyKey: string;

    before(async () => {
      const first = await open();
      stores = [first, (await openSecond?.()) ?? first];
    });
    beforeEach(() => {
      idempotencyKey = randomUUID();
    });
    after(async () => {
      for (const store of new Set(stores)) await store.close?.();
    });

    /** Each with an engine of its own, as producers in as many processes have. */
    const producers = (): readonly Tasks[] =>
      Array.from({ length: PRODUCERS }, (_, index) => new Tasks({ store: stores[index % 2 === 0 ? 0 : 1] }));
    const submit = (options: SubmitOptions = {}, input: unknown = { n: 1 }) =>
      new Tasks({ store: stores[1] }).submit("charge", input, { idempotencyKey, ...options });
    const record = async (scope: string): Promise<Readonly<Record<string, unknown>>> => {
      const stored = await stores[0].read(recordAddress("idempotency/", scope, idempotencyKey).name);
      return (stored && parseJsonObject(stored.bytes)) ?? {};
    };

    it("T1: makes one task of one key, however many producers send it at once", async () => {
      const sent = await Promise.all(
        producers().map((producer) => producer.submit("charge", { n: 1 }, { idempotencyKey })),
      );
      assert.equal(new Set(sent.map(({ task }) => task.taskId)).size, 1);
      assert.equal(sent.filter(({ created }) => created).length, 1);
    });

    for (const phases of [1, 2] as const) {
      it(`T2: finds that task again for a later producer, on either client (${phases} phases)`, async () => {
        const [first, second] = producers();
        assert.ok(first !== undefined && second !== undefined);
        const made = await first.submit("charge", { n: 1 }, { idempotencyKey, phases });
        const found = await second.submit("charge", { n: 1 }, { idempotencyKey, phases });
        assert.deepEqual([found.created, found.recovered, found.task], [false, false, made.task]);
        assert.deepEqual(await second.get(made.task.taskId), made.task);
        assert.equal((await record("charge"))["status"], "ready");
      });
    }

    it("T3: refuses another input under the same key, in a race too", async () => {
      const sent = await Promise.allSettled(
        producers().map((producer, n) => producer.submit("charge", { n }, { idempotencyKey })),
      );
      const refused = sent.filter(({ status }) => status === "rejected");
      assert.equal(refused.length, PRODUCERS - 1);
      for (const result of refused) {
        assert.ok(result.status === "rejected" && IdempotencyConflictError.is(result.reason));
      }
    });

    it("T3: refuses another type in a scope that has tasks of several", async () => {
      await submit({ scope: "queue" });
      await assert.rejects(
        new Tasks({ store: stores[0] }).submit("refund", { n: 1 }, { idempotencyKey, scope: "queue" }),
        IdempotencyConflictError.is,
      );
    });

    it("T4: makes the task of a producer that died between the two writes, once, with its ID", async () => {
      const dying = interfering(stores[0], taskCreates, () =>
        Promise.reject(new StoreError("PERMISSION_DENIED", "dying", "the producer dies here")),
      );
      await assert.rejects(new Tasks({ store: dying }).submit("charge", { n: 1 }, { idempotencyKey }), StoreError.is);
      const claimed = await record("charge");
      const sent = await Promise.all(
        producers().map((producer) => producer.submit("charge", { n: 1 }, { idempotencyKey })),
      );
      for (const { task, created } of sent) assert.deepEqual([task.taskId, created], [claimed["task_id"], false]);
      assert.ok(sent.filter(({ recovered }) => recovered).length <= 1);
    });

    for (const [what, which] of [
      ["the record", (name: string) => !taskCreates(name)],
      ["the task", taskCreates],
    ] as const) {
      it(`T1: a lost answer to the create of ${what} makes no second task`, async () => {
        const lossy = interfering(stores[0], which, async (send) => {
          await send();
          return { kind: "unknown", cause: new Error("the answer was lost") };
        });
        const first = await new Tasks({ store: lossy }).submit("charge", { n: 1 }, { idempotencyKey });
        assert.equal(first.created, true);
        assert.deepEqual((await submit()).task, first.task);
      });
    }

    it("T6: a finished task stays as a tombstone, which a late create finds", async () => {
      let late: (() => Promise<WriteOutcome>) | undefined;
      const slow = interfering(stores[0], taskCreates, (send) => {
        late = send;
        return Promise.resolve({ kind: "unknown", cause: new Error("no answer yet") });
      });
      const { task } = await new Tasks({ store: slow }).submit("charge", { n: 1 }, { idempotencyKey });
      const [one, two] = producers();
      const finished = await Promise.all([one?.finish(task.taskId), two?.finish(task.taskId)]);
      assert.deepEqual(
        finished.map((done) => done?.state),
        ["finished", "finished"],
      );
      assert.deepEqual(await late?.(), { kind: "refused" });
      const again = await submit();
      assert.deepEqual([again.task.taskId, again.task.state], [task.taskId, "finished"]);
    });

    it("takes every scope and key there may be, each its own", async () => {
      const scopes = ["queue", "a/b", "A", "a", "..", "a b", "ü", "a%2Fb", "x".repeat(200)];
      const ids = await Promise.all(scopes.map(async (scope) => (await submit({ scope })).task.taskId));
      assert.equal(new Set(ids).size, scopes.length);
      const again = await Promise.all(scopes.map(async (scope) => (await submit({ scope })).task.taskId));
      assert.deepEqual(again, ids);
    });
  },
};

function taskCreates(name: string): boolean {
  return name.startsWith("tasks/");
}

/** The store, with the first create of a name that `which` picks left to `answer`. */
function interfering(
  store: ConditionalStore,
  which: (name: string) => boolean,
  answer: (send: () => Promise<WriteOutcome>) => Promise<WriteOutcome>,
): ConditionalStore {
  let done = false;
  return {
    traits: store.traits,
    read: (name, options) => store.read(name, options),
    replace: (name, expected, bytes, options) => store.replace(name, expected, bytes, options),
    create(name, bytes, options) {
      const send = (): Promise<WriteOutcome> => store.create(name, bytes, options);
      if (done || !which(name)) return send();
      done = true;
      return answer(send);
    },
  };
}
