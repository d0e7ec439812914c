/** An operation and a reservation under one key, in every schedule: one of them has it, or neither. */

import assert from "node:assert/strict";

import {
  defineOperation,
  defineReservation,
  Idempotency,
  IdempotencyConflictError,
  parseJsonObject,
  type JsonObject,
} from "@firstwrite/core";
import { explore, type CallerSetup, type Fault, type ModelRecord, type Scenario } from "@firstwrite/simulator";

interface Model {
  /** The operations whose effect was had. */
  readonly paid: string[];
  /** What callers of the reservation were answered with. */
  readonly reserved: string[];
}

const request = { scope: "explored", key: "key" };
const ticket = defineReservation<string>({ name: "ticket" });

/** `declined`: nothing happened, and the effect says so. */
function pay(how: "pays" | "declined", service: CallerSetup<Model>["service"]) {
  return defineOperation<string, string>({
    name: "pay",
    leaseMs: 6_000,
    recoverAfterMs: 0,
    recovery: "rerun",
    onError: (error) => (error instanceof RangeError ? "retry" : "recover"),
    run: async (_, { operationId }) => {
      if (how === "declined") throw new RangeError("declined");
      await service.request(`pay ${operationId}`, ({ paid }) => {
        if (!paid.includes(operationId)) paid.push(operationId);
        return null;
      });
      return operationId;
    },
  });
}

type Kind = "pays" | "declined" | "reserves";

async function call(kind: Kind, { store, runtime, service }: CallerSetup<Model>): Promise<string> {
  const idempotency = new Idempotency({ store, runtime });
  if (kind !== "reserves") return (await idempotency.execute(pay(kind, service), request, "five")).operationId;
  const { value } = await idempotency.reserve(ticket, request, "a seat", ({ operationId }) => ({
    value: operationId,
  }));
  return value;
}

function decoded({ bytes }: ModelRecord): JsonObject {
  return parseJsonObject(bytes) ?? {};
}

function scenarioOf(kinds: readonly Kind[], rest: Partial<Scenario<string, Model>>): Scenario<string, Model> {
  const kindOf = (caller: number): Kind => kinds[caller] ?? "reserves";
  return {
    callers: kinds.length,
    faults: [],
    faultsMax: 0,
    model: () => ({ paid: [], reserved: [] }),
    show: (bytes) => Buffer.from(bytes).toString(),
    start: (setup) => call(kindOf(setup.index), setup),
    ...rest,
    checks: {
      onWritten({ before, after }) {
        if (before === undefined) return;
        const [was, is] = [decoded(before), decoded(after)];
        assert.notEqual(was["status"], "ready", "what is settled stays");
        const goesOn = was["operation_id"] === is["operation_id"];
        assert.equal(was["input_hash"] === is["input_hash"], goesOn, "an operation is of one input, and an input's");
        if (!goesOn) assert.deepEqual([was["status"], was["takeover"]], ["released", undefined]);
      },
      onEnded(ending, caller, { model, records }) {
        if (ending.kind === "threw") return;
        if (kindOf(caller) === "reserves") {
          model.reserved.push(ending.result);
          assert.equal(new Set(model.reserved).size, 1, "every caller gets the first value");
          assert.deepEqual(model.paid, [], "who has the key has it alone");
        } else {
          assert.deepEqual(model.paid, [ending.result], "one effect");
          assert.deepEqual(model.reserved, []);
        }
        const [record] = Array.from(records.values(), decoded);
        assert.equal(record?.["operation_id"], ending.result);
      },
      async atRest(retry, { model, records }) {
        const ending = await retry(6_001);
        const [record] = Array.from(records.values(), decoded);
        if (ending.kind === "returned") {
          assert.deepEqual([model.paid, record?.["status"]], [[], "ready"]);
          return;
        }
        assert.ok(IdempotencyConflictError.is(ending.error), String(ending.error));
        assert.deepEqual(model.reserved, []);
        assert.notEqual(record?.["status"], "released", "a key under which nothing happened is anybody's");
      },
    },
  };
}

const faults: readonly Fault[] = [
  "lostRequest",
  "lostReply",
  "landsLate",
  "repeatedLater",
  "crashBefore",
  "crashAfter",
];

describe("an operation and a reservation under one key, every schedule", function () {
  this.timeout(0);
  const plans: Readonly<Record<string, Scenario<string, Model>>> = {
    "a declined payment and a reservation, two faults": scenarioOf(["declined", "reserves"], { faults, faultsMax: 2 }),
    "and a payment that is not declined, one fault": scenarioOf(["declined", "reserves", "pays"], {
      faults,
      faultsMax: 1,
    }),
    "and a pause past the lease": scenarioOf(["declined", "reserves", "pays"], { jumpsMs: [6_001] }),
    "two reservations and a declined payment, one fault": scenarioOf(["declined", "reserves", "reserves"], {
      faults,
      faultsMax: 1,
    }),
  };
  for (const [title, plan] of Object.entries(plans)) {
    it(title, async () => {
      const { schedules, states } = await explore(plan);
      console.log(`      ${schedules} schedules, ${states} states`);
      assert.ok(schedules > 20, "the exploration was not cut short");
    });
  }
});
