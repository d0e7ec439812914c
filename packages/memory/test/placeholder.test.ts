import assert from "node:assert/strict";

describe("memory", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
