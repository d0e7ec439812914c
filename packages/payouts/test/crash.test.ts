/**
 * A process dies at a named point, and another one takes over. The dead one is in this process, too: from its death on its
 * store does not answer, and whatever its client would get is thrown away. The store's clock is put forward by hand.
 */

import assert from "node:assert/strict";

import { Idempotency, onEvent, type ConditionalStore } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";
import {
  openLedger,
  reconcile,
  type PayoutLedger,
  type PayoutPoint,
  type PayoutServer,
  type Reconciliation,
} from "@firstwrite/payouts";

import { API_KEY, balanceOf, Bank, newKey, pay, send, tenEuros } from "./service.ts";

const LEASE_OVER_MS = 5_001;

class StoreClock {
  ahead = 0;
  now(): number {
    return Date.now() + this.ahead;
  }
}

async function openBank(): Promise<{ readonly bank: Bank; readonly clock: StoreClock }> {
  const clock = new StoreClock();
  return { bank: await Bank.open(new MemoryStore({ clock })), clock };
}

/** Dies in the middle of a payout with `key`. */
async function dieAt(bank: Bank, key: string, point: PayoutPoint): Promise<void> {
  const { promise: died, resolve: dies } = Promise.withResolvers<void>();
  let isDead = false;
  const service = await bank.serve({
    store: mortal(bank.store, () => isDead),
    atPoint(reached) {
      if (reached !== point) return;
      isDead = true;
      dies();
      throw new Error("the process dies here");
    },
    budgetMs: 300,
    waitMs: 0,
  });
  void pay(service, key).catch(() => undefined);
  await died;
}

/** Answers until its process is dead, and then never. */
function mortal(store: ConditionalStore, isDead: () => boolean): ConditionalStore {
  const unlessDead = <Answer>(answer: () => Promise<Answer>): Promise<Answer> =>
    isDead() ? new Promise<Answer>(() => {}) : answer();
  return {
    traits: store.traits,
    create: (...call) => unlessDead(() => store.create(...call)),
    replace: (...call) => unlessDead(() => store.replace(...call)),
    read: (...call) => unlessDead(() => store.read(...call)),
  };
}

async function reconciled(bank: Bank, ledger?: PayoutLedger): Promise<Reconciliation["did"][]> {
  const opened = ledger ?? (await openLedger(bank.ledgerUrl));
  const done: Reconciliation["did"][] = [];
  await reconcile({
    store: bank.store,
    ledger: opened,
    by: "a test",
    onReconciled: ({ did }) => done.push(did),
    onUnreadable: (name) => assert.fail(name),
  });
  if (ledger === undefined) await opened.close();
  return done;
}

async function unresolved(bank: Bank): Promise<number> {
  let count = 0;
  for await (const found of new Idempotency({ store: bank.store }).list()) {
    assert.notEqual(found.status, "unreadable");
    count += 1;
  }
  return count;
}

async function checkPaidOnce(service: PayoutServer): Promise<void> {
  assert.equal(await balanceOf(service, "destination:acct_1"), 10_00n);
  const { faults, paymentsPerOperation } = await service.ledger.audit();
  assert.deepEqual(faults, []);
  assert.deepEqual([...paymentsPerOperation], [[1, 1]]);
}

