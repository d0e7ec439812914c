/** Faults of what is refused in advance, and of the errors that say so. */

import { StoreError, type StoreErrorCode } from "@firstwrite/core";

import { bothWrites, broken, forward, type BrokenStore, type Fault } from "./broken-store.ts";

export const brokenArguments: readonly BrokenStore[] = [
  broken(
    "takes records longer than it says",
    "a record that is one byte too long is INVALID_ARGUMENT, and changes nothing",
    (_, service) => bothWrites((name, bytes, expected, options) => forward(service, name, bytes, expected, options)),
  ),

  broken(
    "cuts a record that is too long",
    "a record that is one byte too long is INVALID_ARGUMENT, and changes nothing",
    (sound) =>
      bothWrites((name, bytes, expected, options) =>
        forward(sound, name, bytes.subarray(0, sound.traits.recordBytesMax), expected, options),
      ),
  ),

  broken("leaves it to the service to refuse a name", "what is INVALID_ARGUMENT sends no request", (_, service) => ({
    ...bothWrites((name, bytes, expected, options) => forward(service, name, bytes, expected, options)),
    read: (name, options) => service.read(name, options),
  })),

  broken(
    "throws errors of its own for a bad name",
    "a name that is empty is INVALID_ARGUMENT",
    rejectingWith(() => new TypeError("bad name")),
  ),

  broken(
    "throws errors that only look like a StoreError",
    "a name that is empty is INVALID_ARGUMENT",
    rejectingWith((error) =>
      Object.assign(new Error(error.message), { name: "StoreError", code: error.code, store: error.store }),
    ),
  ),

  broken(
    "gives a bad name the code of a service that is away",
    "a name that is empty is INVALID_ARGUMENT",
    rejectingWith((error) => withCode(error, "UNAVAILABLE")),
  ),

  broken(
    "names another store in its errors",
    "a name that is empty is INVALID_ARGUMENT",
    rejectingWith((error) => new StoreError(error.code, "undefined", error.message)),
  ),

  broken("throws at once where it should reject", "a name that is empty is INVALID_ARGUMENT", (sound) => ({
    read(name, options) {
      if (name === "") throw new StoreError("INVALID_ARGUMENT", sound.traits.name, "the name is empty");
      return sound.read(name, options);
    },
  })),

  broken(
    "gives an aborted call the code of a bad argument",
    "a call whose signal has aborted rejects UNAVAILABLE, and writes nothing",
    rejectingWith((error) => (error.code === "UNAVAILABLE" ? withCode(error, "INVALID_ARGUMENT") : error)),
  ),

  broken(
    "lets the signal's own reason out",
    "a call whose signal has aborted rejects UNAVAILABLE, and writes nothing",
    rejectingWith((error) => (error.code === "UNAVAILABLE" ? new DOMException("aborted", "AbortError") : error)),
  ),

  broken("gives no numbers for its limits", "the traits are numbers that callers can count with", (sound) => ({
    traits: { ...sound.traits, clockGranularityMs: Number.NaN },
  })),

  broken("cannot be closed twice", "close can be called twice, and closes no other store", () => {
    let open = true;
    return {
      close: async () => {
        if (!open) throw new Error("the store is not open");
        open = false;
      },
    };
  }),
];

function rejectingWith(change: (error: StoreError) => Error): Fault {
  return (sound) => ({
    ...bothWrites((name, bytes, expected, options) => changed(forward(sound, name, bytes, expected, options), change)),
    read: (name, options) => changed(sound.read(name, options), change),
  });
}

async function changed<T>(promise: Promise<T>, change: (error: StoreError) => Error): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    throw StoreError.is(error) ? change(error) : error;
  }
}

function withCode(error: StoreError, code: StoreErrorCode): StoreError {
  return new StoreError(code, error.store, error.message);
}
