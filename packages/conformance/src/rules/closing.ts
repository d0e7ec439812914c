import assert from "node:assert/strict";

import type { ConditionalStore } from "@firstwrite/core";

import { mustRead, mustWrite, newRecord } from "../answers.ts";
import { newBody } from "../bench.ts";
import type { Suite } from "../suite.ts";

export function closingRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("closing, where there is something to close", () => {
    suite.test("close can be called twice, and closes no other store", async (bench) => {
      const { name, bytes } = await newRecord(bench);
      const another = await bench.openAnother();
      const write = { store: another.store, name: bench.name(), bytes: newBody() };
      await mustWrite(bench, write);
      await mustRead(another.store, write.name, write.bytes);
      if (another.store.close === undefined) {
        assert.equal("close" in another.store, false, "a store that has nothing to close has no `close`");
        bench.notRun("the store has no close()");
      } else {
        await another.store.close();
        await another.store.close();
      }
      await another.release();
      await mustRead(bench.store, name, bytes);
    });
  });
}
