/** The service as HTTP: who asks, for how long, and what is logged of it. */

import { StoreError, type Idempotency } from "@firstwrite/core";
import { Hono, type Context } from "hono";
import type { Logger } from "pino";

import { idempotencyContract } from "./contract.ts";
import type { CreatePayout, Deployment } from "./create-payout.ts";
import {
  LedgerUnavailableError,
  payoutIdOf,
  type AtPoint,
  type Payout,
  type PayoutLedger,
} from "./ledger/payout-ledger.ts";
import type { Merchant, Merchants } from "./merchants.ts";
import type { Metrics } from "./metrics.ts";
import { openApiDocument } from "./openapi.ts";
import { pay, type Till } from "./pay.ts";
import { viewOf } from "./payout-answer.ts";
import { KEY_LENGTH_MAX, stringItem } from "./payout-key.ts";
import { problemAnswer, type Answer } from "./problem.ts";
import { noTimes, spent, type RequestTimes } from "./request-times.ts";

export interface PayoutAppOptions {
  readonly idempotency: Idempotency;
  readonly createPayout: CreatePayout;
  readonly ledger: PayoutLedger;
  readonly merchants: Merchants;
  readonly deployment: Deployment;
  readonly metrics: Metrics;
  readonly times: RequestTimes;
  readonly logger: Logger;
  /** All the time that a request has, in milliseconds: of the store and the ledger, too. */
  readonly budgetMs: number;
  readonly waitMs: number;
  readonly now: () => number;
  readonly atPoint: AtPoint;
}

const BODY_BYTES_MAX = 16_384;
const PAYOUTS = "/v1/payouts";

/** One request, as its route's code sees it. */
interface Visit {
  readonly context: Context;
  readonly remainingMs: () => number;
}

export function payoutApp(options: PayoutAppOptions): Hono {
  const { ledger, metrics, deployment, createPayout, waitMs, merchants } = options;
  const app = new Hono();
  const till: Till = options;

  const route = (method: "GET" | "POST", path: string, answer: (visit: Visit) => Promise<Answer>): void => {
    app.on(method, path, (context) => serve(options, context, path, answer));
  };
  /** For those with an API key, of which they see what is theirs. */
  const merchantRoute = (
    method: "GET" | "POST",
    path: string,
    answer: (merchant: Merchant, visit: Visit) => Promise<Answer>,
  ): void =>
    route(method, path, async (visit) => {
      const merchant = merchants.authenticate(visit.context.req.header("authorization"));
      if (merchant === undefined) {
        return problemAnswer("unauthenticated", { detail: "Send the header Authorization: Bearer API_KEY." });
      }
      return answer(merchant, visit);
    });

  merchantRoute("POST", PAYOUTS, (merchant, visit) => timedPay(options, till, merchant, visit));
  merchantRoute("GET", `${PAYOUTS}/:id`, (merchant, { context, remainingMs }) =>
    show(merchant, () => ledger.findByPayoutId(context.req.param("id") ?? "", { remainingMs: remainingMs() })),
  );
  merchantRoute("GET", "/v1/operations/:operation_id", async (merchant, { context, remainingMs }) => {
    const operationId = context.req.param("operation_id") ?? "";
    const key = stringItem(context.req.header("idempotency-key") ?? "");
    // First the record: an operation that is decided in between is then in the ledger.
    const unresolved =
      key === undefined ? undefined : await showUnresolved(options, merchant, key, operationId, remainingMs);
    return unresolved ?? show(merchant, () => ledger.findByOperation(operationId, { remainingMs: remainingMs() }));
  });
  route("GET", "/healthz", ({ remainingMs }) => health(options, remainingMs()));
  route("GET", "/metrics", async () => text("text/plain; version=0.0.4; charset=utf-8", metrics.text()));
  const contract = JSON.stringify(idempotencyContract(createPayout, deployment, waitMs));
  route("GET", "/v1/idempotency-contract", async () => text("application/json", contract));
  const document = JSON.stringify(openApiDocument());
  route("GET", "/openapi.json", async () => text("application/json", document));
  app.notFound((context) =>
    serve(options, context, "none", async () =>
      problemAnswer("not_found", { detail: "See /openapi.json for what there is." }),
    ),
  );
  return app;
}

/** Every request comes through here, and leaves one line in the log. */
async function serve(
  { logger, metrics, budgetMs }: PayoutAppOptions,
  context: Context,
  route: string,
  answer: (visit: Visit) => Promise<Answer>,
): Promise<Response> {
  const startedAtMs = performance.now();
  const remainingMs = (): number => budgetMs - (performance.now() - startedAtMs);
  let answered: Answer;
  let fault: object = {};
  try {
    answered = await answer({ context, remainingMs });
  } catch (error) {
    fault = { error: describe(error) };
    answered = failed(error);
  }
  const { status, headers, body, operationId = null, problem } = answered;
  const { method } = context.req;
  metrics.request(method, route, status);
  logger[status >= 500 ? "error" : "info"]({
    operation_id: operationId,
    method,
    route,
    status,
    ...(problem !== undefined && { problem }),
    ...(headers["idempotent-replayed"] !== undefined && { replayed: true }),
    ms: Math.round(performance.now() - startedAtMs),
    ...fault,
  });
  return new Response(body, { status, headers: { ...headers, "cache-control": "no-store" } });
}

