import assert from "node:assert/strict";

import { toVersion, type ConditionalStore } from "@firstwrite/core";

import { mustRead, mustWrite, rejection } from "../answers.ts";
import { newBody, type Bench } from "../bench.ts";
import type { Suite } from "../suite.ts";

/** P7, and the arguments every store refuses before it sends anything. */
export function argumentRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("what is refused before anything is sent (P7)", () => {
    for (const [title, name] of invalidNames) {
      suite.test(`a name ${title} is INVALID_ARGUMENT`, (bench) => eachCallRefuses(bench, name));
    }

    suite.test("a name that is one byte too long is INVALID_ARGUMENT", async (bench) => {
      const { nameBytesMax } = bench.store.traits;
      await eachCallRefuses(bench, "n".repeat(nameBytesMax + 1));
      // Short enough in characters.
      await eachCallRefuses(bench, "é".repeat(Math.floor(nameBytesMax / 2) + 1));
    });

    suite.test("a record that is one byte too long is INVALID_ARGUMENT, and changes nothing", async (bench) => {
      const { store } = bench;
      const { recordBytesMax } = store.traits;
      if (recordBytesMax > longestTried) {
        bench.notRun(`recordBytesMax is ${recordBytesMax}, and no more than ${longestTried} bytes are tried`);
        return;
      }
      const missing = bench.name();
      const write = { store, name: bench.name(), bytes: newBody() };
      const { version } = await mustWrite(bench, write);
      const tooLong = new Uint8Array(recordBytesMax + 1);
      const created = await rejection(store, "a create of a record too long", store.create(missing, tooLong));
      assert.equal(created.code, "INVALID_ARGUMENT");
      const replaced = await rejection(
        store,
        "a replace by a record too long",
        store.replace(write.name, version, tooLong),
      );
      assert.equal(replaced.code, "INVALID_ARGUMENT");
      await mustRead(store, missing, undefined);
      await mustRead(store, write.name, write.bytes);
    });

    suite.test(
      "what is INVALID_ARGUMENT sends no request",
      async (bench) => {
        const { store } = bench;
        const before = await bench.requests();
        for (const [, name] of invalidNames) await eachCallRefuses(bench, name);
        if (store.traits.recordBytesMax <= longestTried) {
          const tooLong = new Uint8Array(store.traits.recordBytesMax + 1);
          await rejection(store, "a create of a record too long", store.create(bench.name(), tooLong));
        }
        assert.equal((await bench.requests()) - before, 0, "requests sent");
      },
      ["requests"],
    );

    suite.test("the traits are numbers that callers can count with", async ({ store, second }) => {
      for (const { traits } of [store, second]) {
        assert.ok(typeof traits.name === "string" && traits.name !== "", "traits.name");
        assert.ok(Number.isSafeInteger(traits.nameBytesMax) && traits.nameBytesMax > 0, "traits.nameBytesMax");
        assert.ok(Number.isSafeInteger(traits.recordBytesMax) && traits.recordBytesMax > 0, "traits.recordBytesMax");
        assert.ok(
          Number.isFinite(traits.clockGranularityMs) && traits.clockGranularityMs >= 0,
          "traits.clockGranularityMs",
        );
      }
    });
  });
}

const longestTried = 256 * 1024 * 1024;

const invalidNames: readonly (readonly [string, string])[] = [
  ["that is empty", ""],
  ["with a lone high surrogate", "a\ud83e"],
  ["with a lone low surrogate", "\udd84a"],
  ["with a NUL", "a\0b"],
  ["with a line break", "a\nb"],
  ["with a carriage return", "a\rb"],
  ["with a delete character", "a\u007fb"],
  ["with a C1 control character", "a\u0085b"],
  ["with an empty segment", "a//b"],
  ["that begins with a slash", "/a"],
  ["that ends with a slash", "a/"],
  ['that is "."', "."],
  ['that is ".."', ".."],
  ['with a segment "."', "a/./b"],
  ['with a segment ".."', "a/../b"],
  ['that ends with a segment ".."', "a/.."],
];

async function eachCallRefuses({ store }: Bench, name: string): Promise<void> {
  const calls: readonly (readonly [string, () => Promise<unknown>])[] = [
    ["create", () => store.create(name, newBody())],
    ["replace", () => store.replace(name, toVersion("any"), newBody())],
    ["read", () => store.read(name)],
  ];
  for (const [operation, call] of calls) {
    const doing = `${operation}(${JSON.stringify(name.slice(0, 80))})`;
    const error = await rejection(store, doing, called(call));
    assert.equal(error.code, "INVALID_ARGUMENT", `${doing} was rejected: ${error.message}`);
  }
}

/** A call that throws where it should reject is told apart from one that rejects: callers that use `.catch` rely on it. */
function called(call: () => Promise<unknown>): Promise<unknown> {
  try {
    return call();
  } catch (error) {
    assert.fail(`threw at once instead of returning a promise that rejects: ${String(error)}`);
  }
}
