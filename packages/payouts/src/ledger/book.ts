/**
 * The rules of the ledger, as statements of the SQL that SQLite and PostgreSQL share. Each rule is a generator: it yields a
 * statement and is given its rows, so that one text serves a database that answers at once and one that answers later.
 */

import { isCurrency } from "../money.ts";
import {
  FencedError,
  KeySpentError,
  payoutIdOf,
  type Balance,
  type DeclineCode,
  type LedgerAudit,
  type Payout,
  type PayoutOrder,
} from "./payout-ledger.ts";

export interface Statement {
  /** With `$1`, `$2`, … for the values. */
  readonly sql: string;
  readonly values?: readonly (string | number | null)[];
  /** Its rows are locked until the transaction ends. SQLite has locked all of them by then. */
  readonly locks?: boolean;
}

export type Row = Readonly<Record<string, unknown>>;
export type Steps<Result> = Generator<Statement, Result, readonly Row[]>;

/** `INTEGER` is 64 bits in SQLite, and `BIGINT` is in both. */
export const schema: readonly string[] = [
  `CREATE TABLE IF NOT EXISTS payout_accounts (
     account TEXT NOT NULL,
     currency TEXT NOT NULL,
     closed INTEGER NOT NULL DEFAULT 0,
     balance_minor BIGINT NOT NULL DEFAULT 0,
     PRIMARY KEY (account, currency),
     CHECK (account NOT LIKE 'merchant:%' OR balance_minor >= 0)
   )`,
  `CREATE TABLE IF NOT EXISTS payout_fences (
     operation_id TEXT PRIMARY KEY,
     attempt INTEGER NOT NULL
   )`,
  `CREATE TABLE IF NOT EXISTS payouts (
     payout_id TEXT PRIMARY KEY,
     operation_id TEXT NOT NULL UNIQUE,
     merchant_id TEXT NOT NULL,
     key_hash TEXT NOT NULL,
     attempt INTEGER NOT NULL,
     decline TEXT,
     amount_minor BIGINT NOT NULL CHECK (amount_minor > 0),
     currency TEXT NOT NULL,
     destination TEXT NOT NULL,
     created_at BIGINT NOT NULL,
     UNIQUE (merchant_id, key_hash)
   )`,
  `CREATE INDEX IF NOT EXISTS payouts_by_time ON payouts (created_at, payout_id)`,
  `CREATE TABLE IF NOT EXISTS payout_transactions (
     transaction_id TEXT PRIMARY KEY,
     payout_id TEXT REFERENCES payouts (payout_id)
   )`,
  `CREATE TABLE IF NOT EXISTS payout_entries (
     transaction_id TEXT NOT NULL REFERENCES payout_transactions (transaction_id),
     account TEXT NOT NULL,
     currency TEXT NOT NULL,
     amount_minor BIGINT NOT NULL CHECK (amount_minor <> 0),
     PRIMARY KEY (transaction_id, account, currency),
     FOREIGN KEY (account, currency) REFERENCES payout_accounts (account, currency)
   )`,
];

