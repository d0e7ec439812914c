/** What is answered in place of the handler: RFC 9457, with the titles of the draft. */

import type { Answer } from "./answer.ts";

/**
 * Whether a client may send again, and how.
 *
 * - `"same_key"`: the same request with the same key, later. Nothing is done twice, whatever was done before.
 * - `"new_key"`: nothing was started by this request; a new operation needs a new key.
 * - `"never"`: not by itself. What was asked may have been done, or cannot be done this way.
 */
export type Retry = "same_key" | "new_key" | "never";

export interface ProblemKind {
  readonly status: number;
  readonly title: string;
  readonly retry: Retry;
  readonly detail: string;
}

export type ProblemName =
  | "key-missing"
  | "key-invalid"
  | "in-progress"
  | "held"
  | "body-too-large"
  | "key-reused"
  | "key-too-old"
  | "handler-failed"
  | "handler-failed-for-good"
  | "answer-not-recordable"
  | "answer-gone"
  | "record-unusable"
  | "outcome-unknown"
  | "store-unavailable";

export const problems: Readonly<Record<ProblemName, ProblemKind>> = {
  "key-missing": {
    status: 400,
    title: "Idempotency-Key is missing",
    retry: "new_key",
    detail: "This operation is idempotent and needs the request header Idempotency-Key.",
  },
  "key-invalid": {
    status: 400,
    title: "Idempotency-Key is invalid",
    retry: "new_key",
    detail: "The request header Idempotency-Key is not a key that this resource takes.",
  },
  "in-progress": {
    status: 409,
    title: "A request is outstanding for this Idempotency-Key",
    retry: "same_key",
    detail: "The first request with this key has not been answered yet. Send this one again after Retry-After.",
  },
  held: {
    status: 409,
    title: "The operation of this Idempotency-Key is held",
    retry: "same_key",
    detail:
      "Nobody knows whether the operation was done, and a person has to decide. Do not begin it under another key.",
  },
  "body-too-large": {
    status: 413,
    title: "Request body is too large",
    retry: "never",
    detail: "The body is longer than this resource takes.",
  },
  "key-reused": {
    status: 422,
    title: "Idempotency-Key is already used",
    retry: "new_key",
    detail:
      "The key was used with another payload, and that operation is unchanged. Use a new key for a new operation.",
  },
  "key-too-old": {
    status: 422,
    title: "Idempotency-Key is too old",
    retry: "never",
    detail:
      "The key is older than requests are remembered. Find out whether its operation was done before beginning another.",
  },
  "handler-failed": {
    status: 500,
    title: "The operation failed",
    retry: "same_key",
    detail: "It is not known what was done. The same request with the same key finds out.",
  },
  "handler-failed-for-good": {
    status: 500,
    title: "The operation failed",
    retry: "never",
    detail: "It is not known what was done, and this answer is final for the key. Find out before beginning another.",
  },
  "answer-not-recordable": {
    status: 500,
    title: "The answer cannot be given",
    retry: "same_key",
    detail: "The operation may have been done; its answer is of a kind that cannot be kept for retries.",
  },
  "answer-gone": {
    status: 500,
    title: "The answer is gone",
    retry: "never",
    detail: "The operation was done and is not done again; its answer is no longer there. Look it up by its ID.",
  },
  "record-unusable": {
    status: 500,
    title: "The record of this Idempotency-Key cannot be used",
    retry: "never",
    detail:
      "What is recorded for the key is not an answer of this resource. Find out before beginning another operation.",
  },
  "outcome-unknown": {
    status: 503,
    title: "The outcome is not known yet",
    retry: "same_key",
    detail: "The operation was begun and may be going on. Send this request again after Retry-After.",
  },
  "store-unavailable": {
    status: 503,
    title: "Idempotency-Key cannot be checked now",
    retry: "same_key",
    detail: "Nothing was started. Send this request again after Retry-After.",
  },
};

export interface ProblemFacts {
  /** In place of the kind's own; never with anything of the request in it. */
  readonly detail?: string;
  readonly retryAfterMs?: number;
  readonly docs: string | undefined;
}

/** The problem as an answer. */
export function problemAnswer(name: ProblemName, { detail, retryAfterMs, docs }: ProblemFacts): Answer {
  const { status, title, retry, detail: usual } = problems[name];
  const headers: [string, string][] = [
    ["Content-Type", "application/problem+json"],
    ["Content-Language", "en"],
    ["Cache-Control", "no-store"],
  ];
  if (docs !== undefined) headers.push(["Link", `<${docs}>; rel="describedby"; type="text/html"`]);
  // RFC 9110 §10.2.3: whole seconds.
  if (retryAfterMs !== undefined) headers.push(["Retry-After", String(Math.max(1, Math.ceil(retryAfterMs / 1000)))]);
  const document = { type: problemType(name, docs), title, status, detail: detail ?? usual, retry };
  return { status, headers, body: Buffer.from(JSON.stringify(document)) };
}

/** A place in the documentation where there is one (RFC 9457 §3.1.1), and a name alone where not. */
export function problemType(name: ProblemName, docs: string | undefined): string {
  return docs === undefined ? `urn:firstwrite:problem:${name}` : `${docs.replace(/#.*$/, "")}#${name}`;
}
