import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import { StoreError, type ConditionalStore, type StoreErrorCode, type WriteOutcome } from "@firstwrite/core";

import { mustRead, mustRefuse, mustWrite, newRecord, rejection, send, type Write } from "../answers.ts";
import { newBody, type Bench } from "../bench.ts";
import type { HarnessFault } from "../harness.ts";
import type { Suite } from "../suite.ts";

/**
 * What a store says when the network or the service fails it. Only a harness that can make such failures shows this,
 * and it is where most of what is known to go wrong in this field went wrong.
 */
export function faultRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("failures are told as what they are (P1, P2, P5, P7)", () => {
    for (const operation of ["create", "replace"] as const) writeFaultRules(suite, operation);
    for (const fault of ["lostRequest", "lostReply", "away"] as const) readFaultRule(suite, fault, "UNAVAILABLE");
    readFaultRule(suite, "denied", "PERMISSION_DENIED");

    suite.test(
      "a read that gets no answer ends with its signal, and rejects UNAVAILABLE",
      async (bench) => {
        const { store } = bench;
        const { name, bytes } = await newRecord(bench);
        await bench.inject("hangs", "read");
        const reading = store.read(name, { signal: AbortSignal.timeout(hangingMs) });
        const error = await ends(
          bench,
          "a read without an answer",
          rejection(store, "a read without an answer", reading),
        );
        assert.equal(error.code, "UNAVAILABLE", error.message);
        await mustRead(store, name, bytes);
      },
      ["hangs"],
    );
  });
}

const hangingMs = 30;

function writeFaultRules<S extends ConditionalStore>(suite: Suite<S>, operation: "create" | "replace"): void {
  const faultTest = (fault: HarnessFault, title: string, body: (bench: Bench, case_: Case) => Promise<void>): void =>
    suite.test(
      title,
      async (bench) => {
        const prepared = await prepare(bench, operation);
        await bench.inject(fault, "write");
        await body(bench, prepared);
      },
      [fault],
    );

  faultTest(
    "lostReply",
    `a ${operation} whose reply is lost is \`unknown\`, for it is the record`,
    async (bench, { write }) => {
      const outcome = await answered(write);
      mustBeUnknown(outcome);
      await mustRead(bench.store, write.name, write.bytes);
      // What the engine does next: the same call again is refused, by its own bytes.
      await bench.heal();
      const again = await answered(write);
      assert.equal(again.kind, "refused", "the same write again, after it was done");
      await mustRead(bench.store, write.name, write.bytes);
    },
  );

  faultTest(
    "lostRequest",
    `a ${operation} whose request is lost is \`unknown\` or UNAVAILABLE, and can be sent again`,
    async (bench, { write, before }) => {
      await mustBeUnknownOrUnavailable(write);
      await mustRead(bench.store, write.name, before);
      await mustWrite(bench, write);
      await mustRead(bench.store, write.name, write.bytes);
    },
  );

  faultTest(
    "landsLate",
    `a ${operation} that is under way is \`unknown\`, and is decided when it lands`,
    async (bench, { write, before }) => {
      mustBeUnknown(await answered(write));
      await mustRead(bench.store, write.name, before);
      await bench.land();
      await mustRead(bench.store, write.name, write.bytes);

      const late = await prepare(bench, operation);
      await bench.inject("landsLate", "write");
      mustBeUnknown(await answered(late.write));
      const other = { ...late.write, bytes: newBody() };
      await mustWrite(bench, other);
      await bench.land();
      await mustRead(bench.store, other.name, other.bytes);
    },
  );

  faultTest(
    "contended",
    `a ${operation} that meets another in flight is \`contended\`, and can be sent again`,
    async (bench, { write, before }) => {
      const outcome = await answered(write);
      assert.equal(outcome.kind, "contended");
      await mustRead(bench.store, write.name, before);
      await mustWrite(bench, write);
      await mustRead(bench.store, write.name, write.bytes);
    },
  );

  faultTest(
    "denied",
    `a ${operation} that is not allowed rejects PERMISSION_DENIED`,
    async (bench, { write, before }) => {
      const error = await rejection(bench.store, `a ${operation} that is not allowed`, send(write));
      assert.equal(error.code, "PERMISSION_DENIED", error.message);
      await mustRead(bench.store, write.name, before);
    },
  );

  faultTest(
    "away",
    `a ${operation} while the service is away is \`unknown\` or UNAVAILABLE, and can be sent again`,
    async (bench, { write, before }) => {
      await mustBeUnknownOrUnavailable(write);
      await mustRead(bench.store, write.name, before);
      await mustWrite(bench, write);
      await mustRead(bench.store, write.name, write.bytes);
    },
  );

  faultTest(
    "hangs",
    `a ${operation} that gets no answer ends with its signal, and is \`unknown\``,
    async (bench, { write, before }) => {
      const answering = answered(write, AbortSignal.timeout(hangingMs));
      mustBeUnknown(await ends(bench, `a ${operation} without an answer`, answering));
      await mustRead(bench.store, write.name, before);
    },
  );

  faultTest("lostReply", `a refused ${operation} whose reply is lost is \`unknown\` too`, async (bench, { write }) => {
    // The fault was meant for a write whose condition holds; this one needs one whose condition is false.
    await bench.heal();
    await mustWrite(bench, write);
    await bench.inject("lostReply", "write");
    const refused = { ...write, bytes: newBody() };
    mustBeUnknown(await answered(refused));
    await bench.heal();
    await mustRefuse(bench, refused, write.bytes);
  });
}