describe("a process that dies", () => {
  for (const point of ["claimed", "in_transaction", "committed", "settling"] as const) {
    it(`${point}: its retry waits for the lease, and then gets the one payout`, async () => {
      const { bank, clock } = await openBank();
      await using _ = bank;
      const key = newKey();
      await dieAt(bank, key, point);
      const second = await bank.serve({ waitMs: 0 });

      const early = await pay(second, key);
      assert.equal(early.status, 409, early.text);
      assert.ok(Number(early.headers.get("retry-after")) >= 1);
      const operationId = early.member("operation_id");
      assert.equal(early.headers.get("idempotency-operation-id"), operationId);

      clock.ahead += LEASE_OVER_MS;
      const answer = await pay(second, key);
      assert.equal(answer.status, 201, answer.text);
      assert.equal(answer.member("operation_id"), operationId);
      assert.equal((await pay(second, key)).text, answer.text);
      const found = await second.ledger.findByOperation(String(operationId), { remainingMs: 1_000 });
      const wasCommitted = point === "committed" || point === "settling";
      assert.equal(found?.attempt, wasCommitted ? 1 : 2, "a payout that was committed is not made again");
      await checkPaidOnce(second);
      assert.match((await send(`${second.url}/metrics`)).text, /^payouts_taken_over_total 1$/m);
    });

    it(`${point}: one reconcile leaves nothing unresolved, and the retry gets the one payout`, async () => {
      const { bank, clock } = await openBank();
      await using _ = bank;
      const key = newKey();
      await dieAt(bank, key, point);
      assert.deepEqual(await reconciled(bank), ["left_to_its_owner"], "which may be alive");
      clock.ahead += LEASE_OVER_MS;
      const wasCommitted = point === "committed" || point === "settling";
      assert.deepEqual(await reconciled(bank), [wasCommitted ? "settled" : "released"]);
      assert.equal(await unresolved(bank), 0);
      assert.deepEqual(await reconciled(bank), [], "the second time there is nothing to do");

      const second = await bank.serve();
      const answer = await pay(second, key);
      assert.equal(answer.status, 201, answer.text);
      assert.equal(answer.headers.get("idempotent-replayed"), wasCommitted ? "true" : null);
      assert.equal((await pay(second, key)).text, answer.text);
      await checkPaidOnce(second);
    });
  }

  it("replying: the answer is there for the retry at once", async () => {
    const { bank } = await openBank();
    await using _ = bank;
    const key = newKey();
    await dieAt(bank, key, "replying");
    const second = await bank.serve();
    const answer = await pay(second, key);
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.headers.get("idempotent-replayed"), "true");
    await checkPaidOnce(second);
  });

  it("while it declined: the retry gets the same decline, though there is money by then", async () => {
    const { bank, clock } = await openBank();
    await using _ = bank;
    const key = newKey();
    const tooMuch = { amount: "5000.00", currency: "EUR", destination: "acct_1" };
    let isDead = false;
    const first = await bank.serve({
      store: mortal(bank.store, () => isDead),
      atPoint(point) {
        if (point !== "committed") return;
        isDead = true;
        throw new Error("the process dies here");
      },
      budgetMs: 300,
      waitMs: 0,
    });
    await pay(first, key, tooMuch).catch(() => undefined);
    const second = await bank.serve();
    await second.ledger.fund("acme", "EUR", 1_000_000_00, "more");
    clock.ahead += LEASE_OVER_MS;
    const answer = await pay(second, key, tooMuch);
    assert.equal(answer.status, 402, answer.text);
    assert.equal(answer.member("retry"), "new_key");
    assert.equal((await pay(second, key, tooMuch)).text, answer.text);
    assert.equal(await balanceOf(second, "destination:acct_1"), 0n);
  });
});

/** The ledger with something happening around its calls. */
function around(
  ledger: PayoutLedger,
  hooks: { readonly before?: () => Promise<void>; readonly after?: () => Promise<void> },
  call: "commit" | "shutOut",
): PayoutLedger {
  return new Proxy(ledger, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== "function") return member;
      if (name !== call) return (...args: unknown[]): unknown => Reflect.apply(member, target, args);
      return async (...args: unknown[]): Promise<unknown> => {
        await hooks.before?.();
        const answer: unknown = await Reflect.apply(member, target, args);
        await hooks.after?.();
        return answer;
      };
    },
  });
}

