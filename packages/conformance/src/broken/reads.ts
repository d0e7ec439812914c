/** Faults of reads: what is stale, cached, or put together from two answers. */

import { setImmediate as nextTurn } from "node:timers/promises";

import { StoreError, type StoredRecord } from "@firstwrite/core";

import { bothWrites, broken, brokenTogether, forward, type BrokenStore, type Fault } from "./broken-store.ts";

export const brokenReads: readonly BrokenStore[] = [
  brokenTogether("shows the record before the last for one read", "a read after `written` sees the write", () => {
    const older = new Map<string, StoredRecord | undefined>();
    return (sound) => ({
      ...bothWrites(async (name, bytes, expected, options) => {
        const before = await sound.read(name, options);
        const outcome = await forward(sound, name, bytes, expected, options);
        if (outcome.kind === "written") older.set(name, before);
        return outcome;
      }),
      async read(name, options) {
        const before = older.get(name);
        older.delete(name);
        return before ?? sound.read(name, options);
      },
    });
  }),

  brokenTogether("creates that the next read does not find", "create stores a record where there is none", () => {
    const fresh = new Set<string>();
    return (sound) => ({
      async create(name, bytes, options) {
        const outcome = await sound.create(name, bytes, options);
        if (outcome.kind === "written") fresh.add(name);
        return outcome;
      },
      read: async (name, options) => (fresh.delete(name) ? undefined : sound.read(name, options)),
    });
  }),

  broken(
    "reads from a cache that only its own writes refresh",
    "a rewrite by one client is seen by the other, which had read the record",
    cachingReads((record) => record !== undefined),
  ),

  broken(
    "remembers that there is no record",
    "a record created by one client is seen by the other, which had found none",
    cachingReads((record) => record === undefined),
  ),

  brokenTogether(
    "reads from a cache that its clients share",
    "every read sends a request: nothing is kept from an earlier one",
    () => {
      const shared = cache();
      return (sound) => cachingWith(shared, () => true)(sound, sound);
    },
  ),

  broken(
    "lets reads of one name at one time share an answer",
    "a read after `written` sees the write even while older reads are under way",
    (sound) => {
      const flights = new Map<string, Promise<StoredRecord | undefined>>();
      return {
        async read(name, options) {
          const flight =
            flights.get(name) ??
            sound.read(name, options).then(async (record) => {
              for (let turn = 0; turn < 3; turn += 1) await nextTurn();
              flights.delete(name);
              return record;
            });
          flights.set(name, flight);
          const record = await flight;
          return record && { ...record, bytes: Uint8Array.from(record.bytes) };
        },
      };
    },
  ),

  broken(
    "asks for the body, and then for the version",
    "body and version belong together: no write skips one it did not read (P3)",
    (sound) => ({
      async read(name, options) {
        const body = await sound.read(name, options);
        await nextTurn();
        const head = body && (await sound.read(name, options));
        return head && { ...head, bytes: body.bytes };
      },
    }),
  ),

  brokenTogether(
    "shows the record before the last while another write is under way",
    "10 random histories of 4 workers are linearizable",
    () => {
      const writing = new Map<string, number>();
      const before = new Map<string, StoredRecord | undefined>();
      return (sound) => ({
        ...bothWrites(async (name, bytes, expected, options) => {
          writing.set(name, (writing.get(name) ?? 0) + 1);
          try {
            await nextTurn();
            const last = await sound.read(name);
            const outcome = await forward(sound, name, bytes, expected, options);
            if (outcome.kind === "written") before.set(name, last);
            return outcome;
          } finally {
            writing.set(name, (writing.get(name) ?? 0) - 1);
          }
        }),
        async read(name, options) {
          const stale = (writing.get(name) ?? 0) > 0 ? before.get(name) : undefined;
          await nextTurn();
          return stale ? { ...stale, bytes: Uint8Array.from(stale.bytes) } : sound.read(name, options);
        },
      });
    },
  ),

  broken(
    "rejects a read when the record was replaced meanwhile",
    "a read while others write finds one of their records, whole",
    (sound) => ({
      async read(name, options) {
        const record = await sound.read(name, options);
        await nextTurn();
        const again = await sound.read(name, options);
        if (record?.version !== again?.version)
          throw new StoreError("CORRUPT", sound.traits.name, "the record changed");
        return again;
      },
    }),
  ),

  broken(
    "reads the halves of a record one after the other",
    "a read while others write finds one of their records, whole",
    (sound) => ({
      async read(name, options) {
        const one = await sound.read(name, options);
        await nextTurn();
        const other = await sound.read(name, options);
        if (one === undefined || other === undefined) return other;
        const half = Math.floor(one.bytes.byteLength / 2);
        return { ...other, bytes: Uint8Array.from([...one.bytes.subarray(0, half), ...other.bytes.subarray(half)]) };
      },
    }),
  ),

  broken(
    "finds no record while it is being replaced",
    "a read while others write finds one of their records, whole",
    (sound) => {
      const replacing = new Set<string>();
      return {
        async replace(name, expected, bytes, options) {
          const kept = Uint8Array.from(bytes);
          replacing.add(name);
          await nextTurn();
          replacing.delete(name);
          return sound.replace(name, expected, kept, options);
        },
        async read(name, options) {
          await Promise.resolve();
          return replacing.has(name) ? undefined : sound.read(name, options);
        },
      };
    },
  ),
];

interface Cache {
  readonly records: Map<string, StoredRecord | undefined>;
}

function cache(): Cache {
  return { records: new Map() };
}

function cachingReads(keep: (record: StoredRecord | undefined) => boolean): Fault {
  return (sound) => cachingWith(cache(), keep)(sound, sound);
}

function cachingWith({ records }: Cache, keep: (record: StoredRecord | undefined) => boolean): Fault {
  return (sound) => ({
    ...bothWrites(async (name, bytes, expected, options) => {
      records.delete(name);
      const outcome = await forward(sound, name, bytes, expected, options);
      records.delete(name);
      return outcome;
    }),
    async read(name, options) {
      const known = records.has(name) ? records.get(name) : await sound.read(name, options);
      if (keep(known)) records.set(name, known);
      return known && { ...known, bytes: Uint8Array.from(known.bytes) };
    },
  });
}
