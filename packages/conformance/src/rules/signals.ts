import assert from "node:assert/strict";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";

import { StoreError, type ConditionalStore, type Version } from "@firstwrite/core";

import { letPass, mustRead, mustWrite, newRecord, readOf, rejection, sameBytes, send, type Write } from "../answers.ts";
import { newBody, type Bench } from "../bench.ts";
import type { Suite } from "../suite.ts";

/** A signal ends a call, and the answer still tells the truth (P2). */
export function signalRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("signals (P2)", () => {
    suite.test("a call whose signal has aborted rejects UNAVAILABLE, and writes nothing", async (bench) => {
      const { store } = bench;
      const { name, bytes, version } = await newRecord(bench);
      const missing = bench.name();
      for (const [doing, call] of abortedCalls(store, name, version, missing)) {
        const error = await rejection(store, doing, call());
        assert.equal(error.code, "UNAVAILABLE", `${doing} was rejected: ${error.message}`);
      }
      await mustRead(store, missing, undefined);
      await mustRead(store, name, bytes);
    });

    suite.test(
      "a call whose signal has aborted sends no request",
      async (bench) => {
        const { store } = bench;
        const { name, version } = await newRecord(bench);
        const before = await bench.requests();
        for (const [doing, call] of abortedCalls(store, name, version, bench.name())) {
          await rejection(store, doing, call());
        }
        assert.equal((await bench.requests()) - before, 0, "requests sent");
      },
      ["requests"],
    );

    suite.test(
      "a write aborted in flight is answered as it ended, or `unknown`; rejected, it never lands",
      async (bench) => {
        const rejected: (readonly [Write, Uint8Array | undefined])[] = [];
        for (const [when, wait] of moments) {
          const create = { store: bench.store, name: bench.name(), bytes: newBody() };
          if ((await abortInFlight(bench, create, undefined, when, wait)) === "rejected")
            rejected.push([create, undefined]);
          const { name, bytes, version } = await newRecord(bench);
          const replace = { store: bench.store, name, expected: version, bytes: newBody() };
          if ((await abortInFlight(bench, replace, bytes, when, wait)) === "rejected") rejected.push([replace, bytes]);
        }
        // A request that was sent after all would have landed by now.
        if (rejected.length > 0) await letPass(100);
        for (const [{ store, name }, before] of rejected) await mustRead(store, name, before);
      },
    );

    suite.test("a read aborted in flight is answered, or rejects UNAVAILABLE", async (bench) => {
      const { store } = bench;
      const { name, bytes } = await newRecord(bench);
      for (const [when, wait] of moments) {
        const abort = new AbortController();
        const reading = store.read(name, { signal: abort.signal }).catch((error: unknown) => ({ error }));
        await wait();
        abort.abort();
        const answer = await reading;
        assert.ok(answer !== undefined, `a read aborted ${when} found no record`);
        if ("error" in answer) {
          assert.ok(StoreError.is(answer.error), `a read aborted ${when} rejected with ${String(answer.error)}`);
          assert.equal(answer.error.code, "UNAVAILABLE");
        } else {
          assert.ok(sameBytes(answer.bytes, bytes), `a read aborted ${when} found another body`);
        }
      }
    });

    suite.test("a signal that aborts after the answer changes nothing", async (bench) => {
      const { store } = bench;
      const abort = new AbortController();
      const write = { store, name: bench.name(), bytes: newBody() };
      const outcome = await send(write, abort.signal);
      abort.abort();
      if (outcome.kind !== "written") await mustWrite(bench, write);
      await mustRead(store, write.name, write.bytes);
    });
  });
}

const moments: readonly (readonly [string, () => Promise<unknown>])[] = [
  ["at once", () => Promise.resolve()],
  ["in the next turn", () => nextTurn()],
  ["after 1 ms", () => sleep(1)],
  ["after 2 ms", () => sleep(2)],
  ["after 4 ms", () => sleep(4)],
];

function abortedCalls(
  store: ConditionalStore,
  name: string,
  version: Version,
  missing: string,
): readonly (readonly [string, () => Promise<unknown>])[] {
  const signal = AbortSignal.abort();
  return [
    ["an aborted create", () => store.create(missing, newBody(), { signal })],
    ["an aborted replace", () => store.replace(name, version, newBody(), { signal })],
    ["an aborted read", () => store.read(name, { signal })],
  ];
}

/** Nobody else writes to the name, so the answer and the record must agree. */
async function abortInFlight(
  bench: Bench,
  write: Write,
  before: Uint8Array | undefined,
  when: string,
  wait: () => Promise<unknown>,
): Promise<"answered" | "rejected"> {
  const abort = new AbortController();
  const answering = send(write, abort.signal).catch((error: unknown) => ({ kind: "rejected" as const, error }));
  await wait();
  abort.abort();
  const outcome = await answering;
  switch (outcome.kind) {
    case "written":
      await mustRead(bench.store, write.name, write.bytes);
      return "answered";
    case "contended":
      await mustRead(bench.store, write.name, before);
      return "answered";
    case "unknown": {
      // Looked at once: between two reads the write may land.
      const found = (await readOf(bench.store, write.name))?.bytes;
      const isOneOf = [before, write.bytes].some((bytes) =>
        bytes === undefined || found === undefined ? bytes === found : sameBytes(bytes, found),
      );
      assert.ok(isOneOf, `a write aborted ${when} left neither what was there nor what was sent`);
      return "answered";
    }
    case "refused":
      return assert.fail(`a write aborted ${when} was refused, though its condition holds`);
    case "rejected":
      assert.ok(StoreError.is(outcome.error), `a write aborted ${when} rejected with ${String(outcome.error)}`);
      assert.equal(outcome.error.code, "UNAVAILABLE");
      await mustRead(bench.store, write.name, before);
      return "rejected";
  }
}
