/** Keys and ledger on one connection. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";

import { InvalidArgumentError, type ConditionalStore, type Version } from "@firstwrite/core";
import {
  FencedError,
  openOneDatabase,
  openPlaces,
  SqliteLedger,
  type OneDatabase,
  type PayoutOrder,
  type RecordWrite,
} from "@firstwrite/payouts";

import { balanceOf, Bank, newKey, pay } from "./service.ts";

const CALL = { remainingMs: 1_000 };
const NAME = "idempotency/acme/1.json";

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

  it("has both or neither, wherever the process dies: a retry after the commit waits for no lease", async () => {
    for (const point of ["claimed", "in_transaction", "committed"] as const) {
      await withDatabase(async (one) => {
        await using bank = await Bank.open(one.store);
        const { promise: died, resolve: dies } = Promise.withResolvers<void>();
        const first = await bank.serve({
          openLedger: (told) => one.openLedger(told),
          atPoint(reached) {
            if (reached !== point) return;
            dies();
            // Longer than the test: nothing is told to the engine any more, as of a process that is dead.
            throw new Error("the process dies here");
          },
          store: deafFrom(one.store, died),
          budgetMs: 300,
          waitMs: 0,
        });
        await first.ledger.fund("acme", "EUR", 1_000_00, "opening");
        await first.ledger.putDestination("acct_1", "EUR", "open");
        const key = newKey();
        void pay(first, key).catch(() => undefined);
        await died;
        const second = await bank.serve({ openLedger: (told) => one.openLedger(told), waitMs: 0 });
        const answer = await pay(second, key);
        const wasPaid = point === "committed";
        assert.equal(answer.status, wasPaid ? 201 : 409, `${point}: ${answer.text}`);
        assert.equal(answer.headers.get("idempotent-replayed"), wasPaid ? "true" : null);
        assert.equal(await balanceOf(second, "destination:acct_1"), wasPaid ? 10_00n : 0n);
        const { faults } = await second.ledger.audit();
        assert.deepEqual(faults, []);
      });
    }
  });

  it("asks the store nothing to settle: a claim, and a look at what the transaction wrote", async () => {
    await withDatabase(async (one) => {
      await using bank = await Bank.open(one.store);
      const asked: string[] = [];
      const store = watched(one.store, (what) => asked.push(what));
      const service = await bank.serve({ store, openLedger: (told) => one.openLedger(told) });
      await service.ledger.fund("acme", "EUR", 1_000_00, "opening");
      await service.ledger.putDestination("acct_1", "EUR", "open");
      const { status } = await pay(service, newKey());
      assert.equal(status, 201);
      assert.deepEqual(asked, ["create", "read"]);
    });
  });

  it("pays nothing when the record is another's by then", async () => {
    await withDatabase(async ({ store, openLedger }) => {
      const ledger = await openLedger();
      await ledger.fund("acme", "EUR", 100_00, "opening");
      await ledger.putDestination("acct_1", "EUR", "open");
      const claimed = await store.create(NAME, Buffer.from("creating"));
      assert.ok(claimed.kind === "written");
      const takenOver = await store.replace(NAME, claimed.version, Buffer.from("another attempt"));
      assert.ok(takenOver.kind === "written");
      const { commitAndSettle } = ledger;
      assert.ok(commitAndSettle);
      const settle = (expected: Version) => (): RecordWrite => ({
        name: NAME,
        expected,
        bytes: Buffer.from("settled"),
      });
      await assert.rejects(commitAndSettle(order, CALL, settle(claimed.version)), FencedError.is);
      assert.equal(await ledger.findByOperation(order.operationId, CALL), undefined);
      assert.deepEqual((await store.read(NAME))?.bytes, new Uint8Array(Buffer.from("another attempt")));
      await commitAndSettle(order, CALL, settle(takenOver.version));
      assert.deepEqual((await store.read(NAME))?.bytes, new Uint8Array(Buffer.from("settled")));
    });
  });

  it("is what two URLs of one file name, however they are written; and not two of two", async () => {
    const folder = await mkdtemp(join(tmpdir(), "firstwrite-one-"));
    const file = join(folder, "payouts.db");
    for (const [ledgerUrl, isOne] of [
      [`sqlite:${relative(process.cwd(), file)}`, true],
      [`sqlite://${file}`, true],
      [`sqlite:${file}.ledger`, false],
    ] as const) {
      const places = await openPlaces(`sqlite:${file}`, ledgerUrl);
      const ledger = await places.openLedger();
      assert.equal(ledger.commitAndSettle !== undefined, isOne, ledgerUrl);
      await ledger.close();
      await places.close();
    }
    await rm(folder, { recursive: true });
  });

  it("takes records on their own connection only", async () => {
    await withDatabase(async ({ store }) => {
      await assert.rejects(SqliteLedger.open({ database: "ledger.db", records: store }), InvalidArgumentError.is);
    });
  });

  it("is refused where the file cannot be", async () => {
    await assert.rejects(openOneDatabase("/dev/null/payouts.db"), InvalidArgumentError.is);
  });
});

/** Of a process that is dead from then on: it hears nothing more of the store. */
function deafFrom(store: ConditionalStore, died: Promise<void>): ConditionalStore {
  let isDead = false;
  void died.then(() => (isDead = true));
  return watched(store, () => (isDead ? new Promise<void>(() => {}) : undefined));
}

/** `before`: told of each request, and waited for where it says so. */
function watched(store: ConditionalStore, before: (what: string) => unknown): ConditionalStore {
  const pass = async <Answer>(what: string, request: () => Promise<Answer>): Promise<Answer> => {
    await before(what);
    return request();
  };
  return {
    traits: store.traits,
    create: (...call) => pass("create", () => store.create(...call)),
    replace: (...call) => pass("replace", () => store.replace(...call)),
    read: (...call) => pass("read", () => store.read(...call)),
  };
}
