/** The service as HTTP: who asks, for how long, and what is logged of it. */

import { StoreError, type Idempotency } from "@firstwrite/core";
import { idempotencyContract, parseIdempotencyKey, problemResponse } from "@firstwrite/http";
import { operationHandler } from "@firstwrite/http/hono";
import { Hono, type Context } from "hono";
import type { Logger } from "pino";

import { payoutContract } from "./contract.ts";
import type { CreatePayout, Deployment } from "./create-payout.ts";
import { describeError } from "./describe-error.ts";
import {
  LedgerUnavailableError,
  payoutIdOf,
  type AtPoint,
  type Payout,
  type PayoutLedger,
} from "./ledger/payout-ledger.ts";
import type { Merchants } from "./merchants.ts";
import type { Metrics } from "./metrics.ts";
import { openApiDocument } from "./openapi.ts";
import { payoutRoute, type Visit, type VisitEnv } from "./pay.ts";
import { viewOf } from "./payout-answer.ts";
import { problem, problemNameOf } from "./problem.ts";
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
  readonly atPoint: AtPoint;
}

const PAYOUTS = "/v1/payouts";

type RemainingMs = () => number;
type Method = "GET" | "POST";

export function payoutApp(options: PayoutAppOptions): Hono<VisitEnv> {
  const { ledger, metrics, deployment, merchants } = options;
  const app = new Hono<VisitEnv>();
  const methods = new Map<string, readonly Method[]>();

  const route = (
    method: Method,
    path: string,
    answer: (context: Context<VisitEnv>, remainingMs: RemainingMs) => Promise<Response>,
  ): void => {
    methods.set(path, [...(methods.get(path) ?? []), method]);
    app.on(method, path, (context) => serve(options, context, path, (remainingMs) => answer(context, remainingMs)));
  };
  /** For those with an API key, of which they see what is theirs. */
  const merchantRoute = (
    method: Method,
    path: string,
    answer: (context: Context<VisitEnv>, visit: Visit) => Promise<Response>,
  ): void =>
    route(method, path, async (context, remainingMs) => {
      const merchant = merchants.authenticate(context.req.header("authorization"));
      if (merchant === undefined) return unauthenticated();
      const visit: Visit = { merchant, remainingMs };
      context.set("visit", visit);
      return answer(context, visit);
    });

  const paying = payoutRoute(options);
  const handlePayout = operationHandler(paying);
  merchantRoute("POST", PAYOUTS, (context, visit) => timed(options, visit, () => handlePayout(context)));
  merchantRoute("GET", `${PAYOUTS}/:id`, (context, visit) =>
    show(visit, () => ledger.findByPayoutId(context.req.param("id") ?? "", { remainingMs: visit.remainingMs() })),
  );
  merchantRoute("GET", "/v1/operations/:operation_id", async (context, visit) => {
    const operationId = context.req.param("operation_id") ?? "";
    const parsed = parseIdempotencyKey(context.req.header("idempotency-key"));
    // First the record: an operation that is decided in between is then in the ledger.
    const unresolved =
      parsed.kind === "key" ? await showUnresolved(options, visit, parsed.key, operationId) : undefined;
    return unresolved ?? show(visit, () => ledger.findByOperation(operationId, { remainingMs: visit.remainingMs() }));
  });
  route("GET", "/healthz", (_context, remainingMs) => health(options, remainingMs()));
  route("GET", "/metrics", async () => text("text/plain; version=0.0.4; charset=utf-8", metrics.text()));
  const { answers } = idempotencyContract(paying);
  const contract = JSON.stringify(payoutContract(options.createPayout, deployment, options.waitMs, answers));
  route("GET", "/v1/idempotency-contract", async () => text("application/json", contract));
  const document = JSON.stringify(openApiDocument(answers));
  route("GET", "/openapi.json", async () => text("application/json", document));
  for (const [path, taken] of methods) {
    app.all(path, (context) => serve(options, context, path, async () => otherMethod(context.req.method, taken)));
  }
  app.notFound((context) =>
    serve(options, context, "none", async () =>
      problem("not_found", { detail: "See /openapi.json for what there is." }),
    ),
  );
  return app;
}

/** Every request comes through here, and leaves one line in the log. */
async function serve(
  { logger, metrics, budgetMs }: PayoutAppOptions,
  context: Context<VisitEnv>,
  route: string,
  answer: (remainingMs: RemainingMs) => Promise<Response>,
): Promise<Response> {
  const startedAtMs = performance.now();
  let response: Response;
  let fault: object = {};
  try {
    response = await answer(() => budgetMs - (performance.now() - startedAtMs));
  } catch (error) {
    fault = { error: describeError(error) };
    response = failed(error);
  }
  const { status, headers } = response;
  headers.set("cache-control", "no-store");
  const name = await problemNameOf(response);
  const isReplayed = headers.has("idempotent-replayed");
  if (isReplayed) metrics.duplicateSuppressed();
  if (name === "key-reused") metrics.mismatch();
  const { method } = context.req;
  metrics.request(method, route, status);
  logger[status >= 500 ? "error" : "info"]({
    operation_id: headers.get(OPERATION_ID),
    method,
    route,
    status,
    ...(name !== undefined && { problem: name }),
    ...(isReplayed && { replayed: true }),
    ms: Math.round(performance.now() - startedAtMs),
    ...fault,
  });
  return response;
}

