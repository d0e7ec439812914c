import assert from "node:assert/strict";

import type { ConditionalStore } from "@firstwrite/core";

import { recordHistory } from "../history.ts";
import { checkLinearizability, describeHistory } from "../linearizability.ts";
import type { Suite } from "../suite.ts";

const histories = 10;

/** Random calls of several workers must have an order in which one register per name answers like that. */
export function historyRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("random histories", () => {
    suite.test(`${histories} random histories of 4 workers are linearizable`, async (bench) => {
      for (let count = 0; count < histories; count += 1) {
        const found = checkLinearizability(await recordHistory(bench, bench.seed + count));
        if (found.kind === "linearizable") continue;
        assert.fail(
          `history ${count} of seed ${bench.seed} fits no register: no order of all ${found.calls.length} calls on ` +
            `${found.name} explains their answers (to repeat: FIRSTWRITE_CONFORMANCE_SEED=${bench.seed})\n` +
            `${describeHistory(found.calls)}\nthe longest order that fits is\n${describeHistory(found.fits)}`,
        );
      }
    });
  });
}
