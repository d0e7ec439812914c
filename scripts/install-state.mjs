/**
 * Whether this folder can run what is in it. `pnpm run` installs first, but when that fails it only warns and runs the
 * script all the same, on whatever Node and packages there are; so the scripts ask here first.
 *
 * Plain JavaScript without imports of ours: it has to run on any Node, with nothing installed.
 */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const INSTALL = "run `npx --yes pnpm@12 install` in the project's folder and read what it says";

/**
 * @param {string} root the workspace's folder
 * @param {string} nodeVersion the version that runs, as `process.versions.node` gives it
 * @returns {string | undefined} one sentence for a person, with what to do; `undefined` when all is well
 */
export function installProblem(root, nodeVersion) {
  const manifest = readManifest(root);
  const wanted = manifest.devDependencies?.["node"] ?? "";
  if (major(nodeVersion) !== major(wanted)) {
    return `Node ${nodeVersion} is running where the project brings its own Node ${wanted}: ${INSTALL}.`;
  }

  // pnpm writes this copy when an install has ended well, and never before.
  const installed = readOptional(join(root, "node_modules/.pnpm/lock.yaml"));
  if (installed === undefined) return `Nothing is installed yet: ${INSTALL}.`;
  const locked = readOptional(join(root, "pnpm-lock.yaml"));
  if (locked === undefined) return "pnpm-lock.yaml is missing: bring it back with git.";
  if (installed !== locked) return `What is installed is not what pnpm-lock.yaml names: ${INSTALL}.`;

  for (const [member, specifiers] of lockedSpecifiers(locked)) {
    const { dependencies, devDependencies, optionalDependencies } = readManifest(join(root, member));
    for (const [name, specifier] of Object.entries({ ...optionalDependencies, ...devDependencies, ...dependencies })) {
      const place = member === "." ? "the workspace" : member;
      if (specifiers.get(name) !== specifier) {
        return `pnpm-lock.yaml does not have ${name} ${specifier}, which ${place} asks for: ${INSTALL}.`;
      }
      if (!existsSync(join(root, member, "node_modules", name, "package.json"))) {
        return `${name}, which ${place} needs, is not installed: ${INSTALL}.`;
      }
    }
  }
  return undefined;
}

/**
 * The `importers` of a lockfile: member → dependency → specifier. pnpm writes one shape of YAML, with the depth of a
 * line telling what it is, so that no parser is needed where none may be installed.
 *
 * @param {string} lockfile
 * @returns {Map<string, Map<string, string>>}
 */
function lockedSpecifiers(lockfile) {
  /** @type {Map<string, Map<string, string>>} */
  const members = new Map();
  /** @type {Map<string, string>} */
  let specifiers = new Map();
  let name = "";
  const start = lockfile.indexOf("\nimporters:\n");
  for (const line of lockfile
    .slice(start + 1)
    .split("\n")
    .slice(1)) {
    const [, indent = "", key = "", value = ""] = /^( *)([^:]+|'[^']+'):(?: (.+))?$/.exec(line) ?? [];
    if (line !== "" && indent === "") break;
    if (indent.length === 2) members.set(unquoted(key), (specifiers = new Map()));
    if (indent.length === 6) name = unquoted(key);
    if (indent.length === 8 && key === "specifier") specifiers.set(name, unquoted(value));
  }
  return members;
}

/** @param {string} scalar */
function unquoted(scalar) {
  return scalar.replace(/^'(.*)'$/, "$1");
}

/** @param {string} version */
function major(version) {
  return /\d+/.exec(version)?.[0];
}

/**
 * @param {string} folder
 * @returns {{ [field in "dependencies" | "devDependencies" | "optionalDependencies"]?: Record<string, string> }}
 */
function readManifest(folder) {
  return JSON.parse(readOptional(join(folder, "package.json")) ?? "{}");
}

/** @param {string} file */
function readOptional(file) {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}
