import type { DatabaseSync } from "node:sqlite";

import { InvalidArgumentError } from "@firstwrite/core";
import { openDatabase, SqliteStore } from "@firstwrite/sqlite";

import { SqliteLedger } from "./ledger/sqlite-ledger.ts";
import type { AtPoint, LedgerTimer } from "./ledger/payout-ledger.ts";

/**
 * Keys and ledger in one SQLite file, on one connection: one thing to keep, to copy and to restore. A payout and the record
 * that says so are one transaction.
 */
export interface OneDatabase {
  readonly store: SqliteStore;
  /** On the same connection. Closing it leaves that open. */
  readonly openLedger: (told?: { readonly onTime?: LedgerTimer; readonly atPoint?: AtPoint }) => Promise<SqliteLedger>;
  /** Closes the connection, of store and ledger. */
  readonly close: () => void;
}

/** @throws {InvalidArgumentError} for a file that cannot be opened; {@link StoreError} for one that is no database. */
export async function openOneDatabase(path: string): Promise<OneDatabase> {
  let database: DatabaseSync;
  try {
    database = openDatabase(path);
  } catch (cause) {
    throw new InvalidArgumentError("the file of keys and ledger cannot be opened: give a path on a local disk", {
      cause,
    });
  }
  try {
    const store = await SqliteStore.open({ database });
    return {
      store,
      openLedger: (told) => SqliteLedger.open({ database, records: store, ...told }),
      close: () => database.close(),
    };
  } catch (error) {
    database.close();
    throw error;
  }
}
