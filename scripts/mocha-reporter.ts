/**
 * mocha's own `spec` output, and after it what that leaves out: the counts in a file for the outer runner (run-steps.mjs)
 * when it asks, and the matrix's table of rows and suites.
 */

import { subscribe } from "node:diagnostics_channel";
import { writeFileSync } from "node:fs";

import Mocha from "mocha";

import { MatrixTable } from "./matrix-table.ts";

export default class Reporter extends Mocha.reporters.Spec {
  readonly #matrix = new MatrixTable();

  constructor(runner: Mocha.Runner, options: Mocha.MochaOptions) {
    super(runner, options);
    const { EVENT_TEST_PASS, EVENT_TEST_FAIL, EVENT_TEST_PENDING } = Mocha.Runner.constants;
    runner.on(EVENT_TEST_PASS, (test) => this.#matrix.add(test.titlePath(), "passed"));
    // A hook that fails is reported here too, as the test it kept from running.
    runner.on(EVENT_TEST_FAIL, (test) => this.#matrix.add(test.titlePath(), "failed"));
    runner.on(EVENT_TEST_PENDING, (test) => this.#matrix.add(test.titlePath(), "skipped"));
    subscribe("firstwrite:matrix:could-not-run", (message) => this.#matrix.couldNotRun(message));
  }

  override epilogue(): void {
    super.epilogue();
    const table = this.#matrix.print();
    if (table !== "") Mocha.reporters.Base.consoleLog(table);

    const report = process.env["FIRSTWRITE_MOCHA_REPORT"];
    if (report === undefined) return;
    const { passes, failures, pending } = this.stats;
    writeFileSync(report, JSON.stringify({ passed: passes, failed: failures, skipped: pending }));
  }
}
