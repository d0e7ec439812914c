/**
 * Two processes of the payout service on one store and one ledger, each behind a proxy that loses requests and answers, are
 * killed at named points and at random while a client retries. What must hold in the end is checked by {@link payoutStorm}.
 */

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { FaultyProxy } from "@firstwrite/conformance/wire";
import { Idempotency, type ConditionalStore } from "@firstwrite/core";
import { fetchWithIdempotency, IdempotentFetchError } from "@firstwrite/http/client";
import { openLedger, reconcile, sha256Hex, type PayoutLedger, type PayoutPoint } from "@firstwrite/payouts";

import { freePort } from "../servers/free-port.ts";
import type { ServiceLine, ServiceOrder } from "./service.ts";

const program = fileURLToPath(new URL("service.ts", import.meta.url));
const API_KEY = "sk_storm";
export const allPoints: readonly PayoutPoint[] = ["claimed", "in_transaction", "committed", "settling", "replying"];
/** How often a process dies at each point that it reaches; and at the one where the fewest have died, so that none is left out. */
const DEATH_RATE = 0.03;
const DEATH_RATE_MAX = 0.2;
const FAULT_RATE = 0.1;
const AT_ONCE = 8;
const ATTEMPTS_MAX = 1_000;
const LEASE_MS = 5_000;
const AMOUNT_MINOR = 10_00;

export interface PayoutStormOptions {
  readonly storeUrl: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly ledgerUrl: string;
  /** A client of the same place, for looking at it in the end. */
  readonly openStore: () => Promise<ConditionalStore>;
  readonly operations: number;
  /** Where processes die: each of them has to be reached. */
  readonly points: readonly PayoutPoint[];
  /** Gives the storm up, in milliseconds. */
  readonly withinMs: number;
}

/** What came of it: one row of the table. */
export interface PayoutStormResult {
  readonly operations: number;
  readonly paid: number;
  readonly declined: number;
  readonly killedAt: Readonly<Record<PayoutPoint | "random", number>>;
  readonly faults: number;
  readonly answers: number;
  readonly unresolvedBefore: number;
  readonly unresolvedAfter: number;
  readonly seconds: number;
}

/** @throws {AssertionError} when an operation was paid twice or not at all, two answers to a key differ, or the books do. */
export async function payoutStorm(options: PayoutStormOptions): Promise<PayoutStormResult> {
  const ledger = await openLedger(options.ledgerUrl);
  try {
    await ledger.fund("acme", "EUR", options.operations * AMOUNT_MINOR, "opening");
    await ledger.putDestination("acct_open", "EUR", "open");
    await ledger.putDestination("acct_closed", "EUR", "closed");
    return await new PayoutStorm(options, ledger).run();
  } finally {
    await ledger.close();
  }
}

interface Wish {
  readonly key: string;
  readonly destination: "acct_open" | "acct_closed";
  /** Its client gives up after one try, until the end: what is left of it is for reconcile. */
  readonly isAbandoned: boolean;
  /** What was answered for good, each time. */
  readonly answers: string[];
}

