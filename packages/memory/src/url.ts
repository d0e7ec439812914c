import { StoreError, type ConditionalStore } from "@firstwrite/core";

import { MemoryStore } from "./memory-store.ts";

/** Opens `memory:`, a new store each time. @throws {StoreError} `INVALID_ARGUMENT` for anything after the colon. */
export async function openUrl(url: string): Promise<ConditionalStore> {
  if (url !== "memory:")
    throw new StoreError("INVALID_ARGUMENT", "memory", "write memory: with nothing after the colon");
  return new MemoryStore();
}
