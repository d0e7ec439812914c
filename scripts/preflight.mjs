/** Stands before a script in package.json: says in one sentence why it cannot run, or nothing. */

import { fileURLToPath } from "node:url";

import { installProblem } from "./install-state.mjs";

const problem = installProblem(fileURLToPath(new URL("..", import.meta.url)), process.versions.node);
if (problem !== undefined) {
  console.error(problem);
  process.exitCode = 1;
}
