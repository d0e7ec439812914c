import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { StoreError, type CallOptions, type WriteOutcome } from "@firstwrite/core";
import { MemoryStore, type FaultTarget } from "@firstwrite/memory";
import { Tasks } from "@firstwrite/tasks";

import { submitLines } from "../src/submit-batch.ts";

const LINES = 200;
const CONCURRENCY = 8;
/** Of the creates, a record's and a task's, that come before access is withdrawn. */
const CREATES = 151;

/** Access to what `target` names is withdrawn in mid-batch, until {@link MemoryStore.heal}. */
class WithdrawnStore extends MemoryStore {
  readonly #target: FaultTarget;
  #creates = 0;
  reads = 0;
  writes = 0;

  constructor(target: FaultTarget) {
    super();
    this.#target = target;
  }

  override async create(name: string, bytes: Uint8Array, options?: CallOptions): Promise<WriteOutcome> {
    this.writes += 1;
    this.#creates += 1;
    if (this.#creates === CREATES) this.inject("denied", { ...this.#target, times: Infinity });
    return super.create(name, bytes, options);
  }

  override read(name: string, options?: CallOptions): ReturnType<MemoryStore["read"]> {
    this.reads += 1;
    return super.read(name, options);
  }
}

interface Summary {
  readonly lines: number;
  readonly created: number;
  readonly found: number;
  readonly recovered: number;
  readonly conflicts: number;
  readonly failed: number;
  readonly notSent: number;
  readonly faults: readonly string[];
}

describe("submit-batch, access withdrawn in mid-batch", () => {
  let folder: string;
  let path: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "firstwrite-cli-"));
    path = join(folder, "batch.jsonl");
    const lines = Array.from({ length: LINES }, (_, n) => JSON.stringify({ type: "t", input: { n }, key: `k${n}` }));
    writeFileSync(path, lines.join("\n"));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const withdrawals: readonly (readonly [title: string, target: FaultTarget, recovered: boolean])[] = [
    ["everything", {}, true],
    ["every write", { on: "write" }, true],
    ["the keys' records", { name: /^idempotency\// }, false],
    ["the tasks, whose keys are claimed then", { name: /^tasks\// }, true],
  ];
  for (const [title, target, recovered] of withdrawals) {
    it(`${title}: what was done is reported, nothing is lost or doubled, and the next run completes it`, async () => {
      const store = new WithdrawnStore(target);
      const tasks = new Tasks({ store });

      const first = await summaryOf(() =>
        assert.rejects(
          submitLines(tasks, path, { concurrency: CONCURRENCY, json: true }),
          (error) => StoreError.is(error) && error.code === "PERMISSION_DENIED",
        ),
      );
      store.heal();
      const made = await inputsOf(store, tasks);
      assert.deepEqual([first.lines, first.found, first.recovered, first.conflicts], [LINES, 0, 0, 0]);
      assert.equal(first.created, made.length, "each task that was made is reported, and no other");
      assert.ok(first.created > 50, `${first.created} were made before`);
      assert.ok(first.failed >= 1 && first.failed <= CONCURRENCY, "no line is begun after the first refusal is known");
      assert.equal(first.created + first.failed + first.notSent, LINES);
      assert.equal(first.faults.length, first.failed);
      for (const fault of first.faults) assert.match(fault, /^line \d+: .*PERMISSION_DENIED/);

      const second = await summaryOf(async () => {
        assert.equal(await submitLines(tasks, path, { concurrency: CONCURRENCY, json: true }), 0);
      });
      assert.equal(second.created + second.found + second.recovered, LINES);
      assert.equal(second.found, first.created);
      assert.equal(second.recovered > 0, recovered, "keys that were claimed without a task");
      assert.deepEqual(second.faults, []);
      assert.deepEqual(
        await inputsOf(store, tasks),
        Array.from({ length: LINES }, (_, n) => n),
      );
    });
  }

  it("all along: one refusal for each line under way, and no more requests", async () => {
    const store = new WithdrawnStore({});
    store.inject("denied", { times: Infinity });
    const summary = await summaryOf(() =>
      assert.rejects(
        submitLines(new Tasks({ store }), path, { concurrency: CONCURRENCY, json: true }),
        (error) => StoreError.is(error) && error.code === "PERMISSION_DENIED",
      ),
    );
    assert.equal(summary.created, 0);
    assert.ok(summary.failed <= CONCURRENCY);
    assert.equal(summary.failed + summary.notSent, LINES);
    assert.equal(store.writes + store.reads, summary.failed);
  });
});

/** The inputs of all tasks, in order: a line without a task leaves a gap, one with two a pair. */
async function inputsOf(store: MemoryStore, tasks: Tasks): Promise<number[]> {
  const inputs: number[] = [];
  for await (const { name } of store.list("tasks/")) {
    const task = await tasks.get(name.slice(name.lastIndexOf("/") + 1, -".json".length));
    const { input } = task ?? {};
    assert.ok(typeof input === "object" && input !== null && "n" in input && typeof input.n === "number");
    inputs.push(input.n);
  }
  return inputs.toSorted((a, b) => a - b);
}

/** What was printed on standard output, and that faults went to standard error. */
async function summaryOf(run: () => Promise<unknown>): Promise<Summary> {
  const { log, error } = console;
  const out: string[] = [];
  const err: string[] = [];
  console.log = (text: string) => out.push(text);
  console.error = (text: string) => err.push(text);
  try {
    await run();
  } finally {
    Object.assign(console, { log, error });
  }
  const summary: Summary = JSON.parse(out.join("\n"));
  assert.deepEqual(err, summary.faults);
  return summary;
}