function failed(error: unknown): Answer {
  const detail = "Ask again after Retry-After.";
  if (LedgerUnavailableError.is(error)) return problemAnswer("ledger_unavailable", { detail, retryAfterMs: 1_000 });
  if (StoreError.is(error)) return problemAnswer("store_unavailable", { detail, retryAfterMs: 1_000 });
  return problemAnswer("internal", { detail: "Nothing is known of what happened: ask again, with the same key." });
}

async function timedPay(
  { metrics, times }: PayoutAppOptions,
  till: Till,
  merchant: Merchant,
  { context, remainingMs }: Visit,
): Promise<Answer> {
  const startedAtMs = performance.now();
  const spentTimes = noTimes();
  return times.during(spentTimes, async () => {
    const { req } = context;
    if (!/^application\/json *(;|$)/i.test(req.header("content-type") ?? "")) {
      return problemAnswer("not_json", { detail: "Send the header Content-Type: application/json." });
    }
    const body = await readBody(req.raw);
    if (body === undefined) {
      return problemAnswer("too_large", { detail: `The most that is taken is ${BODY_BYTES_MAX} bytes.` });
    }
    const executesAtMs = performance.now();
    const answer = await pay(till, { merchant, header: (name) => req.header(name), body, remainingMs });
    const { headers, problem } = answer;
    if (headers["idempotent-replayed"] !== undefined || problem === "in_progress") {
      // What such a request did beside asking the store is waiting for the one that runs.
      times.add("lock_wait", Math.max(0, performance.now() - executesAtMs - spent(spentTimes)));
    }
    metrics.time(performance.now() - startedAtMs, spentTimes);
    return answer;
  });
}

/** Another merchant's is as if it were not there. */
async function show(merchant: Merchant, find: () => Promise<Payout | undefined>): Promise<Answer> {
  const payout = await find();
  if (payout === undefined || payout.merchantId !== merchant.id) {
    return problemAnswer("not_found", {
      detail: "The ledger has no such payout. One that is going on is told by a retry with its key.",
    });
  }
  const { operationId } = payout;
  const headers = { "content-type": "application/json", "operation-id": operationId };
  return { status: 200, headers, body: JSON.stringify(viewOf(payout)), operationId };
}

/** By the key, because records stand under keys. `undefined`: nothing is going on with that key under that operation. */
async function showUnresolved(
  { idempotency }: PayoutAppOptions,
  merchant: Merchant,
  key: string,
  operationId: string,
  remainingMs: () => number,
): Promise<Answer | undefined> {
  if (key === "" || key.length > KEY_LENGTH_MAX) return undefined;
  const deadlineMs = Math.max(1, remainingMs());
  const record = await idempotency.inspect({ scope: merchant.id, key }, { deadlineMs });
  if (record?.operationId !== operationId || (record.status !== "creating" && record.status !== "held"))
    return undefined;
  const state = record.status === "held" ? "held" : "in_progress";
  const body = JSON.stringify({ operation_id: operationId, payout_id: payoutIdOf(operationId), state });
  return {
    status: 200,
    headers: { "content-type": "application/json", "operation-id": operationId },
    body,
    operationId,
  };
}

async function health({ idempotency, ledger }: PayoutAppOptions, remainingMs: number): Promise<Answer> {
  const limitMs = Math.ceil(Math.min(1_000, Math.max(1, remainingMs)));
  const signal = AbortSignal.timeout(limitMs);
  const [store, book] = await Promise.allSettled([
    idempotency.store.read("healthz", { signal }),
    ledger.findByOperation("healthz", { remainingMs: limitMs, signal }),
  ]);
  const parts = { store: stateOf(store), ledger: stateOf(book) };
  const isWell = parts.store === "ok" && parts.ledger === "ok";
  const body = JSON.stringify({ status: isWell ? "ok" : "unavailable", ...parts });
  return { status: isWell ? 200 : 503, headers: { "content-type": "application/json" }, body, operationId: undefined };
}

function stateOf({ status }: PromiseSettledResult<unknown>): "ok" | "unavailable" {
  return status === "fulfilled" ? "ok" : "unavailable";
}

function text(contentType: string, body: string): Answer {
  return { status: 200, headers: { "content-type": contentType }, body, operationId: undefined };
}

/** `undefined`: more than is taken. */
async function readBody(request: Request): Promise<string | undefined> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of request.body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > BODY_BYTES_MAX) return undefined;
    chunks.push(chunk);
  }
  // What is not UTF-8 comes out as U+FFFD, which nothing in a payout may have.
  return Buffer.concat(chunks).toString("utf8");
}

/** An error of a library may quote what it was given: its message is left out, and where it came from is kept. */
function describe(error: unknown): object {
  if (!(error instanceof Error)) return { name: typeof error };
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  const at = error.stack
    ?.split("\n")
    .filter((line) => /^\s+at /.test(line))
    .slice(0, 5)
    .map((line) => line.trim());
  return { name: error.name, ...(code !== undefined && { code }), at };
}
