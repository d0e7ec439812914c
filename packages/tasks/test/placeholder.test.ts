import assert from "node:assert/strict";

describe("tasks", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
