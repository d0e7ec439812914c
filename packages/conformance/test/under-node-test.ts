import { after, before, describe, it } from "node:test";

import { storeConformance } from "@firstwrite/conformance";
import { brokenStores, memoryHarness } from "@firstwrite/conformance/broken";
import { MemoryStore } from "@firstwrite/memory";

/** Run by suite.test.ts in a process of its own; with the argument `broken`, on the first of the broken stores. */
const [broken] = process.argv.includes("broken") ? brokenStores : [];

void describe("a store", () => {
  storeConformance(
    { describe, it, before, after },
    broken === undefined ? { open: async () => new MemoryStore() } : memoryHarness(broken.clientsOf),
  );
});
