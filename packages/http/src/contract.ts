import { days } from "@firstwrite/core";

import { checkOptions, type IdempotentOptions } from "./options.ts";
import { describePolicy } from "./policy.ts";
import { problems, problemType, type ProblemName, type Retry } from "./problem.ts";
import type { Field } from "./request-body.ts";

/** What a route promises about keys, for programs to read (§2.5.2 and §5 of the draft). */
export interface IdempotencyContract {
  readonly specification: string;
  readonly header: "Idempotency-Key";
  readonly documentation?: string;
  readonly route: string;
  /** On other methods the header means nothing. */
  readonly methods: readonly string[];
  readonly required: boolean;
  readonly key: {
    readonly format: "sf-string" | "sf-string or bare";
    readonly lengthMin: number;
    readonly lengthMax: number;
    /** The key carries the time it was made, and is refused when it is older than the retry window. */
    readonly time: "none" | "uuid-v7 or ulid";
  };
  /** Keys are apart for each of these. */
  readonly scope: readonly ["principal", "method", "route"];
  /** What is compared between two requests of a key, beside path and query. */
  readonly fingerprint: "body" | "none" | "custom" | { readonly fields: readonly Field[] };
  /** For how long after its last change a key is remembered; after that it begins a new operation. */
  readonly expiresAfterSeconds: number;
  readonly retryWindowSeconds: number;
  readonly waitSeconds: number;
  readonly bodyBytesMax: number;
  readonly recorded: ReturnType<typeof describePolicy>;
  readonly answers: readonly {
    readonly type: string;
    readonly status: number;
    readonly title: string;
    readonly retry: Retry;
  }[];
  readonly responseHeaders: { readonly operationId: string; readonly replayed: string };
}

/**
 * The contract of a route, to be served as JSON.
 *
 * @throws {InvalidArgumentError} for options that the route itself would refuse.
 */
export function idempotencyContract<Incoming>(options: IdempotentOptions<Incoming>): IdempotencyContract {
  const { route, methods, key, fingerprint, waitMs, bodyBytesMax, record, docs, operation } = checkOptions(options);
  const { ttlMs = days(30), retryWindowMs = 0, brokerDelayMs = 0 } = operation.retention ?? {};
  // The engine's own rule for a window that was not said.
  const windowMs = retryWindowMs + brokerDelayMs > 0 ? retryWindowMs + brokerDelayMs : ttlMs - days(1);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of an object whose type names them all
  const names = Object.keys(problems) as ProblemName[];
  return {
    specification: "draft-ietf-httpapi-idempotency-key-header-07",
    header: "Idempotency-Key",
    ...(docs !== undefined && { documentation: docs }),
    route,
    methods,
    required: key.required,
    key: {
      format: key.format === "strict" ? "sf-string" : "sf-string or bare",
      lengthMin: key.lengthMin,
      lengthMax: key.lengthMax,
      time: operation.keyTime === true ? "uuid-v7 or ulid" : "none",
    },
    scope: ["principal", "method", "route"],
    fingerprint: typeof fingerprint === "function" ? "custom" : fingerprint,
    expiresAfterSeconds: Math.floor(ttlMs / 1000),
    retryWindowSeconds: Math.floor(windowMs / 1000),
    waitSeconds: waitMs / 1000,
    bodyBytesMax,
    recorded: describePolicy(record),
    answers: names.map((name) => {
      const { status, title, retry } = problems[name];
      return { type: problemType(name, docs), status, title, retry };
    }),
    responseHeaders: { operationId: "Idempotency-Operation-Id", replayed: "Idempotent-Replayed" },
  };
}
