import { checkNames, InvalidArgumentError, type OperationDefinition } from "@firstwrite/core";

import { checkKeyOptions, type KeyOptions } from "./key.ts";
import { checkMethods, checkRouteOptions, type RouteOptions, type RouteSettings } from "./options.ts";

/** What an operation's route knows of a request whose key is good. */
export interface KeyedRequest {
  readonly principal: string;
  readonly key: string;
  /** `sha256:…` of scope and key, as the record, events and errors have it: what may be kept where the key may not. */
  readonly keyHash: string;
  /** The request's body as it came; `undefined` where a body parser had read it before. */
  readonly body: Uint8Array | undefined;
}

/** What an operation came to. */
export interface OperationOutcome {
  readonly operationId: string;
  /** No effect was run for this request: it gets the result of an earlier one. */
  readonly replayed: boolean;
}

/** An operation that was defined before, under the `Idempotency-Key` header. `Incoming`: a request as the framework has it. */
export interface OperationHandlerOptions<Incoming, Input, Value> extends RouteOptions<Incoming> {
  /** Of `defineOperation`: the same object that a queue's consumer or a job gives to `execute`. */
  readonly operation: OperationDefinition<Input, Value>;
  /**
   * Makes the operation's input of a request, before its key is claimed. A `Response` that it returns or throws is the answer,
   * such as that of a failed validation, and consumes no key. By the request alone: it is asked for each retry, too, and one of an
   * operation that was done must not be refused for what has changed since.
   */
  readonly input: (request: Incoming, keyed: KeyedRequest) => Input | Response | PromiseLike<Input | Response>;
  /**
   * Makes the answer of what the operation returned, as it is recorded. Of the value alone, or a retry is not answered byte for
   * byte. It decides nothing: what it answers is told, and the operation is done.
   */
  readonly answer: (value: Value, outcome: OperationOutcome) => Response | PromiseLike<Response>;
  /**
   * Makes the answer of what the operation threw; `undefined` leaves it to this package. `recorded`: every retry will be thrown
   * it. Where it is false nothing final may be said. An error whose meaning is `"replay"` and that could not be recorded is not
   * asked about, nor is one that means `"retry"` after a takeover, or once the effect's signal has aborted: they are answered
   * `outcome-unknown`, for another owner may have succeeded, or succeed yet (rule E7).
   */
  readonly failure?: (
    error: unknown,
    facts: { readonly operationId: string; readonly recorded: boolean },
  ) => Response | undefined | PromiseLike<Response | undefined>;
  /**
   * The scope of a principal's keys, as a queue or a job gives it to `execute`. Default: the principal itself. Two operations
   * that share a scope refuse each other's keys.
   */
  readonly scope?: (principal: string) => string;
  /**
   * When the key was made, in epoch milliseconds: a key that is too old is refused (rule E8). A `Response` that it returns or
   * throws is the answer, and consumes no key. Not with `keyTime` of the operation, which reads the time in the key.
   */
  readonly issuedAt?: (request: Incoming, keyed: KeyedRequest) => number | Response | PromiseLike<number | Response>;
  /** What the route takes for a key; there always has to be one. */
  readonly key?: Omit<KeyOptions, "required">;
  /** The methods that run the operation; others are answered 405. Default POST. */
  readonly methods?: readonly string[];
  /**
   * The most a request takes beside `waitMs`, in milliseconds. Or a function, which is asked whenever something is begun for the
   * request, and says what is left of its time, waiting included: one budget for store, effect and answer. The effect goes on
   * after it. Default: the engine's, 30,000.
   */
  readonly deadlineMs?: number | ((request: Incoming) => number);
  /**
   * Is told what the operation threw that `failure` made no answer of, or that nobody waited for any more, what `answer` and
   * `failure` threw, the store's failures, and which operations were done and could not be recorded. Default: `console.error`.
   */
  readonly onError?: (error: unknown) => void;
}

/** {@link OperationHandlerOptions}, checked. */
export interface OperationSettings<Incoming, Input, Value> extends RouteSettings<Incoming> {
  readonly operation: OperationDefinition<Input, Value>;
  readonly input: OperationHandlerOptions<Incoming, Input, Value>["input"];
  readonly answer: OperationHandlerOptions<Incoming, Input, Value>["answer"];
  readonly failure: OperationHandlerOptions<Incoming, Input, Value>["failure"] | undefined;
  readonly issuedAt: OperationHandlerOptions<Incoming, Input, Value>["issuedAt"] | undefined;
  readonly scope: (principal: string) => string;
}

const NAMES: readonly (keyof OperationHandlerOptions<unknown, unknown, unknown>)[] = [
  "idempotency",
  "operation",
  "principal",
  "input",
  "answer",
  "failure",
  "scope",
  "issuedAt",
  "key",
  "methods",
  "waitMs",
  "deadlineMs",
  "readFirst",
  "bodyBytesMax",
  "docs",
  "onError",
];

/** @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write. */
export function checkOperationOptions<Incoming, Input, Value>(
  options: OperationHandlerOptions<Incoming, Input, Value>,
): OperationSettings<Incoming, Input, Value> {
  checkNames(options, NAMES, "an operation's route");
  const { operation, input, answer, failure, issuedAt, methods = ["POST"], deadlineMs } = options;
  const { scope = (principal) => principal, onError = console.error, key = {} } = options;
  const shared = checkRouteOptions(options);
  if (typeof operation?.run !== "function" || typeof operation.fingerprint !== "function") {
    throw new InvalidArgumentError("operation must come from defineOperation: it is what the route runs");
  }
  if (typeof input !== "function") {
    throw new InvalidArgumentError(
      "input must be a function that makes the operation's input of a request, or a Response that refuses it: (request) => request.json()",
    );
  }
  if (typeof answer !== "function") {
    throw new InvalidArgumentError(
      "answer must be a function that makes the Response of what the operation returned: (value) => Response.json(value, { status: 201 })",
    );
  }
  for (const [name, value] of Object.entries({ failure, issuedAt })) {
    if (value !== undefined && typeof value !== "function") {
      throw new InvalidArgumentError(`${name}, where it is given, must be a function`);
    }
  }
  if (typeof scope !== "function") {
    throw new InvalidArgumentError("scope must be a function of the principal: (principal) => `payouts.${principal}`");
  }
  if (typeof onError !== "function") throw new InvalidArgumentError("onError must be a function");
  if (issuedAt !== undefined && operation.keyTime) {
    throw new InvalidArgumentError(
      "keyTime of the operation reads the time in the key: leave issuedAt out, or define the operation without keyTime",
    );
  }
  checkNames(key, ["format", "lengthMin", "lengthMax", "check"], "key, without which no operation is run,");
  return {
    ...shared,
    operation,
    input,
    answer,
    failure,
    issuedAt,
    scope,
    key: checkKeyOptions(key),
    methods: checkMethods(methods),
    deadlineMs: typeof deadlineMs === "function" ? deadlineMs : shared.idempotency.deadline(deadlineMs),
    onError,
  };
}