const OPERATION_ID = "idempotency-operation-id";

function failed(error: unknown): Response {
  const detail = "Ask again after Retry-After.";
  if (LedgerUnavailableError.is(error)) return problem("ledger_unavailable", { detail, retryAfterMs: 1_000 });
  if (StoreError.is(error)) return problemResponse("store-unavailable", { detail });
  return problem("internal", { detail: "Nothing is known of what happened: ask again, with the same key." });
}

function unauthenticated(): Response {
  const response = problem("unauthenticated", { detail: "Send the header Authorization: Bearer API_KEY." });
  // RFC 9110 §11.6.1
  response.headers.set("www-authenticate", 'Bearer realm="payouts"');
  return response;
}

/** RFC 9110 §9.3.7 and §15.5.6. A HEAD for what can be got is a GET without its body, and does not come here. */
function otherMethod(method: string, taken: readonly Method[]): Response {
  const allow = [...taken.flatMap((one) => (one === "GET" ? [one, "HEAD"] : [one])), "OPTIONS"].join(", ");
  const response =
    method === "OPTIONS"
      ? new Response(null, { status: 204 })
      : problem("method_not_allowed", { detail: `Send one of ${allow}.` });
  response.headers.set("allow", allow);
  return response;
}

/** Says where the time of a payout went. */
async function timed(
  { metrics, times, atPoint }: PayoutAppOptions,
  visit: Visit,
  pay: () => Promise<Response>,
): Promise<Response> {
  const startedAtMs = performance.now();
  const spentTimes = noTimes();
  return times.during(spentTimes, async () => {
    const response = await pay();
    const { executesAtMs } = visit;
    if (executesAtMs !== undefined) {
      atPoint("replying");
      if (response.headers.has("idempotent-replayed") || response.status === 409) {
        // What such a request did beside asking the store is waiting for the one that runs.
        times.add("lock_wait", Math.max(0, performance.now() - executesAtMs - spent(spentTimes)));
      }
    }
    metrics.time(performance.now() - startedAtMs, spentTimes);
    return response;
  });
}

/** Another merchant's is as if it were not there. */
async function show({ merchant }: Visit, find: () => Promise<Payout | undefined>): Promise<Response> {
  const payout = await find();
  if (payout === undefined || payout.merchantId !== merchant.id) {
    return problem("not_found", {
      detail: "The ledger has no such payout. One that is going on is told by a retry with its key.",
    });
  }
  return shown(payout.operationId, viewOf(payout));
}

function shown(operationId: string, view: object): Response {
  return new Response(JSON.stringify(view), {
    headers: { "content-type": "application/json", [OPERATION_ID]: operationId },
  });
}

/** By the key, because records stand under keys. `undefined`: nothing is going on with that key under that operation. */
async function showUnresolved(
  { idempotency }: PayoutAppOptions,
  { merchant, remainingMs }: Visit,
  key: string,
  operationId: string,
): Promise<Response | undefined> {
  const deadlineMs = Math.max(1, remainingMs());
  const record = await idempotency.inspect({ scope: merchant.id, key }, { deadlineMs });
  if (record?.operationId !== operationId || (record.status !== "creating" && record.status !== "held"))
    return undefined;
  const state = record.status === "held" ? "held" : "in_progress";
  return shown(operationId, { operation_id: operationId, payout_id: payoutIdOf(operationId), state });
}

async function health({ idempotency, ledger }: PayoutAppOptions, remainingMs: number): Promise<Response> {
  const limitMs = Math.ceil(Math.min(1_000, Math.max(1, remainingMs)));
  const signal = AbortSignal.timeout(limitMs);
  const [store, book] = await Promise.allSettled([
    idempotency.store.read("healthz", { signal }),
    ledger.findByOperation("healthz", { remainingMs: limitMs, signal }),
  ]);
  const parts = { store: stateOf(store), ledger: stateOf(book) };
  const isWell = parts.store === "ok" && parts.ledger === "ok";
  const body = JSON.stringify({ status: isWell ? "ok" : "unavailable", ...parts });
  return new Response(body, { status: isWell ? 200 : 503, headers: { "content-type": "application/json" } });
}

function stateOf({ status }: PromiseSettledResult<unknown>): "ok" | "unavailable" {
  return status === "fulfilled" ? "ok" : "unavailable";
}

function text(contentType: string, body: string): Response {
  return new Response(body, { headers: { "content-type": contentType } });
}
