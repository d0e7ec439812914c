import { days } from "@firstwrite/core";

import { checkOperationOptions, type OperationHandlerOptions } from "./operation-options.ts";
import { checkOptions, type IdempotentOptions, type RouteSettings } from "./options.ts";
import { describePolicy } from "./policy.ts";
import { problems, problemType, type ProblemName, type Retry } from "./problem.ts";
import type { Field } from "./request-body.ts";

/** What a route promises about keys, for programs to read (§2.5.2 and §5 of the draft). */
export interface IdempotencyContract {
  readonly specification: string;
  readonly header: "Idempotency-Key";
  readonly documentation?: string;
  /** Of a handler, its route's template; of an operation, its name. */
  readonly route?: string;
  readonly operation?: string;
  /** On other methods the header means nothing. */
  readonly methods: readonly string[];
  readonly required: boolean;
  readonly key: {
    readonly format: "sf-string" | "sf-string or bare";
    readonly lengthMin: number;
    readonly lengthMax: number;
    /** Where the time at which the key was made is; it is refused when that is longer ago than the retry window. */
    readonly time: "none" | "uuid-v7 or ulid" | "custom";
  };
  /** Keys are apart for each of these. */
  readonly scope: readonly ["principal", "method", "route"] | readonly ["principal"];
  /** What is compared between two requests of a key: of a handler beside path and query. */
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
export function idempotencyContract<Incoming, Input, Value>(
  options: IdempotentOptions<Incoming> | OperationHandlerOptions<Incoming, Input, Value>,
): IdempotencyContract {
  return "operation" in options ? contractOfOperation(options) : contractOfHandler(options);
}

function contractOfHandler<Incoming>(options: IdempotentOptions<Incoming>): IdempotencyContract {
  const settings = checkOptions(options);
  const { route, fingerprint, record, operation } = settings;
  const { ttlMs = days(30), retryWindowMs = 0, brokerDelayMs = 0 } = operation.retention ?? {};
  return contractOf(settings, {
    of: { route },
    time: operation.keyTime === true ? "uuid-v7 or ulid" : "none",
    scope: ["principal", "method", "route"],
    fingerprint: typeof fingerprint === "function" ? "custom" : fingerprint,
    retention: { ttlMs, retryWindowMs, brokerDelayMs },
    recorded: describePolicy(record),
    isAnswered: () => true,
  });
}

function contractOfOperation<Incoming, Input, Value>(
  options: OperationHandlerOptions<Incoming, Input, Value>,
): IdempotencyContract {
  const settings = checkOperationOptions(options);
  const { operation, issuedAt } = settings;
  return contractOf(settings, {
    of: { operation: operation.name },
    time: operation.keyTime ? "uuid-v7 or ulid" : issuedAt === undefined ? "none" : "custom",
    scope: ["principal"],
    fingerprint: "custom",
    retention: operation.retention,
    recorded: "custom",
    // A failure that is not recorded is answered `outcome-unknown`.
    isAnswered: (name) => name !== "operation-failed",
  });
}

interface Terms extends Pick<IdempotencyContract, "scope" | "fingerprint" | "recorded"> {
  readonly of: Pick<IdempotencyContract, "route" | "operation">;
  readonly time: IdempotencyContract["key"]["time"];
  readonly retention: { readonly ttlMs: number; readonly retryWindowMs: number; readonly brokerDelayMs: number };
  readonly isAnswered: (name: ProblemName) => boolean;
}

function contractOf<Incoming>(
  { methods, key, waitMs, bodyBytesMax, docs }: RouteSettings<Incoming>,
  { of, time, scope, fingerprint, retention, recorded, isAnswered }: Terms,
): IdempotencyContract {
  const { ttlMs, retryWindowMs, brokerDelayMs } = retention;
  // The engine's own rule for a window that was not said.
  const windowMs = retryWindowMs + brokerDelayMs > 0 ? retryWindowMs + brokerDelayMs : ttlMs - days(1);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of an object whose type names them all
  const names = Object.keys(problems) as ProblemName[];
  return {
    specification: "draft-ietf-httpapi-idempotency-key-header-07",
    header: "Idempotency-Key",
    ...(docs !== undefined && { documentation: docs }),
    ...of,
    methods,
    required: key.required,
    key: {
      format: key.format === "strict" ? "sf-string" : "sf-string or bare",
      lengthMin: key.lengthMin,
      lengthMax: key.lengthMax,
      time,
    },
    scope,
    fingerprint,
    expiresAfterSeconds: Math.floor(ttlMs / 1000),
    retryWindowSeconds: Math.floor(windowMs / 1000),
    waitSeconds: waitMs / 1000,
    bodyBytesMax,
    recorded,
    answers: names.filter(isAnswered).map((name) => {
      const { status, title, retry } = problems[name];
      return { type: problemType(name, docs), status, title, retry };
    }),
    responseHeaders: { operationId: "Idempotency-Operation-Id", replayed: "Idempotent-Replayed" },
  };
}
