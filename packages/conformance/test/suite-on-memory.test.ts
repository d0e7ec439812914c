import { storeConformance } from "@firstwrite/conformance";
import { MemoryStore } from "@firstwrite/memory";

describe("the suite on a store with nothing but the port", () => {
  storeConformance({ describe, it, before, after }, { open: async () => new MemoryStore() });
});