class PayoutStorm {
  readonly #options: PayoutStormOptions;
  readonly #ledger: PayoutLedger;
  readonly #wishes: readonly Wish[];
  readonly #killedAt: Record<PayoutPoint | "random", number> = {
    claimed: 0,
    in_transaction: 0,
    committed: 0,
    settling: 0,
    replying: 0,
    random: 0,
  };
  readonly #endsAt: number;

  constructor(options: PayoutStormOptions, ledger: PayoutLedger) {
    this.#options = options;
    this.#ledger = ledger;
    this.#endsAt = performance.now() + options.withinMs;
    this.#wishes = Array.from({ length: options.operations }, (_, index) => ({
      key: uuidV7(),
      destination: index % 5 === 0 ? "acct_closed" : "acct_open",
      isAbandoned: index % 3 === 0,
      answers: [],
    }));
  }

  async run(): Promise<PayoutStormResult> {
    const startedAt = performance.now();
    const services = [new Service(this.#options, this.#killedAt), new Service(this.#options, this.#killedAt)];
    let faults = 0;
    try {
      await Promise.all(services.map((service) => service.start()));
      const proxies = await Promise.all(services.map(({ url }) => FaultyProxy.start(url)));
      for (const proxy of proxies) {
        proxy.faultAtRandom(FAULT_RATE, ["lostRequest", "lostReply", "late", "repeated"], Math.random);
      }
      const isCalm = this.#killAtRandom(services);
      const urls = proxies.map(({ url }) => url);
      // Twice, so that there is an answer to compare.
      for (let round = 0; round < 2; round += 1) await this.#askAll(urls);
      await isCalm();
      faults = proxies.reduce((sum, proxy) => sum + proxy.faults, 0);
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]();
    } finally {
      await Promise.all(services.map((service) => service.end()));
    }
    return this.#settleAndCheck(startedAt, faults);
  }

  async #settleAndCheck(startedAt: number, faults: number): Promise<PayoutStormResult> {
    const store = await this.#options.openStore();
    const last = new Service(this.#options, this.#killedAt, false);
    try {
      // The dead are known to be dead when their leases are over.
      await sleep(LEASE_MS + 2_000);
      const unresolvedBefore = await countUnresolved(store);
      const gone: string[] = [];
      await reconcile({
        store,
        ledger: this.#ledger,
        by: "the storm",
        onReconciled: ({ operationId, did }) => {
          if (did !== "settled" && did !== "released") gone.push(`${operationId} ${did}`);
        },
        onUnreadable: (name) => gone.push(name),
      });
      assert.deepEqual(gone, [], "reconcile settles or releases everything");
      const unresolvedAfter = await countUnresolved(store);
      assert.equal(unresolvedAfter, 0, "nothing is unresolved after one reconcile");
      await last.start();
      await this.#askAll([last.url], true);
      const declined = this.#checkAnswers();
      await this.#checkBooks(declined);
      return {
        operations: this.#wishes.length,
        paid: this.#wishes.length - declined,
        declined,
        killedAt: this.#killedAt,
        faults,
        answers: this.#wishes.reduce((sum, { answers }) => sum + answers.length, 0),
        unresolvedBefore,
        unresolvedAfter,
        seconds: (performance.now() - startedAt) / 1_000,
      };
    } finally {
      await last.end();
      await store.close?.();
    }
  }

  /** Until each wish has one answer more, but for those that are given up. */
  async #askAll(urls: readonly string[], patiently: boolean = false): Promise<void> {
    const todo = [...this.#wishes];
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        for (let wish = todo.pop(); wish !== undefined; wish = todo.pop()) await this.#ask(wish, urls, patiently);
      }),
    );
  }

  /** A client that retries with the same key until it is told something final, each time of another process. */
  async #ask(
    { key, destination, answers, isAbandoned }: Wish,
    urls: readonly string[],
    patiently: boolean,
  ): Promise<void> {
    const once = isAbandoned && !patiently;
    const response = await fetchWithIdempotency(
      "http://service/v1/payouts",
      {
        method: "POST",
        headers: { authorization: `Bearer ${API_KEY}`, "content-type": "application/json" },
        body: JSON.stringify({ amount: "10.00", currency: "EUR", destination }),
      },
      {
        idempotencyKey: key,
        attemptsMax: once ? 1 : ATTEMPTS_MAX,
        attemptMs: 6_000,
        backoffMs: 50,
        backoffMsMax: 1_000,
        budgetMs: Math.max(1, this.#endsAt - performance.now()),
        fetch: (request) => fetch(elsewhere(request, urls)),
      },
    ).catch((error: unknown) => {
      if (once && error instanceof IdempotentFetchError) return undefined;
      throw error;
    });
    if (response === undefined) return;
    const body = await response.text();
    const { status } = response;
    if (once && [409, 503].includes(status)) return;
    assert.ok(status === 201 || status === 402, `${status} ${body}`);
    answers.push(`${status} ${body}`);
  }

  #killAtRandom(services: readonly Service[]): () => Promise<void> {
    const calm = new AbortController();
    const killing = (async () => {
      while (!calm.signal.aborted) {
        await sleep(1_500 + Math.random() * 2_000);
        if (!calm.signal.aborted) services[Math.floor(Math.random() * services.length)]?.killAtRandom();
      }
    })();
    return () => {
      calm.abort();
      return killing;
    };
  }

  /** How many were declined. */
  #checkAnswers(): number {
    let declined = 0;
    for (const { answers, destination, isAbandoned } of this.#wishes) {
      assert.ok(answers.length === 3 || (isAbandoned && answers.length >= 1));
      assert.equal(new Set(answers).size, 1, `every answer to a key is the same: ${answers.join(" | ")}`);
      const isDeclined = answers[0]?.startsWith("402 ") === true;
      assert.equal(isDeclined, destination === "acct_closed", answers[0]);
      if (isDeclined) declined += 1;
    }
    return declined;
  }

  async #checkBooks(declined: number): Promise<void> {
    const audit = await this.#ledger.audit();
    const paid = this.#wishes.length - declined;
    assert.deepEqual(audit.faults, []);
    assert.equal(audit.payouts, this.#wishes.length, "one payout for each operation");
    assert.equal(audit.declined, declined);
    assert.deepEqual([...audit.paymentsPerOperation], [[1, paid]]);
    const balances = Object.fromEntries(audit.balances.map(({ account, minor }) => [account, Number(minor)]));
    const all = this.#wishes.length * AMOUNT_MINOR;
    assert.deepEqual(balances, {
      "merchant:acme": all - paid * AMOUNT_MINOR,
      "destination:acct_open": paid * AMOUNT_MINOR,
      "destination:acct_closed": 0,
      "outside:funding": -all,
    });
    assert.ok(
      this.#options.points.every((point) => this.#killedAt[point] > 0),
      `the storm was calm: ${JSON.stringify(this.#killedAt)}`,
    );
  }
}

