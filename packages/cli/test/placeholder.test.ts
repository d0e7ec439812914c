import assert from "node:assert/strict";

describe("cli", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
