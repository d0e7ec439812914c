import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { installProblem } from "../install-state.mjs";

const lockfile = `lockfileVersion: '9.0'

importers:

  .:
    devDependencies:
      node:
        specifier: 24.1.0
        version: runtime:24.1.0

  packages/a:
    dependencies:
      '@scope/b':
        specifier: ^1.0.0
        version: 1.2.3

packages:

  '@scope/b@1.2.3':
    resolution: {}
`;

describe("the state of the install", () => {
  let root: string;

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "firstwrite-install-"));
    await write("package.json", JSON.stringify({ devDependencies: { node: "24.1.0" } }));
    await write("packages/a/package.json", JSON.stringify({ dependencies: { "@scope/b": "^1.0.0" } }));
    await write("pnpm-lock.yaml", lockfile);
    await write("node_modules/.pnpm/lock.yaml", lockfile);
    await write("node_modules/node/package.json", "{}");
    await write("packages/a/node_modules/@scope/b/package.json", "{}");
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  it("is whole when everything asked for is there", () => {
    assert.equal(installProblem(root, "24.9.9"), undefined);
  });

  it("is whole where these tests run, and looking takes under 100 ms", () => {
    const root = fileURLToPath(new URL("../..", import.meta.url));
    const tookMs = [1, 2, 3].map(() => {
      const started = performance.now();
      assert.equal(installProblem(root, process.versions.node), undefined);
      return performance.now() - started;
    });
    assert.ok(Math.min(...tookMs) < 100, `it took ${tookMs.join(", ")} ms`);
  });

  it("says which Node is wanted when another one runs", () => {
    assert.match(installProblem(root, "20.20.2") ?? "", /^Node 20\.20\.2 is running where .* Node 24\.1\.0: run `npx/);
  });

  it("says when nothing is installed, or an install did not end", async () => {
    await rm(join(root, "node_modules/.pnpm"), { recursive: true });
    assert.match(installProblem(root, "24.1.0") ?? "", /^Nothing is installed yet: run `npx/);
  });

  it("says when the lockfile has changed since", async () => {
    await write("pnpm-lock.yaml", lockfile.replace("1.2.3", "1.2.4"));
    assert.match(installProblem(root, "24.1.0") ?? "", /^What is installed is not what pnpm-lock\.yaml names/);
  });

  it("names a dependency that the lockfile does not have", async () => {
    await write("packages/a/package.json", JSON.stringify({ dependencies: { "@scope/b": "^2.0.0" } }));
    assert.match(installProblem(root, "24.1.0") ?? "", /does not have @scope\/b \^2\.0\.0, which packages\/a asks for/);
  });

  it("names a dependency whose files are gone", async () => {
    await rm(join(root, "packages/a/node_modules"), { recursive: true });
    assert.match(installProblem(root, "24.1.0") ?? "", /^@scope\/b, which packages\/a needs, is not installed/);
  });

  async function write(path: string, text: string): Promise<void> {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
});
