import { StoreError, type Idempotency } from "@firstwrite/core";

import { LedgerUnavailableError, type PayoutLedger } from "./ledger/payout-ledger.ts";
import type { Sweep } from "./metrics.ts";

export interface SweepOptions {
  readonly idempotency: Idempotency;
  readonly ledger: PayoutLedger;
  readonly now: () => number;
  /** Ends it in the middle. */
  readonly signal: AbortSignal;
}

/**
 * Looks at every record and at all of the ledger, for the gauges of `/metrics`. `undefined` where the store has no listing, where
 * one of both is away, and where it was ended: what is not known is not told.
 */
export async function sweep({ idempotency, ledger, now, signal }: SweepOptions): Promise<Sweep | undefined> {
  try {
    let unresolved = 0;
    let oldestUnresolvedMs = 0;
    for await (const found of idempotency.list({ signal })) {
      unresolved += 1;
      if (found.status === "unreadable") continue;
      oldestUnresolvedMs = Math.max(oldestUnresolvedMs, now() - Date.parse(found.createdAt));
    }
    const { paymentsPerOperation, faults } = await ledger.audit();
    return { unresolved, oldestUnresolvedMs, paymentsPerOperation, ledgerFaults: faults.length };
  } catch (error) {
    if (signal.aborted || StoreError.is(error) || LedgerUnavailableError.is(error)) return undefined;
    throw error;
  }
}