/** {@link PayoutLedger.commit}, within one transaction. */
export function* commitPayout(order: PayoutOrder): Steps<Payout> {
  const admitted = yield* admit(order.operationId, order.attempt);
  // After the fence's row is locked: whoever had it has committed, or never will.
  const known = yield* findByOperation(order.operationId);
  if (known !== undefined) return known;
  if (!admitted) throw new FencedError();
  const [spent] = yield {
    sql: "SELECT operation_id FROM payouts WHERE merchant_id = $1 AND key_hash = $2",
    values: [order.merchantId, order.keyHash],
  };
  if (spent !== undefined) throw new KeySpentError(String(spent["operation_id"]));
  const payout: Payout = { ...order, payoutId: payoutIdOf(order.operationId), decline: yield* declineOf(order) };
  yield {
    sql: `INSERT INTO payouts (payout_id, operation_id, merchant_id, key_hash, attempt, decline, amount_minor, currency,
            destination, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
    values: [
      payout.payoutId,
      order.operationId,
      order.merchantId,
      order.keyHash,
      order.attempt,
      payout.decline ?? null,
      order.amountMinor,
      order.currency,
      order.destination,
      order.createdAt,
    ],
  };
  if (payout.decline === undefined) {
    yield* post(payout.payoutId, payout.payoutId, order.currency, [
      [merchantAccount(order.merchantId), -order.amountMinor],
      [destinationAccount(order.destination), order.amountMinor],
    ]);
  }
  return payout;
}

/** {@link PayoutLedger.shutOut}, within one transaction. */
export function* shutOut(operationId: string, attempt: number): Steps<Payout | undefined> {
  const admitted = yield* admit(operationId, attempt);
  const payout = yield* findByOperation(operationId);
  if (payout === undefined && !admitted) throw new FencedError();
  return payout;
}

/**
 * Notes the attempt, and locks the operation for as long as the transaction lasts: another one of the same operation waits
 * here. False: the ledger has seen a later attempt.
 */
function* admit(operationId: string, attempt: number): Steps<boolean> {
  const rows = yield {
    sql: `INSERT INTO payout_fences (operation_id, attempt) VALUES ($1, $2)
          ON CONFLICT (operation_id) DO UPDATE SET attempt = excluded.attempt
          WHERE payout_fences.attempt <= excluded.attempt
          RETURNING attempt`,
    values: [operationId, attempt],
    locks: true,
  };
  return rows.length === 1;
}

/** Locks both accounts in the order of their names, so that no two payouts wait for each other. */
function* declineOf(order: PayoutOrder): Steps<DeclineCode | undefined> {
  const merchant = merchantAccount(order.merchantId);
  const destination = destinationAccount(order.destination);
  const rows = yield {
    sql: "SELECT account, closed, balance_minor FROM payout_accounts WHERE currency = $1 AND account IN ($2, $3) ORDER BY account",
    values: [order.currency, merchant, destination],
    locks: true,
  };
  const to = rows.find((row) => row["account"] === destination);
  if (to === undefined) return "destination_unknown";
  if (Number(to["closed"]) !== 0) return "destination_closed";
  const from = rows.find((row) => row["account"] === merchant);
  if (toBigInt(from?.["balance_minor"] ?? 0) < BigInt(order.amountMinor)) return "insufficient_funds";
  return undefined;
}

export function* findByOperation(operationId: string): Steps<Payout | undefined> {
  const [row] = yield { sql: `${SELECT_PAYOUT} WHERE operation_id = $1`, values: [operationId] };
  return row && payoutOf(row);
}

export function* findByPayoutId(payoutId: string): Steps<Payout | undefined> {
  const [row] = yield { sql: `${SELECT_PAYOUT} WHERE payout_id = $1`, values: [payoutId] };
  return row && payoutOf(row);
}

/** Those after `after`, at most `limit`. */
export function* pageOfPayouts(
  after: { readonly createdAt: number; readonly payoutId: string },
  limit: number,
): Steps<Payout[]> {
  const rows = yield {
    sql: `${SELECT_PAYOUT} WHERE created_at > $1 OR (created_at = $2 AND payout_id > $3)
          ORDER BY created_at, payout_id LIMIT $4`,
    values: [after.createdAt, after.createdAt, after.payoutId, limit],
  };
  return rows.map(payoutOf);
}

export function* putDestination(destination: string, currency: string, state: "open" | "closed"): Steps<void> {
  yield {
    sql: `INSERT INTO payout_accounts (account, currency, closed) VALUES ($1, $2, $3)
          ON CONFLICT (account, currency) DO UPDATE SET closed = excluded.closed`,
    values: [destinationAccount(destination), currency, state === "closed" ? 1 : 0],
  };
}

export function* fund(merchantId: string, currency: string, minor: number, reference: string): Steps<void> {
  const transactionId = `fund:${merchantId}:${reference}`;
  for (const account of [merchantAccount(merchantId), OUTSIDE]) {
    yield {
      sql: "INSERT INTO payout_accounts (account, currency) VALUES ($1, $2) ON CONFLICT (account, currency) DO NOTHING",
      values: [account, currency],
    };
  }
  const known = yield {
    sql: "SELECT transaction_id FROM payout_transactions WHERE transaction_id = $1",
    values: [transactionId],
  };
  if (known.length > 0) return;
  yield* post(transactionId, null, currency, [
    [merchantAccount(merchantId), minor],
    [OUTSIDE, -minor],
  ]);
}

/** The only way that money moves. */
function* post(
  transactionId: string,
  payoutId: string | null,
  currency: string,
  entries: readonly (readonly [account: string, minor: number])[],
): Steps<void> {
  if (entries.reduce((sum, [, minor]) => sum + minor, 0) !== 0) throw new Error("entries must sum to zero");
  yield {
    sql: "INSERT INTO payout_transactions (transaction_id, payout_id) VALUES ($1, $2)",
    values: [transactionId, payoutId],
  };
  for (const [account, minor] of entries) {
    yield {
      sql: "INSERT INTO payout_entries (transaction_id, account, currency, amount_minor) VALUES ($1, $2, $3, $4)",
      values: [transactionId, account, currency, minor],
    };
    yield {
      sql: "UPDATE payout_accounts SET balance_minor = balance_minor + $1 WHERE account = $2 AND currency = $3",
      values: [minor, account, currency],
    };
  }
}

/** In one transaction that sees one state. */
export function* audit(): Steps<LedgerAudit> {
  const [counts] = yield { sql: "SELECT count(*) AS payouts, count(decline) AS declined FROM payouts" };
  const perOperation = yield {
    sql: `SELECT payments, count(*) AS operations FROM (
            SELECT count(t.transaction_id) AS payments FROM payouts p
            LEFT JOIN payout_transactions t ON t.payout_id = p.payout_id
            WHERE p.decline IS NULL GROUP BY p.operation_id) AS counted
          GROUP BY payments ORDER BY payments`,
  };
  const uneven = yield {
    sql: `SELECT transaction_id FROM payout_entries GROUP BY transaction_id, currency
          HAVING sum(amount_minor) <> 0 ORDER BY transaction_id`,
  };
  const wrong = yield {
    sql: `SELECT a.account FROM payout_accounts a
          LEFT JOIN payout_entries e ON e.account = a.account AND e.currency = a.currency
          GROUP BY a.account, a.currency, a.balance_minor
          HAVING a.balance_minor <> coalesce(sum(e.amount_minor), 0)`,
  };
  const paidForNothing = yield {
    sql: `SELECT p.operation_id FROM payouts p JOIN payout_transactions t ON t.payout_id = p.payout_id
          WHERE p.decline IS NOT NULL`,
  };
  const mispaid = yield {
    sql: `SELECT p.operation_id FROM payouts p JOIN payout_entries e ON e.transaction_id = p.payout_id
          WHERE e.account = 'destination:' || p.destination
            AND (e.amount_minor <> p.amount_minor OR e.currency <> p.currency)`,
  };
  const balances = yield {
    sql: "SELECT account, currency, balance_minor FROM payout_accounts ORDER BY account, currency",
  };
  const paymentsPerOperation = new Map(perOperation.map((row) => [Number(row["payments"]), Number(row["operations"])]));
  return {
    payouts: Number(counts?.["payouts"] ?? 0),
    declined: Number(counts?.["declined"] ?? 0),
    paymentsPerOperation,
    balances: balances.map((row): Balance => ({
      account: String(row["account"]),
      currency: String(row["currency"]),
      minor: toBigInt(row["balance_minor"]),
    })),
    faults: [
      ...uneven.map((row) => `the entries of transaction ${String(row["transaction_id"])} do not sum to zero`),
      ...(wrong.length > 0 ? [`${wrong.length} accounts have a balance that is not the sum of their entries`] : []),
      ...paidForNothing.map((row) => `operation ${String(row["operation_id"])} was declined, and paid`),
      ...mispaid.map((row) => `operation ${String(row["operation_id"])} paid something else than it says`),
      ...[...paymentsPerOperation]
        .filter(([payments]) => payments !== 1)
        .map(([payments, operations]) => `${operations} operations have ${payments} payments`),
    ],
  };
}

const OUTSIDE = "outside:funding";

function merchantAccount(merchantId: string): string {
  return `merchant:${merchantId}`;
}

function destinationAccount(destination: string): string {
  return `destination:${destination}`;
}

const SELECT_PAYOUT = `SELECT payout_id, operation_id, merchant_id, key_hash, attempt, decline, amount_minor, currency,
  destination, created_at FROM payouts`;

function payoutOf(row: Row): Payout {
  const text = (name: string): string => String(row[name]);
  const currency = text("currency");
  if (!isCurrency(currency)) throw new Error("the ledger has a payout in a currency that this version does not know");
  return {
    payoutId: text("payout_id"),
    operationId: text("operation_id"),
    merchantId: text("merchant_id"),
    keyHash: text("key_hash"),
    attempt: Number(row["attempt"]),
    decline: declineCode(row["decline"]),
    amountMinor: Number(row["amount_minor"]),
    currency,
    destination: text("destination"),
    createdAt: Number(row["created_at"]),
  };
}

function declineCode(value: unknown): DeclineCode | undefined {
  switch (value) {
    case null:
      return undefined;
    case "insufficient_funds":
    case "destination_closed":
    case "destination_unknown":
      return value;
    default:
      throw new Error("the ledger has a decline that this version does not know");
  }
}

/** PostgreSQL's driver gives 64 bits as text. */
function toBigInt(value: unknown): bigint {
  if (typeof value === "bigint" || typeof value === "number" || typeof value === "string") return BigInt(value);
  throw new Error("the ledger has a balance that is no number");
}
