import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { checkConformance, storeConformance, type ConformanceRunner, type StoreHarness } from "@firstwrite/conformance";
import {
  brokenStores,
  lossyStore,
  memoryHarness,
  oddStores,
  soundClient,
  type BrokenStore,
  type OddStore,
} from "@firstwrite/conformance/broken";
import { toVersion } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";

import { startAll } from "./pool.ts";
import { prefixed } from "./prefixed.ts";

const plain: StoreHarness = { open: async () => new MemoryStore() };

describe("the suite on a store with nothing but the port", () => {
  storeConformance({ describe, it, before, after, print: () => undefined }, plain);
});

describe("the suite on a store below a prefix of another", () => {
  storeConformance(
    { describe, it, before, after },
    memoryHarness((service) => () => prefixed(soundClient(service), "tenant a/")),
  );
});

describe("the suite lets pass a store that", function () {
  // A test may have to wait for the runs of others.
  this.timeout(60_000);
  let passed: (store: OddStore) => Promise<void>;

  before(() => {
    passed = startAll(oddStores, async ({ clientsOf }) => {
      const { failed } = await checkConformance(memoryHarness(clientsOf, { patienceMs: 5_000 }));
      assert.deepEqual(failed, []);
    });
  });

  for (const store of oddStores) it(store.name, () => passed(store));

  it(lossyStore.name, async () => {
    const harness = memoryHarness(lossyStore.clientsOf);
    const { failed } = await checkConformance({
      open: () => harness.open(),
      openSecond: () => harness.open(),
      patienceMs: 5_000,
    });
    assert.deepEqual(failed, []);
  });
});

describe("the suite cannot see, and so lets pass", () => {
  it("a write sent twice, where the harness counts no requests and makes no faults", async () => {
    await letsPass(brokenStore("sends every write twice, and believes the first answer").clientsOf);
  });

  it("a lost reply told as a refusal, where the harness makes no faults", async () => {
    const resends = "sends a create again when its reply is lost, and reports its own write as refused";
    await letsPass(brokenStore(resends).clientsOf);
  });

  it("one acknowledged write lost in a hundred thousand", async () => {
    await letsPass((service) => () => {
      const sound = soundClient(service);
      let creates = 0;
      return {
        ...sound,
        async create(...call) {
          creates += 1;
          return creates % 100_000 === 0
            ? { kind: "written", version: toVersion("lost"), at: Date.now() }
            : sound.create(...call);
        },
      };
    });
  });
});

/** Passes before a harness that can only open one client. */
async function letsPass(clientsOf: BrokenStore["clientsOf"]): Promise<void> {
  const harness = memoryHarness(clientsOf);
  const { failed } = await checkConformance({ open: () => harness.open() });
  assert.deepEqual(failed, []);
}

function brokenStore(name: string): BrokenStore {
  return brokenStores.find((broken) => broken.name === name) ?? assert.fail(`there is no broken store that ${name}`);
}

