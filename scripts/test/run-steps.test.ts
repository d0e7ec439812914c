import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { Step } from "../run-steps.mjs";

const runner = new URL("../run-steps.mjs", import.meta.url).href;
const reporter = fileURLToPath(new URL("../mocha-reporter.ts", import.meta.url));
const mocha = fileURLToPath(import.meta.resolve("mocha/bin/mocha.js"));

const passing = 'it("passes", () => {});';

describe("the runner's closing line and exit code", () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "firstwrite-runner-"));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it("counts every test and every other step, and exits 0 when all of them pass", async () => {
    const run = await runs([await tests(`${passing} ${passing}`), step("fine", "0")]);
    assert.deepEqual(run, { line: "3 passed, 0 failed, 0 skipped", code: 0 });
  });

  it("counts a failing test, and still runs the steps after it", async () => {
    const run = await runs([
      await tests(`${passing} it("fails", () => { throw new Error("no"); });`),
      step("fine", "0"),
    ]);
    assert.deepEqual(run, { line: "2 passed, 1 failed, 0 skipped", code: 1 });
  });

  it("counts a hook that fails", async () => {
    const run = await runs([await tests(`before(() => { throw new Error("no"); }); ${passing}`)]);
    assert.deepEqual(run, { line: "0 passed, 1 failed, 0 skipped", code: 1 });
  });

  it("counts a file that does not load as one failure", async () => {
    const run = await runs([await tests(`${passing} import "./missing.mjs";`)]);
    assert.deepEqual(run, { line: "0 passed, 1 failed, 0 skipped", code: 1 });
  });

  it("fails when there is no test", async () => {
    assert.deepEqual(await runs([await tests("")]), { line: "0 passed, 1 failed, 0 skipped", code: 1 });
  });

  it("fails when there is no step", async () => {
    assert.deepEqual(await runs([]), { line: "0 passed, 0 failed, 0 skipped", code: 1 });
  });

  it("counts a pending test as skipped, and as failed where mocha forbids it, as in CI", async () => {
    const pending = `${passing} it("is pending");`;
    assert.deepEqual(await runs([await tests(pending)]), { line: "1 passed, 0 failed, 1 skipped", code: 0 });
    const forbidden = await runs([await tests(pending, "--forbid-pending")]);
    assert.deepEqual(forbidden, { line: "1 passed, 1 failed, 0 skipped", code: 1 });
  });

  it("fails when mocha dies half-way, without a report", async () => {
    const run = await runs([await tests(`${passing} it("dies", () => process.exit(0));`)]);
    assert.deepEqual(run, { line: "0 passed, 1 failed, 0 skipped", code: 1 });
  });

  it("fails when the process breaks after its last test", async () => {
    const run = await runs([await tests(`${passing} process.on("exit", () => { throw new Error("no"); });`)]);
    assert.deepEqual(run, { line: "1 passed, 1 failed, 0 skipped", code: 1 });
  });

  it("counts a step that fails, one that crashes and one that cannot be started", async () => {
    const missing: Step = { name: "missing", command: [join(folder, "no-such-program")], counts: "one" };
    const run = await runs([step("bad", "1"), step("crash", "(() => { throw new Error('no'); })()"), missing]);
    assert.deepEqual(run, { line: "0 passed, 3 failed, 0 skipped", code: 1 });
  });

  it("ends a step that hangs, and counts it as failed", async () => {
    const hanging: Step = { ...step("hangs", "0; setInterval(() => {}, 1000)"), limitMs: 200 };
    assert.deepEqual(await runs([hanging, step("fine", "0")]), { line: "1 passed, 1 failed, 0 skipped", code: 1 });
  });

  it("counts an exception of its own as a failure", async () => {
    const run = await runs([step("fine", "0")], 'setTimeout(() => { throw new Error("a bug in the runner"); }, 0);');
    assert.match(run.line, /^\d passed, 1 failed, 0 skipped$/);
    assert.notEqual(run.code, 0);
  });

  it("ends the running step on SIGINT, starts no other, and says so", async () => {
    const interrupting = step("interrupts", "0; process.kill(process.ppid, 'SIGINT'); setInterval(() => {}, 1000)");
    const run = await runs([interrupting, step("never", "0")]);
    assert.deepEqual(run, { line: "0 passed, 2 failed, 0 skipped", code: 130 });
  });

  /** A step that runs mocha, with our reporter, on one file of this text. */
  async function tests(source: string, ...options: string[]): Promise<Step> {
    const file = join(folder, "fixture.test.mjs");
    await writeFile(file, source);
    const command = [process.execPath, mocha, "--no-config", "--fail-zero", "--reporter", reporter, ...options, file];
    return { name: "tests", command: ["env", ...command], counts: "mocha" };
  }

  async function runs(steps: readonly Step[], prelude = ""): Promise<{ line: string; code: number | null }> {
    const main = join(folder, "main.mjs");
    const call = `await runSteps(${JSON.stringify(folder)}, ${JSON.stringify(steps)});`;
    await writeFile(main, `import { runSteps } from ${JSON.stringify(runner)}; ${prelude} ${call}`);
    const child = spawn(process.execPath, [main], { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for await (const chunk of child.stdout) output += String(chunk);
    const code = child.exitCode ?? (await new Promise<number | null>((resolve) => child.once("exit", resolve)));
    return { line: output.trimEnd().split("\n").at(-1) ?? "", code };
  }
});

function step(name: string, script: string): Step {
  return { name, command: [process.execPath, "--eval", `process.exitCode = ${script}`], counts: "one" };
}
