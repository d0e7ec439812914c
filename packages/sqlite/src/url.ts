import { StoreError, type ConditionalStore } from "@firstwrite/core";

import { sqlitePath } from "./open-database.ts";
import { SqliteStore } from "./sqlite-store.ts";

/**
 * Opens `sqlite:PATH`: what follows the colon is the file's path as it is, nothing decoded; `sqlite:///abs` is `/abs`.
 *
 * @throws {StoreError} as `SqliteStore.open`.
 */
export async function openUrl(url: string): Promise<ConditionalStore> {
  if (url.includes("?")) throw new StoreError("INVALID_ARGUMENT", "sqlite", "a sqlite: URL takes no options after ?");
  return SqliteStore.open({ path: sqlitePath(url) ?? "" });
}
