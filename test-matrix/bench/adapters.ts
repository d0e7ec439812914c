/**
 * What an adapter costs: its create, replace and read beside the SDK's own call for the same work, on the same server, with
 * the same client configuration, in one process, turn by turn. Not a test: `pnpm bench:adapters`, of one store alone `pnpm bench:adapters azure`.
 *
 * Per round each side does the work as often, in an order drawn anew for each pair, and the round's ratio is that of the two
 * medians. Printed are the median of the rounds' ratios and the smallest and largest of them.
 */

import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";

import type { ConditionalStore, Version } from "@firstwrite/core";

import { startAzurite } from "../src/servers/azurite.ts";
import { startFakeGcsServer } from "../src/servers/fake-gcs-server.ts";
import { startVersitygw } from "../src/servers/versitygw.ts";
import type { AdapterBench } from "./adapter-bench.ts";
import { azureBench } from "./azure.ts";
import { gcsBench } from "./gcs.ts";
import { s3Bench } from "./s3.ts";

const ROUNDS = 15;
const PAIRS = 60;
const body = (): Uint8Array => Buffer.from(JSON.stringify({ write_id: randomUUID(), padding: "x".repeat(600) }));

const benches: readonly (readonly [string, () => Promise<AdapterBench>])[] = [
  ["s3 on versitygw", () => s3Bench(() => startVersitygw({ variable: "FIRSTWRITE_MATRIX_VERSITYGW" }))],
  [
    "gcs on fake-gcs-server",
    () =>
      gcsBench(() => startFakeGcsServer({ variable: "FIRSTWRITE_MATRIX_FAKE_GCS_SERVER_MEMORY", backend: "memory" })),
  ],
  ["azure on Azurite", () => azureBench(() => startAzurite("FIRSTWRITE_MATRIX_AZURITE"))],
];

const [, , only] = process.argv;
for (const [title, start] of benches) {
  if (only !== undefined && !title.startsWith(only)) continue;
  const bench = await start();
  try {
    for (const [work, sides] of Object.entries(works(bench))) {
      const ratios: number[] = [];
      const medians: [number, number][] = [];
      for (let round = 0; round <= ROUNDS; round += 1) {
        const pair = await runRound(sides);
        // The first round warms both sides up.
        if (round === 0) continue;
        medians.push(pair);
        ratios.push(pair[0] / pair[1]);
      }
      ratios.sort((a, b) => a - b);
      const ms = (side: 0 | 1): string => median(medians.map((pair) => pair[side])).toFixed(2);
      console.log(
        `${title.padEnd(24)} ${work.padEnd(8)} adapter ${ms(0)} ms, SDK ${ms(1)} ms, ratio ${median(ratios).toFixed(3)} ` +
          `(${ratios.at(0)?.toFixed(3)} to ${ratios.at(-1)?.toFixed(3)})`,
      );
    }
  } finally {
    await bench.close();
  }
}

console.log("\nimport, median of 7, node's own start not counted:");
const packages = [
  "@firstwrite/core",
  "@firstwrite/stores",
  "@aws-sdk/client-s3",
  "@firstwrite/s3",
  "@google-cloud/storage",
  "@firstwrite/gcs",
  "@azure/storage-blob",
  "@firstwrite/azure",
];
for (const name of packages) console.log(`${name.padEnd(24)} ${importMs(name).toFixed(0)} ms`);

type Side = () => Promise<unknown>;

/** The same work by the adapter and by the SDK; what a replace or a read needs is made before the clock starts. */
function works({ store, bare }: AdapterBench): Record<string, readonly [Prepare, Prepare]> {
  const name = (): string => `bench/${randomUUID()}.json`;
  const created = async (): Promise<{ name: string; version: Version }> => {
    const record = { name: name(), bytes: body() };
    const outcome = await store.create(record.name, record.bytes);
    if (outcome.kind !== "written") throw new Error(`a create was ${outcome.kind}`);
    return { name: record.name, version: outcome.version };
  };
  const written = async (outcome: ReturnType<ConditionalStore["create"]>): Promise<void> => {
    const { kind } = await outcome;
    if (kind !== "written") throw new Error(`a write was ${kind}`);
  };
  return {
    create: [async () => () => written(store.create(name(), body())), async () => () => bare.create(name(), body())],
    replace: [
      async () => {
        const at = await created();
        return () => written(store.replace(at.name, at.version, body()));
      },
      async () => {
        const at = await created();
        return () => bare.replace(at.name, at.version, body());
      },
    ],
    read: [
      async () => {
        const at = await created();
        return () => store.read(at.name);
      },
      async () => {
        const at = await created();
        return () => bare.read(at.name);
      },
    ],
  };
}

type Prepare = () => Promise<Side>;

async function runRound(sides: readonly [Prepare, Prepare]): Promise<[number, number]> {
  const times: [number[], number[]] = [[], []];
  for (let pair = 0; pair < PAIRS; pair += 1) {
    for (const side of Math.random() < 0.5 ? ([0, 1] as const) : ([1, 0] as const)) {
      const run = await sides[side]();
      const startedAt = performance.now();
      await run();
      times[side].push(performance.now() - startedAt);
    }
  }
  return [median(times[0]), median(times[1])];
}

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** Of what is published: without the condition that leads to the sources. */
function importMs(name: string): number {
  const script = `const t = performance.now(); await import(${JSON.stringify(name)}); console.log(performance.now() - t);`;
  const once = (): number =>
    Number(
      execFileSync(process.execPath, ["--input-type=module", "--eval", script], {
        cwd: import.meta.dirname,
        encoding: "utf8",
      }),
    );
  return median(Array.from({ length: 7 }, once));
}
