type Result = "passed" | "failed" | "skipped";

/**
 * What the matrix did, as a table of rows and suites. It goes by the titles of the tests (`matrix`, row, suite, …) and
 * by what test-matrix announces of rows it could not run, so that a new row or suite needs nothing here.
 */
export class MatrixTable {
  readonly #cells = new Map<string, Map<string, Record<Result, number>>>();
  readonly #reasons = new Map<string, string>();

  add(titlePath: readonly string[], result: Result): void {
    const [root, row, suite] = titlePath;
    if (root !== "matrix" || row === undefined || suite === undefined) return;
    const isHook = suite.startsWith('"');
    // In CI the hook that found a row unable to run fails; the row says so itself.
    if (isHook && this.#reasons.has(row)) return;
    const column = isHook ? "hooks" : suite;
    const cells = this.#cells.get(row) ?? new Map<string, Record<Result, number>>();
    const counts = cells.get(column) ?? { passed: 0, failed: 0, skipped: 0 };
    counts[result] += 1;
    this.#cells.set(row, cells.set(column, counts));
  }

  /** Takes the message of the channel `firstwrite:matrix:could-not-run`. */
  couldNotRun(message: unknown): void {
    if (typeof message !== "object" || message === null || !("row" in message) || !("reason" in message)) return;
    const row = String(message.row);
    this.#reasons.set(row, String(message.reason));
    if (!this.#cells.has(row)) this.#cells.set(row, new Map());
  }

  /** The table, or `""` when no row of the matrix was part of the run. */
  print(): string {
    const rows = Array.from(this.#cells.keys());
    if (rows.length === 0) return "";
    const suites = Array.from(new Set(Array.from(this.#cells.values()).flatMap((cells) => Array.from(cells.keys()))));
    const lines = [
      ["matrix", ...suites],
      ...rows.map((row) => [row, ...suites.map((suite) => this.#cell(row, suite))]),
    ];
    const widths = ["matrix", ...suites].map((_, column) =>
      Math.max(...lines.map((line) => line[column]?.length ?? 0)),
    );
    const table = lines.map((line) => line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("   "));
    const reasons = Array.from(this.#reasons, ([row, reason]) => `${row} could not run: ${reason}`);
    return [...table.map((line) => `  ${line.trimEnd()}`), "", ...reasons.map((line) => `  ${line}`)].join("\n");
  }

  #cell(row: string, suite: string): string {
    if (this.#reasons.has(row)) return "could not run";
    const counts = this.#cells.get(row)?.get(suite);
    if (counts === undefined) return "";
    return (["passed", "failed", "skipped"] as const)
      .filter((result) => counts[result] > 0)
      .map((result) => `${counts[result]} ${result}`)
      .join(", ");
  }
}
