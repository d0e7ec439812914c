/** The service on a port: what `payouts serve` runs, and a program of one's own. */

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { Idempotency, InvalidArgumentError, onEvent, type ConditionalStore } from "@firstwrite/core";
import { serve, type ServerType } from "@hono/node-server";
import { pino, type Logger } from "pino";

import { payoutApp } from "./app.ts";
import { checkDeployment, defaultDeployment, defineCreatePayout, type Deployment } from "./create-payout.ts";
import type { AtPoint, LedgerTimer, PayoutLedger } from "./ledger/payout-ledger.ts";
import type { Merchants } from "./merchants.ts";
import { Metrics } from "./metrics.ts";
import { RequestTimes } from "./request-times.ts";
import { settlingStore } from "./settling-store.ts";
import { sweep } from "./sweep.ts";

export interface PayoutServerOptions {
  /** Where the idempotency records are. Closed by its opener. */
  readonly store: ConditionalStore;
  /** Opens the ledger, which is to tell of its time. Closed with the server. */
  readonly openLedger: (told: { readonly onTime: LedgerTimer; readonly atPoint: AtPoint }) => Promise<PayoutLedger>;
  readonly merchants: Merchants;
  /** Default 0: a free port. */
  readonly port?: number;
  /** Default 127.0.0.1. */
  readonly host?: string;
  readonly deployment?: Deployment;
  /** All the time that one request has, in milliseconds; under an hour. Default 10,000. */
  readonly budgetMs?: number;
  /** The most a request waits for another one of its key, in milliseconds. Default 2,000. */
  readonly waitMs?: number;
  /** How often all records are looked at for `/metrics`, in milliseconds; 0 for never. Default 60,000. */
  readonly sweepEveryMs?: number;
  readonly logger?: Logger;
  readonly now?: () => number;
  /** For tests, which let the process die there. */
  readonly atPoint?: AtPoint;
}

export interface PayoutServer {
  /** `http://host:port` */
  readonly url: string;
  readonly ledger: PayoutLedger;
  /** Answers what has been asked, and then ends. */
  close(): Promise<void>;
}

/**
 * @throws {InvalidArgumentError} before the ledger is opened, saying what to write.
 * @throws {LedgerUnavailableError} when the ledger's server is away.
 */
