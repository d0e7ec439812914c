/**
 * What any `PayoutLedger` must do, as tests for mocha or a runner like it. The service is as safe as this is true: pass a
 * ledger of your own before you pay with it.
 */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import {
  FencedError,
  KeySpentError,
  payoutIdOf,
  type AtPoint,
  type LedgerTimer,
  type Payout,
  type PayoutLedger,
  type PayoutOrder,
} from "./payout-ledger.ts";

/** One empty ledger, which several connections see. */
export interface LedgerPlace {
  open(told?: { readonly onTime?: LedgerTimer; readonly atPoint?: AtPoint }): Promise<PayoutLedger>;
  close(): Promise<void>;
}

export interface SuiteRunner {
  readonly it: (title: string, test: () => Promise<void>) => unknown;
}

const CALL = { remainingMs: 15_000 };
const AT_ONCE = 20;

/** @param makePlace a new one for each test */
export function ledgerSuite({ it }: SuiteRunner, makePlace: () => Promise<LedgerPlace>): void {
  const test = (title: string, body: (ledger: PayoutLedger, place: LedgerPlace) => Promise<void>): void => {
    it(title, async () => {
      const place = await makePlace();
      const ledger = await place.open();
      try {
        await ledger.fund("acme", "EUR", 100_00, "opening");
        await ledger.putDestination("acct_1", "EUR", "open");
        await body(ledger, place);
        assert.deepEqual((await ledger.audit()).faults, [], "the books are in order");
      } finally {
        await ledger.close();
        await place.close();
      }
    });
  };

  test("pays once for an operation, whichever attempt comes, and whatever it asks", async (ledger) => {
    const order = newOrder();
    const paid = await ledger.commit(order, CALL);
    assert.deepEqual(paid, { ...order, payoutId: payoutIdOf(order.operationId), decline: undefined });
    assert.deepEqual(await ledger.commit({ ...order, attempt: 2, amountMinor: 7 }, CALL), paid);
    assert.deepEqual(await ledger.findByOperation(order.operationId, CALL), paid);
    assert.deepEqual(await ledger.findByPayoutId(paid.payoutId, CALL), paid);
    assert.equal(await balance(ledger, "merchant:acme"), 90_00n);
    assert.equal(await balance(ledger, "destination:acct_1"), 10_00n);
    assert.equal(await balance(ledger, "outside:funding"), -100_00n);
  });

  test("knows nothing of an operation that it has not seen", async (ledger) => {
    assert.equal(await ledger.findByOperation(randomUUID(), CALL), undefined);
    assert.equal(await ledger.findByPayoutId("po_1", CALL), undefined);
  });

  test("keeps a decline: the same operation is not paid when there is money later", async (ledger) => {
    const order = newOrder({ amountMinor: 100_01 });
    const declined = await ledger.commit(order, CALL);
    assert.equal(declined.decline, "insufficient_funds");
    await ledger.fund("acme", "EUR", 500_00, "more");
    assert.deepEqual(await ledger.commit({ ...order, attempt: 2 }, CALL), declined);
    assert.equal(await balance(ledger, "merchant:acme"), 600_00n);
  });

  test("declines a destination that is closed, unknown, or of another currency", async (ledger) => {
    await ledger.putDestination("acct_2", "EUR", "open");
    await ledger.putDestination("acct_2", "EUR", "closed");
    await ledger.putDestination("acct_3", "USD", "open");
    const declineOf = async (changes: Partial<PayoutOrder>): Promise<unknown> =>
      (await ledger.commit(newOrder(changes), CALL)).decline;
    assert.equal(await declineOf({ destination: "acct_2" }), "destination_closed");
    assert.equal(await declineOf({ destination: "acct_3" }), "destination_unknown");
    assert.equal(await declineOf({ destination: "nobody" }), "destination_unknown");
    assert.equal(await declineOf({ destination: "acct_3", currency: "USD" }), "insufficient_funds");
    assert.equal(await balance(ledger, "merchant:acme"), 100_00n);
  });

  test("pays to the last cent, and no further", async (ledger) => {
    assert.equal((await ledger.commit(newOrder({ amountMinor: 100_00 }), CALL)).decline, undefined);
    assert.equal((await ledger.commit(newOrder({ amountMinor: 1 }), CALL)).decline, "insufficient_funds");
    assert.equal(await balance(ledger, "merchant:acme"), 0n);
  });

  test("funds once for a reference", async (ledger) => {
    await ledger.fund("acme", "EUR", 100_00, "opening");
    assert.equal(await balance(ledger, "merchant:acme"), 100_00n);
  });

  test("refuses an attempt that was shut out, and takes the one that shut it out", async (ledger) => {
    const order = newOrder();
    assert.equal(await ledger.shutOut(order.operationId, 2, CALL), undefined);
    await assert.rejects(ledger.commit(order, CALL), FencedError.is);
    assert.equal(await ledger.findByOperation(order.operationId, CALL), undefined);
    const paid = await ledger.commit({ ...order, attempt: 2 }, CALL);
    assert.deepEqual(await ledger.commit(order, CALL), paid, "a payout that is there is told to anybody");
    assert.deepEqual(await ledger.shutOut(order.operationId, 1, CALL), paid);
  });

  test("does not let an earlier attempt shut out a later one", async (ledger) => {
    const { operationId } = newOrder();
    await ledger.shutOut(operationId, 3, CALL);
    await assert.rejects(ledger.shutOut(operationId, 2, CALL), FencedError.is);
    assert.equal(await ledger.shutOut(operationId, 3, CALL), undefined, "the same one may ask again");
  });

  test("pays nothing for another operation of a key that has paid", async (ledger) => {
    const first = newOrder();
    await ledger.commit(first, CALL);
    await assert.rejects(
      ledger.commit({ ...newOrder(), keyHash: first.keyHash }, CALL),
      (error) => KeySpentError.is(error) && error.earlierOperationId === first.operationId,
    );
    const others = newOrder({ merchantId: "other", keyHash: first.keyHash });
    assert.equal(
      (await ledger.commit(others, CALL)).decline,
      "insufficient_funds",
      "another merchant's key is another key",
    );
  });

  test("does nothing for a signal that has aborted", async (ledger) => {
    const order = newOrder();
    const signal = AbortSignal.abort(new Error("ownership was lost"));
    await assert.rejects(ledger.commit(order, { ...CALL, signal }), /ownership was lost/);
    assert.equal(await ledger.findByOperation(order.operationId, CALL), undefined);
  });

  test("has paid nothing when it dies inside of the transaction, and everything after it", async (ledger, place) => {
    for (const point of ["in_transaction", "committed"] as const) {
      const dying = await place.open({
        atPoint(reached) {
          if (reached === point) throw new Error("dies here");
        },
      });
      const order = newOrder();
      await assert.rejects(dying.commit(order, CALL), /dies here/);
      await dying.close();
      const found = await ledger.findByOperation(order.operationId, CALL);
      assert.equal(found?.operationId, point === "committed" ? order.operationId : undefined, point);
    }
  });

  test("lists payouts in the order of their time, all of those of one moment too", async (ledger) => {
    await ledger.fund("acme", "EUR", 1_000_00, "more");
    const orders = Array.from({ length: 5 }, (_, index) =>
      newOrder({ createdAt: 1_000 + Math.floor(index / 3), amountMinor: 1 }),
    );
    for (const order of orders) await ledger.commit(order, CALL);
    const listed: Payout[] = [];
    for await (const payout of ledger.listSince(1_000)) listed.push(payout);
    const expected = orders.map(({ operationId, createdAt }) => `${createdAt} ${payoutIdOf(operationId)}`).toSorted();
    assert.deepEqual(
      listed.map(({ payoutId, createdAt }) => `${createdAt} ${payoutId}`),
      expected,
    );
    const later: Payout[] = [];
    for await (const payout of ledger.listSince(1_001)) later.push(payout);
    assert.equal(later.length, 2);
  });

  test("tells where its time goes", async (_ledger, place) => {
    const parts = new Set<string>();
    const timed = await place.open({ onTime: (part) => parts.add(part) });
    await timed.commit(newOrder(), CALL);
    await timed.close();
    assert.deepEqual(parts, new Set(["lock_wait", "ledger"]));
  });

  test("makes one payout of many attempts at once, from two connections", async (ledger, place) => {
    const second = await place.open();
    const order = newOrder();
    const payouts = await Promise.all(
      Array.from({ length: AT_ONCE }, (_, index) => (index % 2 === 0 ? ledger : second).commit(order, CALL)),
    );
    for (const payout of payouts) assert.deepEqual(payout, payouts[0]);
    assert.equal(await balance(ledger, "merchant:acme"), 90_00n);
    await second.close();
  });

  test("never pays more than there is, whoever comes at once", async (ledger, place) => {
    const second = await place.open();
    const payouts = await Promise.all(
      Array.from({ length: AT_ONCE }, (_, index) =>
        (index % 2 === 0 ? ledger : second).commit(newOrder({ amountMinor: 15_00 }), CALL),
      ),
    );
    assert.equal(payouts.filter(({ decline }) => decline === undefined).length, 6);
    assert.equal(await balance(ledger, "merchant:acme"), 10_00n);
    await second.close();
  });

  test("never says absent of an attempt that pays after all", async (ledger, place) => {
    const second = await place.open();
    const came = { paid: 0, shutOut: 0 };
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        const order = newOrder({ amountMinor: 1 });
        const [paid, looked] = await Promise.allSettled([
          ledger.commit(order, CALL),
          second.shutOut(order.operationId, 2, CALL),
        ]);
        assert.equal(looked.status, "fulfilled");
        const { operationId } = order;
        const inTheEnd = await ledger.findByOperation(operationId, CALL);
        if (looked.status === "fulfilled" && looked.value !== undefined) {
          came.paid += 1;
          assert.deepEqual(inTheEnd, looked.value);
          assert.equal(paid.status, "fulfilled");
        } else {
          came.shutOut += 1;
          assert.equal(inTheEnd, undefined, "absent was final");
          assert.ok(paid.status === "rejected" && FencedError.is(paid.reason));
        }
      }),
    );
    assert.equal(came.paid + came.shutOut, AT_ONCE);
    await second.close();
  });

  test("lets one of two operations of a key pay, when both come at once", async (ledger, place) => {
    const second = await place.open();
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        const order = newOrder({ amountMinor: 1 });
        const both = await Promise.allSettled([
          ledger.commit(order, CALL),
          second.commit({ ...newOrder({ amountMinor: 1 }), keyHash: order.keyHash }, CALL),
        ]);
        assert.deepEqual(both.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"]);
        const refused = both.find((settled) => settled.status === "rejected");
        assert.ok(KeySpentError.is(refused?.reason));
      }),
    );
    await second.close();
  });
}

function newOrder(changes: Partial<PayoutOrder> = {}): PayoutOrder {
  return {
    operationId: randomUUID(),
    attempt: 1,
    merchantId: "acme",
    keyHash: `sha256:${randomUUID()}`,
    amountMinor: 10_00,
    currency: "EUR",
    destination: "acct_1",
    createdAt: 1_764_547_200_000,
    ...changes,
  };
}

async function balance(ledger: PayoutLedger, account: string): Promise<bigint | undefined> {
  return (await ledger.audit()).balances.find((balance) => balance.account === account)?.minor;
}
