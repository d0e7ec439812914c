/** What clients may count on, for machines to read: `GET /v1/idempotency-contract`. */

import type { IdempotencyContract } from "@firstwrite/http";

import type { CreatePayout, Deployment } from "./create-payout.ts";
import { KEY_TIME_HEADER } from "./payout-key.ts";
import { problems } from "./problem.ts";

/** @param answers what is answered in the operation's place */
export function payoutContract(
  { retention }: CreatePayout,
  deployment: Deployment,
  waitMs: number,
  answers: IdempotencyContract["answers"],
): unknown {
  return {
    header: "Idempotency-Key",
    required: true,
    format: "RFC 8941 String",
    key: {
      length_min: 1,
      length_max: 255,
      issued_at: {
        one_of: ["uuid_v7", "ulid", "signed"],
        signed: {
          header: KEY_TIME_HEADER,
          form: "t=UNIX_SECONDS,v1=HEX",
          signature: "HMAC-SHA256 with the merchant's signing secret of UNIX_SECONDS.KEY",
        },
      },
    },
    scope: ["merchant"],
    fingerprint: ["operation type", "amount in minor units", "currency", "destination"],
    retention: {
      client_retry_ms: deployment.clientRetryMs,
      broker_delay_ms: retention.brokerDelayMs,
      key_age_max_ms: retention.retryWindowMs + retention.brokerDelayMs,
      audit_ms: retention.auditMs,
      ttl_ms: retention.ttlMs,
    },
    wait_ms: waitMs,
    replay: { header: "Idempotent-Replayed", value: "true", body: "byte for byte" },
    outcomes: [
      { status: 201, cached: true, retry: "same_key" },
      { status: 402, cached: true, retry: "new_key" },
      ...[...answers, ...Object.values(problems)].map(({ type, status, retry }) => ({
        status,
        type,
        cached: CACHED.includes(type),
        retry,
      })),
    ],
  };
}

/** The second: a person has settled an operation as failed. */
const CACHED: readonly string[] = [problems.key_spent.type, "urn:firstwrite:problem:operation-failed-for-good"];
