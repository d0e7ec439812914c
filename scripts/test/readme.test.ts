import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = new URL("../../", import.meta.url).pathname;
const readme = readFileSync(join(root, "README.md"), "utf8");

/** What each example prints, by the README it is in. */
const examples: Readonly<Record<string, readonly RegExp[]>> = {
  "README.md": [/^true false true\n$/, /^\{ paid: 1250 \} true 1\n$/, /^INV-[0-9a-f-]{36} true\n$/],
  "packages/simulator/README.md": [/^Error: protocol §7, rule 6: /, /^\{ schedules: \d+, states: \d+ \}\n/],
  "packages/core/README.md": [/^\{ payoutId: 'po_([0-9a-f-]{36})' \} \1 false true\n$/],
  "packages/sqlite/README.md": [/^\{ paid: 1250 \} true 1\n$/],
  "packages/http/README.md": [/^201 true 422 1\n$/, /^400 201 true 1\n$/],
};

const homes: Readonly<Record<string, string>> = {
  "packages/simulator/README.md": "packages/simulator",
  "packages/sqlite/README.md": "packages/sqlite",
};

for (const [path, printed] of Object.entries(examples)) {
  describe(`examples of ${path}`, () => {
    const text = readFileSync(join(root, path), "utf8");
    const blocks = [...text.matchAll(/<!-- run.*?-->\s+```ts\n(.*?)```(?:\s+```text\n(.*?)```)?/gs)];
    // A member that has all the packages the examples name.
    const beside = homes[path] ?? "examples/quickstart";

    it("are as many as are known here", () => assert.equal(blocks.length, printed.length));

    for (const [index, [, code = "", output]] of blocks.entries()) {
      it(`${index + 1} runs, and prints what it says`, () => {
        const folder = mkdtempSync(join(root, beside, ".readme-"));
        try {
          const file = join(folder, "example.ts");
          writeFileSync(file, code);
          const ran = spawnSync(process.execPath, ["--conditions=@firstwrite/source", file], {
            encoding: "utf8",
            cwd: folder,
          });
          assert.equal(ran.status, 0, ran.stderr);
          assert.match(ran.stdout, printed[index] ?? /^$/);
          if (output !== undefined) assert.equal(ran.stdout, output);
          const [, said] = /console\.log\(.*\); \/\/ (.*)/.exec(code) ?? [];
          if (said !== undefined && !said.includes("…")) assert.equal(ran.stdout.trim(), said);
        } finally {
          rmSync(folder, { recursive: true });
        }
      });
    }
  });
}

describe("README.md", () => {
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
