/** Faults of the optional listing. */

import type { CallOptions, ListedObject } from "@firstwrite/core";

import { broken, type BrokenStore, type Fault, type FullStore } from "./broken-store.ts";

type Listing = (
  list: FullStore["list"],
  prefix: string,
  options: CallOptions | undefined,
) => AsyncIterable<ListedObject>;

export const brokenListings: readonly BrokenStore[] = [
  broken(
    "lists the whole folder",
    "list finds exactly the names that begin with the prefix, each once",
    listing((list, prefix, options) => list(prefix.replace(/[^/]*$/, ""), options)),
  ),
  broken(
    "lists everything there is",
    "a prefix of nothing lists nothing",
    listing((list, _, options) => list("", options)),
  ),
  broken(
    "leaves out every tenth name",
    "list finds exactly the names that begin with the prefix, each once",
    listing((list, prefix, options) => filtered(list(prefix, options), (_, index) => index % 10 !== 9)),
  ),
  broken(
    "lists the first page alone",
    "a listing of 1024 names is whole",
    listing((list, prefix, options) => filtered(list(prefix, options), (_, index) => index < 1_000)),
  ),
  broken(
    "lists the last name of a page again",
    "a listing of 1024 names is whole",
    listing(async function* (list, prefix, options) {
      let index = 0;
      for await (const object of list(prefix, options)) {
        yield object;
        if (++index === 1_000) yield object;
      }
    }),
  ),
  broken(
    "takes a prefix for a pattern of SQL",
    "a prefix is no pattern",
    listing((list, prefix, options) => {
      const pattern = prefix
        .replaceAll(/[$()*+.?[\\\]^{|}]/g, "\\$&")
        .replaceAll("_", ".")
        .replaceAll("%", ".*");
      const like = new RegExp(`^${pattern}`, "iu");
      return filtered(list("", options), ({ name }) => like.test(name));
    }),
  ),
  broken(
    "lists names as they are encoded",
    "names come back as they were given",
    listing((list, prefix, options) =>
      mapped(list(prefix, options), (object) => ({ ...object, name: encodeURI(object.name) })),
    ),
  ),
  broken(
    "lists names without the prefix",
    "list finds exactly the names that begin with the prefix, each once",
    listing((list, prefix, options) =>
      mapped(list(prefix, options), (object) => ({ ...object, name: object.name.slice(prefix.length) })),
    ),
  ),
  broken(
    "lists times in seconds",
    "`modifiedAt` in a listing is that of a read, to the granularity",
    listing((list, prefix, options) =>
      mapped(list(prefix, options), (object) => ({ ...object, modifiedAt: object.modifiedAt / 1_000 })),
    ),
  ),
  broken(
    "lists on though its signal has aborted",
    "a listing whose signal has aborted rejects UNAVAILABLE",
    listing((list, prefix) => list(prefix)),
  ),
  broken(
    "fails when a listing is left",
    "a listing can be left before its end",
    listing(async function* (list, prefix, options) {
      let ended = false;
      try {
        yield* list(prefix, options);
        ended = true;
      } finally {
        if (!ended && options?.signal?.aborted !== true)
          await Promise.reject(new Error("the listing was not read to its end"));
      }
    }),
  ),
];

function listing(list: Listing): Fault {
  return (sound) => ({ list: (prefix, options) => list((...call) => sound.list(...call), prefix, options) });
}

async function* filtered(
  objects: AsyncIterable<ListedObject>,
  keep: (object: ListedObject, index: number) => boolean,
): AsyncGenerator<ListedObject, void, void> {
  let index = 0;
  for await (const object of objects) if (keep(object, index++)) yield object;
}

async function* mapped(
  objects: AsyncIterable<ListedObject>,
  change: (object: ListedObject) => ListedObject,
): AsyncGenerator<ListedObject, void, void> {
  for await (const object of objects) yield change(object);
}
