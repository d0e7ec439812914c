/** `POST /v1/payouts`: the payout operation under the `Idempotency-Key` header. */

import { executionOf, type Idempotency } from "@firstwrite/core";
import { problemResponse, type OperationHandlerOptions } from "@firstwrite/http";
import type { Context } from "hono";
import type { Logger } from "pino";

import type { CreatePayout, PayoutInput } from "./create-payout.ts";
import { describeError } from "./describe-error.ts";
import { FencedError, KeySpentError, LedgerUnavailableError } from "./ledger/payout-ledger.ts";
import type { Merchant } from "./merchants.ts";
import { isPayoutAnswer, type PayoutAnswer } from "./payout-answer.ts";
import { KEY_TIME_HEADER, timeOfPayoutKey } from "./payout-key.ts";
import { parsePayoutRequest } from "./payout-request.ts";
import { problem } from "./problem.ts";
import type { RequestTimes } from "./request-times.ts";

/** What paying needs. */
export interface Till {
  readonly idempotency: Idempotency;
  readonly createPayout: CreatePayout;
  readonly times: RequestTimes;
  readonly logger: Logger;
  /** The most a request waits for another one of its key, in milliseconds; then it is told 409. */
  readonly waitMs: number;
}

/** A request of a merchant's, as its route's code sees it. */
export interface Visit {
  readonly merchant: Merchant;
  /** What is left of the request's time, counted when it is asked. */
  readonly remainingMs: () => number;
  /** When there was nothing more to be refused, by the monotonic clock. */
  executesAtMs?: number;
}

export interface VisitEnv {
  readonly Variables: { visit: Visit };
}

type Visited = Context<VisitEnv>;

const BODY_BYTES_MAX = 16_384;
const RETRY_AFTER_MS = 1_000;

/** Everything that can be refused is, before a key is claimed. */
export function payoutRoute(till: Till): OperationHandlerOptions<Visited, PayoutInput, PayoutAnswer> {
  const { idempotency, createPayout, times, logger, waitMs } = till;
  return {
    idempotency,
    operation: createPayout,
    // The scope of its keys, too, and so where `payouts reconcile` finds their records.
    principal: (context) => context.get("visit").merchant.id,
    issuedAt(context, { key }) {
      const { merchant } = context.get("visit");
      const time = times.serializing(() => timeOfPayoutKey(key, context.req.header(KEY_TIME_HEADER), merchant));
      return "why" in time ? problemResponse("key-invalid", { detail: time.why }) : time.issuedAt;
    },
    input(context, { keyHash, body }) {
      if (!/^application\/json *(;|$)/i.test(context.req.header("content-type") ?? "")) {
        return problem("not_json", { detail: "Send the header Content-Type: application/json." });
      }
      const visit = context.get("visit");
      // What is not UTF-8 comes out as U+FFFD, which nothing in a payout may have.
      const parsed = times.serializing(() => parsePayoutRequest(Buffer.from(body ?? []).toString("utf8")));
      if ("fault" in parsed) return problem("invalid_request", { detail: `${parsed.fault} The key was not used.` });
      visit.executesAtMs = performance.now();
      return { ...parsed.request, merchantId: visit.merchant.id, keyHash };
    },
    /** A payout, or a decline. */
    answer(value) {
      if (!isPayoutAnswer(value)) throw new TypeError("the record holds no answer of this service");
      const { status, contentType, body } = value;
      return new Response(body, { status, headers: { "content-type": contentType } });
    },
    failure(error, { operationId }) {
      if (KeySpentError.is(error)) {
        return problem("key_spent", {
          detail: "Nothing was paid now. The payout that the key made is in the ledger under its own operation.",
          operationId,
          earlierOperationId: error.earlierOperationId,
        });
      }
      if (LedgerUnavailableError.is(error) || FencedError.is(error)) {
        return problem("ledger_unavailable", {
          detail: "It may have been paid or not. Send this request again, with the same key, after Retry-After.",
          operationId,
          retryAfterMs: RETRY_AFTER_MS,
        });
      }
      // Whatever else the ledger's side threw is left to a retry, which asks the ledger.
      return undefined;
    },
    waitMs,
    deadlineMs: (context) => context.get("visit").remainingMs(),
    bodyBytesMax: BODY_BYTES_MAX,
    onError(error) {
      const { operationId = null } = executionOf(error) ?? {};
      logger.error({ operation_id: operationId, event: "failed", error: describeError(error) });
    },
  };
}
