import assert from "node:assert/strict";

describe("core", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
