import assert from "node:assert/strict";

import { toVersion } from "@firstwrite/core";

import { emptyLedger, ledgerClient, RecordMovedError, type LedgerState } from "../src/model-ledger.ts";
import type { ServiceClient } from "../src/scenario.ts";

describe("the model of a ledger", () => {
  it("is left alone where the record that was to be settled with the row has moved: its fence, too", async () => {
    const ledger = emptyLedger();
    const service: ServiceClient<{ readonly ledger: LedgerState }> = {
      request: async (_label, apply) => apply({ ledger }, { replace: () => false }),
    };
    const settling = { name: "record", expected: toVersion("v1"), bytes: new Uint8Array() };
    const insert = ledgerClient({ unique: true, fenced: true }, service).insert(
      { operationId: "operation", attempt: 2, value: 5 },
      { settling },
    );
    await assert.rejects(insert, RecordMovedError);
    assert.deepEqual(ledger, emptyLedger());
  });
});
