import assert from "node:assert/strict";

describe("simulator", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
