/** The service over real sockets. */

import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";

import { days, InvalidArgumentError } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";
import {
  defaultDeployment,
  LedgerUnavailableError,
  openLedger,
  payoutIdOf,
  signKeyTime,
  type PayoutLedger,
} from "@firstwrite/payouts";

import { balanceOf, Bank, newKey, pay, send, SIGNING_SECRET, tenEuros, type Reply } from "./service.ts";

const OTHER = { authorization: "Bearer sk_test_other" };

function assertProblem(reply: Reply, status: number, name: string, retry: string): void {
  assert.equal(reply.status, status, reply.text);
  assert.equal(reply.headers.get("content-type"), "application/problem+json");
  assert.equal(reply.member("type"), `urn:firstwrite:${name.includes("-") ? "problem" : "payouts"}:${name}`);
  assert.equal(reply.member("status"), status);
  assert.equal(reply.member("retry"), retry);
}

describe("POST /v1/payouts", () => {
  it("pays once, replays the answer byte for byte, and refuses another amount", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const key = newKey();

    const first = await pay(service, key);
    assert.equal(first.status, 201, first.text);
    assert.equal(first.headers.get("idempotent-replayed"), null);
    assert.equal(first.headers.get("idempotency-operation-id"), first.member("operation_id"));
    assert.equal(
      first.member("payout_id"),
      payoutIdOf(String(first.member("operation_id"))),
      "known from the operation",
    );

    const again = await pay(service, key);
    assert.equal(again.status, 201);
    assert.equal(again.text, first.text);
    assert.equal(again.headers.get("idempotent-replayed"), "true");

    const other = await pay(service, key, { ...tenEuros, amount: "10.01" });
    assertProblem(other, 422, "key-reused", "new_key");
    assert.equal(other.member("operation_id"), first.member("operation_id"));

    assert.equal(await balanceOf(service, "destination:acct_1"), 10_00n);
    const metrics = (await send(`${service.url}/metrics`)).text;
    assert.match(metrics, /^payouts_duplicates_suppressed_total 1$/m);
    assert.match(metrics, /^payouts_mismatches_total 1$/m);
  });

  it("takes 10, 10.0 and 10.00 for the same request, whatever the order of its members", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const key = newKey();
    const first = await pay(service, key, '{"amount":"10","currency":"EUR","destination":"acct_1"}');
    const again = await pay(service, key, '{"destination":"acct_1", "amount":"10.00", "currency":"EUR"}');
    assert.equal(again.text, first.text);
    assert.equal(await balanceOf(service, "destination:acct_1"), 10_00n);
  });

  it("makes one payout of twenty requests at once to two services", async () => {
    await using bank = await Bank.open();
    const services = [await bank.serve(), await bank.serve()];
    const key = newKey();
    const replies = await Promise.all(
      Array.from({ length: 10 }, () => services.map((service) => pay(service, key))).flat(),
    );
    assert.deepEqual(new Set(replies.map(({ status, text }) => `${status} ${text}`)).size, 1, replies[0]?.text);
    const [service] = services;
    assert.ok(service !== undefined);
    assert.equal(await balanceOf(service, "destination:acct_1"), 10_00n);
  });

  it("gives one merchant nothing of another's with the same key", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const key = newKey();
    const mine = await pay(service, key);
    const theirs = await pay(service, key, tenEuros, OTHER);
    assert.equal(theirs.status, 402);
    assert.notEqual(theirs.member("operation_id"), mine.member("operation_id"));
    const paths = [
      `/v1/payouts/${String(mine.member("payout_id"))}`,
      `/v1/operations/${String(mine.member("operation_id"))}`,
    ];
    for (const path of paths) {
      assertProblem(await send(service.url + path, { headers: OTHER }), 404, "not_found", "never");
      assert.equal((await send(service.url + path)).text, mine.text, "to its own merchant it is shown");
    }
  });

  const declines: readonly [title: string, payout: object, code: string][] = [
    ["more than there is", { ...tenEuros, amount: "1000.01" }, "insufficient_funds"],
    ["a closed destination", { ...tenEuros, destination: "acct_closed" }, "destination_closed"],
    ["an unknown destination", { ...tenEuros, destination: "acct_9" }, "destination_unknown"],
  ];
  for (const [title, payout, code] of declines) {
    it(`declines ${title} for good, and says that a new payout needs a new key`, async () => {
      await using bank = await Bank.open();
      const service = await bank.serve();
      const key = newKey();
      const first = await pay(service, key, payout);
      assertProblem(first, 402, code, "new_key");
      assert.equal(first.member("decline_code"), code);
      await service.ledger.fund("acme", "EUR", 1_000_000, "more");
      for (const destination of ["acct_closed", "acct_9"])
        await service.ledger.putDestination(destination, "EUR", "open");
      const again = await pay(service, key, payout);
      assert.equal(again.text, first.text);
      assert.equal(again.headers.get("idempotent-replayed"), "true");
      assert.equal((await pay(service, newKey(), payout)).status, 201);
      const shown = await send(`${service.url}/v1/payouts/${String(first.member("payout_id"))}`);
      assert.equal(shown.member("state"), "declined");
    });
  }

  it("does not consume the key of a request that is refused before anything is done", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const key = newKey();
    assertProblem(await pay(service, key, { ...tenEuros, amount: 10 }), 400, "invalid_request", "never");
    assertProblem(await pay(service, key, { ...tenEuros, name: "x" }), 400, "invalid_request", "never");
    assertProblem(await pay(service, key, "{"), 400, "invalid_request", "never");
    assertProblem(
      await pay(service, key, tenEuros, { authorization: "Bearer nobody" }),
      401,
      "unauthenticated",
      "same_key",
    );
    assertProblem(await pay(service, key, tenEuros, { "content-type": "text/plain" }), 415, "not_json", "never");
    assertProblem(await pay(service, key, " ".repeat(20_000)), 413, "body-too-large", "never");
    assert.equal((await pay(service, key)).status, 201);
  });

  const url = "/v1/payouts";
  const keys: readonly [
    title: string,
    headers: Readonly<Record<string, string>>,
    problem: "key-missing" | "key-invalid",
  ][] = [
    ["no key", {}, "key-missing"],
    ["a key without quotes", { "idempotency-key": "0198-abc" }, "key-invalid"],
    ["an empty key", { "idempotency-key": '""' }, "key-invalid"],
    ["two keys", { "idempotency-key": '"a", "b"' }, "key-invalid"],
    ["a key with a parameter", { "idempotency-key": '"a";p=1' }, "key-invalid"],
    ["a key of 256 characters", { "idempotency-key": `"${"k".repeat(256)}"` }, "key-invalid"],
    ["a key whose time nobody knows", { "idempotency-key": '"order-1001"' }, "key-invalid"],
    ["a UUID of version 4", { "idempotency-key": '"3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11"' }, "key-invalid"],
    ["a key of the day after tomorrow", { "idempotency-key": `"${newKey(Date.now() + days(2))}"` }, "key-invalid"],
    [
      "a time that is not signed",
      { "idempotency-key": '"order-1001"', "idempotency-key-time": "t=1764547200,v1=00" },
      "key-invalid",
    ],
    [
      "a time that was signed for another key",
      {
        "idempotency-key": '"order-1001"',
        "idempotency-key-time": signKeyTime("order-1002", Date.now(), SIGNING_SECRET),
      },
      "key-invalid",
    ],
    [
      "a time that was signed by somebody else",
      {
        "idempotency-key": '"order-1001"',
        "idempotency-key-time": signKeyTime("order-1001", Date.now(), "another secret 123"),
      },
      "key-invalid",
    ],
  ];
  for (const [title, headers, problem] of keys) {
    it(`refuses ${title} before any request to the store`, async () => {
      const store = new MemoryStore();
      store.inject("denied", { times: Infinity });
      await using bank = await Bank.open(store);
      const service = await bank.serve();
      const reply = await send(service.url + url, { method: "POST", body: JSON.stringify(tenEuros), headers });
      assertProblem(reply, 400, problem, "never");
      assert.ok(!/order-100|3b0f3c1e/.test(reply.text), reply.text);
    });
  }

  it("takes any key whose time its merchant has signed", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const signed = { "idempotency-key-time": signKeyTime("order-1001", Date.now(), SIGNING_SECRET) };
    const first = await pay(service, "order-1001", tenEuros, signed);
    assert.equal(first.status, 201, first.text);
    assert.equal((await pay(service, "order-1001", tenEuros, signed)).text, first.text);
  });

  it("refuses a late retry instead of paying it again, however its key tells its time", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const long = Date.now() - defaultDeployment.clientRetryMs - defaultDeployment.brokerDelayMs - 1_000;
    assertProblem(await pay(service, newKey(long)), 422, "key-too-old", "never");
    const signed = { "idempotency-key-time": signKeyTime("order-1001", long, SIGNING_SECRET) };
    assertProblem(await pay(service, "order-1001", tenEuros, signed), 422, "key-too-old", "never");
    assert.equal(await balanceOf(service, "destination:acct_1"), 0n);
  });

  it("pays nothing while the store is away, within the request's time, and pays with the same key when it is back", async () => {
    const store = new MemoryStore();
    await using bank = await Bank.open(store);
    const service = await bank.serve({ budgetMs: 300, waitMs: 0 });
    const key = newKey();
    store.inject("away", { times: Infinity });
    const startedAt = performance.now();
    assertProblem(await pay(service, key), 503, "store-unavailable", "same_key");
    assert.ok(performance.now() - startedAt < 5_000);
    assert.equal(await balanceOf(service, "destination:acct_1"), 0n);
    assert.equal((await send(`${service.url}/healthz`)).status, 503, bank.log.join(""));
    store.heal();
    assert.equal((await pay(service, key)).status, 201);
    assert.equal((await send(`${service.url}/healthz`)).status, 200);
  });

  it("gives the ledger's answer when the record cannot be settled, and says so in its metrics", async () => {
    const store = new MemoryStore();
    await using bank = await Bank.open(store);
    const service = await bank.serve({ budgetMs: 300, waitMs: 0 });
    const key = newKey();
    store.inject("away", { on: "replace", times: Infinity });
    const first = await pay(service, key);
    assert.equal(first.status, 201, first.text);
    // The process goes on trying for a while after it has answered.
    const isTold = async (): Promise<boolean> =>
      /^payouts_not_recorded_total 1$/m.test((await send(`${service.url}/metrics`)).text);
    for (let tries = 0; !(await isTold()); tries += 1) {
      assert.ok(tries < 50, "it is told that nothing was recorded");
      await sleep(50);
    }
    store.heal();
    let answer = await pay(service, key);
    // The record may still be this process's to settle, or has to wait for the lease.
    for (let tries = 0; answer.status === 409 && tries < 20; tries += 1) {
      await sleep(500);
      answer = await pay(service, key);
    }
    assert.equal(answer.text, first.text);
    assert.equal(await balanceOf(service, "destination:acct_1"), 10_00n);
  });

  it("leaves it open while the ledger is away, and finds out by a retry with the same key", async () => {
    await using bank = await Bank.open();
    let isAway: "before" | "after" | undefined = "after";
    const service = await bank.serve({
      openLedger: async (told) => flaky(await openLedger(bank.ledgerUrl, told), () => isAway),
    });
    const key = newKey();
    const lost = await pay(service, key);
    assertProblem(lost, 503, "ledger_unavailable", "same_key");
    assert.ok(lost.member("operation_id") !== undefined);
    isAway = "before";
    assertProblem(await pay(service, key), 503, "ledger_unavailable", "same_key");
    isAway = undefined;
    const answer = await pay(service, key);
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.member("operation_id"), lost.member("operation_id"));
    assert.equal(await balanceOf(service, "destination:acct_1"), 10_00n);
  });

  it("answers within the request's time while another process holds the ledger, and has paid nothing", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve({ budgetMs: 300, waitMs: 0 });
    const key = newKey();
    const other = new DatabaseSync(bank.ledgerUrl.slice("sqlite:".length));
    other.exec("BEGIN IMMEDIATE");
    const startedAt = performance.now();
    assertProblem(await pay(service, key), 503, "outcome-unknown", "same_key");
    assert.ok(performance.now() - startedAt < 2_000);
    // Longer than the ledger is waited for, so that nothing is under way any more.
    await sleep(1_500);
    other.exec("ROLLBACK");
    other.close();
    assert.equal(await balanceOf(service, "destination:acct_1"), 0n);
    assert.equal((await pay(service, key)).status, 201);
    assert.equal(await balanceOf(service, "destination:acct_1"), 10_00n);
  });

  it("leaves one line in the log for each request, with the operation", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const key = newKey();
    const first = await pay(service, key);
    await pay(service, key);
    await pay(service, key, { ...tenEuros, amount: "1.00" });
    await send(`${service.url}/v1/payouts/${String(first.member("payout_id"))}`);
    const lines = bank.log.map((line): { operation_id: unknown; route: unknown } => JSON.parse(line));
    assert.equal(lines.length, 4);
    for (const { operation_id: operationId } of lines) assert.equal(operationId, first.member("operation_id"));
    assert.deepEqual(
      lines.map(({ route }) => route),
      ["/v1/payouts", "/v1/payouts", "/v1/payouts", "/v1/payouts/:id"],
    );
  });

  it("says where the time of a request went", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const startedAt = performance.now();
    await pay(service, newKey());
    const allSeconds = (performance.now() - startedAt) / 1_000;
    const { text } = await send(`${service.url}/metrics`);
    const parts = [...text.matchAll(/_part_seconds_sum\{part="(\w+)"\} (\S+)/g)].map(
      ([, part, sum]) => [part, Number(sum)] as const,
    );
    assert.deepEqual(
      parts.map(([part]) => part),
      ["store", "lock_wait", "ledger", "serialization", "own"],
    );
    for (const [part, sum] of parts) assert.ok(sum > 0, `${part} is ${sum}`);
    assert.ok(parts.reduce((all, [, sum]) => all + sum, 0) <= allSeconds);
  });

  it("counts unresolved operations, and payments of each operation", async () => {
    await using bank = await Bank.open();
    const before = await bank.serve();
    await pay(before, newKey());
    await pay(before, newKey());
    const service = await bank.serve({ sweepEveryMs: 60_000 });
    let text = "";
    for (let tries = 0; !text.includes("payouts_unresolved "); tries += 1) {
      assert.ok(tries < 100, text);
      await sleep(20);
      text = (await send(`${service.url}/metrics`)).text;
    }
    assert.match(text, /^payouts_unresolved 0$/m);
    assert.match(text, /^payouts_per_operation_bucket\{le="0"\} 0$/m);
    assert.match(text, /^payouts_per_operation_bucket\{le="1"\} 2$/m);
    assert.match(text, /^payouts_per_operation_bucket\{le="\+Inf"\} 2$/m);
  });
});

