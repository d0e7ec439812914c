import assert from "node:assert/strict";

import { toVersion, type ConditionalStore, type Version } from "@firstwrite/core";

import { mustRead, mustRefuse, mustWrite, newRecord, rejection, send, sendUntilTaken } from "../answers.ts";
import { newBody, type Bench } from "../bench.ts";
import type { Suite } from "../suite.ts";
import { inParallel, thousand, thousandRecords } from "../thousand.ts";

/** One register per name: what `create`, `replace` and `read` say of it, one call after the other. */
export function writeRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("one register per name", () => {
    suite.test("a read finds no record where none was written", async ({ store, name }) => {
      await mustRead(store, name(), undefined);
    });

    suite.test("create stores a record where there is none", async (bench) => {
      const write = { store: bench.store, name: bench.name(), bytes: newBody() };
      await mustWrite(bench, write);
      await mustRead(bench.store, write.name, write.bytes);
    });

    suite.test("create is refused where there is a record, and changes nothing", async (bench) => {
      const { store } = bench;
      const { name, bytes } = await newRecord(bench);
      for (let again = 0; again < 3; again += 1) {
        await mustRefuse(bench, { store, name, bytes: newBody() }, bytes);
      }
    });

    suite.test("create is refused where there is a record, at the second client too", async (bench) => {
      const { name, bytes } = await newRecord(bench);
      await mustRefuse(bench, { store: bench.second, name, bytes: newBody() }, bytes);
      await mustRead(bench.store, name, bytes);
    });

    suite.test("create is refused where the record is empty", async (bench) => {
      const { store } = bench;
      const empty = { store, name: bench.name(), bytes: new Uint8Array() };
      await mustWrite(bench, empty);
      await mustRefuse(bench, { ...empty, bytes: newBody() }, empty.bytes);
    });

    suite.test(
      "a refused create spoils nothing: the next writes are decided by their own conditions",
      async (bench) => {
        const { store } = bench;
        const { name, bytes, version } = await newRecord(bench);
        await mustRefuse(bench, { store, name, bytes: newBody() }, bytes);
        await newRecord(bench);
        const next = newBody();
        await mustWrite(bench, { store, name, expected: version, bytes: next });
        await mustRead(store, name, next);
      },
    );

    suite.test("replace stores a record at the version that `written` gave", async (bench) => {
      const { store } = bench;
      const { name, version } = await newRecord(bench);
      const next = newBody();
      await mustWrite(bench, { store, name, expected: version, bytes: next });
      await mustRead(store, name, next);
    });

    suite.test("replace stores a record at the version that a read gave, at either client", async (bench) => {
      const { name, bytes } = await newRecord(bench);
      let record = await mustRead(bench.second, name, bytes);
      for (const store of [bench.store, bench.second, bench.store]) {
        const next = newBody();
        await mustWrite(bench, { store, name, expected: record.version, bytes: next });
        record = await mustRead(store, name, next);
      }
    });

    suite.test("replace at a stale version is refused, and changes nothing", async (bench) => {
      const { store } = bench;
      const { name, bytes: first, version: stale } = await newRecord(bench);
      const { version: alsoStale } = await mustRead(store, name, first);
      const second = newBody();
      await mustWrite(bench, { store, name, expected: stale, bytes: second });
      for (const expected of [stale, alsoStale]) {
        await mustRefuse(bench, { store, name, expected, bytes: newBody() }, second);
        await mustRefuse(bench, { store: bench.second, name, expected, bytes: newBody() }, second);
      }
    });

    suite.test("every earlier version is refused, however many writes ago", async (bench) => {
      const { store } = bench;
      const first = await newRecord(bench);
      const versions = [first.version];
      let bytes = first.bytes;
      for (let count = 1; count <= 20; count += 1) {
        bytes = newBody();
        const { version } = await mustWrite(bench, { store, name: first.name, expected: lastOf(versions), bytes });
        versions.push(version);
      }
      for (const expected of versions.slice(0, -1)) {
        await mustRefuse(bench, { store, name: first.name, expected, bytes: newBody() }, bytes);
      }
    });

    suite.test("a rewrite of the same size, at once, is seen under a version of its own", async (bench) => {
      const { store } = bench;
      const { name, bytes, version } = await newRecord(bench);
      const before = await mustRead(store, name, bytes);
      const next = newBody();
      const rewritten = await mustWrite(bench, { store, name, expected: version, bytes: next });
      const after = await mustRead(store, name, next);
      assert.notEqual(rewritten.version, version, "two writes of different bytes share a version");
      assert.notEqual(after.version, before.version, "reads of different bytes share a version");
    });

    suite.test("replace of a missing record is refused, and writes nothing", async (bench) => {
      const { store } = bench;
      const { version } = await newRecord(bench);
      await mustRefuse(bench, { store, name: bench.name(), expected: version, bytes: newBody() }, undefined);
    });

    suite.test("a version of another record is refused, however alike their histories", async (bench) => {
      const { store } = bench;
      const one = await newRecord(bench);
      const other = await newRecord(bench);
      await mustRefuse(bench, { store, name: one.name, expected: other.version, bytes: newBody() }, one.bytes);
      await mustRefuse(bench, { store, name: other.name, expected: one.version, bytes: newBody() }, other.bytes);
    });

    suite.test("a version that no store gave is never written at", async (bench) => {
      const { name, bytes } = await newRecord(bench);
      for (const expected of strangeVersions) {
        await mustNotWriteAt(bench, name, expected, bytes);
        await mustNotWriteAt(bench, bench.name(), expected, undefined);
      }
    });

    suite.test("`unknown` is not the rule: writes with nothing in their way are answered", async (bench) => {
      const { store } = bench;
      const writes = Array.from({ length: 8 }, () => ({ store, name: bench.name(), bytes: newBody() }));
      const outcomes = await Promise.all(writes.map((write) => sendUntilTaken(bench, write)));
      const answered = outcomes.filter(({ kind }) => kind === "written").length;
      assert.ok(answered >= 6, `of 8 creates on names of their own ${answered} were answered \`written\``);
    });

    suite.test(`no acknowledged write is lost: ${thousand} records are all there`, async (bench) => {
      const { bodies } = await thousandRecords(bench);
      const all = [...bodies];
      const stores = [bench.store, bench.second];
      await inParallel(32, all.length, async (index) => {
        const [name, bytes] = all[index] ?? assert.fail("a record of the thousand");
        await mustRead(stores[index % 2] ?? bench.store, name, bytes);
      });
    });
  });
}

