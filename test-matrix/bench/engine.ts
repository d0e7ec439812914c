/**
 * What the engine costs: CPU time per operation, first run and replay, beside two other libraries doing the same work in
 * memory, in one process, turn by turn; then a thousand callers of one key at once, and a hundred thousand keys. Not a
 * test: `pnpm bench:engine`.
 *
 * All three get a key and an input, and compare the input of a replay with the first one's. Per round each side does the
 * work on keys of its own, in an order drawn anew. Printed are the medians over the rounds, with the smallest and largest,
 * of user and system time by `process.cpuUsage`, so that waiting for a turn costs nobody anything.
 */

import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import {
  IdempotencyConfig,
  IdempotencyItemAlreadyExistsError,
  IdempotencyItemNotFoundError,
  makeIdempotent,
} from "@aws-lambda-powertools/idempotency";
import { BasePersistenceLayer, type IdempotencyRecord } from "@aws-lambda-powertools/idempotency/persistence";
import { defineOperation, Idempotency } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";
import { Idempotency as NodeIdempotency } from "@node-idempotency/core";
import { MemoryStorageAdapter } from "@node-idempotency/storage-adapter-memory";

interface Payment {
  readonly amount: number;
  readonly currency: string;
  readonly destination: { readonly account: string; readonly holder: string };
  readonly reference: string;
}

interface Receipt {
  readonly id: string;
  readonly status: string;
  readonly amount: number;
}

/** One library, in memory: pays under a key, or answers what was paid. */
type Side = (key: string, payment: Payment) => Promise<unknown>;

const payment: Payment = {
  amount: 1099,
  currency: "EUR",
  destination: { account: "DE02120300000000202051", holder: "A. Example" },
  reference: "invoice 2026-0042",
};

let paid = 0;
async function pay({ amount }: Payment): Promise<Receipt> {
  paid += 1;
  return { id: "po_1J2k3L4m5N", status: "paid", amount };
}

function firstwrite(options: { readonly cache?: { readonly entriesMax: number } } = {}): Side {
  const idempotency = new Idempotency({ store: new MemoryStore(), ...options });
  const operation = defineOperation({ name: "payout.create", recovery: "rerun", run: pay });
  return (key, input) => idempotency.execute(operation, { scope: "acme", key }, input);
}

function powertools(): Side {
  const config = new IdempotencyConfig({ eventKeyJmesPath: "key", payloadValidationJmesPath: "input" });
  // Without a context it warns on every call, and its lease has no end.
  config.registerLambdaContext(lambdaContext());
  const run = makeIdempotent(async ({ input }: { key: string; input: Payment }) => pay(input), {
    persistenceStore: new MemoryLayer(),
    config,
  });
  return (key, input) => run({ key, input });
}

function nodeIdempotency(): Side {
  const idempotency = new NodeIdempotency(new MemoryStorageAdapter());
  return async (key, input) => {
    const request = { headers: { "idempotency-key": key }, path: "/payouts", method: "POST", body: { ...input } };
    const known = await idempotency.onRequest(request);
    if (known !== undefined) return known.body;
    const body = await pay(input);
    await idempotency.onResponse(request, { body });
    return body;
  };
}

/** By the documented base class: the least that its four methods can do, with records kept as they come. */
class MemoryLayer extends BasePersistenceLayer {
  readonly #records = new Map<string, IdempotencyRecord>();

  protected async _putRecord(record: IdempotencyRecord): Promise<void> {
    const known = this.#records.get(record.idempotencyKey);
    if (known !== undefined && !known.isExpired()) {
      throw new IdempotencyItemAlreadyExistsError(`exists: ${record.idempotencyKey}`, known);
    }
    this.#records.set(record.idempotencyKey, record);
  }

  protected async _getRecord(key: string): Promise<IdempotencyRecord> {
    const record = this.#records.get(key);
    if (record === undefined) throw new IdempotencyItemNotFoundError();
    return record;
  }

  protected async _updateRecord(record: IdempotencyRecord): Promise<void> {
    this.#records.set(record.idempotencyKey, record);
  }

  protected async _deleteRecord({ idempotencyKey }: IdempotencyRecord): Promise<void> {
    this.#records.delete(idempotencyKey);
  }
}

function lambdaContext(): Parameters<IdempotencyConfig["registerLambdaContext"]>[0] {
  const unused = (): void => {};
  return {
    callbackWaitsForEmptyEventLoop: false,
    functionName: "payouts",
    functionVersion: "1",
    invokedFunctionArn: "",
    memoryLimitInMB: "128",
    awsRequestId: "1",
    logGroupName: "",
    logStreamName: "",
    getRemainingTimeInMillis: () => 30_000,
    done: unused,
    fail: unused,
    succeed: unused,
  };
}

