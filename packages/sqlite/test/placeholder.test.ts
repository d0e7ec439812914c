import assert from "node:assert/strict";

describe("sqlite", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
