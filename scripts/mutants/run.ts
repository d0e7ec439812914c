/**
 * `pnpm test:mutants [NAME …]`: the engine with one line changed at a time, each of which must make a test fail. Prints what
 * killed each and, at the end, `N of N mutants killed`; fails when one lives.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

import { countLines, mutants, type Mutant } from "./mutants.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const MUTANT_MS_MAX = 300_000;

interface Verdict {
  readonly killed: boolean;
  readonly by: string;
}

const asked = process.argv.slice(2);
const strange = asked.filter((name) => !mutants.some((mutant) => mutant.name === name));
if (strange.length > 0) {
  console.error(`no mutant is called ${strange.join(", ")}: there are ${mutants.map(({ name }) => name).join(", ")}`);
  process.exit(2);
}
const chosen = asked.length === 0 ? mutants : mutants.filter(({ name }) => asked.includes(name));
for (const mutant of chosen) checkFits(mutant);

// Nothing is learnt from a mutant that fails a test which fails anyway.
for (const tests of new Set(chosen.map(({ tests }) => tests))) {
  const { killed, by } = await run(tests, undefined);
  if (killed) {
    console.error(`${tests} fails without a mutant: ${by}`);
    process.exit(1);
  }
}

const queue = [...chosen];
let killed = 0;
const lives: string[] = [];
await Promise.all(Array.from({ length: Math.max(1, availableParallelism() - 1) }, work));
console.log(`\n${killed} of ${chosen.length} mutants killed`);
if (lives.length > 0) {
  console.log(`living: ${lives.join(", ")}`);
  process.exitCode = 1;
}

async function work(): Promise<void> {
  for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
    const verdict = await run(mutant.tests, mutant);
    if (verdict.killed) killed += 1;
    else lives.push(mutant.name);
    console.log(
      `${verdict.killed ? "killed" : "LIVES "}  ${mutant.rule.padEnd(9)} ${mutant.name}\n          by ${verdict.by}`,
    );
  }
}

/** Runs test files until the first failure. */
async function run(tests: string, mutant: Mutant | undefined): Promise<Verdict> {
  const hook =
    mutant === undefined ? [] : ["--node-option", `import=${fileURLToPath(new URL("mutate.ts", import.meta.url))}`];
  const mocha = spawn(
    "mocha",
    [
      "--no-config",
      "--exit",
      "--bail",
      "--timeout",
      "60000",
      "--reporter",
      "json",
      "--node-option",
      "conditions=@firstwrite/source",
      ...hook,
      ...tests.split(" "),
    ],
    { cwd: root, env: { ...process.env, FIRSTWRITE_MUTANT: mutant?.name }, stdio: ["ignore", "pipe", "pipe"] },
  );
  // One that makes the engine spin or wait for ever has been noticed, too.
  const timer = setTimeout(() => mocha.kill("SIGKILL"), MUTANT_MS_MAX);
  const [printed, errors] = await Promise.all([text(mocha.stdout), text(mocha.stderr), once(mocha, "close")]);
  clearTimeout(timer);
  if (mocha.signalCode === "SIGKILL") return { killed: true, by: `no end within ${MUTANT_MS_MAX / 1000} s` };
  const title = firstFailure(printed);
  if (title !== undefined) return { killed: true, by: title };
  if (mocha.exitCode === 0) return { killed: false, by: "nothing" };
  throw new Error(`the tests of ${mutant?.name ?? tests} did not run:\n${printed.slice(-2000)}\n${errors}`);
}

function firstFailure(printed: string): string | undefined {
  // Tests print lines of their own before the report.
  const report: { failures: { fullTitle: string }[] } = JSON.parse(printed.slice(printed.indexOf('{\n  "stats"')));
  return report.failures[0]?.fullTitle;
}

function checkFits(mutant: Mutant): void {
  if (countLines(mutant) === 1) return;
  throw new Error(`${mutant.name}: its line must stand once in ${mutant.file}: ${mutant.line}`);
}
