import type { ConditionalStore } from "@firstwrite/core";
import { MemoryStore, type Fault, type MemoryStoreOptions } from "@firstwrite/memory";

import type { HarnessFault, StoreHarness } from "../harness.ts";
import type { FullStore } from "./broken-store.ts";

/**
 * A harness that offers everything: the clients stand before a correct `MemoryStore`, which counts what reaches it and
 * fails on demand. A store of one's own can be put before it the same way, as `clientsOf` puts the broken ones.
 */
export function memoryHarness(
  clientsOf: (service: FullStore) => () => ConditionalStore,
  options: MemoryStoreOptions & Pick<StoreHarness, "seed" | "patienceMs"> = {},
): StoreHarness {
  const memory = new MemoryStore(options);
  const service = new CountedService(memory);
  const open = clientsOf(service);
  const offers: readonly (Fault & HarnessFault)[] = [
    "lostRequest",
    "lostReply",
    "landsLate",
    "contended",
    "hangs",
    "denied",
    "away",
  ];
  return {
    open: async () => open(),
    openSecond: async () => open(),
    requests: () => service.requests,
    faults: {
      offers,
      inject: (_, fault, on) => memory.inject(fault, { on }),
      heal: () => memory.heal(),
      land: () => {
        if (memory.lateWrites > 0) memory.land();
      },
    },
    // Memory puts nothing off, and a broken store must not hold the suite up for long.
    patienceMs: options.patienceMs ?? 300,
    ...(options.seed === undefined ? {} : { seed: options.seed }),
  };
}

class CountedService implements FullStore {
  readonly #memory: MemoryStore;
  requests = 0;

  constructor(memory: MemoryStore) {
    this.#memory = memory;
  }

  get traits(): FullStore["traits"] {
    return this.#memory.traits;
  }

  create(...call: Parameters<FullStore["create"]>): ReturnType<FullStore["create"]> {
    this.requests += 1;
    return this.#memory.create(...call);
  }

  replace(...call: Parameters<FullStore["replace"]>): ReturnType<FullStore["replace"]> {
    this.requests += 1;
    return this.#memory.replace(...call);
  }

  read(...call: Parameters<FullStore["read"]>): ReturnType<FullStore["read"]> {
    this.requests += 1;
    return this.#memory.read(...call);
  }

  list(...call: Parameters<FullStore["list"]>): ReturnType<FullStore["list"]> {
    this.requests += 1;
    return this.#memory.list(...call);
  }

  remove(...call: Parameters<FullStore["remove"]>): ReturnType<FullStore["remove"]> {
    this.requests += 1;
    return this.#memory.remove(...call);
  }

  async close(): Promise<void> {
    // The service outlives its clients.
  }
}
