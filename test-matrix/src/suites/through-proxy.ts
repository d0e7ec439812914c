/** The suites again, with a proxy between the store and its service that does to requests what networks do. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { storeConformance, type HarnessFault } from "@firstwrite/conformance";
import { FaultyProxy, type ProxiedRequest, type ProxyFault } from "@firstwrite/conformance/wire";
import type { ConditionalStore } from "@firstwrite/core";
import { Tasks, type Submission } from "@firstwrite/tasks";

import type { MatrixSuite } from "../suites.ts";

const offered: readonly (HarnessFault & ProxyFault)[] = ["lostRequest", "lostReply", "landsLate", "hangs"];

/** What a harness without a proxy cannot offer: faults on demand, and a count of requests. */
export const conformanceThroughProxy: MatrixSuite = {
  name: "conformance, proxy",
  register({ row, place, openSecond }) {
    if (!row.proxied) return;
    let proxy: FaultyProxy;
    before(async () => {
      proxy = await FaultyProxy.start(viaOf(place()).endpoint);
    });
    after(() => proxy[Symbol.asyncDispose]());

    storeConformance(
      { describe, it, before, after },
      {
        open: () => viaOf(place()).open(proxy.url),
        // Past the proxy: faults are for the one client, and are seen by the other.
        ...(openSecond && { openSecond }),
        gaps: row.gaps ?? {},
        requests: () => proxy.requests,
        faults: {
          offers: offered,
          inject(_, fault, on) {
            const known = offered.find((one) => one === fault);
            assert.ok(known !== undefined, `the proxy has no fault ${fault}`);
            proxy.inject(known, (request) => isRead(request) === (on === "read"));
          },
          heal: () => proxy.heal(),
          land: () => proxy.land(),
        },
      },
    );
  },
};

const KEYS = 40;
const PRODUCERS = 3;
const atRandom: readonly ProxyFault[] = ["lostRequest", "lostReply", "landsLate", "repeated", "late"];

/** Producers whose every fifth request meets a fault: one key, one task, all the same. */
export const tasksThroughProxy: MatrixSuite = {
  name: "tasks, proxy",
  register({ row, place, open }) {
    if (!row.proxied) return;

    it(`makes one task of each of ${KEYS} keys, with a fault in every fifth request`, async function () {
      this.timeout(120_000);
      const proxy = await FaultyProxy.start(viaOf(place()).endpoint);
      const stores = await Promise.all(Array.from({ length: PRODUCERS }, () => viaOf(place()).open(proxy.url)));
      const direct = await open();
      try {
        proxy.faultAtRandom(0.2, atRandom, Math.random);
        const run = randomUUID();
        const submissions = await Promise.all(stores.map((store) => submitAll(store, run)));
        assert.ok(proxy.faults > KEYS, `only ${proxy.faults} of ${proxy.requests} requests met a fault`);

        const tasks = new Tasks({ store: direct });
        for (let key = 0; key < KEYS; key += 1) {
          const answers = submissions.map((of) => of[key]);
          const [first] = answers;
          assert.ok(first !== undefined);
          assert.equal(new Set(answers.map((answer) => answer?.task.taskId)).size, 1, `key ${key} has one task`);
          assert.ok(answers.filter((answer) => answer?.created).length <= 1, `key ${key} was created once`);
          assert.deepEqual((await tasks.get(first.task.taskId))?.input, { run, key });
        }
        let made = 0;
        for await (const { name } of direct.list?.("tasks/") ?? []) {
          const task = await tasks.get(name.slice(name.lastIndexOf("/") + 1, -".json".length));
          if (task?.taskType === `proxy-${run}`) made += 1;
        }
        assert.equal(made, KEYS, "no task was doubled");
      } finally {
        for (const store of [...stores, direct]) await store.close?.();
        await proxy[Symbol.asyncDispose]();
      }
    });
  },
};

async function submitAll(store: ConditionalStore, run: string): Promise<Submission[]> {
  const tasks = new Tasks({ store });
  const submissions: Submission[] = [];
  for (let key = 0; key < KEYS; key += 1) {
    submissions.push(await tasks.submit(`proxy-${run}`, { run, key }, { idempotencyKey: `${run}-${key}` }));
  }
  return submissions;
}

function viaOf<Via>({ via }: { readonly via?: Via }): Via {
  if (via === undefined) throw new Error("this row says that a proxy can stand before it, and has no address for it");
  return via;
}

function isRead({ method }: ProxiedRequest): boolean {
  return method === "GET" || method === "HEAD";
}