describe("the suite as a function", () => {
  it("runs under node:test", async () => {
    const file = fileURLToPath(new URL("under-node-test.ts", import.meta.url));
    const { stdout } = await promisify(execFile)(process.execPath, [...conditions, "--test-reporter=tap", file], {
      // A runner that finds itself in another's child process reports to that one instead.
      env: { ...process.env, NODE_TEST_CONTEXT: undefined },
      maxBuffer: 16 * 1024 * 1024,
    });
    assert.match(stdout, /^ +ok \d+ - one of 32 creators of a name wins, 20 times$/m);
    assert.match(stdout, /^# fail 0$/m);
    const passed = Number(/^# pass (\d+)$/m.exec(stdout)?.[1]);
    assert.ok(passed > 100, `${passed} tests passed`);
    assert.match(stdout, /not run: "what is INVALID_ARGUMENT sends no request": the harness offers no requests\(\)/);
  });

  it("fails under node:test where a store is broken", async () => {
    const file = fileURLToPath(new URL("under-node-test.ts", import.meta.url));
    const run = promisify(execFile)(process.execPath, [...conditions, "--test-reporter=tap", file, "broken"], {
      env: { ...process.env, NODE_TEST_CONTEXT: undefined },
      maxBuffer: 16 * 1024 * 1024,
    });
    await assert.rejects(run, {
      code: 1,
      stdout: /not ok \d+ - create is refused where there is a record, and changes nothing/,
    });
  });

  it("needs no more of a runner than describe and it, and closes what it opened in a last test", async () => {
    const titles: string[] = [];
    let last: (() => Promise<void>) | undefined;
    let closed = 0;
    const runner: ConformanceRunner = {
      describe: (_, body) => body(),
      it: (title, body) => {
        titles.push(title);
        last = body;
      },
      print: () => undefined,
    };
    storeConformance(runner, { ...plain, openSecond: () => plain.open(), close: async () => void (closed += 1) });
    assert.equal(titles.at(-1), "ends: what was opened can be closed");
    await last?.();
    assert.equal(closed, 0, "nothing was opened, so nothing is closed");
    const { passed } = await checkConformance(
      { ...plain, openSecond: () => plain.open(), close: async () => void (closed += 1) },
      { only: ["a read finds no record where none was written"] },
    );
    assert.equal(passed.length, 1);
    assert.equal(closed, 2, "both clients were closed");
  });

  it("names what did not run, and why", async () => {
    const { notRun } = await checkConformance(plain);
    const why = (title: string): string | undefined => notRun.find((test) => test.title === title)?.why;
    assert.equal(
      why("a create whose reply is lost is `unknown`, for it is the record"),
      'the harness offers no fault "lostReply"',
    );
    assert.equal(why("what is INVALID_ARGUMENT sends no request"), "the harness offers no requests()");
    assert.equal(why("close can be called twice, and closes no other store"), "the store has no close()");
  });

  it("tells a fault of the harness from one of the store", async () => {
    const failing = { open: () => Promise.reject(new Error("no such bucket")) };
    await assert.rejects(checkConformance(failing), { message: "the harness failed in open(): no such bucket" });
    const empty: { open: () => Promise<MemoryStore> } = { open: async () => JSON.parse("{}") };
    await assert.rejects(checkConformance(empty), {
      message: "what the harness's open() gave is not a ConditionalStore: it has no traits, create, replace, read",
    });
  });

  describe("known gaps", () => {
    const title = "list finds exactly the names that begin with the prefix, each once";
    const gapped = memoryHarness((service) => () => {
      const sound = soundClient(service);
      return { ...sound, list: () => sound.list("nothing/") };
    });

    it("are run under their reason, and pass while they fail", async () => {
      const shown = `${title} (known gap: lists a day late)`;
      const { passed } = await checkConformance(
        { ...gapped, gaps: { [title]: "lists a day late" } },
        { only: [shown] },
      );
      assert.deepEqual(passed, [shown]);
    });

    it("are reported when they have closed", async () => {
      const shown = `${title} (known gap: lists a day late)`;
      const { failed } = await checkConformance({ ...plain, gaps: { [title]: "lists a day late" } }, { only: [shown] });
      assert.deepEqual(
        failed.map(({ error }) => String(error)),
        [`Error: "${title}" passes: take it out of the harness's gaps`],
      );
    });

    it("must name a test", () => {
      const runner: ConformanceRunner = { describe: (_, body) => body(), it: () => undefined };
      assert.throws(
        () => storeConformance(runner, { ...plain, gaps: { "no such test": "?" } }),
        /is no test: "no such test"/,
      );
    });
  });

  it("says in a failure which seed repeats it", async () => {
    const stale = brokenStores.find(({ caughtBy }) => caughtBy.includes("linearizable"));
    assert.ok(stale !== undefined);
    const { failed } = await checkConformance(memoryHarness(stale.clientsOf, { seed: 4_711 }), {
      only: [stale.caughtBy],
    });
    assert.match(String(failed[0]?.error), /of seed 4711 fits no register: .*FIRSTWRITE_CONFORMANCE_SEED=4711/);
  });
});

/** How this process finds the packages' sources, for one that it starts. */
const conditions = process.execArgv.filter((argument) => argument.includes("conditions"));
