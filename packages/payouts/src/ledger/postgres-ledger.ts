import { InvalidArgumentError } from "@firstwrite/core";
import { Pool, type PoolClient, type QueryConfig } from "pg";

import type { Currency } from "../money.ts";
import * as book from "./book.ts";
import {
  FencedError,
  KeySpentError,
  LedgerUnavailableError,
  type AtPoint,
  type LedgerAudit,
  type LedgerCall,
  type LedgerTimer,
  type Payout,
  type PayoutLedger,
  type PayoutOrder,
} from "./payout-ledger.ts";

export interface PostgresLedgerOptions {
  /** `postgres://user:password@host:port/database` */
  readonly url: string;
  /** How many connections there are at most. Default 10. */
  readonly connectionsMax?: number;
  readonly onTime?: LedgerTimer;
  readonly atPoint?: AtPoint;
}

const PAGE = 200;
/** For what no request waits for. */
const UNHURRIED: LedgerCall = { remainingMs: 30_000 };
/** Each process makes the tables that are not there, one at a time: two at once would refuse each other. */
const SCHEMA_LOCK = 6_113_001;
const TRANSACTION_TRIES = 5;
/** After which nothing was done, and another try may fare better: a row of the same key, and what other transactions did. */
const AGAIN: readonly unknown[] = ["23505", "40001", "40P01"];

/** The ledger in PostgreSQL, for any number of machines. Rows are locked, at `READ COMMITTED`. */
export class PostgresLedger implements PayoutLedger {
  readonly #pool: Pool;
  readonly #onTime: LedgerTimer;
  readonly #atPoint: AtPoint;

  /**
   * @throws {InvalidArgumentError} for a URL that is none.
   * @throws {LedgerUnavailableError} when the server does not answer, or refuses.
   */
  static async open(options: PostgresLedgerOptions): Promise<PostgresLedger> {
    const { url, connectionsMax = 10 } = options;
    if (!URL.canParse(url) || !/^postgres(ql)?:$/.test(new URL(url).protocol)) {
      throw new InvalidArgumentError("the ledger's URL must be postgres://user:password@host:port/database");
    }
    if (!Number.isSafeInteger(connectionsMax) || connectionsMax < 1) {
      throw new InvalidArgumentError(`connectionsMax is ${connectionsMax}: give a whole number, 1 or more`);
    }
    const ledger = new PostgresLedger(options, connectionsMax);
    try {
      await ledger.#transaction(UNHURRIED, "BEGIN", ledger.#makeTables());
    } catch (error) {
      await ledger.close();
      throw error;
    }
    return ledger;
  }

  private constructor({ url, onTime = () => {}, atPoint = () => {} }: PostgresLedgerOptions, connectionsMax: number) {
    this.#pool = new Pool({ connectionString: url, max: connectionsMax, connectionTimeoutMillis: 5_000 });
    // Of a connection that nobody uses: the next one who wants it gets another.
    this.#pool.on("error", () => {});
    this.#onTime = onTime;
    this.#atPoint = atPoint;
  }

  async commit(order: PayoutOrder, call: LedgerCall): Promise<Payout> {
    const payout = await this.#transaction(call, "BEGIN", () => book.commitPayout(order), this.#atPoint);
    this.#atPoint("committed");
    return payout;
  }

  shutOut(operationId: string, attempt: number, call: LedgerCall): Promise<Payout | undefined> {
    return this.#transaction(call, "BEGIN", () => book.shutOut(operationId, attempt));
  }

  findByOperation(operationId: string, call: LedgerCall): Promise<Payout | undefined> {
    return this.#transaction(call, READ_ONLY, () => book.findByOperation(operationId));
  }

  findByPayoutId(payoutId: string, call: LedgerCall): Promise<Payout | undefined> {
    return this.#transaction(call, READ_ONLY, () => book.findByPayoutId(payoutId));
  }

  async *listSince(sinceMs: number): AsyncGenerator<Payout, void, void> {
    for (let after = { createdAt: sinceMs - 1, payoutId: "~" }; ;) {
      const position = after;
      const page: Payout[] = await this.#transaction(UNHURRIED, READ_ONLY, () => book.pageOfPayouts(position, PAGE));
      yield* page;
      const last = page.at(-1);
      if (last === undefined) return;
      after = last;
    }
  }

  putDestination(destination: string, currency: Currency, state: "open" | "closed"): Promise<void> {
    return this.#transaction(UNHURRIED, "BEGIN", () => book.putDestination(destination, currency, state));
  }

  fund(merchantId: string, currency: Currency, minor: number, reference: string): Promise<void> {
    return this.#transaction(UNHURRIED, "BEGIN", () => book.fund(merchantId, currency, minor, reference));
  }

  audit(): Promise<LedgerAudit> {
    return this.#transaction(UNHURRIED, READ_ONLY, () => book.audit());
  }

  async close(): Promise<void> {
    if (!this.#pool.ended) await this.#pool.end();
  }

  #makeTables(): () => book.Steps<void> {
    return function* steps() {
      yield { sql: "SELECT pg_advisory_xact_lock($1)", values: [SCHEMA_LOCK] };
      for (const sql of book.schema) yield { sql };
    };
  }

