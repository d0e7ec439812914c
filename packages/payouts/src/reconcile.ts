/**
 * Brings together the operations that nothing is recorded of and what the ledger knows of them. Safe beside live traffic:
 * every write is conditional, an operation whose owner may be alive is left to it, and the ledger refuses what would come too
 * late.
 */

import {
  days,
  Idempotency,
  IdempotencyError,
  type ConditionalStore,
  type Inspection,
  type OperatorNote,
} from "@firstwrite/core";

import { FencedError, type LedgerCall, type Payout, type PayoutLedger } from "./ledger/payout-ledger.ts";
import { answerOf } from "./payout-answer.ts";

/** What was done about one operation. */
export interface Reconciliation {
  readonly operationId: string;
  readonly did:
    /** The ledger has its payout, and now its record has the answer. */
    | "settled"
    /** The ledger has none, and will not take one of an attempt that was: the next retry pays. */
    | "released"
    /** Its owner may be alive, or another process has just taken it over. */
    | "left_to_its_owner"
    /** The payout's record is gone, or the key's record is another operation's: nobody can be answered from it any more. */
    | "record_gone";
}

export interface ReconcileOptions {
  readonly store: ConditionalStore;
  readonly ledger: PayoutLedger;
  /** Payouts of this long ago and later are looked at, in milliseconds. Default: a week. */
  readonly sinceMs?: number;
  /** Kept in the record's history. */
  readonly by: string;
  readonly now?: () => number;
  readonly onReconciled: (done: Reconciliation) => void;
  /** Told of each record that cannot be read, by the object's name. */
  readonly onUnreadable: (name: string) => void;
}

/** What a look at everything came to. */
export interface ReconcileReport {
  readonly unresolved: number;
  readonly payouts: number;
  readonly unreadable: number;
}

const CALL: LedgerCall = { remainingMs: 30_000 };

export async function reconcile(options: ReconcileOptions): Promise<ReconcileReport> {
  const { store, ledger, sinceMs = days(7), now = Date.now, onReconciled, onUnreadable } = options;
  const idempotency = new Idempotency({ store });
  const task: Task = { idempotency, ledger, by: options.by };
  let unresolved = 0;
  let unreadable = 0;
  for await (const found of idempotency.list()) {
    if (found.status === "unreadable") {
      unreadable += 1;
      onUnreadable(found.name);
      continue;
    }
    unresolved += 1;
    onReconciled({ operationId: found.operationId, did: await resolve(task, found) });
  }
  // A listing may be late; and a record that was removed is in none.
  let payouts = 0;
  for await (const payout of ledger.listSince(now() - sinceMs)) {
    payouts += 1;
    const did = await meet(task, payout);
    if (did !== undefined) onReconciled({ operationId: payout.operationId, did });
  }
  return { unresolved, payouts, unreadable };
}

interface Task {
  readonly idempotency: Idempotency;
  readonly ledger: PayoutLedger;
  readonly by: string;
}

/** One operation that is `creating` or `held`. */
async function resolve({ idempotency, ledger, by }: Task, found: Inspection): Promise<Reconciliation["did"]> {
  const { operationId, attempt, scope, keyHash } = found;
  if (isAlive(found)) return "left_to_its_owner";
  let payout: Payout | undefined;
  try {
    // What is written below is the next attempt, so that this shuts out all that there have been, and nobody who takes over.
    payout = await ledger.shutOut(operationId, attempt + 1, CALL);
  } catch (error) {
    if (FencedError.is(error)) return "left_to_its_owner";
    throw error;
  }
  const place = { scope, keyHash };
  const note: OperatorNote = {
    operationId,
    // One that took over meanwhile is not shut out, and asks the ledger itself.
    attempt,
    by,
    why: payout === undefined ? "the ledger has no payout" : "the ledger has its payout",
  };
  try {
    if (payout === undefined) await idempotency.release(place, { ...note, nothingHappened: true });
    else await idempotency.settle(place, { value: answerOf(payout) }, note);
  } catch (error) {
    // Decided, or taken over, between the look and the write, which was conditional.
    if (IdempotencyError.is(error) && (error.code === "INVALID_ARGUMENT" || error.code === "IN_PROGRESS")) {
      return "left_to_its_owner";
    }
    throw error;
  }
  return payout === undefined ? "released" : "settled";
}

/** One payout of the ledger. `undefined`: its record has its answer, or will get it from the ledger at the next retry. */
async function meet(task: Task, payout: Payout): Promise<Reconciliation["did"] | undefined> {
  const record = await task.idempotency.inspect({ scope: payout.merchantId, keyHash: payout.keyHash });
  if (record === undefined || record.operationId !== payout.operationId) return "record_gone";
  if (record.status !== "creating" && record.status !== "held") return undefined;
  // The owner of a payout that was made a moment ago is about to settle it: that is no news.
  if (isAlive(record)) return undefined;
  return resolve(task, record);
}

function isAlive({ status, leaseLeftMs }: Inspection): boolean {
  return status === "creating" && leaseLeftMs !== 0;
}
