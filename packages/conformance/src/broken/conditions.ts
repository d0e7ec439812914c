/** Faults of the condition: what is checked, when, and against what. */

import { setImmediate as nextTurn } from "node:timers/promises";

import { toVersion, type Version, type WriteOutcome } from "@firstwrite/core";

import {
  bothWrites,
  broken,
  brokenTogether,
  forward,
  overwrite,
  refused,
  type BrokenStore,
  type Fault,
} from "./broken-store.ts";

export const brokenConditions: readonly BrokenStore[] = [
  broken("ignores If-None-Match", "create is refused where there is a record, and changes nothing", (sound) => ({
    create: (name, bytes, options) => overwrite(sound, name, bytes, options),
  })),

  broken("creates over an empty record", "create is refused where the record is empty", (sound) => ({
    async create(name, bytes, options) {
      const record = await sound.read(name, options);
      return record?.bytes.byteLength === 0
        ? sound.replace(name, record.version, bytes, options)
        : sound.create(name, bytes, options);
    },
  })),

  broken(
    "looks before it creates, and then creates without a condition",
    "one of 32 creators of a name wins at one client, 20 times",
    (sound) => ({
      async create(name, bytes, options) {
        if ((await sound.read(name, options)) !== undefined) return refused;
        await nextTurn();
        return overwrite(sound, name, bytes, options);
      },
    }),
  ),

  broken(
    "compares the version, and then replaces without a condition",
    "one of 32 replacers from one version wins, 20 times",
    (sound) => ({
      async replace(name, expected, bytes, options) {
        if ((await sound.read(name, options))?.version !== expected) return refused;
        await nextTurn();
        return overwrite(sound, name, bytes, options);
      },
    }),
  ),

  broken(
    "guards look-then-create by a lock, in its own process alone",
    "one of 32 creators of a name wins, 20 times",
    (sound) => {
      let last: Promise<unknown> = Promise.resolve();
      const lookThenCreate: typeof sound.create = async (name, bytes, options) => {
        if ((await sound.read(name, options)) !== undefined) return refused;
        await nextTurn();
        return overwrite(sound, name, bytes, options);
      };
      return {
        create(name, bytes, options) {
          const mine = last.then(() => lookThenCreate(name, bytes, options));
          last = mine.catch(() => undefined);
          return mine;
        },
      };
    },
  ),

  broken("replaces at a stale version", "replace at a stale version is refused, and changes nothing", (sound) => ({
    async replace(name, expected, bytes, options) {
      const record = await sound.read(name, options);
      return record === undefined ? refused : sound.replace(name, record.version, bytes, options);
    },
  })),

  broken(
    "remembers only the last eight versions as stale",
    "every earlier version is refused, however many writes ago",
    (sound) => {
      const recent = new Map<string, Version[]>();
      return {
        async replace(name, expected, bytes, options) {
          const stale = recent.get(name) ?? [];
          const outcome = await sound.replace(name, expected, bytes, options);
          if (outcome.kind === "written") recent.set(name, [...stale, expected].slice(-8));
          if (outcome.kind !== "refused" || stale.length < 8 || stale.includes(expected)) return outcome;
          return overwrite(sound, name, bytes, options);
        },
      };
    },
  ),

  broken("creates where it should replace", "replace of a missing record is refused, and writes nothing", (sound) => ({
    async replace(name, expected, bytes, options) {
      const record = await sound.read(name, options);
      return record === undefined ? sound.create(name, bytes, options) : sound.replace(name, expected, bytes, options);
    },
  })),

  broken("takes a star for any version", "a version that no store gave is never written at", (sound) => ({
    replace: (name, expected, bytes, options) =>
      expected === "*" ? overwrite(sound, name, bytes, options) : sound.replace(name, expected, bytes, options),
  })),

  broken(
    "sends no condition for a version that it cannot parse",
    "a version that no store gave is never written at",
    (sound) => ({
      replace: (name, expected, bytes, options) =>
        /^m\d+$/.test(expected)
          ? sound.replace(name, expected, bytes, options)
          : overwrite(sound, name, bytes, options),
    }),
  ),

  broken(
    "writes a version into a header with its line breaks",
    "a version that no store gave is never written at",
    (sound) => ({
      async replace(name, expected, bytes, options) {
        const injected = /\r\nIf-None-Match: /.test(expected);
        const outcome = await sound.replace(name, expected, bytes, options);
        return injected && outcome.kind === "refused" ? sound.create(name, bytes, options) : outcome;
      },
    }),
  ),

  brokenTogether(
    "gives a version again after other bytes",
    "every earlier version is refused, however many writes ago",
    () => withVersions((version) => String(Number(version.slice(1)) % 4)),
  ),

  brokenTogether(
    "takes the length of a record for its version",
    "a rewrite of the same size, at once, is seen under a version of its own",
    () => withVersions((_, record) => String(record.bytes.byteLength)),
  ),

  brokenTogether(
    "takes the day of the last write for its version",
    "a rewrite of the same size, at once, is seen under a version of its own",
    () => withVersions((_, record) => String(Math.floor(record.modifiedAt / 86_400_000))),
  ),

  brokenTogether(
    "counts versions for each name from one",
    "a version of another record is refused, however alike their histories",
    () => {
      const counts = new Map<string, Map<Version, number>>();
      return withVersions((version, _, name) => {
        const known = counts.get(name) ?? new Map<Version, number>();
        counts.set(name, known);
        const count = known.get(version) ?? known.size + 1;
        known.set(version, count);
        return String(count);
      });
    },
  ),

  broken(
    "asks for the version after the write, and gets the next writer's",
    "the version of `written` is that of the bytes written, whoever writes next",
    (sound) =>
      bothWrites(async (name, bytes, expected, options) => {
        const outcome = await forward(sound, name, bytes, expected, options);
        if (outcome.kind !== "written") return outcome;
        await nextTurn();
        const version = (await sound.read(name, options))?.version ?? outcome.version;
        return { ...outcome, version };
      }),
  ),

  broken(
    "lets creates of one name at one time share an answer",
    "one of 32 creators of a name wins at one client, 20 times",
    (sound) => {
      const flights = new Map<string, Promise<WriteOutcome>>();
      return {
        create(name, bytes, options) {
          const flight = flights.get(name) ?? sound.create(name, bytes, options).finally(() => flights.delete(name));
          flights.set(name, flight);
          return flight;
        },
      };
    },
  ),

  broken(
    "acknowledges one create in a thousand without doing it",
    "no acknowledged write is lost: 1024 records are all there",
    (sound) => {
      let creates = 0;
      return {
        create: async (name, bytes, options) => {
          creates += 1;
          return creates % 1_000 === 0
            ? { kind: "written", version: toVersion(`lost${creates}`), at: Date.now() }
            : sound.create(name, bytes, options);
        },
      };
    },
  ),
];

