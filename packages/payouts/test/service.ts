/** A service in this process, on a real socket, and a client of it. */

import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";

import type { ConditionalStore } from "@firstwrite/core";
import {
  Merchants,
  openLedger,
  sha256Hex,
  signKeyTime,
  startPayoutServer,
  type PayoutServer,
  type PayoutServerOptions,
} from "@firstwrite/payouts";
import { SqliteStore } from "@firstwrite/sqlite";
import { pino } from "pino";

export const API_KEY = "sk_test_acme";
export const SIGNING_SECRET = "a signing secret of acme";
const merchants = new Merchants([
  { id: "acme", apiKeySha256: sha256Hex(API_KEY), signingSecret: SIGNING_SECRET },
  { id: "other", apiKeySha256: sha256Hex("sk_test_other") },
]);

/** One store and one ledger, and any number of services on them. */
export class Bank implements AsyncDisposable {
  readonly folder: string;
  readonly store: ConditionalStore;
  readonly ledgerUrl: string;
  readonly log: string[] = [];
  readonly #services: PayoutServer[] = [];

  /** @param store by default one in a SQLite file of its own */
  static async open(store?: ConditionalStore): Promise<Bank> {
    const folder = await mkdtemp(join(tmpdir(), "firstwrite-payouts-"));
    const bank = new Bank(folder, store ?? (await SqliteStore.open({ path: join(folder, "store.db") })));
    const ledger = await openLedger(bank.ledgerUrl);
    await ledger.fund("acme", "EUR", 1_000_00, "opening");
    await ledger.putDestination("acct_1", "EUR", "open");
    await ledger.putDestination("acct_closed", "EUR", "closed");
    await ledger.close();
    return bank;
  }

  private constructor(folder: string, store: ConditionalStore) {
    this.folder = folder;
    this.store = store;
    this.ledgerUrl = `sqlite:${join(folder, "ledger.db")}`;
  }

  async serve(options: Partial<PayoutServerOptions> = {}): Promise<PayoutServer> {
    const sink = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        this.log.push(chunk.toString());
        done();
      },
    });
    const service = await startPayoutServer({
      store: this.store,
      openLedger: (told) => openLedger(this.ledgerUrl, told),
      merchants,
      logger: pino({ base: null }, sink),
      sweepEveryMs: 0,
      ...options,
    });
    this.#services.push(service);
    return service;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const service of this.#services) await service.close();
    await this.store.close?.();
    await rm(this.folder, { recursive: true, force: true });
  }
}

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body's members, as text where they are there. */
  readonly member: (name: string) => unknown;
}

export async function send(
  url: string,
  {
    method = "GET",
    body,
    headers = {},
  }: { readonly method?: string; readonly body?: string; readonly headers?: Readonly<Record<string, string>> } = {},
): Promise<Reply> {
  const response = await fetch(url, {
    method,
    headers: {
      authorization: `Bearer ${API_KEY}`,
      ...(body !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    ...(body !== undefined && { body }),
  });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    text,
    member(name) {
      const value: Partial<Record<string, unknown>> = JSON.parse(text);
      return value[name];
    },
  };
}

export const tenEuros = { amount: "10.00", currency: "EUR", destination: "acct_1" };

export function pay(
  { url }: PayoutServer,
  key: string,
  payout: unknown = tenEuros,
  headers: Readonly<Record<string, string>> = {},
): Promise<Reply> {
  const body = typeof payout === "string" ? payout : JSON.stringify(payout);
  return send(`${url}/v1/payouts`, { method: "POST", body, headers: { "idempotency-key": `"${key}"`, ...headers } });
}

/** What says when a key was issued that does not say it itself. */
export function signed(key: string, issuedAt: number = Date.now()): Readonly<Record<string, string>> {
  return { "idempotency-key-time": signKeyTime(key, issuedAt, SIGNING_SECRET) };
}

/** A UUID of version 7, issued at `ms`. */
export function newKey(ms: number = Date.now()): string {
  const time = ms.toString(16).padStart(12, "0");
  const random = randomBytes(10).toString("hex");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(0, 3)}-8${random.slice(3, 6)}-${random.slice(6, 18)}`;
}

/** What is in an account, in minor units. */
export async function balanceOf({ ledger }: PayoutServer, account: string): Promise<bigint | undefined> {
  return (await ledger.audit()).balances.find((balance) => balance.account === account)?.minor;
}
