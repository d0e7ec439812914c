/**
 * Runs the steps of a check one after the other and ends, whatever happens, with one line that people and machines
 * read: `N passed, N failed, N skipped`. A step that fails does not keep the next from running; a step that ends
 * without saying what it did is a failure.
 *
 * Plain JavaScript without dependencies, like all that must work before anything is known to be installed.
 */

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

/**
 * @typedef {object} Step
 * @property {string} name
 * @property {readonly [string, ...string[]]} command what to spawn
 * @property {number} [limitMs] when to end a step that hangs
 * @property {"one" | "mocha"} counts a step counts as one, or as the tests that mocha's reporter (mocha-reporter.ts)
 *   reports
 *
 * @typedef {{ passed: number, failed: number, skipped: number, note?: string }} Counts
 */

const DEFAULT_LIMIT_MS = 40 * 60_000;
/** How long a step that was told to end may take to do so: the matrix stops its servers meanwhile. */
const GRACE_MS = 10_000;

/**
 * Runs `steps` in `root` and lets the process end with the closing line and the right exit code. Called once in a
 * process, which is then the runner's.
 *
 * @param {string} root
 * @param {readonly Step[]} steps
 * @returns {Promise<void>}
 */
export async function runSteps(root, steps) {
  const total = { passed: 0, failed: 0, skipped: 0 };
  const folder = mkdtempSync(join(tmpdir(), "firstwrite-steps-"));
  /** @type {string[]} */
  const summary = [];
  /** @type {NodeJS.Signals[]} */
  const interruptions = [];
  /** @type {((signal: NodeJS.Signals) => void) | undefined} */
  let end;
  let finished = false;

  // An exception nobody caught comes through here as well, with the stack already printed.
  process.once("exit", (code) => {
    end?.("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
    if (!finished) total.failed += 1;
    const why = finished ? "" : "the run ended before its steps did\n";
    const nothing = total.passed + total.failed === 0 ? "nothing ran\n" : "";
    process.stdout.write(
      `\n${summary.join("\n")}\n\n${why}${nothing}` +
        `${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`,
    );
    if (code === 0 && (total.failed > 0 || nothing !== "")) process.exitCode = 1;
  });
  for (const signal of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) {
    process.on(signal, () => {
      interruptions.push(signal);
      process.exitCode = 128 + constants.signals[signal];
      end?.(signal);
    });
  }

  for (const step of steps) {
    if (interruptions.length > 0) break;
    console.log(`\n── ${step.name}: ${step.command.join(" ")}`);
    const started = performance.now();
    const report = join(folder, `${step.name}.json`);
    const ended = await spawned(root, step, report, (kill) => (end = kill));
    const ending = interruptions.length === 0 ? ended : `interrupted by ${interruptions.join(", ")}`;
    const counts = step.counts === "mocha" ? mochaCounts(report, ending) : oneCount(ending);
    end = undefined;
    total.passed += counts.passed;
    total.failed += counts.failed;
    total.skipped += counts.skipped;
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    const line = `${counts.failed > 0 ? "✖" : "✔"} ${step.name} in ${seconds} s${counts.note ? `: ${counts.note}` : ""}`;
    summary.push(line);
    console.log(line);
  }
  finished = interruptions.length === 0;
}

/**
 * @param {string} root
 * @param {Step} step
 * @param {string} report
 * @param {(end: (signal: NodeJS.Signals) => void) => void} started
 * @returns {Promise<string | undefined>} how it ended; `undefined`: well
 */
async function spawned(root, step, report, started) {
  const [command, ...args] = step.command;
  // A process group of its own, so that ending a step ends what it started too. mocha's launcher, for one, does not
  // hand SIGTERM on to the process that runs the tests.
  const child = spawn(command, args, {
    cwd: root,
    detached: true,
    stdio: ["ignore", "inherit", "inherit"],
    env: {
      ...process.env,
      PATH: `${join(root, "node_modules/.bin")}${delimiter}${process.env["PATH"] ?? ""}`,
      FIRSTWRITE_MOCHA_REPORT: report,
    },
  });
  /** @param {NodeJS.Signals | 0} signal @returns {boolean} whether there was anyone to get it */
  const kill = (signal) => {
    try {
      return child.pid !== undefined && process.kill(-child.pid, signal);
    } catch {
      return false;
    }
  };
  /** @type {NodeJS.Timeout | undefined} */
  let grace;
  /** @param {NodeJS.Signals} signal */
  const end = (signal) => {
    kill(signal);
    grace ??= setTimeout(kill, GRACE_MS, "SIGKILL");
  };
  const limitMs = step.limitMs ?? DEFAULT_LIMIT_MS;
  let late = false;
  const limit = setTimeout(() => {
    late = true;
    end("SIGTERM");
  }, limitMs);
  started(end);

  /** @type {string | undefined} */
  const ending = await new Promise((resolve) => {
    child.once("error", (error) => resolve(`could not be started: ${error.message}`));
    child.once("exit", (code, signal) => {
      if (signal !== null) resolve(`ended by ${signal}`);
      else resolve(code === 0 ? undefined : `exit code ${code}`);
    });
  });
  clearTimeout(limit);
  // Told to end: let what the step started say its last words before the closing line.
  if (grace !== undefined) {
    for (let waitedMs = 0; waitedMs < GRACE_MS && kill(0); waitedMs += 50) await delay(50);
    kill("SIGKILL");
    clearTimeout(grace);
  }
  return late ? `ended after its limit of ${limitMs / 1000} s` : ending;
}

/**
 * @param {string | undefined} ending
 * @returns {Counts}
 */
function oneCount(ending) {
  return ending === undefined
    ? { passed: 1, failed: 0, skipped: 0 }
    : { passed: 0, failed: 1, skipped: 0, note: ending };
}

/**
 * @param {string} file
 * @param {string | undefined} ending
 * @returns {Counts}
 */
function mochaCounts(file, ending) {
  const counts = readCounts(file);
  if (counts === undefined) {
    return { passed: 0, failed: 1, skipped: 0, note: `mocha ended without a report (${ending ?? "exit code 0"})` };
  }
  const { passed, failed, skipped } = counts;
  const note = `${passed} passed, ${failed} failed, ${skipped} skipped`;
  // mocha fails a run for more than its tests: for none at all, or for a process that broke after the last of them.
  if (failed === 0 && (ending !== undefined || passed === 0)) {
    return { passed, failed: 1, skipped, note: `${note}, and then ${ending ?? "nothing had run"}` };
  }
  return { passed, failed, skipped, note };
}

/**
 * @param {string} file
 * @returns {Counts | undefined}
 */
function readCounts(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return undefined;
  }
}
