import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { freePort } from "./free-port.ts";
import type { KeeperOrder, ServerUser } from "./keeper.ts";
import type { Command } from "./obtain.ts";

export interface ServerPlan {
  /** For messages. */
  readonly name: string;
  /** How it is started on a port of 127.0.0.1. */
  command(port: number): Command;
  readonly env?: Readonly<Record<string, string>>;
  /** A folder that is the server's and goes with it. */
  readonly folder?: string;
  /** Whom it runs as, where that is somebody else. */
  readonly user?: ServerUser;
  /** Whether it answers. By default: any HTTP answer counts, for a refusal shows a server as well as a welcome does. */
  ready?(port: number): Promise<boolean>;
  readonly readyWithinMs?: number;
}

export interface RunningServer {
  readonly port: number;
  /** The keeper's process id, which ends the server. */
  readonly pid: number;
  /** Ends it. @throws {Error} when it has ended by itself before, with what it printed. */
  stop(): Promise<void>;
}

const READY_WITHIN_MS = 30_000;
const PORT_TRIES = 5;
const OUTPUT_CHARS_MAX = 16_384;

/**
 * Starts a server, and returns when it answers.
 *
 * @throws {Error} when it ends or stays silent, with what it printed.
 */
export async function startServer(plan: ServerPlan): Promise<RunningServer> {
  for (let tries = 1; ; tries += 1) {
    const port = await freePort();
    const kept = new KeptServer(plan, port);
    if (await kept.becomesReady()) return kept;
    const output = await kept.end();
    const portWasTaken = /address (is )?already in use|EADDRINUSE/i.test(output);
    if (!portWasTaken || tries === PORT_TRIES) throw new Error(`${plan.name} did not start:\n${output}`);
  }
}

/** A server below its keeper (keeper.ts). */
class KeptServer implements RunningServer {
  readonly port: number;
  readonly #plan: ServerPlan;
  readonly #keeper: ChildProcess;
  readonly #exited: Promise<unknown>;
  #hasExited = false;
  #output = "";

  constructor(plan: ServerPlan, port: number) {
    this.port = port;
    this.#plan = plan;
    const { env = {}, folder, user } = plan;
    const order: KeeperOrder = { command: plan.command(port), env, folder, ...(user && { user }) };
    const keeper = spawn(
      process.execPath,
      [fileURLToPath(new URL("keeper.ts", import.meta.url)), JSON.stringify(order)],
      // Detached: Ctrl-C at a terminal goes to a whole process group, and it is for us to say when the server ends.
      { detached: true, stdio: ["pipe", "pipe", "pipe"] },
    );
    this.#keeper = keeper;
    this.#exited = once(keeper, "close").then(() => (this.#hasExited = true));
    for (const stream of [keeper.stdout, keeper.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        this.#output = (this.#output + text).slice(-OUTPUT_CHARS_MAX);
      });
    }
    // A keeper that is gone is seen by its exit.
    keeper.stdin.on("error", () => undefined);
  }

  get pid(): number {
    if (this.#keeper.pid === undefined) throw new Error(`${this.#plan.name} was not started`);
    return this.#keeper.pid;
  }

  async becomesReady(): Promise<boolean> {
    const deadline = performance.now() + (this.#plan.readyWithinMs ?? READY_WITHIN_MS);
    while (!this.#hasExited && performance.now() < deadline) {
      if (await this.#answers()) return !this.#hasExited;
      await Promise.race([delay(50), this.#exited]);
    }
    return false;
  }

  #answers(): Promise<boolean> {
    return this.#plan.ready?.(this.port) ?? answersHttp(this.port);
  }

  /** Ends it if it runs, and gives what it printed. */
  async end(): Promise<string> {
    this.#keeper.stdin?.end();
    await this.#exited;
    return this.#output.trim();
  }

  async stop(): Promise<void> {
    const endedByItself = this.#hasExited;
    const output = await this.end();
    if (endedByItself) throw new Error(`${this.#plan.name} ended by itself:\n${output}`);
  }
}

async function answersHttp(port: number): Promise<boolean> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}/`, { signal: AbortSignal.timeout(1_000) });
    await response.body?.cancel();
    return true;
  } catch {
    return false;
  }
}
