/** Faults of the optional conditional delete. */

import { StoreError } from "@firstwrite/core";

import { broken, type BrokenStore } from "./broken-store.ts";

export const brokenRemovals: readonly BrokenStore[] = [
  broken(
    "removes at any version",
    "a remove at a stale version is refused, and the record stays",
    (sound, service) => ({
      remove: async (name, expected, options) =>
        service.remove(name, (await service.read(name))?.version ?? expected, options),
    }),
  ),
  broken(
    "says removed, and does nothing",
    "a remove at the record's version removes it, and a create makes it anew",
    () => ({ remove: async () => ({ kind: "removed" }) }),
  ),
  broken(
    "rejects a remove of a missing record",
    "a remove of a missing record is answered, and leaves it missing",
    (sound) => ({
      remove: async (name, expected, options) => {
        if ((await sound.read(name)) !== undefined) return sound.remove(name, expected, options);
        throw new StoreError("UNAVAILABLE", sound.traits.name, "there is no such record");
      },
    }),
  ),
  broken("removes without regard to case", "a remove takes no other record away", (sound, service) => ({
    remove: async (name, expected, options) => {
      const outcome = await sound.remove(name, expected, options);
      if (outcome.kind !== "removed") return outcome;
      for await (const other of service.list("")) {
        const record = other.name.endsWith("/A") ? await service.read(other.name) : undefined;
        if (record !== undefined) await service.remove(other.name, record.version);
      }
      return outcome;
    },
  })),
  broken(
    "removes though its signal has aborted",
    "a remove whose signal has aborted rejects UNAVAILABLE, and the record stays",
    (sound) => ({ remove: (name, expected) => sound.remove(name, expected) }),
  ),
];
