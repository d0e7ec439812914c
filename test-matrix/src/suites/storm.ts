import assert from "node:assert/strict";

import { storm as blow } from "../storm/storm.ts";
import type { MatrixSuite } from "../suites.ts";

/** Four processes on the row's server and one ledger, killed at random: `pnpm storm` for more. */
export const storm: MatrixSuite = {
  name: "storm",
  register({ row, place }) {
    // One process's store cannot be shared by four.
    if (!row.second) return;

    it("500 operations, processes killed at random: one payment each, and every answer the same", async function () {
      this.timeout(240_000);
      const { url, env = {} } = place();
      assert.ok(url !== undefined);
      const { payments, kills, takeovers, answers, seconds } = await blow({
        url,
        env,
        operations: 500,
        withinMs: 200_000,
      });
      console.log(
        `      500 operations, ${payments} payments, ${kills} kills, ${takeovers} takeovers, ${answers} answers, ${seconds.toFixed(0)} s`,
      );
    });
  },
};
