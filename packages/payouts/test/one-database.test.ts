/** Keys and ledger on one connection. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { InvalidArgumentError } from "@firstwrite/core";
import { openOneDatabase, type OneDatabase, type PayoutOrder } from "@firstwrite/payouts";

import { balanceOf, Bank, newKey, pay } from "./service.ts";

const CALL = { remainingMs: 1_000 };
const NAME = "idempotency/acme/1.json";
const settled = Buffer.from("settled");

async function withDatabase(use: (one: OneDatabase) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "firstwrite-one-"));
  const one = await openOneDatabase(join(folder, "payouts.db"));
  try {
    await use(one);
  } finally {
    one.close();
    await rm(folder, { recursive: true, force: true });
  }
}

const order: PayoutOrder = {
  operationId: randomUUID(),
  attempt: 1,
  merchantId: "acme",
  keyHash: "sha256:0",
  amountMinor: 10_00,
  currency: "EUR",
  destination: "acct_1",
  createdAt: 0,
};

describe("one database for keys and ledger", () => {
  it("serves as two do, many requests at once", async () => {
    await withDatabase(async (one) => {
      await using bank = await Bank.open(one.store);
      const service = await bank.serve({ openLedger: (told) => one.openLedger(told) });
      await service.ledger.fund("acme", "EUR", 1_000_00, "opening");
      await service.ledger.putDestination("acct_1", "EUR", "open");
      const keys = Array.from({ length: 10 }, () => newKey());
      const replies = await Promise.all([...keys, ...keys].map((key) => pay(service, key)));
      assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([201]));
      assert.equal(new Set(replies.map(({ text }) => text)).size, 10);
      assert.equal(await balanceOf(service, "destination:acct_1"), 100_00n);
      assert.deepEqual((await service.ledger.audit()).faults, []);
    });
  });

  it("settles the record in the transaction that pays", async () => {
    await withDatabase(async ({ store, openLedger }) => {
      const ledger = await openLedger();
      await ledger.fund("acme", "EUR", 100_00, "opening");
      await ledger.putDestination("acct_1", "EUR", "open");
      const claimed = await store.create(NAME, Buffer.from("creating"));
      assert.ok(claimed.kind === "written");
      await ledger.commit(order, CALL, () => {
        assert.ok(store.replaceWithin(NAME, claimed.version, settled));
      });
      assert.deepEqual((await store.read(NAME))?.bytes, new Uint8Array(settled));
      assert.equal((await ledger.findByOperation(order.operationId, CALL))?.decline, undefined);
    });
  });

  it("pays nothing when the record is another's by then, and settles nothing when it may not pay", async () => {
    await withDatabase(async ({ store, openLedger }) => {
      const ledger = await openLedger({
        atPoint(point) {
          if (point === "in_transaction") throw new Error("dies here");
        },
      });
      await ledger.fund("acme", "EUR", 100_00, "opening");
      await ledger.putDestination("acct_1", "EUR", "open");
      const claimed = await store.create(NAME, Buffer.from("creating"));
      assert.ok(claimed.kind === "written");
      const takenOver = await store.replace(NAME, claimed.version, Buffer.from("another attempt"));
      assert.ok(takenOver.kind === "written");
      const settle = (version: typeof claimed.version) => (): void => {
        if (!store.replaceWithin(NAME, version, settled)) throw new Error("ownership was lost");
      };
      await assert.rejects(ledger.commit(order, CALL, settle(claimed.version)), /ownership was lost/);
      assert.equal(await ledger.findByOperation(order.operationId, CALL), undefined);
      await assert.rejects(ledger.commit(order, CALL, settle(takenOver.version)), /dies here/);
      assert.deepEqual((await store.read(NAME))?.bytes, new Uint8Array(Buffer.from("another attempt")));
      assert.equal(await ledger.findByOperation(order.operationId, CALL), undefined);
    });
  });

  it("is refused where the file cannot be", async () => {
    await assert.rejects(openOneDatabase("/dev/null/payouts.db"), InvalidArgumentError.is);
  });
});
