/** What is answered in place of the handler: RFC 9457, with the titles of the draft. */

import { InvalidArgumentError } from "@firstwrite/core";

import { toResponse, type Answer } from "./answer.ts";

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
  /** When a client may send again, where nothing better is known. */
  readonly retryAfterMs?: number;
}

export type ProblemName =
  | "key-missing"
  | "key-invalid"
  | "in-progress"
  | "held"
  | "body-too-large"
  | "key-reused"
  | "key-too-old"
  | "operation-failed"
  | "operation-failed-for-good"
  | "answer-not-recordable"
  | "answer-gone"
  | "record-unusable"
  | "outcome-unknown"
  | "store-unavailable";

/** A client that is told nothing better tries again after this long, in milliseconds. */
const RETRY_AFTER_MS = 1_000;
/** A person is slower. */
const HELD_MS = 60_000;

export const problems: Readonly<Record<ProblemName, ProblemKind>> = {
  "key-missing": {
    status: 400,
    title: "Idempotency-Key is missing",
    // An earlier sending may have had it, and may have been done.
    retry: "never",
    detail: "This operation is idempotent and needs the request header Idempotency-Key.",
  },
  "key-invalid": {
    status: 400,
    title: "Idempotency-Key is invalid",
    // An earlier sending may have had it in a form that was taken, or with a time that was.
    retry: "never",
    detail: "The request header Idempotency-Key is not a key that this resource takes.",
  },
  "in-progress": {
    status: 409,
    title: "A request is outstanding for this Idempotency-Key",
    retry: "same_key",
    detail: "The first request with this key has not been answered yet. Send this one again after Retry-After.",
    retryAfterMs: RETRY_AFTER_MS,
  },
  held: {
    status: 409,
    title: "The operation of this Idempotency-Key is held",
    retry: "same_key",
    detail:
      "Nobody knows whether the operation was done, and a person has to decide. Do not begin it under another key.",
    retryAfterMs: HELD_MS,
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
  "operation-failed": {
    status: 500,
    title: "The operation failed",
    retry: "same_key",
    detail: "It is not known what was done. The same request with the same key finds out.",
    retryAfterMs: RETRY_AFTER_MS,
  },
  "operation-failed-for-good": {
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
    retryAfterMs: RETRY_AFTER_MS,
  },
  "store-unavailable": {
    status: 503,
    title: "Idempotency-Key cannot be checked now",
    retry: "same_key",
    detail: "Nothing was started. Send this request again after Retry-After.",
    retryAfterMs: RETRY_AFTER_MS,
  },
};

export interface ProblemFacts {
  /** In place of the kind's own; never with anything of the request in it. */
  readonly detail?: string | undefined;
  /** In place of the kind's own. */
  readonly retryAfterMs?: number | undefined;
  readonly operationId?: string | undefined;
  readonly docs: string | undefined;
}

/** The problem as an answer. */
export function problemAnswer(name: ProblemName, facts: ProblemFacts): Answer {
  const { operationId, docs } = facts;
  const members = operationId === undefined ? {} : { operation_id: operationId };
  return documentAnswer({ ...problems[name], type: problemType(name, docs) }, { ...facts, members });
}

/** A place in the documentation where there is one (RFC 9457 §3.1.1), and a name alone where not. */
export function problemType(name: ProblemName, docs: string | undefined): string {
  return docs === undefined ? `urn:firstwrite:problem:${name}` : `${docs.replace(/#.*$/, "")}#${name}`;
}

/** A problem of one's own, for {@link problemResponse}. */
export interface Problem {
  /** A URI that is this problem's alone (RFC 9457 §3.1.1). */
  readonly type: string;
  /** 400 to 599. */
  readonly status: number;
  readonly title: string;
  readonly retry: Retry;
  /** For whoever sent the request; it repeats nothing of it. */
  readonly detail: string;
}

/** What {@link problemResponse} may be told beside the problem. */
export interface ProblemResponseOptions {
  /** In place of the problem's own. */
  readonly detail?: string | undefined;
  /** In milliseconds. Default: what the kind has, where it is one of this package's. */
  readonly retryAfterMs?: number | undefined;
  /** The URL of the documentation, as a route has it. */
  readonly docs?: string | undefined;
  /** Further members of the document (RFC 9457 §3.2), such as `operation_id`. */
  readonly members?: Readonly<Record<string, unknown>>;
}

/**
 * A problem in the form in which this package answers its own: one of those by its name, or one of the author's.
 *
 * @throws {InvalidArgumentError}
 */
export function problemResponse(problem: ProblemName | Problem, options: ProblemResponseOptions = {}): Response {
  if (typeof problem === "string") {
    if (!Object.hasOwn(problems, problem)) {
      throw new InvalidArgumentError(
        `the problem must be one of ${Object.keys(problems).join(", ")}, or one of your own`,
      );
    }
    return toResponse(documentAnswer({ ...problems[problem], type: problemType(problem, options.docs) }, options));
  }
  const { status, type, retry } = problem;
  if (!(Number.isInteger(status) && status >= 400 && status <= 599)) {
    throw new InvalidArgumentError(`the problem's status is ${String(status)}: give 400 to 599`);
  }
  if (typeof type !== "string" || !URL.canParse(type)) {
    throw new InvalidArgumentError(
      "the problem's type must be a URI of its own: https://example.com/problems/declined",
    );
  }
  if (!RETRIES.includes(retry)) {
    throw new InvalidArgumentError(`the problem's retry must be one of ${RETRIES.join(", ")}`);
  }
  return toResponse(documentAnswer(problem, options));
}

const RETRIES: readonly Retry[] = ["same_key", "new_key", "never"];

function documentAnswer(
  { type, status, title, retry, detail: usual, retryAfterMs: usualMs }: Problem & { readonly retryAfterMs?: number },
  { detail = usual, retryAfterMs = usualMs, docs, members }: ProblemResponseOptions,
): Answer {
  const headers: [string, string][] = [
    ["Content-Type", "application/problem+json"],
    ["Content-Language", "en"],
    ["Cache-Control", "no-store"],
  ];
  if (docs !== undefined) headers.push(["Link", `<${docs}>; rel="describedby"; type="text/html"`]);
  // RFC 9110 §10.2.3: whole seconds.
  if (retryAfterMs !== undefined) headers.push(["Retry-After", String(Math.max(1, Math.ceil(retryAfterMs / 1000)))]);
  const document = { type, title, status, detail, retry };
  // No further member takes the place of one of these.
  return { status, headers, body: Buffer.from(JSON.stringify({ ...document, ...members, ...document })) };
}
