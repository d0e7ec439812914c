/** `POST /v1/payouts`: from a request's parts to its answer, whichever server took it. */

import {
  executionOf,
  IdempotencyConflictError,
  InProgressError,
  KeyTooOldError,
  OperationHeldError,
  OutcomeUnknownError,
  recordAddress,
  ResultGoneError,
  StoreError,
  type Executed,
  type Idempotency,
} from "@firstwrite/core";

import type { CreatePayout, PayoutInput } from "./create-payout.ts";
import { FencedError, KeySpentError, LedgerUnavailableError, type AtPoint } from "./ledger/payout-ledger.ts";
import type { Merchant } from "./merchants.ts";
import type { Metrics } from "./metrics.ts";
import { isPayoutAnswer, type PayoutAnswer } from "./payout-answer.ts";
import { KEY_TIME_HEADER, parsePayoutKey, type PayoutKey } from "./payout-key.ts";
import { parsePayoutRequest } from "./payout-request.ts";
import { problemAnswer, type Answer } from "./problem.ts";
import type { RequestTimes } from "./request-times.ts";

/** What paying needs. */
export interface Till {
  readonly idempotency: Idempotency;
  readonly createPayout: CreatePayout;
  readonly metrics: Metrics;
  readonly times: RequestTimes;
  /** The most a request waits for another one of its key, in milliseconds; then it is told 409. */
  readonly waitMs: number;
  readonly now: () => number;
  readonly atPoint: AtPoint;
}

export interface PayCall {
  readonly merchant: Merchant;
  readonly header: (name: string) => string | undefined;
  readonly body: string;
  /** What is left of the request's time, counted when it is asked. */
  readonly remainingMs: () => number;
}

const RETRY_AFTER_MS = 1_000;

/** Everything that can be refused is, before a key is claimed. */
export async function pay(till: Till, call: PayCall): Promise<Answer> {
  const { merchant, header, body } = call;
  const parsed = till.times.serializing(() => ({
    key: parsePayoutKey(header("idempotency-key"), header(KEY_TIME_HEADER), merchant, till.now()),
    payout: parsePayoutRequest(body),
  }));
  if (parsed.key.kind === "missing") {
    return problemAnswer("key_missing", {
      detail: 'Send the header Idempotency-Key: "…", one key for all sendings of a payout.',
    });
  }
  if (parsed.key.kind === "invalid") return problemAnswer("key_invalid", { detail: parsed.key.why });
  if ("fault" in parsed.payout) {
    return problemAnswer("invalid_request", { detail: `${parsed.payout.fault} The key was not used.` });
  }
  const { key } = parsed.key;
  const { keyHash } = recordAddress("idempotency/", merchant.id, key.key);
  return payOnce(till, call, key, { ...parsed.payout.request, merchantId: merchant.id, keyHash });
}

async function payOnce(till: Till, call: PayCall, { key, issuedAt }: PayoutKey, input: PayoutInput): Promise<Answer> {
  const { idempotency, createPayout, waitMs, atPoint } = till;
  const deadlineMs = Math.max(1, call.remainingMs());
  let answer: Answer;
  try {
    const request = { scope: input.merchantId, key, issuedAt, deadlineMs, waitMs: Math.min(waitMs, deadlineMs) };
    answer = answered(till, await idempotency.execute(createPayout, request, input));
  } catch (error) {
    answer = refused(till, error);
  }
  atPoint("replying");
  return answer;
}

/** One that is not recorded is as good as the ledger, which the next retry asks. */
function answered({ metrics }: Till, { value, operationId, replayed }: Executed<PayoutAnswer>): Answer {
  if (replayed) metrics.duplicateSuppressed();
  if (!isPayoutAnswer(value)) return unusable(operationId);
  const { status, contentType, body } = value;
  return {
    status,
    headers: {
      "content-type": contentType,
      "operation-id": operationId,
      ...(replayed && { "idempotent-replayed": "true" }),
    },
    body,
    operationId,
  };
}

function refused({ metrics }: Till, error: unknown): Answer {
  if (KeySpentError.is(error)) return keySpent(error);
  if (IdempotencyConflictError.is(error)) {
    metrics.mismatch();
    return problemAnswer("key_reused", {
      detail: "The key was used for another payout, which is as it was. A new payout needs a new key.",
      operationId: error.operationId,
    });
  }
  if (InProgressError.is(error)) {
    const { operationId, retryAfterMs } = error;
    return problemAnswer("in_progress", {
      detail:
        "The first request with this key is not answered yet, or its process is gone. Send this one again after Retry-After.",
      operationId,
      retryAfterMs,
    });
  }
  if (KeyTooOldError.is(error)) {
    return problemAnswer("key_too_old", {
      detail: "The key is older than payouts are remembered by their keys. Look the payout up before making another.",
      operationId: error.operationId,
    });
  }
  if (OperationHeldError.is(error)) {
    return problemAnswer("held", {
      detail: "Do not pay with another key: a person is finding out whether this one did.",
      operationId: error.operationId,
      retryAfterMs: 60_000,
    });
  }
  if (OutcomeUnknownError.is(error)) return unknownOutcome(error.operationId);
  if (ResultGoneError.is(error)) return unusable(error.operationId);
  if (StoreError.is(error)) {
    if (error.code === "CORRUPT") return unusable(undefined);
    return problemAnswer("store_unavailable", {
      detail: "Send this request again, with the same key, after Retry-After.",
      retryAfterMs: RETRY_AFTER_MS,
    });
  }
  const { operationId } = executionOf(error) ?? {};
  if (LedgerUnavailableError.is(error) || FencedError.is(error)) {
    return problemAnswer("ledger_unavailable", {
      detail: "It may have been paid or not. Send this request again, with the same key, after Retry-After.",
      operationId,
      retryAfterMs: RETRY_AFTER_MS,
    });
  }
  // Whatever else the ledger's side threw through the engine is left to a retry, which asks the ledger.
  if (operationId !== undefined) return unknownOutcome(operationId);
  throw error;
}

function keySpent(error: KeySpentError): Answer {
  const { operationId, recorded = false } = executionOf(error) ?? {};
  if (!recorded) return unknownOutcome(operationId);
  return problemAnswer("key_spent", {
    detail: "Nothing was paid now. The payout that the key made is in the ledger under its own operation.",
    operationId,
    earlierOperationId: error.earlierOperationId,
  });
}

function unknownOutcome(operationId: string | undefined): Answer {
  return problemAnswer("outcome_unknown", {
    detail: "It may have been paid or not. Send this request again, with the same key, after Retry-After.",
    operationId,
    retryAfterMs: RETRY_AFTER_MS,
  });
}

function unusable(operationId: string | undefined): Answer {
  return problemAnswer("answer_unusable", {
    detail: "The payout was decided. Look it up by its operation; do not pay with another key.",
    operationId,
  });
}