describe("a process that is only slow", () => {
  it("commits nothing of its own when it wakes after another has paid, and both give one answer", async () => {
    const { bank, clock } = await openBank();
    await using _ = bank;
    const key = newKey();
    const { promise: awake, resolve: wake } = Promise.withResolvers<void>();
    const { promise: asleep, resolve: sleeps } = Promise.withResolvers<void>();
    const first = await bank.serve({
      openLedger: async (told) =>
        around(
          await openLedger(bank.ledgerUrl, told),
          {
            async before() {
              sleeps();
              await awake;
            },
          },
          "commit",
        ),
    });
    const slow = pay(first, key);
    await asleep;
    clock.ahead += LEASE_OVER_MS;
    const second = await bank.serve();
    const answer = await pay(second, key);
    assert.equal(answer.status, 201, answer.text);
    wake();
    assert.equal((await slow).text, answer.text);
    await checkPaidOnce(second);
  });

  it("pays for a client that hung up, which gets the answer by its retry", async () => {
    const { bank } = await openBank();
    await using _ = bank;
    const key = newKey();
    const { promise: awake, resolve: wake } = Promise.withResolvers<void>();
    const { promise: asleep, resolve: sleeps } = Promise.withResolvers<void>();
    const service = await bank.serve({
      openLedger: async (told) =>
        around(
          await openLedger(bank.ledgerUrl, told),
          {
            async before() {
              sleeps();
              await awake;
            },
          },
          "commit",
        ),
    });
    const client = new AbortController();
    const gone = fetch(`${service.url}/v1/payouts`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${API_KEY}`,
        "content-type": "application/json",
        "idempotency-key": `"${key}"`,
      },
      body: JSON.stringify(tenEuros),
      signal: client.signal,
    });
    await asleep;
    client.abort();
    await assert.rejects(gone);
    wake();
    const answer = await pay(service, key);
    assert.equal(answer.status, 201, answer.text);
    await checkPaidOnce(service);
  });

  it("is not disturbed by a reconcile while its lease lives", async () => {
    const { bank } = await openBank();
    await using _ = bank;
    const { promise: awake, resolve: wake } = Promise.withResolvers<void>();
    const { promise: asleep, resolve: sleeps } = Promise.withResolvers<void>();
    const service = await bank.serve({
      openLedger: async (told) =>
        around(
          await openLedger(bank.ledgerUrl, told),
          {
            async before() {
              sleeps();
              await awake;
            },
          },
          "commit",
        ),
    });
    const slow = pay(service, newKey());
    await asleep;
    assert.deepEqual(await reconciled(bank), ["left_to_its_owner"]);
    wake();
    assert.equal((await slow).status, 201);
    await checkPaidOnce(service);
  });
});

describe("reconcile, beside a retry that takes over at the worst moment", () => {
  for (const moment of ["before", "after"] as const) {
    it(`${moment} it shut the first attempt out`, async () => {
      const { bank, clock } = await openBank();
      await using _ = bank;
      const key = newKey();
      await dieAt(bank, key, "claimed");
      clock.ahead += LEASE_OVER_MS;
      const second = await bank.serve();
      const ledger = await openLedger(bank.ledgerUrl);
      const retries = async (): Promise<void> => {
        assert.equal((await pay(second, key)).status, 201);
      };
      const raced = around(ledger, moment === "before" ? { before: retries } : { after: retries }, "shutOut");
      assert.deepEqual(await reconciled(bank, raced), ["left_to_its_owner"]);
      await ledger.close();
      await checkPaidOnce(second);
      assert.equal(await unresolved(bank), 0);
    });
  }

  it("tells of a payout whose record is gone", async () => {
    const { bank } = await openBank();
    await using _ = bank;
    const service = await bank.serve();
    const key = newKey();
    assert.equal((await pay(service, key)).status, 201);
    const { store } = bank;
    assert.ok(store.list !== undefined && store.remove !== undefined);
    for await (const { name } of store.list("idempotency/")) {
      const found = await store.read(name);
      assert.ok(found !== undefined);
      await store.remove(name, found.version);
    }
    assert.deepEqual(await reconciled(bank), ["record_gone"]);

    const late = await pay(service, key);
    assert.equal(late.status, 422, "the ledger has not forgotten the key");
    assert.equal(late.member("type"), "urn:firstwrite:payouts:key_spent");
    assert.equal(late.member("retry"), "never");
    assert.equal((await pay(service, key)).text, late.text);
    await checkPaidOnce(service);
  });
});

describe("events of a payout", () => {
  it("say that an attempt was taken over", async () => {
    const { bank, clock } = await openBank();
    await using _ = bank;
    const key = newKey();
    await dieAt(bank, key, "committed");
    clock.ahead += LEASE_OVER_MS;
    const taken: number[] = [];
    const stop = onEvent("firstwrite:taken-over", ({ attempt }) => taken.push(attempt));
    await pay(await bank.serve(), key);
    stop();
    assert.deepEqual(taken, [2]);
  });
});
