/**
 * What every adapter refuses before it sends anything, the same in all of them: a name that one service takes and
 * another normalises, or a record that will not fit.
 */

import type { CallOptions, StoreTraits } from "./conditional-store.ts";
import { StoreError } from "./store-error.ts";

const encoder = new TextEncoder();
/** A name with none of the faults, and as long in bytes as in characters: nearly every one. */
const plainName = /^(?:[\w%-][\w%.-]*\/)*[\w%-][\w%.-]*$/;
// U+0000 to U+001F and U+007F to U+009F: refused by Azure, and XML 1.0 listings cannot carry most of them.
const controlCharacter = /\p{Cc}/u;

/**
 * What is wrong with an object name; `undefined` for a good one. A name is well-formed Unicode without control
 * characters, in segments divided by `/`, none of them empty, `.` or `..`: a URL parser or a file system between us and
 * the store would otherwise turn one name into another.
 */
export function objectNameFault(traits: StoreTraits, name: string): string | undefined {
  if (typeof name === "string" && name.length <= traits.nameBytesMax && plainName.test(name)) return undefined;
  if (typeof name !== "string" || !name.isWellFormed()) return "is not well-formed Unicode: remove lone surrogates";
  if (controlCharacter.test(name)) return "has a control character: remove it";
  if (name.split("/").some((segment) => segment === "" || segment === "." || segment === "..")) {
    return 'has an empty segment, or one that is "." or "..": name every segment between slashes';
  }
  const bytes = encoder.encode(name).byteLength;
  if (bytes > traits.nameBytesMax) return `is ${bytes} bytes long; the store takes ${traits.nameBytesMax}`;
  return undefined;
}

/** @throws {StoreError} `INVALID_ARGUMENT` for a name with an {@link objectNameFault}. */
export function checkObjectName(traits: StoreTraits, name: string): void {
  const fault = objectNameFault(traits, name);
  if (fault === undefined) return;
  throw new StoreError("INVALID_ARGUMENT", traits.name, `the object name ${JSON.stringify(name)} ${fault}`);
}

/**
 * As {@link checkObjectName}, and that `bytes` fit.
 *
 * @throws {StoreError} `INVALID_ARGUMENT`.
 */
export function checkWrite(traits: StoreTraits, name: string, bytes: Uint8Array): void {
  checkObjectName(traits, name);
  if (!(bytes instanceof Uint8Array)) {
    throw new StoreError("INVALID_ARGUMENT", traits.name, "a record is given as a Uint8Array");
  }
  if (bytes.byteLength > traits.recordBytesMax) {
    throw new StoreError(
      "INVALID_ARGUMENT",
      traits.name,
      `the record is ${bytes.byteLength} bytes long; the store takes ${traits.recordBytesMax}`,
    );
  }
}

/** @throws {StoreError} `UNAVAILABLE` once `signal` has aborted: nothing was sent. */
export function checkNotAborted(traits: StoreTraits, { signal }: CallOptions = {}): void {
  if (signal?.aborted !== true) return;
  throw new StoreError("UNAVAILABLE", traits.name, "the call was aborted before it was sent", { cause: signal.reason });
}