const sides: Readonly<Record<string, () => Side>> = {
  "@firstwrite/core": () => firstwrite(),
  "@firstwrite/core, with its cache": () => firstwrite({ cache: { entriesMax: 10_000 } }),
  "@aws-lambda-powertools/idempotency": powertools,
  "@node-idempotency/core": nodeIdempotency,
};

const ROUNDS = 15;
const KEYS = 5_000;

const [, , ofOne] = process.argv;
if (ofOne === undefined) {
  await operations();
  await sameKey();
  console.log("\nMemory per settled key, 100,000 keys, in bytes");
  // Each in a process of its own: what the one before left to be collected would be counted off.
  for (const name of Object.keys(sides)) {
    process.stdout.write(
      execFileSync(process.execPath, [...process.execArgv, "--expose-gc", fileURLToPath(import.meta.url), name]),
    );
  }
} else await manyKeys(ofOne);

async function operations(): Promise<void> {
  const times = new Map<string, number[]>();
  const note = (side: string, us: number): void => void times.set(side, [...(times.get(side) ?? []), us]);
  // The first two rounds warm all sides up.
  for (let round = -2; round < ROUNDS; round += 1) {
    for (const [name, make] of shuffled(Object.entries(sides))) {
      const side = make();
      const keys = Array.from({ length: KEYS }, () => randomUUID());
      const before = paid;
      const first = await cpuUs(async () => {
        for (const key of keys) await side(key, payment);
      });
      const again = await cpuUs(async () => {
        for (const key of keys) await side(key, payment);
      });
      if (paid - before !== KEYS) throw new Error(`${name} paid ${paid - before} times for ${KEYS} keys`);
      if (round < 0) continue;
      note(`${name}, first run`, first / KEYS);
      note(`${name}, replay`, again / KEYS);
    }
  }
  console.log("CPU time per operation, in microseconds");
  for (const work of ["first run", "replay"]) {
    for (const name of Object.keys(sides)) print(`${name}, ${work}`, times.get(`${name}, ${work}`) ?? []);
  }
}

/** A thousand callers at once: one effect, and how much it costs all of them together. */
async function sameKey(): Promise<void> {
  const times: number[] = [];
  const side = firstwrite();
  for (let round = -2; round < ROUNDS; round += 1) {
    const key = randomUUID();
    const before = paid;
    const us = await cpuUs(async () => {
      await Promise.all(Array.from({ length: 1_000 }, () => side(key, payment)));
    });
    if (paid - before !== 1) throw new Error(`${paid - before} payments for one key`);
    if (round >= 0) times.push(us / 1_000);
  }
  console.log("\nCPU time per caller, 1,000 callers of one key at once, in microseconds");
  print("@firstwrite/core", times);
}

/** What a key costs in memory once it is settled, with 100,000 of them. */
async function manyKeys(name: string): Promise<void> {
  const side = sides[name]?.();
  if (side === undefined || globalThis.gc === undefined) throw new Error(`no side is called ${name}`);
  const keys = Array.from({ length: 100_000 }, () => randomUUID());
  // What starting up leaves behind is collected only under some load.
  const warm = sides[name]?.() ?? side;
  for (const key of keys.slice(0, 50_000)) await warm(key, payment);
  const before = await usedBytes();
  for (const key of keys) await side(key, payment);
  const bytes = ((await usedBytes()) - before) / keys.length;
  // What is measured is still there.
  await side(keys[0] ?? "", payment);
  console.log(`  ${name.padEnd(46)} ${bytes.toFixed(0).padStart(6)}`);
}

async function usedBytes(): Promise<number> {
  for (let round = 0; round < 3; round += 1) {
    globalThis.gc?.();
    await setImmediate();
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

async function cpuUs(work: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

function print(title: string, values: readonly number[]): void {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  const range = `${sorted.at(0)?.toFixed(1)} to ${sorted.at(-1)?.toFixed(1)}`;
  console.log(`  ${title.padEnd(46)} ${middle.toFixed(1).padStart(6)}   (${range})`);
}

function shuffled<Item>(items: readonly Item[]): Item[] {
  return items
    .map((item) => ({ item, order: Math.random() }))
    .toSorted((a, b) => a.order - b.order)
    .map(({ item }) => item);
}
