/** Faults of the answer: the service decides rightly, and the client tells something else. */

import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";

import { StoreError, toVersion, type WriteOutcome } from "@firstwrite/core";

import { bothWrites, broken, forward, refused, unavailable, type BrokenStore, type FullStore } from "./broken-store.ts";

export const brokenAnswers: readonly BrokenStore[] = [
  broken(
    "sends a create again when its reply is lost, and reports its own write as refused",
    "a create whose reply is lost is `unknown`, for it is the record",
    (sound) => ({
      async create(name, bytes, options) {
        const outcome = await sound.create(name, bytes, options);
        return outcome.kind === "unknown" ? sound.create(name, bytes, options) : outcome;
      },
    }),
  ),

  broken(
    "sends a replace again when its reply is lost, and reports its own write as refused",
    "a replace whose reply is lost is `unknown`, for it is the record",
    (sound) => ({
      async replace(name, expected, bytes, options) {
        const outcome = await sound.replace(name, expected, bytes, options);
        return outcome.kind === "unknown" ? sound.replace(name, expected, bytes, options) : outcome;
      },
    }),
  ),

  broken(
    "sends every write twice, and believes the first answer",
    "a write sends one request, written or refused",
    (sound) =>
      bothWrites(async (name, bytes, expected, options) => {
        const kept = Uint8Array.from(bytes);
        const outcome = await forward(sound, name, kept, expected, options);
        await forward(sound, name, kept, expected, options).catch(() => undefined);
        return outcome;
      }),
  ),

  broken(
    "sends a lost write again behind its caller's back",
    'a write that meets "lostRequest" is not sent again, then or later',
    (sound) =>
      bothWrites(async (name, bytes, expected, options) => {
        const kept = Uint8Array.from(bytes);
        const outcome = await forward(sound, name, kept, expected, options);
        if (outcome.kind === "unknown") {
          void sleep(10).then(() => forward(sound, name, kept, expected).catch(() => undefined));
        }
        return outcome;
      }),
  ),

  broken(
    "repeats a contended write itself",
    'a write that meets "contended" is not sent again, then or later',
    (sound) =>
      bothWrites(async (name, bytes, expected, options) => {
        const kept = Uint8Array.from(bytes);
        const outcome = await forward(sound, name, kept, expected, options);
        return outcome.kind === "contended" ? forward(sound, name, kept, expected, options) : outcome;
      }),
  ),

  broken(
    "reports contention as refused",
    "a create that meets another in flight is `contended`, and can be sent again",
    (sound) => answering(sound, (outcome) => (outcome.kind === "contended" ? refused : outcome)),
  ),

  broken(
    "reports contention as an error",
    "a replace that meets another in flight is `contended`, and can be sent again",
    (sound) =>
      answering(sound, (outcome) => {
        if (outcome.kind === "contended") throw new StoreError("UNSUPPORTED", sound.traits.name, "409");
        return outcome;
      }),
  ),

  broken(
    "rejects where it should answer unknown",
    "a create whose reply is lost is `unknown`, for it is the record",
    (sound) =>
      answering(sound, (outcome) => {
        if (outcome.kind === "unknown") throw unavailable(sound.traits, outcome.cause);
        return outcome;
      }),
  ),

  broken("takes a lost reply for a refusal", "a refused replace whose reply is lost is `unknown` too", (sound) =>
    answering(sound, (outcome) => (outcome.kind === "unknown" ? refused : outcome)),
  ),

  broken(
    "takes a lost request for a write",
    "a create whose request is lost is `unknown` or UNAVAILABLE, and can be sent again",
    (sound) =>
      answering(sound, (outcome) =>
        outcome.kind === "unknown" ? { kind: "written", version: toVersion("hoped-for"), at: Date.now() } : outcome,
      ),
  ),

  broken(
    "answers unknown for what was plainly refused",
    "create is refused where there is a record, and changes nothing",
    (sound) =>
      answering(sound, (outcome) =>
        outcome.kind === "refused" ? { kind: "unknown", cause: new Error("412") } : outcome,
      ),
  ),

  broken(
    "answers unknown for what was plainly written",
    "`unknown` is not the rule: writes with nothing in their way are answered",
    (sound) =>
      answering(sound, (outcome) =>
        outcome.kind === "written" ? { kind: "unknown", cause: new Error("200") } : outcome,
      ),
  ),

  broken(
    "answers contended after it has written, while others write",
    "one of 32 creators of a name wins, 20 times",
    (sound) => {
      let inFlight = 0;
      return bothWrites(async (name, bytes, expected, options) => {
        inFlight += 1;
        const outcome = await forward(sound, name, bytes, expected, options);
        const crowded = inFlight > 1;
        await nextTurn();
        inFlight -= 1;
        return crowded && outcome.kind === "written" ? { kind: "contended" } : outcome;
      });
    },
  ),

  broken("answers what is no outcome", "create is refused where there is a record, and changes nothing", (sound) =>
    // A misspelt kind, as a store in plain JavaScript can have one.
    answering(sound, (outcome) => (outcome.kind === "refused" ? JSON.parse('{"kind":"rejected"}') : outcome)),
  ),

  broken("takes denied access for a refusal", "a create that is not allowed rejects PERMISSION_DENIED", (sound) =>
    bothWrites((name, bytes, expected, options) =>
      forward(sound, name, bytes, expected, options).catch((error: unknown) => {
        if (StoreError.is(error) && error.code === "PERMISSION_DENIED") return refused;
        throw error;
      }),
    ),
  ),

  broken(
    "takes denied access for a service that is away",
    "a replace that is not allowed rejects PERMISSION_DENIED",
    (sound) =>
      bothWrites((name, bytes, expected, options) =>
        forward(sound, name, bytes, expected, options).catch((error: unknown) => {
          if (StoreError.is(error) && error.code === "PERMISSION_DENIED") throw unavailable(sound.traits, error);
          throw error;
        }),
      ),
  ),

  broken(
    "takes denied access for a missing record",
    'a read that meets "denied" rejects PERMISSION_DENIED, and never says that there is no record',
    (sound) => ({
      read: (name, options) =>
        sound.read(name, options).catch((error: unknown) => {
          if (StoreError.is(error) && error.code === "PERMISSION_DENIED") return undefined;
          throw error;
        }),
    }),
  ),

  broken(
    "takes a failed read for a missing record",
    'a read that meets "lostReply" rejects UNAVAILABLE, and never says that there is no record',
    (sound) => ({
      read: (name, options) =>
        sound.read(name, options).catch((error: unknown) => {
          if (StoreError.is(error) && error.code === "UNAVAILABLE" && options?.signal?.aborted !== true)
            return undefined;
          throw error;
        }),
    }),
  ),

  broken("rejects a read of a missing record", "a read finds no record where none was written", (sound) => ({
    async read(name, options) {
      const record = await sound.read(name, options);
      if (record === undefined) throw new StoreError("UNSUPPORTED", sound.traits.name, "404");
      return record;
    },
  })),

  broken(
    "rejects a replace of a missing record",
    "replace of a missing record is refused, and writes nothing",
    (sound) => ({
      async replace(name, expected, bytes, options) {
        const outcome = await sound.replace(name, expected, bytes, options);
        if (outcome.kind === "refused" && (await sound.read(name)) === undefined) {
          throw new StoreError("UNSUPPORTED", sound.traits.name, "404");
        }
        return outcome;
      },
    }),
  ),

  broken(
    "does not end a write when its signal aborts",
    "a create that gets no answer ends with its signal, and is `unknown`",
    (sound) =>
      bothWrites((name, bytes, expected, options) =>
        options?.signal?.aborted === true
          ? Promise.reject(unavailable(sound.traits))
          : forward(sound, name, bytes, expected),
      ),
  ),

  broken(
    "does not end a read when its signal aborts",
    "a read that gets no answer ends with its signal, and rejects UNAVAILABLE",
    (sound) => ({
      read: (name, options) =>
        options?.signal?.aborted === true ? Promise.reject(unavailable(sound.traits)) : sound.read(name),
    }),
  ),

  broken(
    "writes though the signal had aborted",
    "a call whose signal has aborted rejects UNAVAILABLE, and writes nothing",
    (sound) => bothWrites((name, bytes, expected) => forward(sound, name, bytes, expected)),
  ),

  broken(
    "sends the request, and then looks at the signal",
    "a call whose signal has aborted sends no request",
    (_, service) => ({
      read: (name, options) => service.read(name, options),
    }),
  ),

  broken(
    "rejects a write that was aborted after it was done",
    "a write aborted in flight is answered as it ended, or `unknown`; rejected, it never lands",
    (sound) =>
      bothWrites(async (name, bytes, expected, options) => {
        const outcome = await forward(sound, name, bytes, expected, options);
        if (options?.signal === undefined) return outcome;
        await sleep(2);
        if (options.signal.aborted) throw unavailable(sound.traits);
        return outcome;
      }),
  ),

  broken(
    "rejects a write that was aborted, and then does it",
    "a write aborted in flight is answered as it ended, or `unknown`; rejected, it never lands",
    (sound) =>
      bothWrites(async (name, bytes, expected, options) => {
        if (options?.signal === undefined) return forward(sound, name, bytes, expected, options);
        const kept = Uint8Array.from(bytes);
        await sleep(2);
        if (!options.signal.aborted) return forward(sound, name, kept, expected, options);
        void sleep(20).then(() => forward(sound, name, kept, expected));
        throw unavailable(sound.traits);
      }),
  ),
];

/** Both writes done rightly, and answered otherwise. */
function answering(
  sound: FullStore,
  change: (outcome: WriteOutcome) => WriteOutcome,
): Pick<FullStore, "create" | "replace"> {
  return bothWrites(async (name, bytes, expected, options) =>
    change(await forward(sound, name, bytes, expected, options)),
  );
}
