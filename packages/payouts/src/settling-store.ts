import { parseJsonObject, type ConditionalStore } from "@firstwrite/core";

import type { AtPoint } from "./ledger/payout-ledger.ts";

/** For tests: tells when a record is about to be settled. */
export function settlingStore(store: ConditionalStore, atPoint: AtPoint): ConditionalStore {
  return {
    traits: store.traits,
    create: (name, bytes, options) => store.create(name, bytes, options),
    read: (name, options) => store.read(name, options),
    replace(name, expected, bytes, options) {
      if (parseJsonObject(bytes)?.["status"] === "ready") atPoint("settling");
      return store.replace(name, expected, bytes, options);
    },
    ...(store.list && { list: store.list.bind(store) }),
    ...(store.remove && { remove: store.remove.bind(store) }),
    ...(store.close && { close: store.close.bind(store) }),
  };
}
