import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

describe("pnpm-lock.yaml", () => {
  it("names packages and checksums only, so that it installs from whatever registry a machine is set up for", async () => {
    const lockfile = await readFile(new URL("../../pnpm-lock.yaml", import.meta.url), "utf8");
    const places = lockfile.split("\n").filter((line) => /tarball:|https?:\/\/|git\+|\.tgz/.test(line));
    assert.deepEqual(places, []);
  });
});
