import { checkNames, InvalidArgumentError, sha256, type Idempotency, type OperationOptions } from "@firstwrite/core";

import type { IdempotencyContext } from "./context.ts";
import { checkKeyOptions, type CheckedKeyOptions, type KeyOptions } from "./key.ts";
import { checkPolicy, type RecordPolicy } from "./policy.ts";
import { headerFilter, type HeaderFilter, type RecordedResponse } from "./recorded-response.ts";
import { checkFingerprint, type FingerprintOption } from "./request-body.ts";

/** What is done about a request whose first handling died in the middle. Has no default: only the author knows. */
export type HttpRecovery<Incoming> =
  /** Leave it to a person. */
  | "hold"
  /** Run the handler again: it is itself idempotent by the operation ID. */
  | "rerun"
  | {
      /** Asks the ledger: the answer that the operation had, `"absent"`, or `"unknown"`. */
      readonly reconcile: (
        request: Incoming,
        context: IdempotencyContext,
      ) => Response | "absent" | "unknown" | PromiseLike<Response | "absent" | "unknown">;
      /** As `Recovery` of `@firstwrite/core` has it. */
      readonly absentIsFinal?: boolean;
    };

type OfOperation = Pick<
  OperationOptions<unknown, RecordedResponse>,
  "retention" | "keyTime" | "storeKey" | "leaseMs" | "recoverAfterMs" | "maxRunMs" | "inlineBytesMax"
>;

/** What every route under the `Idempotency-Key` header takes. `Incoming`: a request as the framework has it. */
export interface RouteOptions<Incoming> {
  readonly idempotency: Idempotency;
  /**
   * Who asks: an account, a merchant. Keys of two principals never meet. It runs before anything else; a `Response` that it
   * returns or throws is the answer, and consumes no key. It does not read the body.
   */
  readonly principal: (request: Incoming) => string | Response | PromiseLike<string | Response>;
  /** The most a retry waits for a first request that is going on, in milliseconds; then 409. Default 0. */
  readonly waitMs?: number;
  /** Reads before it writes: one request to the store less for each retry, one more for each first request. */
  readonly readFirst?: boolean;
  /** A longer request body is answered 413. Default 1 MiB. */
  readonly bodyBytesMax?: number;
  /** The URL of the documentation of this route's keys: in `type` and `Link` of every refusal. */
  readonly docs?: string;
}

/** A handler under the `Idempotency-Key` header. `Incoming`: a request as the framework has it. */
export interface IdempotentOptions<Incoming> extends RouteOptions<Incoming>, OfOperation {
  /** The route's template, as `/accounts/:account/payouts`: keys of two routes never meet. */
  readonly route: string;
  readonly recovery: HttpRecovery<Incoming>;
  /** Which answers are the operation's for good. Default `"stripe"`. */
  readonly record?: RecordPolicy;
  readonly key?: KeyOptions;
  readonly fingerprint?: FingerprintOption<Incoming>;
  /** The methods that the key counts for; others pass. Default POST and PATCH. */
  readonly methods?: readonly string[];
  /** The most a request takes beside `waitMs`, in milliseconds. A handler goes on after it. Default: the engine's, 30,000. */
  readonly deadlineMs?: number;
  /** A longer answer cannot be recorded. Default 5 MiB, or what the store takes. */
  readonly answerBytesMax?: number;
  /** The only headers that are replayed. By default all, but those that must not be. */
  readonly replayHeaders?: readonly string[];
  /** What is done while the store is away: answer 503, or run the handler with no protection at all. Default `"refuse"`. */
  readonly storeAway?: "refuse" | "run_unprotected";
  /** Is told what a handler or `reconcile` threw, what could not be recorded, and the store's failures. Default: `console.error`. */
  readonly onError?: (error: unknown) => void;
}

/** {@link RouteOptions}, checked, and what both ways have besides. */
export interface RouteSettings<Incoming> {
  readonly idempotency: Idempotency;
  readonly principal: RouteOptions<Incoming>["principal"];
  readonly key: CheckedKeyOptions;
  readonly methods: readonly string[];
  readonly waitMs: number;
  /** A function says what is left of the request's time whenever it is asked, waiting included. */
  readonly deadlineMs: number | ((request: Incoming) => number);
  readonly readFirst: boolean;
  readonly bodyBytesMax: number;
  readonly docs: string | undefined;
  readonly onError: (error: unknown) => void;
}

/** {@link IdempotentOptions}, checked. */
export interface Settings<Incoming> extends RouteSettings<Incoming> {
  readonly route: string;
  readonly recovery: HttpRecovery<Incoming>;
  readonly record: RecordPolicy;
  readonly fingerprint: FingerprintOption<Incoming>;
  readonly deadlineMs: number;
  readonly answerBytesMax: number;
  readonly isReplayed: HeaderFilter;
  readonly storeAway: "refuse" | "run_unprotected";
  readonly operation: OfOperation;
}

const NAMES: readonly (keyof IdempotentOptions<unknown>)[] = [
  "idempotency",
  "route",
  "principal",
  "recovery",
  "record",
  "key",
  "fingerprint",
  "methods",
  "waitMs",
  "deadlineMs",
  "readFirst",
  "bodyBytesMax",
  "answerBytesMax",
  "replayHeaders",
  "storeAway",
  "docs",
  "onError",
  "retention",
  "keyTime",
  "storeKey",
  "leaseMs",
  "recoverAfterMs",
  "maxRunMs",
  "inlineBytesMax",
];

