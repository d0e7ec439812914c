import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { openStore } from "@firstwrite/stores";
import { Tasks } from "@firstwrite/tasks";

const job = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const fixture = new URL("fixtures/producer-ends.ts", import.meta.url).href;

describe("the main job", function () {
  this.timeout(180_000);
  let folder: string;
  let store: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "firstwrite-webhooks-"));
    store = `sqlite:${join(folder, "store.db")}`;
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  interface Ended {
    readonly code: number | null;
    readonly printed: string;
    readonly errors: string;
  }

  async function run(env: NodeJS.ProcessEnv = {}, ...more: string[]): Promise<Ended> {
    const line = ["--conditions=@firstwrite/source", job, "--store", store, "--seed", "1", ...more];
    const child = spawn(process.execPath, line, {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: 120_000,
    });
    const [printed, errors, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
    return { code, printed, errors };
  }

  const runWith = (ends: string): Promise<Ended> =>
    run({ NODE_OPTIONS: `--import=${fixture}`, PRODUCER_ENDS: ends, PRODUCER_FOLDER: folder });

  const producers = (): number[] =>
    readdirSync(folder)
      .filter((name) => name.endsWith(".pid"))
      .map((name) => Number.parseInt(name, 10));

  const endings: readonly (readonly [title: string, ends: string, said: RegExp])[] = [
    ["is killed in mid-stream, and not by the job", "SIGKILL", /^a producer ended by itself \(SIGKILL\)/m],
    ["ends in mid-stream as if all were done", "0", /^a producer ended by itself \(0\)/m],
    ["cannot start", "at-once", /this producer was not to start[^]*^a producer ended by itself \(1\)/m],
  ];
  for (const [title, ends, said] of endings) {
    it(`a producer that ${title} is reported, the job fails and leaves no producer behind, and the next run completes it`, async () => {
      const { code, printed, errors } = await runWith(ends);
      assert.equal(code, 1, printed + errors);
      assert.match(errors, said);
      assert.doesNotMatch(printed, /webhooks lost/, "no table that looks like a result");
      assert.ok(producers().length > 0);
      await gone(producers());

      const again = await run();
      assert.equal(again.code, 0, again.printed + again.errors);
      assert.deepEqual(
        numbers(again, ["webhook tasks in the store", "webhooks lost", "webhooks doubled"]),
        [329, 0, 0],
      );
    });
  }

  it("the fixture alone changes nothing: the job it is loaded into succeeds", async () => {
    const { code, printed, errors } = await runWith("");
    assert.equal(code, 0, printed + errors);
    assert.equal(producers().length, 4);
  });

  it("tasks that another program puts into the store meanwhile are not new in this run", async () => {
    const opened = await openStore(store);
    const tasks = new Tasks({ store: opened });
    const enough = new AbortController();
    let others = 0;
    const meanwhile = (async () => {
      for (; !enough.signal.aborted; others += 1) await tasks.submit("reports.weekly", { others });
    })();
    const first = await run();
    enough.abort();
    await meanwhile;
    await opened.close?.();
    assert.equal(first.code, 0, first.printed + first.errors);
    assert.ok(others > 10);
    assert.deepEqual(numbers(first, ["new in this run"]), [329]);
  });

  it("sends as many as it is told, and refuses a number that is none of theirs", async () => {
    const few = await run({}, "--webhooks", "20");
    assert.equal(few.code, 0, few.printed + few.errors);
    assert.deepEqual(numbers(few, ["webhooks", "webhook tasks in the store", "new in this run"]), [20, 20, 20]);
    for (const count of ["0", "330", "1.5", "all"]) {
      const { code, errors } = await run({}, "--webhooks", count);
      assert.equal(code, 2, errors);
      assert.match(errors, /from 1 to 329/);
    }
  });

  it("two jobs at once on one store: each succeeds, and a task that one of them made is not new in the other", async () => {
    const both = await Promise.all([run(), run()]);
    for (const { code, printed, errors } of both) assert.equal(code, 0, printed + errors);
    const made = both.flatMap((ended) => numbers(ended, ["new in this run"]));
    const sum = made.reduce((a, b) => a + b, 0);
    // A claim of the one that the other completes is told by both, and so is what the killed producers had in hand.
    assert.ok(sum >= 329 && sum < 329 + 100, `${made.join(" and ")} new tasks`);
  });
});

/** The numbers of those lines of the table. */
function numbers({ printed }: { readonly printed: string }, titles: readonly string[]): number[] {
  return titles.map((title) => Number(new RegExp(`│ +${title} +│ +(\\d+) │`).exec(printed)?.[1]));
}

async function gone(pids: readonly number[]): Promise<void> {
  const alive = (): readonly number[] => pids.filter(isAlive);
  // Killed before the job ended, and gone as soon as the system has come to it.
  for (let waits = 0; alive().length > 0 && waits < 100; waits += 1) await pause(50);
  assert.deepEqual(alive(), []);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
