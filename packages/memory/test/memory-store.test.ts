import assert from "node:assert/strict";

import { StoreError } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";

describe("MemoryStore", () => {
  it("rejects a listing whose signal has aborted, also where there is nothing to list", async () => {
    const listing = new MemoryStore().list("", { signal: AbortSignal.abort() });
    await assert.rejects(listing.next(), (error) => StoreError.is(error) && error.code === "UNAVAILABLE");
  });
});
