/** Faults of what is stored: bytes that are changed, shared or cut. */

import { setImmediate as nextTurn } from "node:timers/promises";

import { StoreError, type Version } from "@firstwrite/core";

import {
  bothWrites,
  broken,
  brokenTogether,
  forward,
  type BrokenStore,
  type Fault,
  type FullStore,
} from "./broken-store.ts";

export const brokenContents: readonly BrokenStore[] = [
  broken("decodes bytes as text", "every byte value comes back as it was", (sound) =>
    rewriting(sound, (bytes) => new TextEncoder().encode(new TextDecoder().decode(bytes))),
  ),

  broken("strips a byte order mark", "a byte order mark comes back as it was", (sound) =>
    rewriting(sound, (bytes) =>
      bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes,
    ),
  ),

  broken("makes one kind of line break of all", "a body with CR, LF and both comes back as it was", (sound) =>
    rewriting(
      sound,
      latin1((text) => text.replaceAll("\r\n", "\n")),
    ),
  ),

  broken("ends a record at its first NUL", "a body with NULs at both ends comes back as it was", (sound) =>
    rewriting(
      sound,
      latin1((text) => text.split("\0")[0] ?? ""),
    ),
  ),

  broken("trims white space", "a body with CR, LF and both comes back as it was", (sound) =>
    rewriting(
      sound,
      latin1((text) => text.trim()),
    ),
  ),

  broken("normalises the text in a record", "decomposed and composed Unicode comes back as it was", (sound) =>
    rewriting(sound, (bytes) => {
      const text = Buffer.from(bytes).toString("utf8");
      return Buffer.from(text, "utf8").equals(bytes) ? Buffer.from(text.normalize("NFC"), "utf8") : bytes;
    }),
  ),

  broken("unpacks what looks like gzip", "a body that looks like gzip comes back as it was", (sound) => ({
    async read(name, options) {
      const record = await sound.read(name, options);
      if (record?.bytes[0] === 0x1f && record.bytes[1] === 0x8b) {
        throw new StoreError("CORRUPT", sound.traits.name, "unexpected end of file");
      }
      return record;
    },
  })),

  broken("unframes what looks like aws-chunked", "a body that looks like aws-chunked comes back as it was", (sound) =>
    rewriting(
      sound,
      latin1((text) => text.replace(/5;chunk-signature=00\r\nhello\r\n0;chunk-signature=00\r\n\r\n/, "hello")),
    ),
  ),

  broken("reads an empty record as none", "an empty record is a record", (sound) => ({
    async read(name, options) {
      const record = await sound.read(name, options);
      return record?.bytes.byteLength === 0 ? undefined : record;
    },
  })),

  broken("refuses an empty record", "an empty record is a record", (sound) =>
    bothWrites(async (name, bytes, expected, options) => {
      if (bytes.byteLength === 0) throw new StoreError("INVALID_ARGUMENT", sound.traits.name, "the record is empty");
      return forward(sound, name, bytes, expected, options);
    }),
  ),

  broken(
    "cuts a record at 1 MiB",
    "a record of more than 1 MiB, or the longest the store takes, comes back as it was",
    (sound) => rewriting(sound, (bytes) => bytes.subarray(0, 1024 * 1024)),
  ),

  broken(
    "gives the first 64 KiB block of a record again for the second",
    "a record of more than 1 MiB, or the longest the store takes, comes back as it was",
    (sound) =>
      rewriting(sound, (bytes) => {
        const copy = Uint8Array.from(bytes);
        if (copy.byteLength > 131_072) copy.copyWithin(65_536, 0, 65_536);
        return copy;
      }),
  ),

  broken(
    "sends the caller's buffer a turn after the call",
    "the caller may change the Uint8Array it gave as soon as it has called",
    sendingLater((bytes) => bytes),
  ),

  broken(
    "copies a Node Buffer by slice, which shares its memory",
    "the caller may change the Node Buffer it gave as soon as it has called",
    sendingLater((bytes) => bytes.slice()),
  ),

  broken(
    "copies only what has its buffer to itself",
    "the caller may change the view on a larger buffer it gave as soon as it has called",
    sendingLater((bytes) => (bytes.byteLength === bytes.buffer.byteLength ? Uint8Array.from(bytes) : bytes)),
  ),

  broken(
    "writes the whole buffer under a view",
    "a view on a larger buffer is written, and not the buffer around it",
    (sound) => rewriting(sound, (bytes) => new Uint8Array(bytes.buffer)),
  ),

  brokenTogether(
    "keeps the caller's buffer as the record",
    "what was written is the caller's to change afterwards",
    () => {
      const kept = new Map<Version, Uint8Array>();
      return (sound) => ({
        ...bothWrites(async (name, bytes, expected, options) => {
          const outcome = await forward(sound, name, bytes, expected, options);
          if (outcome.kind === "written") kept.set(outcome.version, bytes);
          return outcome;
        }),
        async read(name, options) {
          const record = await sound.read(name, options);
          return record && { ...record, bytes: Uint8Array.from(kept.get(record.version) ?? record.bytes) };
        },
      });
    },
  ),

  broken("gives every reader the same buffer", "what a read returned is the caller's to change", (sound) => {
    const given = new Map<Version, Uint8Array>();
    return {
      async read(name, options) {
        const record = await sound.read(name, options);
        if (record === undefined) return undefined;
        const bytes = given.get(record.version) ?? record.bytes;
        given.set(record.version, bytes);
        return { ...record, bytes };
      },
    };
  }),
];

function rewriting(sound: FullStore, change: (bytes: Uint8Array) => Uint8Array): Pick<FullStore, "create" | "replace"> {
  return bothWrites((name, bytes, expected, options) => forward(sound, name, change(bytes), expected, options));
}

function latin1(change: (text: string) => string): (bytes: Uint8Array) => Uint8Array {
  return (bytes) => Buffer.from(change(Buffer.from(bytes).toString("latin1")), "latin1");
}

function sendingLater(keep: (bytes: Uint8Array) => Uint8Array): Fault {
  return (sound) =>
    bothWrites(async (name, bytes, expected, options) => {
      const kept = keep(bytes);
      await nextTurn();
      return forward(sound, name, kept, expected, options);
    });
}
