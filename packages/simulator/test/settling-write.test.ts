/**
 * An operation whose record is in the ledger's own database, in every schedule: `run` settles it in the transaction of its
 * effect. The ledger here refuses nothing. What keeps it to one row is the record.
 */

import assert from "node:assert/strict";

import { defineOperation, isJsonObject, parseJsonObject, type ErrorMeaning, type Json } from "@firstwrite/core";
import {
  exploreOperation,
  operationScenario,
  walk,
  type Fault,
  type OperationModel,
  type OperationPlan,
  type World,
} from "@firstwrite/simulator";

const LEASE_MS = 6_000;

type Plan = OperationPlan<Json, Json>;
type Recovery = "rerun" | "hold" | "reconcile";

const faults: readonly Fault[] = [
  "lostRequest",
  "lostReply",
  "landsLate",
  "repeatedLater",
  "heldReply",
  "crashBefore",
  "crashAfter",
  "contended",
  "away",
];

/** `looksFirst`: at the ledger, so that a renewal can be under way when it asks for the settling write. */
function planOf(recovery: Recovery, meaning: ErrorMeaning, rest: Partial<Plan>, looksFirst = false): Plan {
  return {
    callers: 2,
    inputs: [{ amount: 5 }],
    faults,
    faultsMax: 0,
    request: { deadlineMs: 20_000 },
    // Requests in flight for an hour: nothing is assumed of them.
    ledger: { faults: [...(rest.faults ?? faults), "declined"] },
    operation: ({ ledger }) =>
      defineOperation<Json, Json>({
        name: "pay",
        leaseMs: LEASE_MS,
        recoverAfterMs: 0,
        async run(input, { operationId, attempt, signal, settlingWrite }) {
          if (looksFirst) await ledger.find(operationId);
          const { name, expected, encode } = await settlingWrite();
          signal.throwIfAborted();
          const settling = { name, expected, bytes: encode(input) };
          return ledger.insert({ operationId, attempt, value: input }, { settling });
        },
        // Of a request whose answer was lost, too: that nothing happened, or never will, is made true by writing it down.
        onError: () => meaning,
        recovery:
          recovery === "reconcile"
            ? {
                async reconcile(_input, { operationId, signal }) {
                  signal.throwIfAborted();
                  const row = await ledger.find(operationId);
                  return row === undefined ? "absent" : { found: row.value };
                },
              }
            : recovery,
      }),
    checks: {
      // Beside what is checked of every operation: there is never the one without the other.
      onWritten: rowsAndRecordsAgree,
      onServed: (_served, world) => rowsAndRecordsAgree(undefined, world),
    },
    ...rest,
  };
}

function rowsAndRecordsAgree(_change: unknown, { records, model: { ledger } }: World<OperationModel>): void {
  const settled = Array.from(records.values(), ({ bytes }) => parseJsonObject(bytes))
    .filter((record) => isJsonObject(record?.["result"]) && record["result"]["kind"] === "value")
    .map((record) => record?.["operation_id"]);
  assert.deepEqual(
    ledger.rows.map(({ operationId }) => operationId),
    settled,
  );
}

const recoveries: readonly Recovery[] = ["rerun", "hold", "reconcile"];
const meanings: readonly ErrorMeaning[] = ["recover", "retry", "replay"];

async function exploreAll(plan: Plan): Promise<void> {
  const { schedules, states } = await exploreOperation(plan);
  assert.ok(schedules > 20, "the exploration was not cut short");
  console.log(`      ${schedules} schedules, ${states} states`);
}

describe("execute, settled in the transaction of the effect: every schedule", function () {
  this.timeout(0);

  for (const recovery of recoveries) {
    for (const meaning of meanings) {
      describe(`${recovery}, an error means ${meaning}`, () => {
        const plan = (rest: Partial<Plan>): Plan => planOf(recovery, meaning, rest);
        it("two callers, two faults", () => exploreAll(plan({ faultsMax: 2 })));
        it("three callers, one fault", () => exploreAll(plan({ callers: 3, faultsMax: 1 })));
        it("two callers, one fault, and a pause past the lease", () =>
          exploreAll(plan({ faultsMax: 1, jumpsMs: [LEASE_MS + 1] })));
        it("two callers, one fault, and a pause of a third of the lease: a renewal", () =>
          exploreAll(plan({ faultsMax: 1, jumpsMs: [LEASE_MS / 3] })));
        it("asked for when a renewal may be under way: two callers, one fault, and a pause of a third of the lease", () =>
          exploreAll(planOf(recovery, meaning, { faultsMax: 1, jumpsMs: [LEASE_MS / 3] }, true)));
        it("two inputs, one fault", () => exploreAll(plan({ faultsMax: 1, inputs: [{ amount: 5 }, { amount: 6 }] })));
        if (process.env["FIRSTWRITE_EXPLORE"] === "full") {
          it("two callers, two faults, and a pause past the lease", () =>
            exploreAll(plan({ faultsMax: 2, jumpsMs: [LEASE_MS + 1] })));
          it("three callers, one fault, and a pause past the lease", () =>
            exploreAll(plan({ callers: 3, faultsMax: 1, jumpsMs: [LEASE_MS + 1] })));
        }
      });
    }
  }

  it("random walks of three callers, three faults, and pauses to and past the lease", async () => {
    const seed = Number(process.env["FIRSTWRITE_SEED"] ?? Math.floor(Math.random() * 1_000_000));
    console.log(`      FIRSTWRITE_SEED=${seed}`);
    const walks = process.env["FIRSTWRITE_EXPLORE"] === "full" ? 20_000 : 200;
    for (const recovery of recoveries) {
      for (const meaning of meanings) {
        const plan = planOf(recovery, meaning, {
          callers: 3,
          faultsMax: 3,
          jumpsMs: [LEASE_MS / 3, LEASE_MS + 1, LEASE_MS],
          beginLate: true,
        });
        await walk(operationScenario(plan), { seed, walks });
      }
    }
  });
});
