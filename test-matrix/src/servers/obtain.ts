/**
 * Servers are no dependencies of the workspace: what only the matrix needs should cost nobody else a download. A server
 * is taken from PATH, or installed once for the user.
 */

import { execFile, type ExecFileOptions } from "node:child_process";
import { constants } from "node:fs";
import { access, mkdir, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, delimiter, dirname, isAbsolute, join } from "node:path";
import { promisify } from "node:util";

import { CannotRun } from "../row.ts";
import { withLock } from "./with-lock.ts";

export type Command = readonly [program: string, ...args: string[]];

type Environment = Readonly<Record<string, string | undefined>>;

export interface Tool {
  readonly name: string;
  readonly version: string;
  /** What it is called in PATH; `undefined` where one from there will not do. */
  readonly program: string | undefined;
  /** The program that {@link install} begins with. */
  readonly installer: string;
  /** For the line printed before an installation: `two minutes`. */
  readonly installTakes: string;
  /** Puts it into `folder`, which is renamed when that is done: nothing in it may name the folder. */
  install(folder: string): Promise<void>;
  /** How the one in `folder` is started. */
  installed(folder: string): Command;
}

/** How `tool` is started on this machine. @throws {CannotRun} where it is not there and cannot be installed. */
export async function obtain(tool: Tool, env: Environment = process.env): Promise<Command> {
  const inPath = tool.program === undefined ? undefined : await findProgram(tool.program, env);
  if (inPath !== undefined && (await works(inPath))) {
    console.log(`${tool.name}: ${inPath}, from PATH`);
    return [inPath];
  }

  const folder = join(cacheFolder(env), `${tool.name}-${tool.version}`);
  if (!(await exists(folder))) {
    await mkdir(dirname(folder), { recursive: true });
    await withLock(`${folder}.lock`, async () => {
      if (!(await exists(folder))) await install(tool, folder, env);
    });
  }
  return tool.installed(folder);
}

/** Installs beside `folder` and renames, so that a folder of that name is always a whole installation. */
async function install(tool: Tool, folder: string, env: Environment): Promise<void> {
  if ((await findProgram(tool.installer, env)) === undefined) {
    throw new CannotRun(`${tool.installer}, which would install ${tool.name}, is not in PATH`);
  }
  const partial = `${folder}.partial-`;
  // Under the lock nobody else is installing, so what is there was left by a run that was killed.
  for (const entry of await readdir(dirname(folder))) {
    if (entry.startsWith(basename(partial))) await rm(join(dirname(folder), entry), { recursive: true, force: true });
  }
  const into = await mkdtemp(partial);
  console.log(`installing ${tool.name} ${tool.version} into ${folder}: once, and takes about ${tool.installTakes}`);
  try {
    await tool.install(into);
    await rename(into, folder);
  } catch (error) {
    await rm(into, { recursive: true, force: true });
    throw new CannotRun(`${tool.name} ${tool.version} could not be installed: ${message(error)}`, { cause: error });
  }
}

/** Runs an installer; what it printed is in the error when it fails. */
export async function runInstaller(command: Command, options: ExecFileOptions = {}): Promise<void> {
  const [program, ...args] = command;
  await promisify(execFile)(program, args, { maxBuffer: 64 * 1024 * 1024, ...options });
}

/** Where tools are kept: by the XDG rules, under which a relative path is ignored. */
function cacheFolder(env: Environment): string {
  const configured = env["XDG_CACHE_HOME"];
  const base = configured !== undefined && isAbsolute(configured) ? configured : join(homedir(), ".cache");
  return join(base, "firstwrite");
}

async function findProgram(name: string, env: Environment): Promise<string | undefined> {
  for (const folder of (env["PATH"] ?? "").split(delimiter)) {
    const file = join(folder, name);
    if (isAbsolute(folder) && (await isExecutable(file))) return file;
  }
  return undefined;
}

/** Version managers leave programs in PATH that only say which version to choose. */
async function works(program: string): Promise<boolean> {
  try {
    await promisify(execFile)(program, ["--help"]);
    return true;
  } catch {
    return false;
  }
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    return false;
  }
}

function message(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const output = "stderr" in error ? String(error.stderr).trim() : "";
  return output === "" ? error.message : `${error.message.split("\n", 1).join("")}\n${output}`;
}
