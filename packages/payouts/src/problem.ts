/** The service's own problems, in the form of `@firstwrite/http`, whose problems are all others. */

import { problemResponse, type Problem } from "@firstwrite/http";

export type ProblemName =
  | "unauthenticated"
  | "not_found"
  | "method_not_allowed"
  | "invalid_request"
  | "not_json"
  | "key_spent"
  | "ledger_unavailable"
  | "internal";

type Kind = Omit<Problem, "detail">;

/** Not one of them is recorded, but `key_spent`. */
export const problems: Readonly<Record<ProblemName, Kind>> = {
  unauthenticated: own("unauthenticated", 401, "An API key is needed", "same_key"),
  not_found: own("not_found", 404, "There is no such thing", "never"),
  method_not_allowed: own("method_not_allowed", 405, "The method is not for this resource", "never"),
  invalid_request: own("invalid_request", 400, "The request is not a payout", "never"),
  not_json: own("not_json", 415, "The body must be JSON", "never"),
  key_spent: own("key_spent", 422, "Idempotency-Key has made a payout before", "never"),
  ledger_unavailable: own("ledger_unavailable", 503, "The ledger is away", "same_key"),
  internal: own("internal", 500, "The service failed", "same_key"),
};

export interface ProblemFacts {
  /** A sentence that repeats nothing of the request. */
  readonly detail: string;
  readonly operationId?: string | undefined;
  readonly retryAfterMs?: number;
  readonly earlierOperationId?: string;
}

export function problem(name: ProblemName, facts: ProblemFacts): Response {
  const { detail, operationId, retryAfterMs, earlierOperationId } = facts;
  return problemResponse(
    { ...problems[name], detail },
    {
      retryAfterMs,
      members: {
        ...(operationId !== undefined && { operation_id: operationId }),
        ...(earlierOperationId !== undefined && { earlier_operation_id: earlierOperationId }),
      },
    },
  );
}

/** The last part of a problem's `type`, for logs and metrics; `undefined` for an answer that is none. */
export async function problemNameOf(response: Response): Promise<string | undefined> {
  if (response.headers.get("content-type") !== "application/problem+json") return undefined;
  const { type }: { readonly type: string } = JSON.parse(await response.clone().text());
  return type.slice(type.lastIndexOf(":") + 1);
}

function own(name: ProblemName, status: number, title: string, retry: Kind["retry"]): Kind {
  return { type: `urn:firstwrite:payouts:${name}`, status, title, retry };
}
