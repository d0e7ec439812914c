/** What is answered in place of a payout: RFC 9457, with `retry`, by which a client decides what it may do next. */

/**
 * - `same_key`: send the same request again, with the same key; what happened is not known, or not yet.
 * - `new_key`: this key will never pay. A new payout needs a new key, and may be begun.
 * - `never`: do not send it again; find out by the operation ID, or mend the request.
 */
type Retry = "same_key" | "new_key" | "never";

interface ProblemKind {
  readonly status: 400 | 401 | 404 | 409 | 413 | 415 | 422 | 500 | 503;
  readonly title: string;
  readonly retry: Retry;
}

export type ProblemName =
  | "unauthenticated"
  | "not_found"
  | "invalid_request"
  | "key_missing"
  | "key_invalid"
  | "too_large"
  | "not_json"
  | "in_progress"
  | "key_reused"
  | "key_too_old"
  | "key_spent"
  | "outcome_unknown"
  | "held"
  | "store_unavailable"
  | "ledger_unavailable"
  | "answer_unusable"
  | "internal";

/** Each is one `type`: `urn:firstwrite:payouts:…`. Whatever is here is not recorded, but `key_spent`. */
export const problems: Readonly<Record<ProblemName, ProblemKind>> = {
  unauthenticated: { status: 401, title: "An API key is needed", retry: "same_key" },
  not_found: { status: 404, title: "There is no such thing", retry: "never" },
  invalid_request: { status: 400, title: "The request is not a payout", retry: "never" },
  key_missing: { status: 400, title: "Idempotency-Key is missing", retry: "never" },
  key_invalid: { status: 400, title: "Idempotency-Key is not valid", retry: "never" },
  too_large: { status: 413, title: "The body is too large", retry: "never" },
  not_json: { status: 415, title: "The body must be JSON", retry: "never" },
  in_progress: { status: 409, title: "A request is outstanding for this Idempotency-Key", retry: "same_key" },
  key_reused: { status: 422, title: "Idempotency-Key is already used", retry: "new_key" },
  key_too_old: { status: 422, title: "Idempotency-Key is too old", retry: "never" },
  key_spent: { status: 422, title: "Idempotency-Key has made a payout before", retry: "never" },
  outcome_unknown: { status: 503, title: "It is not known yet whether it was paid", retry: "same_key" },
  held: { status: 409, title: "A person is finding out whether it was paid", retry: "same_key" },
  store_unavailable: { status: 503, title: "The idempotency store is away, and nothing was begun", retry: "same_key" },
  ledger_unavailable: { status: 503, title: "The ledger is away", retry: "same_key" },
  answer_unusable: { status: 500, title: "The payout was decided, and its answer cannot be read", retry: "never" },
  internal: { status: 500, title: "The service failed", retry: "same_key" },
};

export interface ProblemFacts {
  /** A sentence that repeats nothing of the request. */
  readonly detail: string;
  readonly operationId?: string | undefined;
  readonly retryAfterMs?: number;
  readonly earlierOperationId?: string;
}

/** An answer, whatever sends it. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** For logs and metrics; it is in the headers, too. */
  readonly operationId: string | undefined;
  readonly problem?: ProblemName;
}

export function problemAnswer(name: ProblemName, facts: ProblemFacts): Answer {
  const { status, title, retry } = problems[name];
  const { detail, operationId, retryAfterMs, earlierOperationId } = facts;
  const body = JSON.stringify({
    type: `urn:firstwrite:payouts:${name}`,
    title,
    status,
    detail,
    retry,
    ...(operationId !== undefined && { operation_id: operationId }),
    ...(earlierOperationId !== undefined && { earlier_operation_id: earlierOperationId }),
  });
  return {
    status,
    headers: {
      "content-type": "application/problem+json",
      ...(operationId !== undefined && { "operation-id": operationId }),
      // Whole seconds, and no sooner than said.
      ...(retryAfterMs !== undefined && { "retry-after": String(Math.max(1, Math.ceil(retryAfterMs / 1_000))) }),
      ...(status === 401 && { "www-authenticate": 'Bearer realm="payouts"' }),
    },
    body,
    operationId,
    problem: name,
  };
}