/** Away before it is asked, or after it has done what it was. */
function flaky(ledger: PayoutLedger, when: () => "before" | "after" | undefined): PayoutLedger {
  const away = (at: "before" | "after"): void => {
    if (when() === at) throw new LedgerUnavailableError("away");
  };
  return {
    async commit(...call) {
      away("before");
      const payout = await ledger.commit(...call);
      away("after");
      return payout;
    },
    async shutOut(...call) {
      away("before");
      return ledger.shutOut(...call);
    },
    findByOperation: (...call) => ledger.findByOperation(...call),
    findByPayoutId: (...call) => ledger.findByPayoutId(...call),
    listSince: (...call) => ledger.listSince(...call),
    putDestination: (...call) => ledger.putDestination(...call),
    fund: (...call) => ledger.fund(...call),
    audit: () => ledger.audit(),
    close: () => ledger.close(),
  };
}

describe("startPayoutServer", () => {
  const wrong: readonly [title: string, options: Parameters<Bank["serve"]>[0], why: RegExp][] = [
    [
      "a TTL that is too short",
      { deployment: { ...defaultDeployment, ttlMs: days(8) } },
      /retention\.ttlMs .* give at least/,
    ],
    ["no time for retries", { deployment: { ...defaultDeployment, clientRetryMs: 0 } }, /clientRetryMs is 0/],
    ["a lease that is too short", { deployment: { ...defaultDeployment, leaseMs: 10 } }, /leaseMs is 10: give 5000/],
    [
      "a wait that is longer than the request",
      { budgetMs: 1_000, waitMs: 1_000 },
      /give more milliseconds than waitMs/,
    ],
    ["a wait that is none", { waitMs: -1 }, /waitMs is -1/],
    ["a port that there is not", { port: 99_999 }, /port is 99999: give 1 to 65535/],
    ["a request that has an hour", { budgetMs: 3_600_000 }, /budgetMs is 3600000: give less than an hour/],
  ];
  for (const [title, options, why] of wrong) {
    it(`refuses ${title} before the ledger is opened`, async () => {
      await using bank = await Bank.open();
      const openLedger = (): Promise<never> => assert.fail("it was opened");
      await assert.rejects(
        bank.serve({ ...options, openLedger }),
        (error) => InvalidArgumentError.is(error) && why.test(error.message),
      );
    });
  }

  it("publishes what clients may count on", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve({
      deployment: { clientRetryMs: days(2), brokerDelayMs: days(1), auditMs: days(30) },
    });
    const { text } = await send(`${service.url}/v1/idempotency-contract`);
    const contract: { retention: unknown } = JSON.parse(text);
    assert.deepEqual(contract.retention, {
      client_retry_ms: days(2),
      broker_delay_ms: days(1),
      key_age_max_ms: days(3),
      audit_ms: days(30),
      ttl_ms: days(31),
    });
  });

  it("is not stopped by a store that cannot list: the gauges are left out", async () => {
    const store = new MemoryStore();
    await using bank = await Bank.open({
      traits: store.traits,
      create: (...call) => store.create(...call),
      replace: (...call) => store.replace(...call),
      read: (...call) => store.read(...call),
    });
    const service = await bank.serve({ sweepEveryMs: 60_000 });
    assert.equal((await pay(service, newKey())).status, 201);
    assert.ok(bank.log.some((line) => line.includes("not_swept")));
    assert.ok(!(await send(`${service.url}/metrics`)).text.includes("payouts_unresolved"));
  });
});
