import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

const rows = (text: string): string[] =>
  Array.from(
    text.matchAll(/\| (`\w+`) +\|(.*)\|$/gm),
    ([, fault = "", row = ""]) =>
      `${fault} ${row.replaceAll("{@link MemoryStore.land}", "`land()`").replaceAll(/\s+/g, " ")}`,
  );

describe("the README of memory", () => {
  it("shows code that runs as it stands, one block after the other", () => {
    const blocks = Array.from(read("../README.md").matchAll(/```ts\n([^]*?)```/g), ([, code = ""]) => code);
    assert.equal(blocks.length, 2);
    const ran = spawnSync(
      process.execPath,
      ["--conditions=@firstwrite/source", "--input-type=module-typescript", "--eval", blocks.join("")],
      { cwd: import.meta.dirname, encoding: "utf8" },
    );
    assert.equal(ran.status, 0, ran.stderr);
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
