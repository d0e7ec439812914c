import assert from "node:assert/strict";

import { StoreError, type ConditionalStore, type ListedObject } from "@firstwrite/core";

import { mustRead, mustWrite, Patience } from "../answers.ts";
import { newBody, type Bench } from "../bench.ts";
import type { Suite } from "../suite.ts";
import { thousand, thousandRecords } from "../thousand.ts";

/** The optional `list`. A listing may be late, so each of these is tried until the harness's patience ends. */
export function listingRules<S extends ConditionalStore>(suite: Suite<S>): void {
  const test = (title: string, body: (bench: Bench, list: List) => Promise<void>): void =>
    suite.test(title, async (bench) => {
      const { store } = bench;
      if (store.list === undefined) {
        assert.equal("list" in store, false, "a store without a listing has no `list`, so that callers can tell");
        bench.notRun("the store has no list()");
        return;
      }
      await body(bench, (prefix, signal) => listed(store, prefix, signal));
    });

  suite.group("listing, where there is one", () => {
    test("list finds exactly the names that begin with the prefix, each once", async (bench, list) => {
      const folder = bench.name("/");
      const inside = Array.from({ length: 30 }, (_, index) => `${folder}in/record-${index}`);
      const outside = [`${folder}inner`, `${folder}i`, `${folder}out/in/record-0`, bench.name()];
      await writeAll(bench, [...inside, ...outside]);
      await eventually(bench, list, `${folder}in/`, inside);
      await eventually(bench, list, `${folder}in`, [...inside, `${folder}inner`]);
      await eventually(
        bench,
        list,
        `${folder}in/record-2`,
        inside.filter((name) => name.includes("record-2")),
      );
    });

    test("a prefix is no pattern", async (bench, list) => {
      const folder = bench.name("/");
      const names = ["a_1", "ab1", "a%1", "a*1", "a[1", "A_1", "a?1"].map((tail) => `${folder}${tail}`);
      await writeAll(bench, names);
      for (const start of ["a_", "a%", "a*", "a[", "A_", "a?"]) {
        await eventually(bench, list, `${folder}${start}`, [`${folder}${start}1`]);
      }
    });

    test("names come back as they were given", async (bench, list) => {
      const folder = bench.name("/");
      const tails = ["a b", "a+b", "a%2Fb", "a&b<c>", 'a"b', "café", "cafe\u0301", "\u{1f984}", "a#b", "a?b"];
      const names = tails.map((tail) => `${folder}${tail}`);
      await writeAll(bench, names);
      await eventually(bench, list, folder, names);
    });

    test("a prefix of nothing lists nothing", async (bench, list) => {
      await writeAll(bench, [bench.name()]);
      assert.deepEqual(await list(bench.name("/nothing-here")), []);
    });

    test(`a listing of ${thousand} names is whole`, async (bench, list) => {
      const { prefix, bodies } = await thousandRecords(bench);
      await eventually(bench, list, prefix, [...bodies.keys()]);
    });

    test("a listing can be left before its end", async (bench, list) => {
      const { prefix, bodies } = await thousandRecords(bench);
      await eventually(bench, list, prefix, [...bodies.keys()]);
      let seen = 0;
      for await (const { name } of bench.store.list?.(prefix) ?? []) {
        assert.ok(bodies.has(name), `${name} was not written`);
        seen += 1;
        if (seen === 3) break;
      }
      assert.equal(seen, 3);
    });

    test("`modifiedAt` in a listing is that of a read, to the granularity", async (bench, list) => {
      const name = bench.name("/one");
      const bytes = newBody();
      await mustWrite(bench, { store: bench.store, name, bytes });
      const { modifiedAt } = await mustRead(bench.store, name, bytes);
      await eventually(bench, list, name, [name]);
      const [entry] = await list(name);
      assert.ok(entry !== undefined, "the record is listed");
      const apartMs = Math.abs(entry.modifiedAt - modifiedAt);
      assert.ok(apartMs <= bench.store.traits.clockGranularityMs, `${apartMs} ms apart`);
    });

    test("a listing whose signal has aborted rejects UNAVAILABLE", async (bench, list) => {
      const { prefix } = await thousandRecords(bench);
      const answer = await list(prefix, AbortSignal.abort()).catch((error: unknown) => error);
      assert.ok(StoreError.is(answer), "an aborted listing rejects with a StoreError");
      assert.equal(answer.code, "UNAVAILABLE", answer.message);
    });
  });
}

type List = (prefix: string, signal?: AbortSignal) => Promise<readonly ListedObject[]>;

async function listed(store: ConditionalStore, prefix: string, signal?: AbortSignal): Promise<readonly ListedObject[]> {
  const objects: ListedObject[] = [];
  for await (const object of store.list?.(prefix, { signal }) ?? []) objects.push(object);
  return objects;
}

async function writeAll(bench: Bench, names: readonly string[]): Promise<void> {
  const { store } = bench;
  await Promise.all(names.map((name) => mustWrite(bench, { store, name, bytes: newBody() })));
}

async function eventually(bench: Bench, list: List, prefix: string, names: readonly string[]): Promise<void> {
  const expected = names.toSorted();
  const patience = new Patience(bench);
  for (;;) {
    const found = (await list(prefix)).map(({ name }) => name).toSorted();
    if (found.length === expected.length && found.every((name, index) => name === expected[index])) return;
    await patience.pause(() => {
      const missing = expected.filter((name) => !found.includes(name));
      const more = found.filter((name) => !expected.includes(name));
      return (
        `list(${JSON.stringify(prefix)}) gave ${found.length} names and not ${expected.length}; missing: ` +
        `${JSON.stringify(missing.slice(0, 5))}, too many: ${JSON.stringify(more.slice(0, 5))}`
      );
    });
  }
}
