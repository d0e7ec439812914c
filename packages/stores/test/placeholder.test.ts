import assert from "node:assert/strict";

describe("stores", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
