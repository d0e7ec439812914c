import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

import type { MatrixSuite } from "../suites.ts";

const mainJob = fileURLToPath(new URL("../../../examples/webhooks/src/main.ts", import.meta.url));

/** Of the 329, which are all sent in the tests of the main job itself: a server written for tests is slow. */
const WEBHOOKS = "100";

/** The main job as `pnpm start --store …` runs it: four processes on the row's server, one of them killed. */
export const webhooks: MatrixSuite = {
  name: "main job",
  register({ row, place }) {
    // One process's store cannot be shared by four.
    if (!row.second) return;

    it("makes one task of every webhook, and none in a second run", async function () {
      this.timeout(180_000);
      const first = await run(place());
      assert.deepEqual(pick(first, ["webhooks", "new in this run"]), [WEBHOOKS, WEBHOOKS]);
      const second = await run(place());
      assert.deepEqual(pick(second, ["webhook tasks in the store", "new in this run"]), [WEBHOOKS, "0"]);
      for (const table of [first, second]) {
        assert.deepEqual(pick(table, ["webhooks lost", "webhooks doubled", "wrong payloads"]), ["0", "0", "0"]);
      }
    });
  },
};

async function run({ url, env = {} }: { url?: string; env?: Record<string, string> }): Promise<string> {
  assert.ok(url !== undefined);
  const job = spawn(process.execPath, [...process.execArgv, mainJob, "--store", url, "--webhooks", WEBHOOKS], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [printed, errors, [code]] = await Promise.all([text(job.stdout), text(job.stderr), once(job, "exit")]);
  assert.equal(code, 0, `${printed}\n${errors}`);
  return printed;
}

/** The numbers of those lines of the table. */
function pick(table: string, titles: readonly string[]): (string | undefined)[] {
  return titles.map((title) => new RegExp(`│ +${title} +│ +(\\d+) │`).exec(table)?.[1]);
}
