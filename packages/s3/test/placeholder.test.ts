import assert from "node:assert/strict";

describe("s3", () => {
  it("loads", () => {
    assert.ok(true);
  });
});
