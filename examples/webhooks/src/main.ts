/**
 * The main job: an at-least-once stream of real webhooks becomes one task each, with a producer killed in mid-stream.
 * Exits with 1 when a single webhook has no task, two tasks or the wrong one.
 */

import { openStore } from "@firstwrite/stores";
import { SingleBar } from "cli-progress";
import Table from "cli-table3";
import { Command, InvalidArgumentError } from "commander";

import { sendStream, type StreamReport } from "./broker.ts";
import { listTaskIds, verify, type Verdict } from "./verify.ts";
import { webhooks } from "./webhooks.ts";

const {
  store: storeUrl,
  seed = Math.floor(Math.random() * 2 ** 31),
  webhooks: count,
} = new Command("pnpm start")
  .description("send an at-least-once stream of webhooks, and check that each became one task")
  .option(
    "--store <url>",
    "sqlite:PATH or s3://bucket/prefix?…",
    process.env["FIRSTWRITE_STORE"] || "sqlite:.firstwrite/store.db",
  )
  .option("--seed <n>", "plays the same stream again (default: another each time, and printed)", (text) =>
    Number.parseInt(text, 10),
  )
  .option("--webhooks <n>", `sends the first n of the ${webhooks.length}`, countOf, webhooks.length)
  // A wrong command line must not look like a webhook lost.
  .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))
  .parse()
  .opts<{ store: string; seed?: number; webhooks: number }>();

process.exitCode = await main();

async function main(): Promise<number> {
  if (storeUrl.startsWith("memory:")) {
    console.error("the producers are four processes, and memory: is one process's own: give sqlite:PATH or s3://…");
    return 2;
  }
  const startedAt = performance.now();
  const store = await openStore(storeUrl).catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
  });
  if (store === undefined) return 2;
  console.log(`${count} webhooks, each sent one to four times by four processes, one of them killed (seed ${seed})`);
  try {
    const before = await listTaskIds(store);
    const report = await stream();
    console.log("reading the store …");
    const verdict = await verify(store, webhooks.slice(0, count));
    print(report, verdict, countMade(report, verdict, before), (performance.now() - startedAt) / 1000);
    for (const error of report.errors.slice(0, 5)) console.error(error);
    return verdict.lost + verdict.doubled + verdict.wrong + report.conflicts + report.failed === 0 ? 0 : 1;
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return 1;
  } finally {
    await store.close?.();
  }
}

async function stream(): Promise<StreamReport> {
  const progress = startProgress();
  try {
    return await sendStream(storeUrl, count, seededRandom(seed), progress.update);
  } finally {
    progress.stop();
  }
}

/**
 * The tasks that this run made, and not another program that uses the store at the same time: those that a producer said
 * it had made, and those that the killed one can have made without a word.
 */
function countMade({ made, cutOff }: StreamReport, { taskIds }: Verdict, before: ReadonlySet<string>): number {
  const unsaid = [...cutOff].flatMap((webhook) => taskIds.get(webhook) ?? []).filter((taskId) => !before.has(taskId));
  return new Set([...made, ...unsaid]).size;
}

function print(report: StreamReport, verdict: Verdict, made: number, seconds: number): void {
  const answered = report.attempts - report.unanswered;
  const table = new Table({ colAligns: ["left", "right"], style: { head: [], border: [] } });
  table.push(
    ["webhooks", count],
    ["delivery attempts", report.attempts],
    ["  of them cut off by SIGKILL", report.unanswered],
    ["webhook tasks in the store", verdict.tasks],
    ["  new in this run", made],
    ["  made by recovery", report.recovered],
    ["duplicates suppressed", report.found],
    ["conflicts", report.conflicts],
    ["failed", report.failed],
    ["requests to the store per attempt", (report.requests / answered).toFixed(2)],
    ["webhooks lost", verdict.lost],
    ["webhooks doubled", verdict.doubled],
    ["wrong payloads", verdict.wrong],
    ["seconds", seconds.toFixed(1)],
  );
  console.log(table.toString());
}

function countOf(text: string): number {
  const given = Number(text);
  if (Number.isSafeInteger(given) && given >= 1 && given <= webhooks.length) return given;
  throw new InvalidArgumentError(`give a whole number from 1 to ${webhooks.length}.`);
}

/** A bar on a terminal, a line at each quarter elsewhere. */
function startProgress(): { update: (answered: number, expected: number) => void; stop: () => void } {
  if (!process.stdout.isTTY) {
    let quarter = 0;
    const update = (answered: number, expected: number): void => {
      const now = Math.floor((4 * answered) / expected);
      if (now <= quarter) return;
      quarter = now;
      console.log(`${answered} of ${expected} deliveries answered`);
    };
    return { update, stop: () => {} };
  }
  const bar = new SingleBar({ format: "{bar} {percentage}% | {value}/{total} deliveries answered" });
  bar.start(1, 0);
  return {
    update: (answered, expected) => {
      bar.setTotal(expected);
      bar.update(answered);
    },
    stop: () => bar.stop(),
  };
}

/** xorshift32 (Marsaglia 2003): any seeded generator would do. */
function seededRandom(seedOfRun: number): () => number {
  let state = seedOfRun | 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}
