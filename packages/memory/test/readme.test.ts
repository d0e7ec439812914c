import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

const rows = (text: string): string[] =>
  Array.from(
    text.matchAll(/\| (`\w+`) +\|(.*)\|$/gm),
    ([, fault = "", row = ""]) =>
      `${fault} ${row.replaceAll("{@link MemoryStore.land}", "`land()`").replaceAll(/\s+/g, " ")}`,
  );

describe("the README of memory", () => {
  it("shows code of the example test, which runs", () => {
    const example = unindented(read("./example.test.ts"));
    const blocks = Array.from(read("../README.md").matchAll(/```ts\n([^]*?)```/g), ([, code = ""]) => unindented(code));
    assert.ok(blocks.length > 0);
    for (const block of blocks) {
      // Parts between blank lines, each of which stands in the example as it is.
      for (const part of block.split("\n\n")) assert.ok(example.includes(part.trim()), part);
    }
  });

  it("has the faults as the source has them", () => {
    const inSource = rows(read("../src/memory-store.ts"));
    assert.equal(inSource.length, 7);
    assert.deepEqual(rows(read("../README.md")), inSource);
  });
});

function read(path: string): string {
  return readFileSync(new URL(path, import.meta.url), "utf8");
}

function unindented(code: string): string {
  return code.replaceAll(/^ +/gm, "");
}
