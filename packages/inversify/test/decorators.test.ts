import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

describe("example: a class with decorators", () => {
  it("is given its Idempotency by the container", function () {
    this.timeout(60_000);
    const project = fileURLToPath(new URL("decorators", import.meta.url));
    const root = fileURLToPath(new URL("../../..", import.meta.url));
    const built = spawnSync("tsc", ["-b", project], {
      encoding: "utf8",
      env: { ...process.env, PATH: `${root}/node_modules/.bin:${process.env["PATH"]}` },
    });
    assert.equal(built.status, 0, built.stdout + built.stderr);
    const output = fileURLToPath(new URL("../dist-test/decorators/invoices.js", import.meta.url));
    const ran = spawnSync(process.execPath, ["--conditions=@firstwrite/source", output], { encoding: "utf8" });
    assert.equal(ran.stdout, "true\n", ran.stderr);
  });
});
