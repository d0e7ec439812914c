import { StoreError, type Idempotency } from "@firstwrite/core";

import { LedgerUnavailableError, type PayoutLedger } from "./ledger/payout-ledger.ts";
import type { Sweep } from "./metrics.ts";

/**
 * Looks at every record and at all of the ledger, for the gauges of `/metrics`. `undefined` where the store has no listing,
 * or one of both is away: what is not known is not told.
 */
export async function sweep(
  idempotency: Idempotency,
  ledger: PayoutLedger,
  now: () => number,
): Promise<Sweep | undefined> {
  try {
    let unresolved = 0;
    let oldestUnresolvedMs = 0;
    for await (const found of idempotency.list()) {
      unresolved += 1;
      if (found.status === "unreadable") continue;
      oldestUnresolvedMs = Math.max(oldestUnresolvedMs, now() - Date.parse(found.createdAt));
    }
    const { paymentsPerOperation, faults } = await ledger.audit();
    return { unresolved, oldestUnresolvedMs, paymentsPerOperation, ledgerFaults: faults.length };
  } catch (error) {
    if (StoreError.is(error) || LedgerUnavailableError.is(error)) return undefined;
    throw error;
  }
}
