import type { ConditionalStore } from "@firstwrite/core";

/** A store with one fault, and the test that is there to find it. */
export interface BrokenStore {
  readonly name: string;
  /** The title of the test that must fail on it. Others may fail as well. */
  readonly caughtBy: string;
  /** A client of a correct `service`, with the fault in it. */
  open(service: ConditionalStore): ConditionalStore;
}

export const brokenStores: readonly BrokenStore[] = [
  {
    name: "ignores If-None-Match",
    caughtBy: "create is refused where there is a record, and changes nothing",
    open: (service) => ({
      traits: service.traits,
      read: (...call) => service.read(...call),
      replace: (...call) => service.replace(...call),
      async create(name, bytes, options) {
        const record = await service.read(name, options);
        return record === undefined
          ? service.create(name, bytes, options)
          : service.replace(name, record.version, bytes, options);
      },
    }),
  },
];
