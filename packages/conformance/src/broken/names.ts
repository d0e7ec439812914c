/** Faults of the name: two names that become one on the way to the service, and names that should not be taken. */

import { checkObjectName, StoreError } from "@firstwrite/core";

import { bothWrites, broken, forward, type BrokenStore, type Fault, type FullStore } from "./broken-store.ts";

export const brokenNames: readonly BrokenStore[] = [
  broken(
    "writes names in lower case",
    "names that differ by case",
    renaming((name) => name.toLowerCase()),
  ),
  broken(
    "folds the case of ASCII alone right, and of the rest not",
    "names that differ by case outside ASCII",
    renaming((name) => name.replace(/[^\0-\u007f]/gu, (letter) => letter.toLowerCase())),
  ),
  broken(
    "drops trailing dots",
    "names that differ by a trailing dot",
    renaming((name) => name.replace(/\.+$/, "")),
  ),
  broken(
    "drops trailing dots of folders",
    "names that differ only in a folder",
    renaming((name) => name.replaceAll(/\.+\//g, "/")),
  ),
  broken(
    "hides names that begin with a dot",
    "names that differ by a leading dot",
    renaming((name) => name.replaceAll(/\/\.+/g, "/")),
  ),
  broken("decodes percent-encoding", "names that differ by percent-encoding", renaming(decoded)),
  broken(
    "decodes an encoded slash",
    "names that differ by an encoded slash",
    renaming((name) => name.replaceAll(/%2f/gi, "/")),
  ),
  broken(
    "decodes an encoded dot",
    "names that differ by an encoded dot",
    renaming((name) => name.replaceAll(/%2e/gi, ".")),
  ),
  broken(
    "cannot encode a lone percent sign",
    "names that differ by a percent sign that encodes nothing",
    renaming((name) => decodeURIComponent(name)),
  ),
  broken("takes a plus sign for a space", "names that differ by a plus sign and a space", renaming(plusAsSpace)),
  broken("trims names", "names that differ by spaces at their ends", renaming(trimmedSegments)),
  broken("cuts names at a question mark", "names that differ after a question mark", renaming(cutAt("?"))),
  broken("cuts names at a hash", "names that differ after a hash", renaming(cutAt("#"))),
  broken(
    "leaves entities of XML in names",
    "names that differ after an ampersand or an equals sign",
    renaming((name) => name.replaceAll("&amp;", "&").replaceAll("&", "&amp;")),
  ),
  broken(
    "cuts names at a colon, as a stream of a file",
    "names that differ by a colon, a semicolon or a comma",
    renaming(cutAt(":")),
  ),
  broken(
    "drops quotes from names",
    "names that differ by quotes",
    renaming((name) => name.replaceAll(/["'`]/g, "")),
  ),
  broken(
    "writes what a file system does not take as an underscore",
    "names that differ by a backslash, a pipe, brackets or a star",
    renaming((name) => name.replaceAll(/[\\|<>*]/g, "_").replaceAll(/[[\]{}]/g, "_")),
  ),
  broken(
    "normalises names",
    "names that differ by Unicode normalisation",
    renaming((name) => name.normalize("NFC")),
  ),
  broken(
    "normalises names by compatibility",
    "names that differ by compatibility normalisation",
    renaming((name) => name.normalize("NFKC")),
  ),
  broken(
    "drops what it takes for formatting",
    "names that differ by an emoji, a joiner or a variation selector",
    renaming((name) => name.replaceAll(/[\p{Cf}\u{fe00}-\u{fe0f}]/gu, "")),
  ),
  broken(
    "compares names as numbers where it can",
    "names that differ by leading zeros",
    renaming((name) => name.replace(/[^/]+$/, (last) => (Number.isNaN(Number(last)) ? last : String(Number(last))))),
  ),
  broken(
    "cuts names at 255 bytes",
    "names as long as the store takes",
    renaming((name) => Buffer.from(name).subarray(0, 255).toString("latin1")),
  ),
  broken("promises longer names than it takes", "names as long as the store takes", (sound) => ({
    traits: { ...sound.traits, nameBytesMax: 900 },
  })),
  broken("cuts a name inside a character", "names as long as the store takes, counted in bytes of UTF-8", (sound) =>
    renaming((name) => {
      const bytes = Buffer.from(name);
      return bytes.byteLength > 510 ? bytes.subarray(0, 510).toString("latin1") : name;
    })(sound, sound),
  ),

  broken(
    "counts the characters of a name, not its bytes",
    "a name that is one byte too long is INVALID_ARGUMENT",
    unchecked((name, sound) => {
      checkObjectName({ ...sound.traits, nameBytesMax: Infinity }, name);
      if (name.length > sound.traits.nameBytesMax) invalid(sound, "the name is too long");
      return name;
    }),
  ),
  broken("drops empty segments", "a name with an empty segment is INVALID_ARGUMENT", mended(/\/\/+/g, "/")),
  broken("drops a leading slash", "a name that begins with a slash is INVALID_ARGUMENT", mended(/^\//, "")),
  broken("resolves dots in a name", 'a name with a segment ".." is INVALID_ARGUMENT', mended(/[^/]+\/\.\.\//g, "")),
  broken(
    "writes a lone surrogate as U+FFFD",
    "a name with a lone high surrogate is INVALID_ARGUMENT",
    unchecked((name) => name.toWellFormed()),
  ),
  broken("drops control characters", "a name with a C1 control character is INVALID_ARGUMENT", mended(/\p{Cc}/gu, "")),
];

function renaming(rename: (name: string) => string): Fault {
  return (sound) => ({
    ...bothWrites(async (name, bytes, expected, options) => {
      checkObjectName(sound.traits, name);
      return forward(sound, rename(name), bytes, expected, options);
    }),
    async read(name, options) {
      checkObjectName(sound.traits, name);
      return sound.read(rename(name), options);
    },
  });
}

/** Takes names the port refuses, and makes names of them that the service takes. */
function unchecked(mend: (name: string, sound: FullStore) => string): Fault {
  return (sound, service) => ({
    ...bothWrites(async (name, bytes, expected, options) =>
      forward(service, mend(name, sound), bytes, expected, options),
    ),
    read: async (name, options) => service.read(mend(name, sound), options),
  });
}

function mended(pattern: RegExp, by: string): Fault {
  return unchecked((name) => name.replace(pattern, by));
}

function invalid(sound: FullStore, why: string): never {
  throw new StoreError("INVALID_ARGUMENT", sound.traits.name, why);
}

function decoded(name: string): string {
  return name.replaceAll(/%[0-9a-f]{2}/gi, (code) => String.fromCodePoint(Number.parseInt(code.slice(1), 16)));
}

function plusAsSpace(name: string): string {
  return name.replaceAll("+", " ");
}

function trimmedSegments(name: string): string {
  return name
    .split("/")
    .map((segment) => segment.trim())
    .join("/");
}

function cutAt(mark: string): (name: string) => string {
  return (name) => {
    const at = name.indexOf(mark);
    return at <= 0 ? name : name.slice(0, at);
  };
}
