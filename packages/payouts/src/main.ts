#!/usr/bin/env node
import { readFileSync } from "node:fs";

import { days, IdempotencyError, InvalidArgumentError, StoreError } from "@firstwrite/core";
import { Command, InvalidArgumentError as InvalidOption, Option } from "commander";

import type { Deployment } from "./create-payout.ts";
import { demo } from "./demo.ts";
import { LedgerUnavailableError } from "./ledger/payout-ledger.ts";
import { parseMerchants, type Merchants } from "./merchants.ts";
import { openPlaces } from "./places.ts";
import { reconcile } from "./reconcile.ts";
import { checkNumbers, startPayoutServer } from "./server.ts";
import { untilStopped } from "./until-stopped.ts";

interface PlaceArguments {
  readonly store: string;
  readonly ledger: string;
}

interface ServeArguments extends PlaceArguments {
  readonly merchants: string;
  readonly port: number;
  readonly host: string;
  readonly budgetMs: number;
  readonly waitMs: number;
  readonly sweepEveryMs: number;
  readonly leaseMs: number;
  readonly clientRetryDays: number;
  readonly brokerDelayDays: number;
  readonly auditDays: number;
  readonly ttlDays?: number;
}

const exitCode = { ok: 0, failed: 1, usage: 2 } as const;
const CANNOT_LISTEN: ReadonlySet<string> = new Set(["EADDRINUSE", "EADDRNOTAVAIL", "EACCES", "ENOTFOUND"]);

const program = new Command("payouts")
  .description("A payout service that pays once.")
  .exitOverride((error) => process.exit(error.exitCode === 0 ? exitCode.ok : exitCode.usage))
  .addHelpText(
    "after",
    `
Exit codes:
  0  done, or ended as asked
  1  the store or the ledger failed; reconcile may be run again
  2  the command line or a file is wrong; nothing was begun`,
  );

withPlaces(program.command("serve"))
  .description("serve POST /v1/payouts and what belongs to it; GET /openapi.json says all")
  .addOption(
    option(
      "--merchants <file>",
      'JSON: [{ "id": "acme", "apiKeySha256": "…", "signingSecret": "…" }]',
    ).makeOptionMandatory(),
  )
  .addOption(option("--port <n>", "0 takes a free one").argParser(count).default(8080))
  .addOption(option("--host <address>", "where to listen").default("127.0.0.1"))
  .addOption(option("--budget-ms <n>", "all the time of one request").argParser(count).default(10_000))
  .addOption(option("--wait-ms <n>", "the most a request waits for another of its key").argParser(count).default(2_000))
  .addOption(
    option("--sweep-every-ms <n>", "how often /metrics counts the unresolved").argParser(count).default(60_000),
  )
  .addOption(option("--lease-ms <n>", "how long a silent process is taken to be alive").argParser(count).default(5_000))
  .addOption(option("--client-retry-days <n>", "how long clients retry").argParser(number).default(7))
  .addOption(option("--broker-delay-days <n>", "how long a queue may hold a request").argParser(number).default(1))
  .addOption(option("--audit-days <n>", "how long a record must be found").argParser(number).default(90))
  .addOption(
    option("--ttl-days <n>", "how long a record is kept (default: as long as these ask for)").argParser(number),
  )
  .action((options: ServeArguments) => end(runServer(options)));

withPlaces(program.command("reconcile"))
  .description("bring together unresolved operations and the ledger; may run beside the service")
  .addOption(option("--since-days <n>", "look at payouts of the last days").argParser(number).default(7))
  .addOption(option("--by <name>", "who is told in the records' history").default("payouts reconcile"))
  .action((options: PlaceArguments & { sinceDays: number; by: string }) => end(runReconcile(options)));

program
  .command("demo")
  .description("serve on SQLite with a ready merchant, and print what to try")
  .option("--folder <path>", "where its file is", ".firstwrite")
  .option("--port <n>", "0 takes a free one", count, 8080)
  .action((options: { folder: string; port: number }) => end(demo(options)));

await program.parseAsync();