type Naming = (version: Version, record: { bytes: Uint8Array; modifiedAt: number }, name: string) => string;

/** A client whose versions are `nameOf` the service's, and whose conditions are as good as those. */
function withVersions(nameOf: Naming): Fault {
  return (sound) => {
    const versionAt = async (name: string): Promise<{ inner: Version; outer: Version } | undefined> => {
      const record = await sound.read(name);
      return record && { inner: record.version, outer: toVersion(nameOf(record.version, record, name)) };
    };
    return {
      create: async (name, bytes, options) => renamed(nameOf, name, bytes, await sound.create(name, bytes, options)),
      async replace(name, expected, bytes, options) {
        const kept = Uint8Array.from(bytes);
        const at = await versionAt(name);
        if (at?.outer !== expected) return refused;
        return renamed(nameOf, name, kept, await sound.replace(name, at.inner, kept, options));
      },
      async read(name, options) {
        const record = await sound.read(name, options);
        return record && { ...record, version: toVersion(nameOf(record.version, record, name)) };
      },
    };
  };
}

function renamed(nameOf: Naming, name: string, bytes: Uint8Array, outcome: WriteOutcome): WriteOutcome {
  return outcome.kind === "written"
    ? { ...outcome, version: toVersion(nameOf(outcome.version, { bytes, modifiedAt: outcome.at }, name)) }
    : outcome;
}
