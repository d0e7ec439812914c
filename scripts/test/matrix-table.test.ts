import assert from "node:assert/strict";

import { MatrixTable } from "../matrix-table.ts";

describe("the matrix's table", () => {
  it("is empty when no row was part of the run", () => {
    const table = new MatrixTable();
    table.add(["core", "loads"], "passed");
    assert.equal(table.print(), "");
  });

  it("has a line for every row, a column for every suite, and the reason where a row could not run", () => {
    const table = new MatrixTable();
    table.add(["matrix", "memory", "conformance", "a"], "passed");
    table.add(["matrix", "memory", "conformance", "b"], "passed");
    table.add(["matrix", "memory", "tasks", "c"], "failed");
    table.add(["matrix", "slow", '"before all" hook: starts slow'], "failed");
    table.couldNotRun({ row: "moto", reason: "python3 is not in PATH" });
    table.add(["matrix", "moto", "conformance", "a"], "skipped");
    table.add(["matrix", "moto", '"before all" hook: starts moto'], "failed");
    assert.deepEqual(table.print().split("\n"), [
      "  matrix   conformance     tasks           hooks",
      "  memory   2 passed        1 failed",
      "  slow                                     1 failed",
      "  moto     could not run   could not run   could not run",
      "",
      "  moto could not run: python3 is not in PATH",
    ]);
  });
});
