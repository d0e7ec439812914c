#!/usr/bin/env node
import { readFileSync } from "node:fs";

import { IdempotencyError, StoreError } from "@firstwrite/core";
import { Command, InvalidArgumentError as InvalidOption, Option } from "commander";

import { exitCode, type ExitCode } from "./exit-code.ts";
import { DEFAULT_STORE, describeError } from "./store-option.ts";
import { submit, type SubmitArguments } from "./submit.ts";
import { submitBatch, type BatchArguments } from "./submit-batch.ts";
import { finishTask, getTask } from "./task.ts";

const program = new Command("firstwrite")
  .description("Idempotent tasks on a bucket, a SQLite file or memory.")
  .version(versionOfPackage(), "-V, --version", "print the version")
  // commander's own errors are of usage; asking for help or for the version is none. The commands below take this over.
  .exitOverride((error) => process.exit(error.exitCode === 0 ? exitCode.ok : exitCode.usage))
  .addHelpText(
    "after",
    `
Stores (--store, or the environment variable FIRSTWRITE_STORE):
  sqlite:PATH                                     one machine; the default is ${DEFAULT_STORE}
  s3://bucket/prefix?region=…&endpoint=…          credentials by the AWS SDK's default chain
  gs://bucket/prefix, azblob://account/container/prefix
                                                  with @firstwrite/gcs or @firstwrite/azure installed
  memory:                                         gone at the end; for trying out

Exit codes:
  0  the task is there, new or found; of a batch: every line was answered, conflicts too
  1  a call or a line failed; with a key it is safe to run it again
  2  the command line or the input is wrong; nothing was sent
  3  submit: the key was used for something else (an answer, not a failure)
  4  there is no such task
  130  stopped; run the same command again to go on`,
  );

const storeOption = (): Option => new Option("--store <url>", "where the tasks are");

program
  .command("submit")
  .description("submit one task, and print it and whether it is new")
  .argument("<type>", "the task type")
  .requiredOption("--input <file>", "the task's input as a JSON file; - for standard input")
  .option("--key <key>", "the idempotency key; without it every call makes a task")
  .option("--scope <scope>", 'where the key counts: "queue", or a name of your own (default: the task type)')
  .option("--ttl-days <days>", "how long the key is remembered (default: 30)", parseNumber)
  .addOption(
    new Option("--phases <n>", "2 confirms in the record that the task was made")
      .choices(["1", "2"])
      .argParser(parsePhases),
  )
  .addOption(storeOption())
  .action((type: string, options: SubmitArguments) => end(submit(type, options)));

program
  .command("submit-batch")
  .description('submit every line of a JSON-lines file: {"type": …, "input": …, "key": …, "scope"?, "ttl_days"?}')
  .argument("<file>", "the file")
  .option("--concurrency <n>", "how many lines at a time", parseNumber, 16)
  .option("--json", "print the summary as JSON")
  .addOption(storeOption())
  .action((file: string, options: BatchArguments) => end(submitBatch(file, options)));

const task = program.command("task").description("look at one task, or finish it");
task
  .command("get")
  .description("print a task")
  .argument("<id>", "its ID, as submit printed it")
  .addOption(storeOption())
  .action((id: string, options: { store?: string }) => end(getTask(id, options)));
task
  .command("finish")
  .description("mark a task as done; it stays as a tombstone, so that a late copy of its submit finds it")
  .argument("<id>", "its ID, as submit printed it")
  .addOption(storeOption())
  .action((id: string, options: { store?: string }) => end(finishTask(id, options)));

await program.parseAsync();

async function end(work: Promise<ExitCode>): Promise<void> {
  try {
    process.exitCode = await work;
  } catch (error) {
    console.error(describeError(error));
    process.exitCode = isUsage(error) ? exitCode.usage : exitCode.failed;
  }
}

/** Of the package.json beside this file's folder, which is `src` here and `dist` where it is published. */
function versionOfPackage(): string {
  const { version }: { version: string } = JSON.parse(
    readFileSync(new URL("../package.json", import.meta.url), "utf8"),
  );
  return version;
}

function isUsage(error: unknown): boolean {
  if (IdempotencyError.is(error) || StoreError.is(error)) return error.code === "INVALID_ARGUMENT";
  return error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "EISDIR");
}

function parseNumber(text: string): number {
  const number = Number(text);
  if (text.trim() === "" || !Number.isFinite(number)) throw new InvalidOption("it must be a number.");
  return number;
}

function parsePhases(text: string): 1 | 2 {
  if (text !== "1" && text !== "2") throw new InvalidOption("it must be 1 or 2.");
  return text === "1" ? 1 : 2;
}
