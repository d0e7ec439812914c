import assert from "node:assert/strict";
import { channel } from "node:diagnostics_channel";

import { probeStore } from "@firstwrite/core";

import { controls } from "../src/controls.ts";
import { CannotRun } from "../src/row.ts";

const TIMES = 10;
const couldNotRun = channel("firstwrite:matrix:could-not-run");

describe("negative controls", () => {
  // As the rows: a person who asks for some rows does not ask for these.
  const asked = process.env["FIRSTWRITE_ROWS"] === undefined;
  for (const { name, failsAt, provision } of asked ? controls : []) {
    it(`${name} is refused by probeStore, ${TIMES} times of ${TIMES}`, async function () {
      this.timeout(15 * 60_000);
      const place = await provision().catch((error: unknown) => {
        if (!(error instanceof CannotRun)) throw error;
        couldNotRun.publish({ row: name, reason: error.message });
        if (process.env["CI"] === "true") throw error;
        return this.skip();
      });
      try {
        const store = await place.open();
        for (let time = 1; time <= TIMES; time += 1) {
          const { usable, findings } = await probeStore(store);
          const wrong = findings.filter(({ ok }) => !ok);
          assert.equal(usable, false, `probe ${time} found nothing wrong`);
          for (const { check, sentence } of wrong) assert.ok(failsAt.includes(check), sentence);
        }
      } finally {
        await place.close();
      }
    });
  }
});
