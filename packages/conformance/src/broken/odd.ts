/** Stores that look wrong and are not: what the port allows, the suite must let pass. */

import { createHash } from "node:crypto";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";

import { StoreError, toVersion, type CallOptions, type ConditionalStore, type Version } from "@firstwrite/core";

import { bothWrites, forward, soundClient, unavailable, type FullStore } from "./broken-store.ts";

export interface OddStore {
  /** What it does, and why that is allowed. */
  readonly name: string;
  readonly clientsOf: (service: FullStore) => () => ConditionalStore;
}

export const oddStores: readonly OddStore[] = [
  odd("pairs a newer body with an older version: its replace is refused, which is safe (P3)", (sound) => ({
    async read(name, options) {
      const head = await sound.read(name, options);
      await nextTurn();
      const body = head && (await sound.read(name, options));
      return body && { ...body, version: head.version };
    },
  })),

  oddTogether("has hashes of the content for versions: no two writes carry equal bytes (P8)", () => {
    const inner = new Map<Version, Version>();
    const hashed = (bytes: Uint8Array, version: Version): Version => {
      const hash = toVersion(`"${createHash("sha256").update(bytes).digest("hex")}"`);
      inner.set(hash, version);
      return hash;
    };
    return (sound) => ({
      ...bothWrites(async (name, bytes, expected, options) => {
        const kept = Uint8Array.from(bytes);
        const at = expected && (inner.get(expected) ?? toVersion("none"));
        const outcome = await forward(sound, name, kept, at, options);
        return outcome.kind === "written" ? { ...outcome, version: hashed(kept, outcome.version) } : outcome;
      }),
      async read(name, options) {
        const record = await sound.read(name, options);
        return record && { ...record, version: hashed(record.bytes, record.version) };
      },
      remove: (name, expected, options) => sound.remove(name, inner.get(expected) ?? toVersion("none"), options),
    });
  }),

  odd("spells a version in one way after a write, and in another after a read: it is opaque", (sound) => ({
    async create(name, bytes, options) {
      const outcome = await sound.create(name, bytes, options);
      return outcome.kind === "written" ? { ...outcome, version: toVersion(`"${outcome.version}"`) } : outcome;
    },
    async replace(name, expected, bytes, options) {
      const outcome = await sound.replace(name, toVersion(expected.replaceAll('"', "") || "none"), bytes, options);
      return outcome.kind === "written" ? { ...outcome, version: toVersion(`"${outcome.version}"`) } : outcome;
    },
    remove: (name, expected, options) => sound.remove(name, toVersion(expected.replaceAll('"', "") || "none"), options),
  })),

  odd("knows the form of its versions, and rejects every other as INVALID_ARGUMENT", (sound) => ({
    async replace(name, expected, bytes, options) {
      if (!/^m\d+$/.test(expected)) {
        throw new StoreError("INVALID_ARGUMENT", sound.traits.name, "this is no version of this store");
      }
      return sound.replace(name, expected, bytes, options);
    },
  })),

  odd("cuts times to seconds, with a clock that is behind, and says so in its granularity", (sound) => {
    return {
      traits: { ...sound.traits, clockGranularityMs: 1_500 },
      ...bothWrites(async (name, bytes, expected, options) => {
        const outcome = await forward(sound, name, bytes, expected, options);
        return outcome.kind === "written" ? { ...outcome, at: cut(outcome.at - 500) } : outcome;
      }),
      async read(name, options) {
        const record = await sound.read(name, options);
        return record && { ...record, modifiedAt: cut(record.modifiedAt), readAt: cut(record.readAt - 500) };
      },
    };
  }),

  odd("takes its time, and not the same for each call", (sound) => {
    let calls = 0;
    const wait = (): Promise<void> => sleep((calls = (calls * 7 + 1) % 4));
    return {
      ...bothWrites(async (name, bytes, expected, options) => {
        const kept = Uint8Array.from(bytes);
        await wait();
        if (isAborted(options)) throw unavailable(sound.traits);
        const outcome = await forward(sound, name, kept, expected, options);
        await wait();
        return isAborted(options) ? { kind: "unknown", cause: options?.signal?.reason } : outcome;
      }),
      async read(name, options) {
        await wait();
        const record = await sound.read(name, options);
        await wait();
        if (isAborted(options)) throw unavailable(sound.traits);
        return record;
      },
    };
  }),

  odd("lists late: a listing is for operators, and never decides", (sound) => ({
    async *list(prefix, options) {
      for await (const object of sound.list(prefix, options)) if (Date.now() - object.modifiedAt > 40) yield object;
    },
  })),

  {
    name: "takes short names and short records, lists nothing and has nothing to close",
    clientsOf: (service) => () => {
      const sound = soundClient(service, { nameBytesMax: 100, recordBytesMax: 2_000 });
      return {
        traits: sound.traits,
        create: (...call) => sound.create(...call),
        replace: (...call) => sound.replace(...call),
        read: (...call) => sound.read(...call),
      };
    },
  },
];

/**
 * On a bad network: of the writes now and then one is contended, loses its request or loses its reply, and of the reads
 * one fails. For a harness without `requests` and `faults`, which count on a network that fails only when asked to.
 */
export const lossyStore: OddStore = {
  name: "has a bad network, and says what that makes of an answer",
  clientsOf: (service) => () => {
    let writes = 0;
    let reads = 0;
    const network: FullStore = {
      traits: service.traits,
      ...bothWrites(async (name, bytes, expected, options) => {
        writes += 1;
        if (writes % 13 === 0) return { kind: "contended" };
        if (writes % 19 === 0) return { kind: "unknown", cause: new Error("the request was lost") };
        const outcome = await forward(service, name, bytes, expected, options);
        return writes % 17 === 0 ? { kind: "unknown", cause: new Error("the reply was lost") } : outcome;
      }),
      async read(name, options) {
        reads += 1;
        if (reads % 23 === 0) throw unavailable(service.traits);
        return service.read(name, options);
      },
      remove: (name, expected, options) => service.remove(name, expected, options),
      list: (prefix, options) => service.list(prefix, options),
      close: () => service.close(),
    };
    return soundClient(network);
  },
};

function isAborted(options: CallOptions | undefined): boolean {
  return options?.signal?.aborted === true;
}

function cut(ms: number): number {
  return Math.floor(ms / 1_000) * 1_000;
}

type Change = (sound: FullStore) => Partial<FullStore>;

function odd(name: string, change: Change): OddStore {
  return oddTogether(name, () => change);
}

/** As {@link odd}, with clients that share what `together` keeps. */
function oddTogether(name: string, together: () => Change): OddStore {
  return {
    name,
    clientsOf: (service) => {
      const change = together();
      return () => {
        const sound = soundClient(service);
        return { ...sound, ...change(sound) };
      };
    },
  };
}
