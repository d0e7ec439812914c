import assert from "node:assert/strict";

import { balanceOf, Bank, newKey, pay, tenEuros } from "./service.ts";

describe("POST /v1/payouts", () => {
  it("pays once, replays the answer byte for byte, and refuses another amount", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const key = newKey();

    const first = await pay(service, key);
    assert.equal(first.status, 201, first.text);
    assert.equal(first.headers.get("idempotent-replayed"), null);
    assert.equal(first.headers.get("operation-id"), first.member("operation_id"));

    const again = await pay(service, key);
    assert.equal(again.status, 201);
    assert.equal(again.text, first.text);
    assert.equal(again.headers.get("idempotent-replayed"), "true");

    const other = await pay(service, key, { ...tenEuros, amount: "10.01" });
    assert.equal(other.status, 422);
    assert.equal(other.member("operation_id"), first.member("operation_id"));

    assert.equal(await balanceOf(service, "destination:acct_1"), 10_00n);
  });
});
