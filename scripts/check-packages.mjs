/**
 * Looks at every public package as npm would get it: packed by pnpm, which resolves `workspace:` and `catalog:` and puts
 * `publishConfig` in place. publint reads the manifest and the files, attw resolves the types the way importers will.
 * `tsc -b` must have built them.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = mkdtempSync(join(tmpdir(), "firstwrite-packed-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

let failed = 0;
let checked = 0;
for (const name of readdirSync("packages")) {
  const manifest = JSON.parse(readFileSync(join("packages", name, "package.json"), "utf8"));
  if (manifest.private === true) continue;
  const tarball = join(folder, `${name}.tgz`);
  checked += 1;
  const sound =
    run(...pnpm(), "--dir", join("packages", name), "pack", "--out", tarball) &&
    run("publint", "run", "--strict", tarball) &&
    // A package with no `exports` is a program: nobody imports its types.
    (manifest.exports === undefined ||
      run("attw", "--profile", "esm-only", "--no-definitely-typed", "--format", "ascii", tarball));
  console.log(`${sound ? "✔" : "✖"} ${manifest.name}`);
  if (!sound) failed += 1;
}
if (checked === 0) console.log("no public package was found under packages/");
if (failed > 0 || checked === 0) process.exitCode = 1;

/**
 * @param {string} command
 * @param {string[]} args
 * @returns {boolean} whether it went well; its output is shown when not
 */
function run(command, ...args) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: "utf8" });
  if (status === 0) return true;
  console.log(`${command} ${args.join(" ")}\n${stdout ?? ""}${stderr ?? ""}${error?.message ?? ""}`);
  return false;
}

/** The pnpm that runs this script, or else the one the project names. @returns {[string, ...string[]]} */
function pnpm() {
  const running = process.env["npm_execpath"];
  const isPnpm = process.env["npm_config_user_agent"]?.startsWith("pnpm/") === true;
  return isPnpm && running !== undefined ? [running] : ["npx", "--yes", "pnpm@12"];
}
