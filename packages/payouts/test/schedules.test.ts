/** The payout operation in every schedule of its requests, to the store and to a ledger that is unique and fenced. */

import assert from "node:assert/strict";

import { isJsonObject, type Json } from "@firstwrite/core";
import {
  defineCreatePayout,
  FencedError,
  LedgerUnavailableError,
  payoutIdOf,
  type DeclineCode,
  type LedgerAudit,
  type LedgerCall,
  type Payout,
  type PayoutAnswer,
  type PayoutInput,
  type PayoutLedger,
  type PayoutOrder,
  type RecordWrite,
} from "@firstwrite/payouts";
import {
  DuplicateRowError,
  exploreOperation,
  FencedError as ModelFencedError,
  NoAnswerError,
  RecordMovedError,
  Violation,
  type LedgerClient,
  type LedgerOptions,
  type OperationPlan,
} from "@firstwrite/simulator";

const input: PayoutInput = {
  merchantId: "acme",
  keyHash: "sha256:0",
  amountMinor: 10_00,
  currency: "EUR",
  destination: "acct_1",
};

describe("the payout operation, in every schedule", () => {
  const plans: readonly [title: string, plan: OperationPlan<PayoutInput, PayoutAnswer>][] = [
    ["two callers, two faults", plan({})],
    ["two callers, two faults, while a decline is decided", plan({}, "insufficient_funds")],
    [
      "two callers of another amount each, one fault",
      plan({ inputs: [input, { ...input, amountMinor: 1 }], faultsMax: 1 }),
    ],
    ["two callers, one fault, and the lease passes at any moment", plan({ faultsMax: 1, jumpsMs: [5_001] })],
  ];
  for (const [title, explored] of plans) {
    it(title, async function () {
      this.timeout(60_000);
      const { states } = await exploreOperation(explored);
      console.log(`      ${states} states`);
      assert.ok(states > 100);
    });
  }

  it("is safe on any ledger that settles its record in the same transaction", async function () {
    this.timeout(60_000);
    for (const changes of [{}, { faultsMax: 1, jumpsMs: [5_001] }]) {
      const { states } = await exploreOperation(plan({ ...changes, ledger: {} }, undefined, true));
      console.log(`      ${states} states`);
      assert.ok(states > 100);
    }
  });

  it("is unsafe on a ledger that is neither unique nor fenced, which the explorer finds", async function () {
    this.timeout(60_000);
    await assert.rejects(exploreOperation(plan({ ledger: {} })), Violation);
  });
});

function plan(
  changes: Partial<OperationPlan<PayoutInput, PayoutAnswer>> & { readonly ledger?: LedgerOptions },
  decline?: DeclineCode,
  settles: boolean = false,
): OperationPlan<PayoutInput, PayoutAnswer> {
  return {
    callers: 2,
    faultsMax: 2,
    inputs: [input],
    ledger: { unique: true, fenced: true },
    operation: ({ ledger, runtime }) =>
      defineCreatePayout({ ledger: new ModelledLedger(ledger, decline, settles), now: () => runtime.now() }),
    ...changes,
  };
}

/** The ledger as the operation sees it. Its transactions are single requests of the model, but for the look after a fence. */
class ModelledLedger implements PayoutLedger {
  readonly #client: LedgerClient;
  readonly #decline: DeclineCode | undefined;

  readonly commitAndSettle?: NonNullable<PayoutLedger["commitAndSettle"]>;

  /** @param settles the records are in its own database */
  constructor(client: LedgerClient, decline: DeclineCode | undefined, settles: boolean) {
    this.#client = client;
    this.#decline = decline;
    if (settles) this.commitAndSettle = (order, call, settle) => this.#commit(order, call, settle);
  }

  commit(order: PayoutOrder, call: LedgerCall): Promise<Payout> {
    return this.#commit(order, call);
  }

  async #commit(order: PayoutOrder, { signal }: LedgerCall, settle?: (payout: Payout) => RecordWrite): Promise<Payout> {
    const { operationId, attempt } = order;
    const payout: Payout = { ...order, payoutId: payoutIdOf(operationId), decline: this.#decline };
    const { decline, ...rest } = payout;
    try {
      await this.#client.insert(
        { operationId, attempt, value: { ...rest, decline: decline ?? null } },
        { signal, settling: settle?.(payout) },
      );
      return payout;
    } catch (error) {
      if (error instanceof DuplicateRowError) return payoutOf(error.row.value);
      throw asLedgerError(error);
    }
  }

  async shutOut(operationId: string, attempt: number, { signal }: LedgerCall): Promise<Payout | undefined> {
    try {
      await this.#client.fence(operationId, attempt, { signal });
      const row = await this.#client.find(operationId, { signal });
      return row && payoutOf(row.value);
    } catch (error) {
      throw asLedgerError(error);
    }
  }

  findByOperation(): Promise<undefined> {
    return unused();
  }
  findByPayoutId(): Promise<undefined> {
    return unused();
  }
  listSince(): AsyncIterable<Payout> {
    return unused();
  }
  putDestination(): Promise<void> {
    return unused();
  }
  fund(): Promise<void> {
    return unused();
  }
  audit(): Promise<LedgerAudit> {
    return unused();
  }
  async close(): Promise<void> {}
}

function unused(): never {
  throw new Error("the operation uses commit and shutOut alone");
}

function payoutOf(value: Json): Payout {
  assert.ok(isJsonObject(value));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- `commit`, above, put it there
  return { ...value, decline: value["decline"] ?? undefined } as unknown as Payout;
}

function asLedgerError(error: unknown): unknown {
  if (error instanceof ModelFencedError || error instanceof RecordMovedError) return new FencedError();
  if (error instanceof NoAnswerError) return new LedgerUnavailableError("the model gave no answer");
  return error;
}
