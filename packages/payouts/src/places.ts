import { resolve } from "node:path";

import { InvalidArgumentError, type ConditionalStore } from "@firstwrite/core";
import { sqlitePath } from "@firstwrite/sqlite";
import { openStore } from "@firstwrite/stores";

import { openLedger } from "./ledger/open-ledger.ts";
import type { AtPoint, LedgerTimer, PayoutLedger } from "./ledger/payout-ledger.ts";
import { openOneDatabase } from "./one-database.ts";

/** Where the idempotency records are, and the ledger. */
export interface Places {
  readonly store: ConditionalStore;
  /** Closed by its opener, before {@link close}. */
  readonly openLedger: (told?: { readonly onTime?: LedgerTimer; readonly atPoint?: AtPoint }) => Promise<PayoutLedger>;
  readonly close: () => Promise<void>;
}

/**
 * Opens what two URLs name. Where both name one SQLite file a payout and its record are one transaction.
 *
 * @throws as `openStore`, and {@link InvalidArgumentError} for a file that cannot be opened, and for keys or payouts in memory.
 */
export async function openPlaces(storeUrl: string, ledgerUrl: string): Promise<Places> {
  if (storeUrl.startsWith("memory:")) {
    throw new InvalidArgumentError(
      "memory: forgets every key when its process ends: give sqlite:PATH, s3://…, gs://… or azblob://…",
    );
  }
  if (sqlitePath(ledgerUrl) === ":memory:") {
    throw new InvalidArgumentError(
      "the ledger's URL names memory, which forgets every payout when its process ends: give sqlite:PATH or postgres://…",
    );
  }
  const file = sqliteFile(storeUrl);
  if (file !== undefined && file === sqliteFile(ledgerUrl)) {
    const { store, openLedger: open, close } = await openOneDatabase(file);
    return { store, openLedger: open, close: async () => close() };
  }
  const store = await openStore(storeUrl);
  return {
    store,
    openLedger: (told) => openLedger(ledgerUrl, told),
    close: async () => {
      await store.close?.();
    },
  };
}

function sqliteFile(url: string): string | undefined {
  const path = sqlitePath(url);
  return path === undefined ? undefined : resolve(path);
}