function readFaultRule<S extends ConditionalStore>(suite: Suite<S>, fault: HarnessFault, code: StoreErrorCode): void {
  suite.test(
    `a read that meets "${fault}" rejects ${code}, and never says that there is no record`,
    async (bench) => {
      const { store } = bench;
      const { name, bytes } = await newRecord(bench);
      for (const asked of [name, bench.name()]) {
        await bench.inject(fault, "read");
        const error = await rejection(store, `a read that meets "${fault}"`, store.read(asked));
        assert.equal(error.code, code, error.message);
        await bench.heal();
      }
      await mustRead(store, name, bytes);
    },
    [fault],
  );
}

interface Case {
  readonly write: Write;
  /** The record before the write. */
  readonly before: Uint8Array | undefined;
}

/** A write whose condition holds. */
async function prepare(bench: Bench, operation: "create" | "replace"): Promise<Case> {
  const { store } = bench;
  if (operation === "create") return { write: { store, name: bench.name(), bytes: newBody() }, before: undefined };
  const { name, bytes, version } = await newRecord(bench);
  return { write: { store, name, expected: version, bytes: newBody() }, before: bytes };
}

/** The outcome; a write that may have been done is never rejected (P2). */
async function answered(write: Write, signal?: AbortSignal): Promise<WriteOutcome> {
  try {
    return await send(write, signal);
  } catch (error) {
    return assert.fail(`a write that may have been done was rejected: ${String(error)}`);
  }
}

function mustBeUnknown(outcome: WriteOutcome): void {
  assert.equal(outcome.kind, "unknown");
  assert.ok("cause" in outcome, "`unknown` comes with a cause, for logs");
}

async function mustBeUnknownOrUnavailable(write: Write): Promise<void> {
  const outcome = await send(write).catch((error: unknown) => ({ kind: "rejected" as const, error }));
  if (outcome.kind !== "rejected") {
    mustBeUnknown(outcome);
    return;
  }
  assert.ok(StoreError.is(outcome.error), `rejected with ${String(outcome.error)}, which is no StoreError`);
  assert.equal(outcome.error.code, "UNAVAILABLE", outcome.error.message);
}

async function ends<T>(bench: Bench, doing: string, promise: Promise<T>): Promise<T> {
  const waited = new AbortController();
  const tooLong = sleep(Math.min(bench.patienceMs, 5_000), undefined, { signal: waited.signal }).then(() =>
    assert.fail(`${doing} did not end when its signal aborted`),
  );
  tooLong.catch(() => undefined);
  try {
    return await Promise.race([promise, tooLong]);
  } finally {
    waited.abort();
  }
}
