import { storeConformance, type StoreHarness } from "@firstwrite/conformance";
import { MemoryStore } from "@firstwrite/memory";

const harness: StoreHarness<MemoryStore> = {
  open: async () => new MemoryStore(),
  // Memory has no second client: the store itself is the place.
  openSecond: async (first) => first,
  faults: {
    offers: ["lostRequest", "lostReply", "landsLate", "contended", "hangs", "denied", "away"],
    inject: (store, fault, on) => store.inject(fault, { on }),
    heal: (store) => store.heal(),
    land: (store) => {
      if (store.lateWrites > 0) store.land();
    },
  },
};

describe("MemoryStore", () => {
  storeConformance({ describe, it, before, after }, harness);
});
