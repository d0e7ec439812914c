/**
 * A program of its own that runs one server for as long as whoever started it lives. It reads its input, a pipe that
 * nobody writes to: when that ends, its starter has closed it or is gone, killed or crashed, and the server goes too.
 * No handler in the starter could see to that, for none runs on SIGKILL.
 */

import { spawn } from "node:child_process";
import { rmSync } from "node:fs";

/** The one argument, as JSON. */
export interface KeeperOrder {
  readonly command: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string>>;
  /** Removed, with all that is in it, when the server was told to end. One that ends by itself may be started again. */
  readonly folder: string | undefined;
  /** Whom the server runs as, where that is somebody else. */
  readonly user?: ServerUser;
}

export interface ServerUser {
  readonly uid: number;
  readonly gid: number;
}

const GRACE_MS = 2_000;

let told = false;
const order: KeeperOrder = JSON.parse(process.argv[2] ?? "");
const [program, ...args] = order.command;
const server = spawn(program, args, {
  // A process group of its own, so that what the server starts is ended with it.
  detached: true,
  stdio: ["ignore", "inherit", "inherit"],
  env: { ...process.env, ...order.env },
  ...order.user,
});

server.once("error", (error) => {
  console.error(`${program} could not be started: ${error.message}`);
  leave(127);
});
server.once("exit", (code) => leave(code ?? 1));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, end);
process.stdin.on("end", end).on("error", end).resume();

function end(): void {
  told = true;
  kill("SIGTERM");
  setTimeout(() => kill("SIGKILL"), GRACE_MS);
}

function kill(signal: NodeJS.Signals): void {
  try {
    if (server.pid !== undefined) process.kill(-server.pid, signal);
  } catch {
    // It has ended by itself.
  }
}

function leave(code: number): void {
  kill("SIGKILL");
  // A second gateway on the same folder may still be writing its last file: hence the tries.
  if (told && order.folder !== undefined) rmSync(order.folder, { recursive: true, force: true, maxRetries: 10 });
  process.exit(code);
}
