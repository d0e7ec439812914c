import { StoreError, type ConditionalStore } from "@firstwrite/core";

import { SqliteStore } from "./sqlite-store.ts";

/**
 * Opens `sqlite:PATH`: what follows the colon is the file's path as it is, nothing decoded; `sqlite:///abs` is `/abs`.
 *
 * @throws {StoreError} as `SqliteStore.open`.
 */
export async function openUrl(url: string): Promise<ConditionalStore> {
  const path = url.slice("sqlite:".length).replace(/^\/\//, "");
  if (path.includes("?")) throw new StoreError("INVALID_ARGUMENT", "sqlite", "a sqlite: URL takes no options after ?");
  return SqliteStore.open({ path });
}
