import { channel } from "node:diagnostics_channel";

import type { ConditionalStore } from "@firstwrite/core";

import { CannotRun, rowId, type Provisioned, type Row } from "../src/row.ts";
import { rows, selectRows } from "../src/rows.ts";
import { suites, type RowHarness } from "../src/suites.ts";

/** Heard by the reporter, which prints the row and the reason in the table after the run. */
const couldNotRun = channel("firstwrite:matrix:could-not-run");
/** A server may have to be built first, by another process even. */
const PROVISION_WITHIN_MS = 15 * 60_000;

describe("matrix", () => {
  const asked = selectRows(process.env["FIRSTWRITE_ROWS"]);
  const others = rows.filter((row) => !asked.includes(row));
  if (others.length > 0) {
    before(() => console.log(`  not asked for by FIRSTWRITE_ROWS: ${others.map(rowId).join(", ")}`));
  }
  for (const row of asked) describe(row.name, () => runRow(row));
});

function runRow(row: Row): void {
  let provisioned: Provisioned | undefined;

  before(`starts ${row.name}`, async function () {
    this.timeout(PROVISION_WITHIN_MS);
    try {
      provisioned = await row.provision();
    } catch (error) {
      if (!(error instanceof CannotRun)) throw error;
      couldNotRun.publish({ row: row.name, reason: error.message });
      // A machine of CI has what it takes, so there a row that cannot run is a fault.
      if (process.env["CI"] === "true") throw error;
      this.skip();
    }
  });
  after(`ends ${row.name}`, async () => provisioned?.close());

  const opened = (): Provisioned => provisioned ?? fail(`${row.name} was used before it was started`);
  const openSecond = (): Promise<ConditionalStore> =>
    opened().openSecond?.() ?? fail(`${row.name} says that it has a second client, and has none`);
  const harness: RowHarness = {
    row,
    place: opened,
    open: () => opened().open(),
    ...(row.second && { openSecond }),
  };
  for (const suite of suites) describe(suite.name, () => suite.register(harness));
}

function fail(message: string): never {
  throw new Error(message);
}
