/**
 * The one check of the project: `node scripts/test.mjs [--unit | --static]`.
 *
 * - no flag: everything that is known to check it
 * - `--unit`: types and the packages' tests; no server is started
 * - `--static`: types, lint, format
 */

import { fileURLToPath } from "node:url";

import { installProblem } from "./install-state.mjs";
import { runSteps } from "./run-steps.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const inCi = process.env["CI"] === "true";

/** @type {Record<string, import("./run-steps.mjs").Step>} */
const steps = {
  // First, and alone in looking at types: mocha runs a mistyped test happily.
  types: { name: "types", command: ["tsc", "-b"], counts: "one" },
  lint: { name: "lint", command: ["oxlint", "--deny-warnings"], counts: "one" },
  format: { name: "format", command: ["oxfmt", "--check"], counts: "one" },
  unused: { name: "unused", command: ["knip", "--no-config-hints"], counts: "one" },
  tests: { name: "tests", command: mocha(), counts: "mocha" },
  unit: { name: "tests", command: mocha("--ignore", "test-matrix/**"), counts: "mocha" },
  packages: { name: "packages", command: ["node", "scripts/check-packages.mjs"], counts: "one" },
};

/** @type {Record<string, string[]>} */
const plans = {
  "": ["types", "lint", "format", "unused", "tests", "packages"],
  "--unit": ["types", "unit"],
  "--static": ["types", "lint", "format"],
};

const plan = plans[process.argv.slice(2).join(" ")];
const problem = installProblem(root, process.versions.node);
if (plan === undefined) stop("usage: node scripts/test.mjs [--unit | --static]");
else if (problem !== undefined) stop(problem);
else
  await runSteps(
    root,
    plan.flatMap((name) => steps[name] ?? []),
  );

/**
 * @param {string[]} args
 * @returns {readonly [string, ...string[]]}
 */
function mocha(...args) {
  // `--exit`: left to end by itself, Node 24.21 was once seen to go on for ever in its own closing of handles, with all of
  // JavaScript done. `--forbid-pending`: a test that skips itself is a message to a person; nobody reads them in CI.
  return ["mocha", "--exit", ...(inCi ? ["--forbid-pending"] : []), ...args];
}

/** @param {string} why */
function stop(why) {
  console.error(why);
  console.log("0 passed, 1 failed, 0 skipped");
  process.exitCode = 1;
}
