import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { IdempotencyConflictError, type ConditionalStore } from "@firstwrite/core";
import { Tasks } from "@firstwrite/tasks";

import type { MatrixSuite } from "../suites.ts";

const PRODUCERS = 12;

/** Submits of a queue, with the store's real races in place of the schedules that the package's own tests go through. */
export const tasks: MatrixSuite = {
  name: "tasks",
  register({ open, openSecond }) {
    let stores: readonly [ConditionalStore, ConditionalStore];

    before(async () => {
      const first = await open();
      stores = [first, (await openSecond?.()) ?? first];
    });
    after(async () => {
      for (const store of new Set(stores)) await store.close?.();
    });

    /** Each with an engine of its own, as producers in as many processes have. */
    const producers = (): readonly Tasks[] =>
      Array.from({ length: PRODUCERS }, (_, index) => new Tasks({ store: stores[index % 2 === 0 ? 0 : 1] }));

    it("makes one task of one key, however many producers send it at once", async () => {
      const idempotencyKey = randomUUID();
      const sent = await Promise.all(
        producers().map((producer) => producer.submit("charge", { n: 1 }, { idempotencyKey })),
      );
      assert.equal(new Set(sent.map(({ task }) => task.taskId)).size, 1);
      assert.equal(sent.filter(({ created }) => created).length, 1);
    });

    it("finds that task again for a later producer, on either client", async () => {
      const idempotencyKey = randomUUID();
      const [first, second] = producers();
      assert.ok(first !== undefined && second !== undefined);
      const made = await first.submit("charge", { n: 1 }, { idempotencyKey, phases: 2 });
      const found = await second.submit("charge", { n: 1 }, { idempotencyKey, phases: 2 });
      assert.deepEqual([found.created, found.task], [false, made.task]);
      assert.deepEqual(await second.get(made.task.taskId), made.task);
    });

    it("refuses another input under the same key, in a race too", async () => {
      const idempotencyKey = randomUUID();
      const sent = await Promise.allSettled(
        producers().map((producer, n) => producer.submit("charge", { n }, { idempotencyKey })),
      );
      const refused = sent.filter(({ status }) => status === "rejected");
      assert.equal(refused.length, PRODUCERS - 1);
      for (const result of refused) {
        assert.ok(result.status === "rejected" && IdempotencyConflictError.is(result.reason));
      }
    });
  },
};