  /** Again from the start where the server says that nothing was done and that it may be otherwise next time. */
  async #transaction<Result>(
    call: LedgerCall,
    begin: string,
    makeSteps: () => book.Steps<Result>,
    atPoint: AtPoint = () => {},
  ): Promise<Result> {
    const endsAtMs = performance.now() + call.remainingMs;
    for (let tries = 1; ; tries += 1) {
      const remainingMs = endsAtMs - performance.now();
      const connection = await this.#connect({ ...call, remainingMs });
      try {
        return await connection.run(begin, makeSteps(), atPoint);
      } catch (error) {
        if (isVerdict(error)) throw error;
        if (!AGAIN.includes(codeOf(error)) || tries === TRANSACTION_TRIES) throw asLedgerError(error);
      }
    }
  }

  async #connect(call: LedgerCall): Promise<Connection> {
    call.signal?.throwIfAborted();
    if (call.remainingMs <= 0) throw new LedgerUnavailableError("no time is left for the ledger");
    const startedAtMs = performance.now();
    try {
      const client = await this.#connectWithin(call.remainingMs);
      return new Connection(
        client,
        { ...call, remainingMs: call.remainingMs - (performance.now() - startedAtMs) },
        this.#onTime,
      );
    } catch (error) {
      throw asLedgerError(error);
    } finally {
      this.#onTime("lock_wait", performance.now() - startedAtMs);
    }
  }

  /** The pool's own limit is one for all callers, and longer than some of them have. */
  async #connectWithin(remainingMs: number): Promise<PoolClient> {
    const connecting = this.#pool.connect();
    const { promise: late, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(
      () => reject(new LedgerUnavailableError("no connection to the ledger's server was free in time")),
      remainingMs,
    );
    try {
      return await Promise.race([connecting, late]);
    } catch (error) {
      // Whoever is next gets it.
      connecting.then(
        (client) => client.release(),
        () => {},
      );
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The driver takes the limit with each query, which its types do not say. */
interface TimedQuery extends QueryConfig {
  readonly query_timeout: number;
}

const READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/** One transaction on one connection, within the time of one call. */
class Connection {
  readonly #client: PoolClient;
  readonly #signal: AbortSignal | undefined;
  readonly #endsAtMs: number;
  readonly #onTime: LedgerTimer;

  constructor(client: PoolClient, { signal, remainingMs }: LedgerCall, onTime: LedgerTimer) {
    this.#client = client;
    this.#signal = signal;
    this.#endsAtMs = performance.now() + remainingMs;
    this.#onTime = onTime;
  }

  async run<Result>(begin: string, steps: book.Steps<Result>, atPoint: AtPoint): Promise<Result> {
    // Without a listener the loss of a connection between two statements would end the process.
    const ignore = (): void => {};
    this.#client.on("error", ignore);
    let broken = true;
    try {
      const result = await this.#transact(begin, steps, atPoint);
      broken = false;
      return result;
    } catch (error) {
      broken = !(await this.#rollsBack());
      throw error;
    } finally {
      this.#client.off("error", ignore);
      // One that is in the middle of something is nobody's any more.
      this.#client.release(broken);
    }
  }

  async #transact<Result>(begin: string, steps: book.Steps<Result>, atPoint: AtPoint): Promise<Result> {
    await this.#query({ sql: begin });
    // The server, too, gives up in time, so that a lock is not held for a caller that is gone.
    await this.#query({ sql: `SET LOCAL statement_timeout = ${Math.ceil(this.#remainingMs())}` });
    let step = steps.next();
    while (step.done !== true) {
      const { locks = false, sql, ...rest } = step.value;
      const locking = locks && sql.startsWith("SELECT") ? `${sql} FOR UPDATE` : sql;
      step = steps.next(await this.#query({ ...rest, sql: locking, locks }));
    }
    atPoint("in_transaction");
    await this.#query({ sql: "COMMIT" });
    return step.value;
  }

  async #query({ sql, values = [], locks = false }: book.Statement): Promise<book.Row[]> {
    // Before every statement, COMMIT included.
    this.#signal?.throwIfAborted();
    const remainingMs = this.#remainingMs();
    if (remainingMs <= 0) throw new LedgerUnavailableError("no time is left for the ledger");
    const startedAtMs = performance.now();
    try {
      const query: TimedQuery = { text: sql, values: [...values], query_timeout: Math.ceil(remainingMs) };
      return (await this.#client.query<book.Row>(query)).rows;
    } finally {
      this.#onTime(locks ? "lock_wait" : "ledger", performance.now() - startedAtMs);
    }
  }

  #remainingMs(): number {
    return this.#endsAtMs - performance.now();
  }

  async #rollsBack(): Promise<boolean> {
    try {
      const rollback: TimedQuery = { text: "ROLLBACK", query_timeout: 1_000 };
      await this.#client.query(rollback);
      return true;
    } catch {
      return false;
    }
  }
}

function isVerdict(error: unknown): boolean {
  return FencedError.is(error) || KeySpentError.is(error) || LedgerUnavailableError.is(error);
}

/**
 * PostgreSQL's errors quote the row they are about, amounts and all, in members that loggers print: only the code is kept.
 */
function asLedgerError(error: unknown): unknown {
  if (LedgerUnavailableError.is(error)) return error;
  const code = codeOf(error);
  if (code === undefined && !(error instanceof Error && /timeout|terminated|Connection/i.test(error.message)))
    return error;
  const told = typeof code === "string" ? `: ${code}` : "";
  return new LedgerUnavailableError(`the ledger's server did not do what it was asked${told}`);
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
