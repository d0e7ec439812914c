import assert from "node:assert/strict";

describe("conformance", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