/** One process, started again whenever it dies. */
class Service {
  readonly #options: PayoutStormOptions;
  readonly #killedAt: Record<PayoutPoint | "random", number>;
  readonly #dies: boolean;
  #port = 0;
  #child: ChildProcess | undefined;
  #ending = false;

  constructor(options: PayoutStormOptions, killedAt: Record<PayoutPoint | "random", number>, dies: boolean = true) {
    this.#options = options;
    this.#killedAt = killedAt;
    this.#dies = dies;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async start(): Promise<void> {
    this.#port = await freePort();
    await this.#spawn();
  }

  killAtRandom(): void {
    if (this.#child?.exitCode !== null || this.#child.signalCode !== null) return;
    this.#killedAt.random += 1;
    this.#child.kill("SIGKILL");
  }

  async end(): Promise<void> {
    this.#ending = true;
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "close");
  }

  #deathRates(): ServiceOrder["dies"] {
    const { points } = this.#options;
    const [fewest] = points.toSorted((one, other) => this.#killedAt[one] - this.#killedAt[other]);
    return Object.fromEntries(points.map((point) => [point, point === fewest ? DEATH_RATE_MAX : DEATH_RATE]));
  }

  async #spawn(): Promise<void> {
    const { storeUrl, ledgerUrl, env } = this.#options;
    const order: ServiceOrder = {
      storeUrl,
      ledgerUrl,
      port: this.#port,
      apiKeySha256: sha256Hex(API_KEY),
      dies: this.#dies ? this.#deathRates() : {},
    };
    const child = spawn(process.execPath, [...process.execArgv, program, JSON.stringify(order)], {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#child = child;
    const { promise: isUp, resolve: up } = Promise.withResolvers<void>();
    const lines = createInterface({ input: child.stdout });
    lines.on("line", (line) => {
      if (isLine(line, "up")) up();
      const point = allPoints.find((known) => isLine(line, `dies ${known}`));
      if (point !== undefined) this.#killedAt[point] += 1;
    });
    child.once("close", (code, signal) => {
      up();
      if (this.#ending) return;
      assert.equal(signal, "SIGKILL", `a service ended by itself with ${code}`);
      void this.#spawn();
    });
    await isUp;
  }
}

/** Its log is between them. */
function isLine(line: string, said: ServiceLine): boolean {
  return line === said;
}

/** The same request to one of several processes. */
function elsewhere(request: Request, urls: readonly string[]): Request {
  const { pathname } = new URL(request.url);
  return new Request(`${urls[Math.floor(Math.random() * urls.length)]}${pathname}`, request);
}

async function countUnresolved(store: ConditionalStore): Promise<number> {
  let count = 0;
  for await (const { status } of new Idempotency({ store }).list()) {
    assert.notEqual(status, "unreadable");
    count += 1;
  }
  return count;
}

/** RFC 9562 §5.7, of now. */
function uuidV7(): string {
  const time = Date.now().toString(16).padStart(12, "0");
  const variant = randomUUID().slice(19, 23);
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomBytes(2).toString("hex").slice(0, 3)}-${variant}-${randomBytes(6).toString("hex")}`;
}
