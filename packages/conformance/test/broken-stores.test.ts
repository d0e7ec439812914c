import assert from "node:assert/strict";

import { checkConformance } from "@firstwrite/conformance";
import { brokenStores, memoryHarness, soundClient, type BrokenStore } from "@firstwrite/conformance/broken";

import { startAll } from "./pool.ts";

/** The meant test is run alone this often after the whole suite: a fault that is caught now and then is not caught. */
const repeats = 5;

describe("stores broken on purpose", function () {
  // A test may have to wait for the runs of others.
  this.timeout(60_000);
  let examined: (store: BrokenStore) => Promise<void>;
  let caught = 0;

  before(() => {
    examined = startAll(brokenStores, examine);
  });

  after(() => {
    console.log(`${caught} of ${brokenStores.length} broken stores caught`);
  });

  it("are each caught for their fault: the same client without one passes everything, and nothing is left out", async () => {
    const { failed, notRun } = await checkConformance(memoryHarness((service) => () => soundClient(service)));
    assert.deepEqual(failed, []);
    assert.deepEqual(notRun, []);
  });

  it("have names of their own", () => {
    const names = brokenStores.map(({ name }) => name);
    assert.deepEqual(names, [...new Set(names)]);
  });

  for (const store of brokenStores) {
    it(`one that ${store.name} fails "${store.caughtBy}"`, async () => {
      await examined(store);
      caught += 1;
    });
  }

  it("leave no test of the suite that cannot fail", async () => {
    const { passed } = await checkConformance(memoryHarness((service) => () => soundClient(service)));
    const idle = passed.filter((title) => !everFailed.has(title));
    assert.deepEqual(idle, []);
  });
});

/** Titles of tests that failed on any of them. */
const everFailed = new Set<string>();

async function examine({ caughtBy, clientsOf }: BrokenStore): Promise<void> {
  const { failed, passed } = await checkConformance(memoryHarness(clientsOf));
  const titles = failed.map(({ title }) => title);
  for (const title of titles) everFailed.add(title);
  assert.ok([...titles, ...passed].includes(caughtBy), `the suite has no test "${caughtBy}"`);
  assert.ok(titles.includes(caughtBy), `it passes; what failed is: ${titles.join(", ") || "nothing"}`);
  for (let again = 0; again < repeats; again += 1) {
    const alone = await checkConformance(memoryHarness(clientsOf), { only: [caughtBy] });
    const failedAlone = alone.failed.map(({ title }) => title);
    assert.deepEqual(failedAlone, [caughtBy], "it is caught now and then");
  }
}
