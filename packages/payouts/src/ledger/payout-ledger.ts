/** The ledger: what was paid, to whom, by which operation. The one place that knows whether an effect happened. */

import { brandedError, type ErrorBrand, type SettlingWrite } from "@firstwrite/core";

import type { Currency } from "../money.ts";

/** What an attempt asks the ledger to do. */
export interface PayoutOrder {
  readonly operationId: string;
  /** The fencing token. */
  readonly attempt: number;
  readonly merchantId: string;
  /** Of the idempotency key; `sha256:…`, as records and events have it. */
  readonly keyHash: string;
  readonly amountMinor: number;
  readonly currency: Currency;
  readonly destination: string;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

/** Why a payout was declined. Final: the decision is kept in the ledger as a payout is. */
export type DeclineCode = "insufficient_funds" | "destination_closed" | "destination_unknown";

/** What came of an order. There is one for each operation, whichever attempt made it. */
export interface Payout extends PayoutOrder {
  readonly payoutId: string;
  /** `undefined`: it was paid. */
  readonly decline: DeclineCode | undefined;
}

/** The limits of one call, which come down from the request's own. */
export interface LedgerCall {
  /** Nothing is sent, and nothing committed, once it has aborted. */
  readonly signal?: AbortSignal | undefined;
  /** What is left of the request's time, in milliseconds. */
  readonly remainingMs: number;
}

/** A record, to be replaced where it is at `expected`. */
export interface RecordWrite extends Pick<SettlingWrite, "name" | "expected"> {
  readonly bytes: Uint8Array;
}

/** An account, and what is in it. */
export interface Balance {
  readonly account: string;
  readonly currency: string;
  readonly minor: bigint;
}

/** What a look at all of the ledger found. */
export interface LedgerAudit {
  readonly payouts: number;
  readonly declined: number;
  /** How many operations have so many payments. Anything but 1 is money lost. */
  readonly paymentsPerOperation: ReadonlyMap<number, number>;
  readonly balances: readonly Balance[];
  /** In sentences, without amounts: entries that do not sum to zero, balances that are not the sum of their entries. Empty when all is well. */
  readonly faults: readonly string[];
}

/**
 * Double entry. Every method rejects with {@link LedgerUnavailableError} when nobody knows what came of it.
 *
 * What makes `absentIsFinal` true: {@link commit} and {@link shutOut} of one operation wait for each other, and after
 * `shutOut(id, n)` no `commit` of `id` with an attempt below `n` makes a payout.
 */
export interface PayoutLedger {
  /**
   * Pays, or declines: one payout per operation and per key. An operation that has one gets that, whatever else is asked.
   *
   * @throws {FencedError} when a later attempt has been seen, and there is no payout.
   * @throws {KeySpentError} when the merchant's key has made another operation's payout.
   */
  commit(order: PayoutOrder, call: LedgerCall): Promise<Payout>;
  /**
   * {@link commit}, of a ledger that has the idempotency records in its own database: in the same transaction it does what
   * `settle` makes of the payout.
   *
   * @throws {FencedError} for a record at another version, which a later attempt has: nothing is paid.
   */
  readonly commitAndSettle?: (
    order: PayoutOrder,
    call: LedgerCall,
    settle: (payout: Payout) => RecordWrite,
  ) => Promise<Payout>;
  /** Makes the ledger refuse every attempt below `attempt`, and then looks. `undefined` is final for those. */
  shutOut(operationId: string, attempt: number, call: LedgerCall): Promise<Payout | undefined>;
  /** The payout of an operation. */
  findByOperation(operationId: string, call: LedgerCall): Promise<Payout | undefined>;
  findByPayoutId(payoutId: string, call: LedgerCall): Promise<Payout | undefined>;
  /** Payouts made at `sinceMs` or later, in the order of their time. */
  listSince(sinceMs: number): AsyncIterable<Payout>;
  /** Makes the account if it is not there, and says whether it takes payouts. */
  putDestination(destination: string, currency: Currency, state: "open" | "closed"): Promise<void>;
  /** Puts money of the outside world into a merchant's account; once per `reference`. */
  fund(merchantId: string, currency: Currency, minor: number, reference: string): Promise<void>;
  audit(): Promise<LedgerAudit>;
  close(): Promise<void>;
}

/** What a ledger tells of its own time: waiting for locks of others, and everything else. */
export type LedgerTimer = (part: "lock_wait" | "ledger", ms: number) => void;

/**
 * Called at places where a process may die, for tests that let it. It is synchronous, because inside of a SQLite
 * transaction nothing may be waited for.
 */
export type AtPoint = (point: PayoutPoint) => void;

export type PayoutPoint = "claimed" | "in_transaction" | "committed" | "settling" | "replying";

const fenced: ErrorBrand = brandedError("FencedError");
const keySpent: ErrorBrand = brandedError("KeySpentError");
const unavailable: ErrorBrand = brandedError("LedgerUnavailableError");

/** A later attempt has the operation, at the ledger or by its record: this one may do nothing any more. */
export class FencedError extends Error {
  readonly code = "FENCED" as const;
  constructor() {
    super("a later attempt has the operation: this one may not commit any more");
    fenced.mark(this);
  }

  static is(this: void, x: unknown): x is FencedError {
    return fenced.has(x);
  }
}

/**
 * The key made a payout under another operation, so its record was lost or has expired before its time. Final: nothing is
 * paid a second time.
 */
export class KeySpentError extends Error {
  readonly code = "KEY_SPENT" as const;
  /** Of the payout that there is. */
  readonly earlierOperationId: string;

  constructor(earlierOperationId: string) {
    super("the idempotency key has made a payout already, under another operation");
    this.earlierOperationId = earlierOperationId;
    keySpent.mark(this);
  }

  static is(this: void, x: unknown): x is KeySpentError {
    return keySpent.has(x);
  }
}

/** The ledger did not answer, or not in time. What was asked may have been done. */
export class LedgerUnavailableError extends Error {
  readonly code = "LEDGER_UNAVAILABLE" as const;
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    unavailable.mark(this);
  }

  static is(this: void, x: unknown): x is LedgerUnavailableError {
    return unavailable.has(x);
  }
}

/** Known before anything is committed, whoever asks. */
export function payoutIdOf(operationId: string): string {
  return `po_${operationId.replaceAll("-", "")}`;
}
