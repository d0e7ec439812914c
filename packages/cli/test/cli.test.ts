import assert from "node:assert/strict";
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { recordAddress } from "@firstwrite/core";
import { openStore } from "@firstwrite/stores";

const program = new URL("../src/main.ts", import.meta.url).pathname;
const nodeOptions = ["--conditions=@firstwrite/source", program];

describe("firstwrite", function () {
  this.timeout(60_000);
  let folder: string;
  const running: ChildProcess[] = [];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "firstwrite-cli-"));
    writeFileSync(join(folder, "in.json"), '{"amount": 5}');
  });
  afterEach(() => {
    for (const child of running.splice(0)) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });

  const run = (words: string[], options: { input?: string; env?: NodeJS.ProcessEnv } = {}) =>
    spawnSync(process.execPath, [...nodeOptions, ...words], {
      cwd: folder,
      encoding: "utf8",
      timeout: 30_000,
      env: { ...environment(), ...options.env },
      input: options.input ?? "",
    });
  const start = (...words: string[]): ChildProcess => {
    const child = spawn(process.execPath, [...nodeOptions, ...words], {
      cwd: folder,
      env: environment(),
      stdio: "ignore",
    });
    running.push(child);
    return child;
  };
  const batchFile = (lines: number): string => {
    const path = join(folder, "batch.jsonl");
    const text = Array.from({ length: lines }, (_, n) => JSON.stringify({ type: "t", input: { n }, key: `k${n}` }));
    writeFileSync(path, `${text.join("\n")}\n`);
    return path;
  };
  const countTasks = async (): Promise<number> => {
    const store = await openStore(`sqlite:${join(folder, ".firstwrite/store.db")}`);
    let count = 0;
    for await (const _ of store.list?.("tasks/") ?? []) count += 1;
    await store.close?.();
    return count;
  };

  it("submit prints the task and whether it is new; again, the same task; from a file or from standard input", () => {
    const first = JSON.parse(run(["submit", "charge", "--input", "in.json", "--key", "k"]).stdout);
    assert.equal(first.new, true);
    assert.deepEqual(first.input, { amount: 5 });
    const again = JSON.parse(run(["submit", "charge", "--input", "-", "--key", "k"], { input: '{"amount":5}' }).stdout);
    assert.deepEqual(again, { ...first, new: false });
  });

  it("submit takes scope, TTL and phases", async () => {
    const words = ["submit", "charge", "--input", "in.json", "--key", "k"];
    run([...words, "--scope", "queue", "--ttl-days", "2", "--phases", "2"]);
    const store = await openStore(`sqlite:${join(folder, ".firstwrite/store.db")}`);
    const records: unknown[] = [];
    for await (const { name } of store.list?.("idempotency/queue/") ?? []) {
      const { ttl_ms, phases, status } = JSON.parse(Buffer.from((await store.read(name))?.bytes ?? []).toString());
      records.push([ttl_ms, phases, status]);
    }
    await store.close?.();
    assert.deepEqual(records, [[2 * 86_400_000, 2, "ready"]]);
  });

  it("task get and task finish print the task", () => {
    const { task_id: id } = JSON.parse(run(["submit", "charge", "--input", "in.json"]).stdout);
    assert.equal(JSON.parse(run(["task", "get", id]).stdout).state, "pending");
    assert.equal(JSON.parse(run(["task", "finish", id]).stdout).state, "finished");
    assert.equal(JSON.parse(run(["task", "get", id]).stdout).state, "finished");
  });

  it("--version prints the version of the package, and nothing else", () => {
    const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
    for (const option of ["--version", "-V"]) {
      const { status, stdout, stderr } = run([option]);
      assert.deepEqual([status, stdout, stderr], [0, `${version}\n`, ""]);
    }
  });

  const exits: [string, string[], number, RegExp][] = [
    ["help", ["--help"], 0, /^$/],
    ["no command", [], 2, /Usage/],
    ["an option it does not have", ["submit", "t", "--input", "in.json", "--nope"], 2, /unknown option/],
    ["no input", ["submit", "t"], 2, /--input/],
    ["an input file that is not there", ["submit", "t", "--input", "none.json"], 2, /none\.json/],
    ["input that is not JSON", ["submit", "t", "--input", "-"], 2, /not JSON/],
    ["a number that is none", ["submit", "t", "--input", "in.json", "--ttl-days", "x"], 2, /must be a number/],
    ["a TTL below a day", ["submit", "t", "--input", "in.json", "--key", "k", "--ttl-days", "0.5"], 2, /at least 1/],
    ["phases it does not have", ["submit", "t", "--input", "in.json", "--phases", "3"], 2, /must be 1 or 2/],
    ["a store it does not know", ["submit", "t", "--input", "in.json", "--store", "ftp://x"], 2, /begins with none of/],
    [
      "a store that is not there",
      ["task", "get", "3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11", "--store", "sqlite:in.json/y.db"],
      1,
      /sqlite/,
    ],
    ["an ID that is none", ["task", "get", "x"], 2, /UUID/],
    ["a task that is not there", ["task", "get", "3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11"], 4, /there is no task/],
    ["a batch file that is not there", ["submit-batch", "none.jsonl"], 2, /none\.jsonl/],
    ["a concurrency of none", ["submit-batch", "none.jsonl", "--concurrency", "0"], 2, /from 1 to 256/],
  ];
  for (const [title, words, status, message] of exits) {
    it(`ends with ${status} for ${title}`, () => {
      const ended = run(words, { input: "{" });
      assert.equal(ended.status, status, ended.stderr);
      assert.match(ended.stderr, message);
      assert.doesNotMatch(ended.stderr, /^ {4}at /m, "a mistake of the caller's is told without a stack");
    });
  }

  it("ends with 3 for a conflict, and names the task of the key", () => {
    const { task_id: id } = JSON.parse(run(["submit", "charge", "--input", "in.json", "--key", "k"]).stdout);
    const ended = run(["submit", "charge", "--input", "-", "--key", "k"], { input: '{"amount":6}' });
    assert.equal(ended.status, 3);
    assert.match(ended.stderr, new RegExp(`conflict: .*${id}`));
    assert.equal(ended.stdout, "");
  });

  it("FIRSTWRITE_STORE names the store, and --store overrides it", () => {
    const env = { FIRSTWRITE_STORE: `sqlite:${join(folder, "other.db")}` };
    run(["submit", "charge", "--input", "in.json", "--key", "k"], { env });
    const here = JSON.parse(run(["submit", "charge", "--input", "in.json", "--key", "k"], { env }).stdout);
    assert.equal(here.new, false);
    const there = run(["submit", "charge", "--input", "in.json", "--key", "k", "--store", "memory:"], { env });
    assert.equal(JSON.parse(there.stdout).new, true);
  });

  it("submit-batch sums up as a table or as JSON; a conflict is no failure", async () => {
    const path = batchFile(50);
    assert.match(run(["submit-batch", path]).stdout, /new tasks\W+50\W/);
    writeFileSync(path, '{"type":"t","input":{"n":"other"},"key":"k7"}\n\n{"type":"t","input":{"n":8},"key":"k8"}\n');
    const ended = run(["submit-batch", path, "--json"]);
    assert.equal(ended.status, 0);
    const { faults, ...counts } = JSON.parse(ended.stdout);
    assert.deepEqual(counts, { lines: 2, created: 0, found: 1, recovered: 0, conflicts: 1, failed: 0, notSent: 0 });
    assert.match(faults[0], /^line 1: .*another input/);
    assert.equal(await countTasks(), 50);
  });

  it("submit-batch sends nothing of a file with a bad line, and names the bad ones", async () => {
    const path = join(folder, "bad.jsonl");
    const good = '{"type":"t","input":1,"key":"a"}';
    writeFileSync(
      path,
      [
        good,
        "{",
        "[]",
        '{"type":"t","input":1}',
        '{"type":"t","key":"a"}',
        '{"type":"t","input":1,"key":"a","x":1}',
      ].join("\n"),
    );
    const ended = run(["submit-batch", path]);
    assert.equal(ended.status, 2);
    for (const line of [2, 3, 4, 5, 6]) assert.match(ended.stderr, new RegExp(`line ${line} `));
    assert.doesNotMatch(ended.stderr, /line 1 /);
    assert.equal(await countTasks(), 0);
  });

  it("submit-batch refuses a pipe, which it could read only once, and says so", () => {
    const { status, stderr } = run(["submit-batch", "/dev/stdin"], { input: '{"type":"t","input":1,"key":"k"}\n' });
    assert.equal(status, 2);
    assert.match(stderr, /can be read only once: save it to a file/);
  });

  it("submit-batch sends nothing of a file with a line that cannot be submitted", async () => {
    const path = join(folder, "some.jsonl");
    const lines = [
      { type: "t", input: 1, key: "a" },
      { type: "t", input: 1, key: "x".repeat(300) },
      { type: "queue", input: 1, key: "b" },
      { type: "t", input: 1, key: "c", ttl_days: 0.5 },
    ];
    writeFileSync(path, lines.map((line) => JSON.stringify(line)).join("\n"));
    const ended = run(["submit-batch", path]);
    assert.equal(ended.status, 2);
    assert.match(
      ended.stderr,
      /^nothing was sent:\nline 2: the idempotency key is 300 characters long.*\nline 3: .*\nline 4: /,
    );
    assert.equal(await countTasks(), 0);
  });

  it("a line that fails ends the batch with 1, and the others are done", async () => {
    const path = batchFile(3);
    run(["submit-batch", path]);
    const store = await openStore(`sqlite:${join(folder, ".firstwrite/store.db")}`);
    const { name } = recordAddress("idempotency/", "t", "k1");
    const record = await store.read(name);
    assert.ok(record);
    await store.replace(name, record.version, Buffer.from("no record"));
    await store.close?.();
    const ended = run(["submit-batch", path, "--json"]);
    assert.equal(ended.status, 1);
    assert.match(ended.stderr, /^line 2: .*CORRUPT/);
    assert.deepEqual([JSON.parse(ended.stdout).found, JSON.parse(ended.stdout).failed], [2, 1]);
  });

  for (const signal of ["SIGKILL", "SIGINT"] as const) {
    it(`submit-batch stopped by ${signal} at any point and started again ends with the same tasks`, async () => {
      const lines = 4000;
      const path = batchFile(lines);
      for (let round = 0; round < 2; round += 1) {
        const before = await countTasks();
        const batch = start("submit-batch", path);
        const exited = once(batch, "exit");
        // In mid-stream: as soon as the store shows that this run has made tasks.
        while (batch.exitCode === null && (await countTasks()) < before + 20) await sleep(5);
        batch.kill(signal);
        const [code] = await exited;
        assert.equal(code, signal === "SIGINT" ? 130 : null);
      }
      const midway = await countTasks();
      const summary = JSON.parse(run(["submit-batch", path, "--json"]).stdout);
      assert.equal(summary.created + summary.found + summary.recovered, lines);
      assert.equal(await countTasks(), lines);
      assert.equal(JSON.parse(run(["submit-batch", path, "--json"]).stdout).found, lines);
      assert.ok(midway < lines, "it was stopped in mid-stream");
    });
  }
});

/** This process's, without a store that whoever runs the tests may have set. */
function environment(): NodeJS.ProcessEnv {
  const { FIRSTWRITE_STORE: _, ...rest } = process.env;
  return rest;
}