export async function startPayoutServer(options: PayoutServerOptions): Promise<PayoutServer> {
  const {
    merchants,
    port = 0,
    host = "127.0.0.1",
    deployment = defaultDeployment,
    budgetMs = defaultNumbers.budgetMs,
    waitMs = defaultNumbers.waitMs,
    sweepEveryMs = defaultNumbers.sweepEveryMs,
    logger = pino({ base: null }),
    now = Date.now,
    atPoint = () => {},
  } = options;
  checkNumbers({ port, deployment, budgetMs, waitMs, sweepEveryMs });
  const store = options.atPoint === undefined ? options.store : settlingStore(options.store, atPoint);
  const idempotency = new Idempotency({ store, deadlineMs: budgetMs });
  const times = new RequestTimes();
  const metrics = new Metrics();
  const ledger = await options.openLedger({ onTime: times.add, atPoint });
  const closing: (() => void | Promise<void>)[] = [
    () => ledger.close(),
    () => times.stop(),
    ...listen(times, metrics, logger),
  ];
  const end = async (): Promise<void> => {
    for (const close of closing.toReversed()) await close();
  };
  try {
    const createPayout = defineCreatePayout({ ledger, deployment, now, atPoint });
    const app = payoutApp({
      idempotency,
      createPayout,
      ledger,
      merchants,
      deployment,
      metrics,
      times,
      logger,
      budgetMs,
      waitMs,
      atPoint,
    });
    if (sweepEveryMs > 0) {
      const sweeping = repeat(sweepEveryMs, async (signal) => {
        const found = await sweep({ idempotency, ledger, now, signal }).catch((error: unknown) => {
          // Nobody's payout depends on it.
          logger.error({ operation_id: null, event: "sweep_failed", error: error instanceof Error ? error.name : "" });
        });
        if (!found) logger.warn({ operation_id: null, event: "not_swept" });
        else metrics.swept(found);
      });
      closing.push(sweeping);
    }
    const server = serve({ fetch: app.fetch, port, hostname: host });
    await once(server, "listening");
    closing.push(() => closeServer(server));
    return { url: `http://${host}:${portOf(server)}`, ledger, close: end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** What the engine tells of this service's operations, beside its answers. */
function listen(times: RequestTimes, metrics: Metrics, logger: Logger): (() => void)[] {
  return [
    onEvent("firstwrite:taken-over", ({ operationId, attempt }) => {
      if (!times.isWithin()) return;
      metrics.takenOver();
      logger.warn({ operation_id: operationId, event: "taken_over", attempt });
    }),
    onEvent("firstwrite:ownership-lost", ({ operationId, attempt }) => {
      if (times.isWithin()) logger.warn({ operation_id: operationId, event: "ownership_lost", attempt });
    }),
    onEvent("firstwrite:held", ({ operationId }) => {
      if (times.isWithin()) logger.error({ operation_id: operationId, event: "held" });
    }),
    // Without its cause, which is the store's own.
    onEvent("firstwrite:not-recorded", ({ operationId, reason }) => {
      if (!times.isWithin()) return;
      metrics.notRecorded();
      logger.error({ operation_id: operationId, event: "not_recorded", reason });
    }),
  ];
}

/** What of {@link PayoutServerOptions} are numbers that have to go together. */
export type PayoutServerNumbers = Pick<
  PayoutServerOptions,
  "port" | "deployment" | "budgetMs" | "waitMs" | "sweepEveryMs"
>;

/**
 * For whoever is about to open a store for the server.
 *
 * @throws {InvalidArgumentError} as {@link startPayoutServer}.
 */
export function checkNumbers(numbers: PayoutServerNumbers): void {
  const {
    port = 0,
    deployment = defaultDeployment,
    budgetMs,
    waitMs,
    sweepEveryMs,
  } = { ...defaultNumbers, ...numbers };
  if (!Number.isInteger(port) || port < 0 || port > PORT_MAX) {
    throw new InvalidArgumentError(`port is ${port}: give 1 to ${PORT_MAX}, or 0 for a free one`);
  }
  for (const [name, ms] of Object.entries({ waitMs, sweepEveryMs })) {
    if (!Number.isFinite(ms) || ms < 0)
      throw new InvalidArgumentError(`${name} is ${ms}: give milliseconds, 0 or more`);
  }
  if (!(budgetMs > 0) || waitMs >= budgetMs) {
    throw new InvalidArgumentError(
      `budgetMs is ${budgetMs}: give more milliseconds than waitMs (${waitMs}), so that a request that has waited can be answered`,
    );
  }
  if (budgetMs >= HOUR_MS)
    throw new InvalidArgumentError(`budgetMs is ${budgetMs}: give less than an hour (${HOUR_MS})`);
  checkDeployment(deployment);
}

const defaultNumbers = { budgetMs: 10_000, waitMs: 2_000, sweepEveryMs: 60_000 } as const;
const HOUR_MS = 3_600_000;
const PORT_MAX = 65_535;

/** At once and then every so often, one after another. Returns what ends it, in the middle if need be. */
function repeat(everyMs: number, work: (signal: AbortSignal) => Promise<void>): () => Promise<void> {
  const ending = new AbortController();
  const going = (async () => {
    while (!ending.signal.aborted) {
      await work(ending.signal);
      await sleep(everyMs, undefined, { signal: ending.signal, ref: false }).catch(() => {});
    }
  })();
  return () => {
    ending.abort();
    return going;
  };
}

async function closeServer(server: ServerType): Promise<void> {
  const closed = once(server, "close");
  server.close();
  // A connection that is kept alive is idle as soon as what it asked is answered, and would keep the server open.
  const timer = setInterval(() => {
    if ("closeIdleConnections" in server) server.closeIdleConnections();
  }, IDLE_LOOK_MS);
  await closed.finally(() => clearInterval(timer));
}

const IDLE_LOOK_MS = 20;

function portOf(server: ServerType): number {
  const address: AddressInfo | string | null = server.address();
  if (address === null || typeof address === "string") throw new Error("the service does not listen on a port");
  return address.port;
}