/** What a wildcard, another service, a parser that is too kind or a header with a line break would make of a version. */
const strangeVersions: readonly Version[] = [
  "*",
  '"*"',
  "0",
  "-1",
  "1",
  "NaN",
  "null",
  "undefined",
  " ",
  '""',
  'W/"0"',
  '"0", *',
  "0x10",
  "é",
  '0"\r\nIf-None-Match: "*',
  '"00000000000000000000000000000000"',
  "v".repeat(5_000),
].map(toVersion);

/** Refused, or `INVALID_ARGUMENT` from a store that knows the form of its versions; never written either way. */
async function mustNotWriteAt(bench: Bench, name: string, expected: Version, before?: Uint8Array): Promise<void> {
  const { store } = bench;
  const write = { store, name, expected, bytes: newBody() };
  const promise = send(write);
  const outcome = await promise.catch(() => undefined);
  if (outcome === undefined) {
    const error = await rejection(store, `a replace at ${JSON.stringify(expected)}`, promise);
    assert.equal(
      error.code,
      "INVALID_ARGUMENT",
      `a replace at ${JSON.stringify(expected)} was rejected: ${error.message}`,
    );
  } else if (outcome.kind !== "refused") {
    await mustRefuse(bench, write, before);
  }
  await mustRead(store, name, before);
}

function lastOf<T>(items: readonly T[]): T {
  const last = items.at(-1);
  if (last === undefined) throw new RangeError("an empty list has no last item");
  return last;
}
