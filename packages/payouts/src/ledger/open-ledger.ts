import { InvalidArgumentError } from "@firstwrite/core";
import { sqlitePath } from "@firstwrite/sqlite";

import type { AtPoint, LedgerTimer, PayoutLedger } from "./payout-ledger.ts";
import { SqliteLedger } from "./sqlite-ledger.ts";

/**
 * Opens `sqlite:PATH` or `postgres://user:password@host:port/database`, whose driver is loaded only when it is named.
 *
 * @throws {InvalidArgumentError} for a URL that is neither. Never with the URL, which may have a password in it.
 */
export async function openLedger(
  url: string,
  { onTime = () => {}, atPoint = () => {} }: { readonly onTime?: LedgerTimer; readonly atPoint?: AtPoint } = {},
): Promise<PayoutLedger> {
  const path = sqlitePath(url);
  if (path !== undefined) return SqliteLedger.open({ database: path, onTime, atPoint });
  if (/^postgres(ql)?:/.test(url)) {
    const { PostgresLedger } = await import("./postgres-ledger.ts");
    return PostgresLedger.open({ url, onTime, atPoint });
  }
  throw new InvalidArgumentError("the ledger's URL must be sqlite:PATH or postgres://user:password@host:port/database");
}
