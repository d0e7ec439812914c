/** What must be in no log line, metric, event or error: amounts, destinations, names, raw keys, API keys. */

import assert from "node:assert/strict";
import { inspect } from "node:util";

import { onEvent, type EventName } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";
import { Merchants, openLedger, reconcile, sha256Hex, signKeyTime, type PayoutServer } from "@firstwrite/payouts";

import { Bank, newKey, send, type Reply } from "./service.ts";

const secrets = {
  amount: "7654.32",
  minor: "765432",
  destination: "dest_of_jane_doe",
  closed: "dest_of_john_roe",
  unknown: "dest_of_nobody",
  name: "Jane Doe",
  apiKey: "sk_live_recognisable",
  signingSecret: "a recognisable signing secret",
  signedKey: "order-of-jane-doe",
};

const events: readonly EventName[] = [
  "firstwrite:store-request",
  "firstwrite:unknown-resolved",
  "firstwrite:reserved",
  "firstwrite:executed",
  "firstwrite:taken-over",
  "firstwrite:ownership-lost",
  "firstwrite:not-recorded",
  "firstwrite:held",
  "firstwrite:conflict",
];

describe("a full run", () => {
  it("leaves no personal data in logs, metrics, events, refusals, reports and what is printed", async function () {
    this.timeout(30_000);
    const seen: string[] = [];
    const stops = events.map((name) => onEvent(name, (message) => seen.push(inspect(message, { depth: 10 }))));
    const restore = captureOutput(seen);
    const clock = { ahead: 0, now: () => Date.now() + clock.ahead };
    const store = new MemoryStore({ clock });
    const bank = await Bank.open(store);
    const keys = Array.from({ length: 8 }, () => newKey());
    try {
      await run(bank, store, clock, keys, seen);
    } finally {
      await bank[Symbol.asyncDispose]();
      restore();
      for (const stop of stops) stop();
    }
    const output = [...seen, ...bank.log].join("\n");
    assert.ok(output.length > 10_000, "there was something to look at");
    for (const key of keys) assert.ok(!output.includes(key), "a raw key");
    for (const [what, secret] of Object.entries(secrets)) {
      const at = output.indexOf(secret);
      assert.equal(at, -1, `${what}: ${output.slice(Math.max(0, at - 200), at + 50)}`);
    }
    assert.match(output, /operation_id/);
  });
});

async function run(
  bank: Bank,
  store: MemoryStore,
  clock: { ahead: number },
  [
    paidKey = "",
    closedKey = "",
    unknownKey = "",
    poorKey = "",
    badKey = "",
    awayKey = "",
    deadKey = "",
    lateKey = "",
  ]: readonly string[],
  seen: string[],
): Promise<void> {
  const { apiKey, signingSecret, amount, destination, signedKey } = secrets;
  const merchants = new Merchants([{ id: "acme", apiKeySha256: sha256Hex(apiKey), signingSecret }]);
  let dies = false;
  const service = await bank.serve({
    merchants,
    budgetMs: 500,
    waitMs: 0,
    sweepEveryMs: 60_000,
    atPoint(point) {
      if (dies && point === "committed") throw new Error(`${destination} ${amount}`);
    },
  });
  const { ledger } = service;
  await ledger.fund("acme", "EUR", 50_000_00, "more");
  await ledger.putDestination(destination, "EUR", "open");
  await ledger.putDestination(secrets.closed, "EUR", "closed");
  const ask = (key: string, payout: object, headers: object = {}): Promise<Reply> =>
    paid(service, key, payout, headers);
  const payout = { amount, currency: "EUR", destination };

  // The answers of these have what was asked for in them, for whoever asked: they are not looked at.
  assert.equal((await ask(paidKey, payout)).status, 201);
  assert.equal((await ask(paidKey, payout)).status, 201);
  const signed = { "idempotency-key-time": signKeyTime(signedKey, Date.now(), signingSecret) };
  assert.equal((await ask(signedKey, payout, signed)).status, 201);

  const refusals: Reply[] = [
    await ask(paidKey, { ...payout, amount: "1.00" }),
    await ask(closedKey, { ...payout, destination: secrets.closed }),
    await ask(unknownKey, { ...payout, destination: secrets.unknown }),
    await ask(poorKey, { ...payout, amount: `99${amount}` }),
    await ask(badKey, { ...payout, name: secrets.name }),
    await ask(badKey, { ...payout, amount: Number(amount) }),
    await ask(badKey, { ...payout, destination: secrets.name }),
    await ask(signedKey, payout),
    await ask(newKey(0), payout),
    await ask(lateKey, payout, { "idempotency-key-time": signKeyTime(lateKey, Date.now(), "not the right secret") }),
    await send(`${service.url}/${destination}/${paidKey}`, { headers: { authorization: `Bearer ${apiKey}` } }),
  ];
  store.inject("away", { times: Infinity });
  refusals.push(await ask(awayKey, payout));
  store.heal();
  dies = true;
  refusals.push(await ask(deadKey, payout));
  dies = false;
  clock.ahead += 5_001;
  const second = await openLedger(bank.ledgerUrl);
  await reconcile({
    store,
    ledger: second,
    by: "a test",
    onReconciled: (done) => seen.push(inspect(done)),
    onUnreadable: (name) => seen.push(name),
  });
  await second.close();
  for (const { status, text, headers } of refusals) {
    assert.ok(status >= 400, text);
    seen.push(text, inspect([...headers]));
  }
  seen.push((await send(`${service.url}/metrics`)).text, (await send(`${service.url}/v1/idempotency-contract`)).text);
  const audit = await ledger.audit();
  assert.deepEqual(audit.faults, []);
}

function paid({ url }: PayoutServer, key: string, payout: object, headers: object): Promise<Reply> {
  return send(`${url}/v1/payouts`, {
    method: "POST",
    body: JSON.stringify(payout),
    headers: { authorization: `Bearer ${secrets.apiKey}`, "idempotency-key": `"${key}"`, ...headers },
  });
}

/** What is written to the two outputs of this process, which still gets there. */
function captureOutput(seen: string[]): () => void {
  const streams = [process.stdout, process.stderr].map((stream) => {
    const write = stream.write.bind(stream);
    stream.write = (chunk: string | Uint8Array, ...rest: never[]): boolean => {
      seen.push(typeof chunk === "string" ? chunk : Buffer.from(chunk).toString());
      return write(chunk, ...rest);
    };
    return () => {
      stream.write = write;
    };
  });
  return () => {
    for (const restore of streams) restore();
  };
}