const MIB = 1_048_576;

/** @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write. */
export function checkOptions<Incoming>(options: IdempotentOptions<Incoming>): Settings<Incoming> {
  checkNames(options, NAMES, "an idempotent route");
  const { route, recovery, methods = ["POST", "PATCH"], storeAway = "refuse", onError = console.error } = options;
  const shared = checkRouteOptions(options);
  const { idempotency } = shared;
  if (typeof route !== "string" || !route.startsWith("/") || route.length > 180) {
    throw new InvalidArgumentError(
      "route must be the route's template, of at most 180 characters: /accounts/:account/payouts",
    );
  }
  if (storeAway !== "refuse" && storeAway !== "run_unprotected") {
    throw new InvalidArgumentError('storeAway must be "refuse" (503) or "run_unprotected" (the handler may run twice)');
  }
  if (typeof onError !== "function") throw new InvalidArgumentError("onError must be a function");
  return {
    ...shared,
    route,
    recovery,
    record: checkPolicy(options.record ?? "stripe"),
    key: checkKeyOptions(options.key ?? {}),
    fingerprint: checkFingerprint(options.fingerprint ?? "body"),
    methods: checkMethods(methods),
    // Throws for a deadline that the engine would refuse at each request.
    deadlineMs: idempotency.deadline(options.deadlineMs),
    answerBytesMax: answerBytesMax(options.answerBytesMax, idempotency.store.traits.recordBytesMax),
    isReplayed: headerFilter(options.replayHeaders),
    storeAway,
    onError,
    operation: ofOperation(options),
  };
}

/** @throws {InvalidArgumentError} */
export function checkRouteOptions<Incoming>(
  options: RouteOptions<Incoming>,
): Omit<RouteSettings<Incoming>, "key" | "methods" | "deadlineMs" | "onError"> {
  const { idempotency, principal, waitMs = 0, readFirst = false, bodyBytesMax = MIB, docs } = options;
  if (typeof idempotency?.execute !== "function") {
    throw new InvalidArgumentError("idempotency must be an Idempotency: new Idempotency({ store })");
  }
  if (typeof principal !== "function") {
    throw new InvalidArgumentError(
      "principal must be a function that says who asks, so that keys of two callers never meet: (request) => account.id",
    );
  }
  if (docs !== undefined && !URL.canParse(docs)) {
    throw new InvalidArgumentError("docs must be the URL of the documentation: https://example.com/docs/idempotency");
  }
  if (!(Number.isFinite(waitMs) && waitMs >= 0)) {
    throw new InvalidArgumentError(`waitMs is ${String(waitMs)}: give milliseconds, 0 or more`);
  }
  if (!(Number.isSafeInteger(bodyBytesMax) && bodyBytesMax >= 0)) {
    throw new InvalidArgumentError(`bodyBytesMax is ${String(bodyBytesMax)}: give whole bytes, 0 or more`);
  }
  if (typeof readFirst !== "boolean") throw new InvalidArgumentError("readFirst must be true or false");
  return { idempotency, principal, waitMs, readFirst, bodyBytesMax, docs };
}

/** @throws {InvalidArgumentError} */
export function checkHandler(handler: unknown, call: string): void {
  if (typeof handler === "function") return;
  throw new InvalidArgumentError(`the handler must be a function, which comes after the options: ${call}`);
}

/** @throws {InvalidArgumentError} */
export function checkMethods(methods: readonly string[]): readonly string[] {
  const known = Array.isArray(methods) && methods.length > 0 && methods.every((method) => /^[A-Z]+$/.test(method));
  if (known) return methods;
  throw new InvalidArgumentError('methods must be a list of method names in capitals: ["POST", "PATCH"]');
}

/** What the store can hold as base64, with room for headers: more would be held for a person, after its effect. */
function answerBytesMax(given: number | undefined, recordBytesMax: number): number {
  const most = Math.max(0, Math.floor((recordBytesMax - 65_536) * 0.75));
  if (given === undefined) return Math.min(5 * MIB, most);
  if (Number.isSafeInteger(given) && given >= 0 && given <= most) return given;
  throw new InvalidArgumentError(
    `answerBytesMax is ${String(given)}: give whole bytes, at most ${most} with this store`,
  );
}

/** Checked by `defineOperation`, which refuses a member that is `undefined`. */
function ofOperation(options: OfOperation): OfOperation {
  const { retention, keyTime, storeKey, leaseMs, recoverAfterMs, maxRunMs, inlineBytesMax } = options;
  return {
    ...(retention && { retention }),
    ...(keyTime !== undefined && { keyTime }),
    ...(storeKey !== undefined && { storeKey }),
    ...(leaseMs !== undefined && { leaseMs }),
    ...(recoverAfterMs !== undefined && { recoverAfterMs }),
    ...(maxRunMs !== undefined && { maxRunMs }),
    ...(inlineBytesMax !== undefined && { inlineBytesMax }),
  };
}

/**
 * Where the keys of one principal and route are: the `scope` of `inspect`, `settle` and `release`. A digest, because a
 * principal may be of any length and personal, and so that no two of the three can be taken for another three.
 */
export function idempotencyScope(of: {
  readonly principal: string;
  readonly method: string;
  readonly route: string;
}): string {
  return `http.${sha256(JSON.stringify([of.principal, of.method, of.route])).slice("sha256:".length)}`;
}
