import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = new URL("../../", import.meta.url).pathname;
const readme = readFileSync(join(root, "README.md"), "utf8");

describe("README.md", () => {
  const blocks = [...readme.matchAll(/<!-- run.*?-->\s+```ts\n(.*?)```/gs)].map(([, code]) => code ?? "");

  it("has its two examples", () => assert.equal(blocks.length, 2));

  for (const [index, code] of blocks.entries()) {
    it(`example ${index + 1} runs, and prints what it says`, () => {
      // Beside a member that has all the packages it names.
      const folder = mkdtempSync(join(root, "examples/quickstart/.readme-"));
      try {
        const file = join(folder, "example.ts");
        writeFileSync(file, code);
        const ran = spawnSync(process.execPath, ["--conditions=@firstwrite/source", file], { encoding: "utf8" });
        assert.equal(ran.status, 0, ran.stderr);
        const [, said] = /console\.log\(.*\); \/\/ (.*)/.exec(code) ?? [];
        if (said !== undefined) assert.equal(ran.stdout.trim(), said);
        else assert.match(ran.stdout, /^INV-[0-9a-f-]{36} true\n$/);
      } finally {
        rmSync(folder, { recursive: true });
      }
    });
  }

  it("names commands that exist", () => {
    const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    const named = [...readme.matchAll(/(?:`|^npx --yes |\| )pnpm(?:@12)? ([a-z:-]+)/gm)].map(([, name]) => name ?? "");
    assert.ok(named.length > 6);
    for (const name of new Set(named)) assert.ok(name in scripts, `there is no script ${name}`);
  });

  it("names command lines that the program takes", () => {
    const folder = mkdtempSync(join(tmpdir(), "firstwrite-readme-"));
    try {
      writeFileSync(join(folder, "orders.jsonl"), '{"type":"t","input":1,"key":"k"}\n');
      const [, lines = ""] = /<!-- check.*?-->\s+```sh\n(.*?)```/s.exec(readme) ?? [];
      const program = `${process.execPath} --conditions=@firstwrite/source ${join(root, "packages/cli/src/main.ts")}`;
      const ends = lines
        .trim()
        .split("\n")
        .map((line) => spawnSync("sh", ["-c", line.replace("pnpm firstwrite", program)], { cwd: folder }).status);
      // The last one asks for a task that is not there.
      assert.deepEqual(ends, [0, 0, 4]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