function withPlaces(command: Command): Command {
  return command
    .addOption(
      option(
        "--store <url>",
        "where the idempotency records are: sqlite:PATH, s3://…, gs://…, azblob://…",
      ).makeOptionMandatory(),
    )
    .addOption(option("--ledger <url>", "sqlite:PATH or postgres://…").makeOptionMandatory());
}

/** One that can be given in the environment, too: `--client-retry-days` as `PAYOUTS_CLIENT_RETRY_DAYS`. */
function option(flags: string, description: string): Option {
  const made = new Option(flags, description);
  return made.env(`PAYOUTS_${made.name().replaceAll("-", "_").toUpperCase()}`);
}

async function runServer(options: ServeArguments): Promise<void> {
  const merchants = readMerchants(options.merchants);
  const { clientRetryDays, brokerDelayDays, auditDays, ttlDays, leaseMs } = options;
  const deployment: Deployment = {
    clientRetryMs: days(clientRetryDays),
    brokerDelayMs: days(brokerDelayDays),
    auditMs: days(auditDays),
    leaseMs,
    ...(ttlDays !== undefined && { ttlMs: days(ttlDays) }),
  };
  checkNumbers({ ...options, deployment });
  const { store, openLedger, close } = await openPlaces(options.store, options.ledger);
  try {
    const server = await startPayoutServer({
      ...options,
      store,
      openLedger,
      merchants,
      deployment,
    });
    console.error(`payouts: listening on ${server.url}`);
    await untilStopped();
    await server.close();
  } finally {
    await close();
  }
}

function readMerchants(file: string): Merchants {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (cause) {
    const code = codeOf(cause) ?? "unknown";
    throw new InvalidArgumentError(`the file that --merchants names cannot be read (${code})`, { cause });
  }
  return parseMerchants(text);
}

async function runReconcile({
  store: storeUrl,
  ledger: ledgerUrl,
  sinceDays,
  by,
}: PlaceArguments & { sinceDays: number; by: string }): Promise<void> {
  const { store, openLedger, close } = await openPlaces(storeUrl, ledgerUrl);
  try {
    const ledger = await openLedger();
    try {
      const done = new Map<string, number>();
      const { unresolved, payouts, unreadable } = await reconcile({
        store,
        ledger,
        sinceMs: days(sinceDays),
        by,
        onReconciled({ operationId, did }) {
          done.set(did, (done.get(did) ?? 0) + 1);
          console.log(`${operationId} ${did.replaceAll("_", " ")}`);
        },
        onUnreadable: (name) => console.log(`${name} cannot be read`),
      });
      const counts = [...done].map(([did, times]) => `${times} ${did.replaceAll("_", " ")}`);
      console.log(
        `${unresolved} unresolved operations and ${payouts} payouts looked at; ${[...counts, `${unreadable} unreadable`].join(", ")}`,
      );
    } finally {
      await ledger.close();
    }
  } finally {
    await close();
  }
}

async function end(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    console.error(describe(error));
    process.exitCode = isUsage(error) ? exitCode.usage : exitCode.failed;
  }
}

/** In one line where the message carries the advice; a bug keeps its stack. Never an error's cause, which may quote a URL. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (IdempotencyError.is(error) || StoreError.is(error) || LedgerUnavailableError.is(error)) return error.message;
  const code = codeOf(error);
  if (code !== undefined && CANNOT_LISTEN.has(code))
    return `cannot listen there (${code}): give another --port or --host`;
  return error.stack ?? error.message;
}

function isUsage(error: unknown): boolean {
  if (IdempotencyError.is(error) || StoreError.is(error)) return error.code === "INVALID_ARGUMENT";
  const code = codeOf(error);
  return code !== undefined && CANNOT_LISTEN.has(code);
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

function number(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value) || value < 0)
    throw new InvalidOption("it must be a number, 0 or more.");
  return value;
}

function count(text: string): number {
  const value = number(text);
  if (!Number.isSafeInteger(value)) throw new InvalidOption("it must be a whole number.");
  return value;
}
