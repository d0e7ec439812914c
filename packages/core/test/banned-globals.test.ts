import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** What would give the engine a clock, a timer or randomness behind the runtime's back. */
const banned: readonly string[] = [
  "export const a = Date.now();",
  "export const a = new Date();",
  "export const a = performance.now();",
  "setTimeout(() => {}, 1);",
  "setInterval(() => {}, 1);",
  "setImmediate(() => {});",
  "export const a = Math.random();",
  "export const a = crypto.randomUUID();",
  "export const a = AbortSignal.timeout(1);",
  "export const a = process.hrtime();",
  "export const a = globalThis.Date;",
  "export const a = globalThis.setTimeout;",
  "export const a = globalThis.crypto;",
  'import { setTimeout as later } from "node:timers"; export const a = later;',
  'import { setTimeout as later } from "timers"; export const a = later;',
  'import { setTimeout as later } from "node:timers/promises"; export const a = later;',
  'import { performance as clock } from "node:perf_hooks"; export const a = clock;',
  'import { randomBytes } from "node:crypto"; export const a = randomBytes;',
  'import { randomUUID } from "crypto"; export const a = randomUUID;',
  'import nodeCrypto from "node:crypto"; export const a = nodeCrypto;',
  'import * as nodeCrypto from "node:crypto"; export const a = nodeCrypto.randomBytes;',
];

const allowed: readonly string[] = [
  'import { createHash } from "node:crypto"; export const a = createHash;',
  "export const a = new AbortController();",
  "export const a = Math.min(1, 2);",
];

describe("lint: time, timers and randomness come from the Runtime alone", () => {
  let folder = "";
  let found = new Map<string, string>();

  before(async () => {
    // A copy of the layout outside the repository, so that no other run sees it.
    folder = mkdtempSync(join(tmpdir(), "firstwrite-lint-"));
    const src = join(folder, "packages/core/src");
    mkdirSync(src, { recursive: true });
    cpSync(join(root, ".oxlintrc.json"), join(folder, ".oxlintrc.json"));
    [...banned, ...allowed].forEach((code, nth) => writeFileSync(join(src, `f${nth}.ts`), `${code}\n`));
    writeFileSync(join(src, "runtime.ts"), "export const a = [Date.now(), Math.random(), setTimeout];\n");
    found = await lint(folder);
  });

  after(() => rmSync(folder, { recursive: true, force: true }));

  banned.forEach((code, nth) => {
    it(`refused: ${code}`, () =>
      assert.match(found.get(`f${nth}.ts`) ?? "", /from the injected Runtime \(runtime\.ts\)/));
  });

  allowed.forEach((code, nth) => {
    it(`allowed: ${code}`, () => assert.equal(found.get(`f${banned.length + nth}.ts`), undefined));
  });

  it("allowed in runtime.ts", () => assert.equal(found.get("runtime.ts"), undefined));
});

/** File name → the messages of our three rules. */
async function lint(cwd: string): Promise<Map<string, string>> {
  const binary = join(dirname(createRequire(import.meta.url).resolve("oxlint/package.json")), "bin/oxlint");
  const args = [binary, "--format=json", "-A", "all", "--config", ".oxlintrc.json", "packages"];
  const { promise, resolve } = Promise.withResolvers<string>();
  execFile(process.execPath, args, { cwd }, (_failed, stdout) => resolve(stdout));
  const report: { diagnostics: { filename: string; code: string; message: string; help?: string }[] } = JSON.parse(
    await promise,
  );
  const messages = new Map<string, string>();
  for (const { filename, code, message, help } of report.diagnostics) {
    if (!code.includes("no-restricted-")) continue;
    const file = filename.split("/").at(-1) ?? "";
    messages.set(file, `${messages.get(file) ?? ""}${message} ${help ?? ""}\n`);
  }
  return messages;
}
