/**
 * One process of the storm: executes the operations whose keys it is given, in an order of its own, until each is answered;
 * it may be killed at any moment. Prints a line of JSON for each answer and for each takeover.
 *
 *     node worker.ts URL LEDGER < keys, one a line
 */

import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

import {
  defineOperation,
  Idempotency,
  InProgressError,
  onEvent,
  OutcomeUnknownError,
  StoreError,
  type OperationDefinition,
} from "@firstwrite/core";
import { openStore } from "@firstwrite/stores";

import { Ledger, type Payment } from "./ledger.ts";

/** A line of a worker's output. */
export type Report =
  | { readonly kind: "up" | "takeover" }
  | { readonly kind: "answer"; readonly key: string; readonly operationId: string; readonly answer: string };

/** How many operations one process has under way. */
const AT_ONCE = 3;

const [, , url = "", ledgerPath = ""] = process.argv;
const keys = (await text(process.stdin)).split("\n").filter((line) => line !== "");
const store = await openStore(url);
const ledger = new Ledger(ledgerPath);
const idempotency = new Idempotency({ store });

/** A while in which to be killed. */
const dawdle = (): Promise<void> => sleep(Math.random() * 40);

const timing = { leaseMs: 5_000, recoverAfterMs: 0 };

/** The ledger is asked before anything is repeated. */
const pay = defineOperation<string, Payment>({
  name: "pay",
  ...timing,
  recovery: {
    reconcile: (_key, { operationId }) => {
      const found = ledger.find(operationId);
      return found === undefined ? "absent" : { found };
    },
  },
  async run(key, { operationId, attempt }) {
    await dawdle();
    const payment = ledger.commit({ operationId, key, amount: key.length, attempt });
    await dawdle();
    return payment;
  },
});

/** The ledger refuses a second row of an operation, so that it is simply run again. */
const payAgain = defineOperation<string, Payment>({ ...pay, name: "pay again", recovery: "rerun" });

/** A final refusal, which nobody may turn into a payment later. */
const decline = defineOperation<string, Payment>({
  ...pay,
  name: "decline",
  recovery: {
    reconcile: (_key, { operationId, attempt }) => {
      const found = ledger.findFenced(operationId, attempt);
      return found === undefined ? "absent" : { found };
    },
    absentIsFinal: true,
  },
  onError: () => "replay",
  async run() {
    await dawdle();
    throw new Error("insufficient funds");
  },
});

/** Which operation a key is of: the parent counts on the same rule. */
function operationOf(key: string): OperationDefinition<string, Payment> {
  if (key.startsWith("decline")) return decline;
  return key.startsWith("again") ? payAgain : pay;
}

onEvent("firstwrite:taken-over", () => report({ kind: "takeover" }));
report({ kind: "up" });
const todo = keys.toSorted(() => Math.random() - 0.5);
await Promise.all(Array.from({ length: AT_ONCE }, work));
await store.close?.();
ledger.close();

async function work(): Promise<void> {
  for (let key = todo.pop(); key !== undefined; key = todo.pop()) {
    if (await answered(key)) continue;
    // Another process has it, or had it when it died: it comes round again.
    todo.unshift(key);
    if (todo.length < AT_ONCE) await sleep(200);
  }
}

async function answered(key: string): Promise<boolean> {
  try {
    const { operationId, value } = await idempotency.execute(operationOf(key), { scope: "storm", key }, key);
    report({ kind: "answer", key, operationId, answer: JSON.stringify(value) });
    return true;
  } catch (error) {
    if (InProgressError.is(error) || OutcomeUnknownError.is(error)) return false;
    if (StoreError.is(error) && error.code === "UNAVAILABLE") return false;
    if (!(error instanceof Error) || error.message !== "insufficient funds") throw error;
    report({ kind: "answer", key, operationId: "", answer: error.message });
    return true;
  }
}

function report(line: Report): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
