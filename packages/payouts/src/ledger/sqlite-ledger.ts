import type { DatabaseSync, StatementSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";

import { InvalidArgumentError } from "@firstwrite/core";
import { openDatabase, type SqliteStore } from "@firstwrite/sqlite";

import type { Currency } from "../money.ts";
import * as book from "./book.ts";
import {
  FencedError,
  LedgerUnavailableError,
  type AtPoint,
  type LedgerAudit,
  type LedgerCall,
  type LedgerTimer,
  type Payout,
  type PayoutLedger,
  type PayoutOrder,
} from "./payout-ledger.ts";

export interface SqliteLedgerOptions {
  /** The database file, which is made if it is not there; or a connection of the caller's, who closes it. */
  readonly database: string | DatabaseSync;
  /** The idempotency records, on the same connection: they are then settled in the transaction that pays. */
  readonly records?: Pick<SqliteStore, "replaceWithin">;
  readonly onTime?: LedgerTimer;
  readonly atPoint?: AtPoint;
}

const BUSY = 5;
const PAUSE_MS_MAX = 5;
const PAGE = 200;
/** For what no request waits for. */
const UNHURRIED: LedgerCall = { remainingMs: 30_000 };

/** The ledger in one SQLite file: durable at each answer, for any number of processes of one machine. */
export class SqliteLedger implements PayoutLedger {
  readonly #database: DatabaseSync;
  readonly #owned: boolean;
  readonly #onTime: LedgerTimer;
  readonly #atPoint: AtPoint;
  readonly #statements = new Map<string, StatementSync>();
  readonly commitAndSettle?: NonNullable<PayoutLedger["commitAndSettle"]>;

  /** @throws {InvalidArgumentError} for a file that cannot be opened. */
  static async open(options: SqliteLedgerOptions): Promise<SqliteLedger> {
    const { database } = options;
    if (typeof database !== "string") {
      const ledger = new SqliteLedger(database, options);
      await ledger.#prepare();
      return ledger;
    }
    if (options.records !== undefined) {
      throw new InvalidArgumentError("records are settled on their own connection: give it as database");
    }
    let opened: DatabaseSync;
    try {
      opened = openDatabase(database);
    } catch (cause) {
      throw new InvalidArgumentError("the ledger's file cannot be opened: give sqlite:PATH on a local disk", { cause });
    }
    const ledger = new SqliteLedger(opened, options);
    try {
      await ledger.#prepare();
    } catch (error) {
      opened.close();
      throw error;
    }
    return ledger;
  }

  private constructor(database: DatabaseSync, options: SqliteLedgerOptions) {
    const { records, onTime = () => {}, atPoint = () => {} } = options;
    this.#database = database;
    this.#owned = database !== options.database;
    this.#onTime = onTime;
    this.#atPoint = atPoint;
    if (records === undefined) return;
    this.commitAndSettle = (order, call, settle) =>
      this.#commit(order, call, (payout) => {
        const { name, expected, bytes } = settle(payout);
        if (!records.replaceWithin(name, expected, bytes)) throw new FencedError();
      });
  }

  commit(order: PayoutOrder, call: LedgerCall): Promise<Payout> {
    return this.#commit(order, call, () => {});
  }

  /** @param within is called in the transaction. What it throws rolls all of it back, and is thrown. */
  async #commit(order: PayoutOrder, call: LedgerCall, within: (payout: Payout) => void): Promise<Payout> {
    const payout = await this.#transaction(call, "BEGIN IMMEDIATE", () => {
      const decided = this.#play(book.commitPayout(order));
      within(decided);
      this.#atPoint("in_transaction");
      return decided;
    });
    this.#atPoint("committed");
    return payout;
  }

  shutOut(operationId: string, attempt: number, call: LedgerCall): Promise<Payout | undefined> {
    return this.#write(call, () => book.shutOut(operationId, attempt));
  }

  findByOperation(operationId: string, call: LedgerCall): Promise<Payout | undefined> {
    return this.#read(call, () => book.findByOperation(operationId));
  }

  findByPayoutId(payoutId: string, call: LedgerCall): Promise<Payout | undefined> {
    return this.#read(call, () => book.findByPayoutId(payoutId));
  }

  async *listSince(sinceMs: number): AsyncGenerator<Payout, void, void> {
    for (let after = { createdAt: sinceMs - 1, payoutId: "~" }; ;) {
      const position = after;
      const page: Payout[] = await this.#read(UNHURRIED, () => book.pageOfPayouts(position, PAGE));
      yield* page;
      const last = page.at(-1);
      if (last === undefined) return;
      after = last;
    }
  }

  putDestination(destination: string, currency: Currency, state: "open" | "closed"): Promise<void> {
    return this.#write(UNHURRIED, () => book.putDestination(destination, currency, state));
  }

  fund(merchantId: string, currency: Currency, minor: number, reference: string): Promise<void> {
    return this.#write(UNHURRIED, () => book.fund(merchantId, currency, minor, reference));
  }

  audit(): Promise<LedgerAudit> {
    return this.#transaction(UNHURRIED, "BEGIN", () => this.#play(book.audit()));
  }

  async close(): Promise<void> {
    if (this.#owned && this.#database.isOpen) this.#database.close();
  }

  /** WAL, so that readers and the one writer do not wait for each other; FULL, so that what is answered is on the disk. */
  async #prepare(): Promise<void> {
    await this.#patiently(UNHURRIED, () => {
      this.#database.exec("PRAGMA journal_mode = WAL");
      this.#database.exec("PRAGMA synchronous = FULL");
      this.#database.exec("PRAGMA foreign_keys = ON");
      for (const sql of book.schema) this.#database.exec(sql);
    });
  }

  #write<Result>(call: LedgerCall, makeSteps: () => book.Steps<Result>): Promise<Result> {
    return this.#transaction(call, "BEGIN IMMEDIATE", () => this.#play(makeSteps()));
  }

  async #read<Result>(call: LedgerCall, makeSteps: () => book.Steps<Result>): Promise<Result> {
    const startedAtMs = performance.now();
    try {
      return await this.#patiently(call, () => this.#play(makeSteps()));
    } finally {
      this.#onTime("ledger", performance.now() - startedAtMs);
    }
  }

  /**
   * From BEGIN to COMMIT without letting go of the event loop once: this connection has one transaction, and whoever else
   * uses it meanwhile would be inside of it.
   */
  async #transaction<Result>(call: LedgerCall, begin: string, work: () => Result): Promise<Result> {
    const startedAtMs = performance.now();
    let lockedAtMs: number | undefined;
    try {
      return await this.#patiently(call, () => {
        this.#database.exec(begin);
        lockedAtMs = performance.now();
        try {
          const result = work();
          this.#database.exec("COMMIT");
          return result;
        } catch (error) {
          if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
          throw error;
        }
      });
    } finally {
      const endedAtMs = performance.now();
      this.#onTime("lock_wait", (lockedAtMs ?? endedAtMs) - startedAtMs);
      this.#onTime("ledger", endedAtMs - (lockedAtMs ?? endedAtMs));
    }
  }

  /** Tries again while another process has the lock, or the connection's owner a transaction open, and there is time. */
  async #patiently<Result>({ remainingMs, signal }: LedgerCall, work: () => Result): Promise<Result> {
    for (const startedAtMs = performance.now(); ;) {
      signal?.throwIfAborted();
      let cause: unknown;
      try {
        if (!this.#database.isTransaction) return work();
      } catch (error) {
        if (!isBusy(error)) throw asLedgerError(error);
        cause = error;
      }
      if (performance.now() - startedAtMs > remainingMs) {
        throw new LedgerUnavailableError("the ledger's file was locked for all of the time there was", { cause });
      }
      // At random, so that waiters do not keep step.
      await sleep(Math.random() * PAUSE_MS_MAX);
    }
  }

  #play<Result>(steps: book.Steps<Result>): Result {
    let step = steps.next();
    while (step.done !== true) step = steps.next(this.#execute(step.value));
    return step.value;
  }

  #execute({ sql, values = [] }: book.Statement): book.Row[] {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql.replaceAll(/\$(\d+)/g, "?$1"));
      // Whatever the caller's connection has.
      statement.setReadBigInts(false);
      statement.setReturnArrays(false);
      this.#statements.set(sql, statement);
    }
    return statement.all(...values);
  }
}

function isBusy(error: unknown): boolean {
  return isSqliteError(error) && "errcode" in error && Number(error.errcode) % 256 === BUSY;
}

function isSqliteError(error: unknown): error is Error {
  return error instanceof Error && "code" in error && error.code === "ERR_SQLITE_ERROR";
}

/** A failed sync leaves it open whether a transaction is there after the next recovery. */
function asLedgerError(error: unknown): unknown {
  if (isSqliteError(error)) return new LedgerUnavailableError("the ledger's file could not be used", { cause: error });
  if (error instanceof Error && "code" in error && error.code === "ERR_INVALID_STATE") {
    return new LedgerUnavailableError("the ledger was closed", { cause: error });
  }
  return error;
}
