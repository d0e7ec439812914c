/**
 * Processes that share one place for records and one ledger, killed at random and started again, until every operation has
 * been answered by one of them; then one more that answers all. What must hold is checked by {@link storm} itself.
 */

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { Ledger } from "./ledger.ts";
import type { Report } from "./worker.ts";

const worker = fileURLToPath(new URL("worker.ts", import.meta.url));
const PROCESSES = 4;
/** Below this part of the operations nobody is killed any more: the last few would be killed over and over. */
const CALM_BELOW = 0.1;

export interface StormOptions {
  readonly url: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly operations: number;
  /** Gives the storm up, in milliseconds. */
  readonly withinMs: number;
}

export interface StormResult {
  readonly operations: number;
  readonly payments: number;
  readonly kills: number;
  readonly takeovers: number;
  readonly answers: number;
  readonly seconds: number;
}

/** @throws {AssertionError} when an operation was paid twice or not at all, or two answers to one key differ. */
export async function storm(options: StormOptions): Promise<StormResult> {
  const folder = await mkdtemp(join(tmpdir(), "firstwrite-storm-"));
  try {
    return await new Storm(options, join(folder, "ledger.db")).run();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

class Storm {
  readonly #options: StormOptions;
  readonly #ledgerPath: string;
  readonly #keys: readonly string[];
  /** By key, the answers, each by the process that gave it. */
  readonly #answers = new Map<
    string,
    { readonly by: number; readonly operationId: string; readonly answer: string }[]
  >();
  readonly #living = new Set<ChildProcess>();
  #started = 0;
  #kills = 0;
  #takeovers = 0;

  constructor(options: StormOptions, ledgerPath: string) {
    this.#options = options;
    this.#ledgerPath = ledgerPath;
    const kinds = ["pay", "pay", "pay", "again", "decline"];
    this.#keys = Array.from({ length: options.operations }, (_, index) => `${kinds[index % kinds.length]} ${index}`);
  }

  async run(): Promise<StormResult> {
    const startedAt = performance.now();
    // Its tables are made once, before four processes would each make them.
    const ledger = new Ledger(this.#ledgerPath);
    try {
      const deadline = startedAt + this.#options.withinMs;
      await Promise.all(Array.from({ length: PROCESSES }, () => this.#live(deadline)));
      assert.deepEqual(this.#unanswered(), [], "every operation is answered in time");
      const last = this.#start(this.#keys);
      assert.equal(await last.ended, 0, "a process that nobody kills answers everything");
      this.#check(ledger, last.number);
    } finally {
      for (const process of this.#living) process.kill("SIGKILL");
      ledger.close();
    }
    return {
      operations: this.#keys.length,
      payments: this.#payments().length,
      kills: this.#kills,
      takeovers: this.#takeovers,
      answers: [...this.#answers.values()].reduce((sum, answers) => sum + answers.length, 0),
      seconds: (performance.now() - startedAt) / 1000,
    };
  }

  /** One of the processes, killed and started again until all is answered. */
  async #live(deadline: number): Promise<void> {
    for (let left = this.#unanswered(); left.length > 0 && performance.now() < deadline; left = this.#unanswered()) {
      const startedAt = performance.now();
      const { process, isUp, ended } = this.#start(left);
      const up = await Promise.race([isUp.then(() => true), ended.then(() => false)]);
      // Lives about as long as it took to start: on a slow machine the storm would else be starts alone.
      const lifeMsMax = Math.max(1_000, 2 * (performance.now() - startedAt));
      if (up) await Promise.race([ended, sleep(50 + Math.random() * lifeMsMax)]);
      if (process.exitCode === null && this.#unanswered().length >= this.#keys.length * CALM_BELOW) {
        this.#kills += 1;
        process.kill("SIGKILL");
      }
      const code = await ended;
      assert.ok(code === 0 || code === null, `a process ended by itself with ${code}`);
    }
  }

  #start(keys: readonly string[]): {
    readonly number: number;
    readonly process: ChildProcess;
    readonly isUp: Promise<void>;
    readonly ended: Promise<number | null>;
  } {
    this.#started += 1;
    const number = this.#started;
    const child = spawn(process.execPath, [...process.execArgv, worker, this.#options.url, this.#ledgerPath], {
      env: { ...process.env, ...this.#options.env },
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#living.add(child);
    const { promise: isUp, resolve: up } = Promise.withResolvers<void>();
    createInterface({ input: child.stdout }).on("line", (line) => {
      const report = reportOf(line);
      if (report?.kind === "up") up();
      if (report?.kind === "takeover") this.#takeovers += 1;
      if (report?.kind === "answer") this.#note(number, report);
    });
    // A process that is killed before it has read them all.
    child.stdin.on("error", () => {});
    child.stdin.end(keys.join("\n"));
    const ended = once(child, "close").then((event: unknown[]) => {
      this.#living.delete(child);
      return typeof event[0] === "number" ? event[0] : null;
    });
    return { number, process: child, isUp, ended };
  }

  #note(by: number, { key, operationId, answer }: Extract<Report, { kind: "answer" }>): void {
    const answers = this.#answers.get(key) ?? [];
    this.#answers.set(key, [...answers, { by, operationId, answer }]);
  }

  #unanswered(): string[] {
    return this.#keys.filter((key) => !this.#answers.has(key));
  }

  #payments(): string[] {
    return this.#keys.filter((key) => !key.startsWith("decline"));
  }

  #check(ledger: Ledger, last: number): void {
    for (const key of this.#keys) {
      const answers = this.#answers.get(key) ?? [];
      assert.ok(
        answers.some(({ by }) => by === last),
        `${key} is answered to the last process`,
      );
      const distinct = new Set(answers.map(({ operationId, answer }) => `${operationId} ${answer}`));
      assert.equal(distinct.size, 1, `every answer to ${key} is the same: ${[...distinct].join(" | ")}`);
    }
    const rows = ledger.all();
    assert.deepEqual(rows.map(({ key }) => key).toSorted(), this.#payments().toSorted(), "one payment for each key");
    for (const row of rows) {
      const [answer] = this.#answers.get(row.key) ?? [];
      assert.equal(
        answer?.operationId,
        row.operationId,
        `the payment of ${row.key} is of the operation that was answered`,
      );
      assert.deepEqual(JSON.parse(answer.answer), row, `the answer to ${row.key} is the payment`);
    }
    assert.ok(this.#kills >= PROCESSES, `the storm was calm: ${this.#kills} kills`);
    assert.ok(this.#takeovers > 0, "no operation was taken over, so that no kill met one");
  }
}

/** `undefined` for a line that a process was killed in the middle of. */
function reportOf(line: string): Report | undefined {
  try {
    const report: Report = JSON.parse(line);
    return report;
  } catch {
    return undefined;
  }
}
