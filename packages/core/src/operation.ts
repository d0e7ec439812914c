import { checkFunction, checkNames, checkObject } from "./check-argument.ts";
import { InvalidArgumentError } from "./errors.ts";
import type { Version } from "./conditional-store.ts";
import { copyOf } from "./copy-of.ts";
import type { JsonObject } from "./canonical-json.ts";
import { checkRetention, type Retention } from "./retention.ts";

/** What an effect is told. */
export interface EffectContext {
  /** The same for every attempt of the operation: the ledger's key. */
  readonly operationId: string;
  /** 1, 2, …: the fencing token. A ledger that refuses a lower attempt than it has seen is safe from a paused owner. */
  readonly attempt: number;
  /**
   * Aborts as soon as this process no longer owns the operation, or cannot prove that it does, and when every caller has
   * cancelled. Nothing may be sent after that: another process may have begun to find out what was.
   */
  readonly signal: AbortSignal;
  /** Until the deadline of the last caller that waits, in milliseconds; 0 when it has passed. Counted when it is read. */
  readonly remainingMs: number;
}

/** What `run` is told. */
export interface RunContext extends EffectContext {
  /**
   * For a ledger in the same database as the record: the settling write (rule E5), for `run` to do in the transaction of its
   * effect, so that both are there or neither is. What an owner before sent cannot commit any more, then, whatever the ledger
   * refuses: the record has moved on from the version its transaction goes by.
   *
   * To be asked for when all else is ready, for the lease is not renewed any more from then on. `run` returns after the
   * transaction was committed, and throws after it was rolled back, or when nobody knows; once it returns, nothing of it may be
   * on its way. The answer is what the record says. Where that is nothing, what `run` threw goes by `onError`, and what it
   * returned is not recorded: the next call recovers. A `run` that encodes nothing, since it has found its row in the ledger, is
   * settled like any other.
   *
   * @throws the signal's reason, when it has aborted.
   * @throws {InvalidArgumentError} once `run` has ended.
   */
  readonly settlingWrite: () => Promise<SettlingWrite>;
}

/** A compare-and-swap of the operation's record, from its claim to its result. */
export interface SettlingWrite {
  /** The record's, in the store that `execute` was called with. */
  readonly name: string;
  /** Where the record is at another version, another owner has it: the transaction must be rolled back, and `run` throw. */
  readonly expected: Version;
  /**
   * The record with this value as its result. Synchronous, and another one at each call: one for each try of the transaction.
   *
   * @throws {InvalidArgumentError} for a value that cannot be recorded, or whose record is longer than `inlineBytesMax`; and once
   *   `run` has ended.
   */
  readonly encode: (value: unknown) => Uint8Array;
}

/** What a ledger says of an operation. */
export type Reconciled<Value> =
  /** It was done, and this is its result. */
  | { readonly found: Value }
  /** It was not done: it is run. */
  | "absent"
  /** The ledger cannot tell: the operation is held for a person. */
  | "unknown";

/** What to do about an attempt whose owner is gone, and whose effect may have happened (rule E6). */
export type Recovery<Input, Value> =
  /** Leave it to a person. */
  | "hold"
  /** Run it again: the effect is itself idempotent by `operationId`. */
  | "rerun"
  | {
      /**
       * Asks the ledger. `run`, when it meets its own `operationId` in the ledger, returns that row, and never throws for it.
       */
      readonly reconcile: (input: Input, context: EffectContext) => Reconciled<Value> | PromiseLike<Reconciled<Value>>;
      /**
       * `reconcile` makes the ledger refuse every **lower** `attempt` before it answers `"absent"`, so that no earlier
       * owner can commit after that. Default false.
       */
      readonly absentIsFinal?: boolean;
    };

/**
 * What an error that `run` threw means (rule E7).
 *
 * - `"replay"`: final. It is recorded, and thrown to every retry.
 * - `"retry"`: nothing happened. The next call runs at once, with this input or, as an operation of its own, another.
 * - `"recover"`: nobody knows. The next call goes by the operation's `recovery`.
 */
export type ErrorMeaning = "replay" | "retry" | "recover";

/** A failure as it is recorded. */
export interface RecordedFailure {
  readonly name: string;
  readonly message: string;
  readonly code?: string | number | undefined;
  /** What `serializeError` chose. */
  readonly details?: JsonObject | undefined;
}

/** What {@link defineOperation} takes. */
export interface OperationOptions<Input, Value> {
  /** Part of every fingerprint: two operations that share scope and key never replay each other. 1 to 200 characters. */
  readonly name: string;
  /**
   * The effect. What it returns is recorded: JSON, a string, bytes or nothing.
   */
  readonly run: (input: Input, context: RunContext) => Value | PromiseLike<Value>;
  /** Has no default, because only the author knows. */
  readonly recovery: Recovery<Input, NoInfer<Value>>;
  /** Default: `"recover"` for every error. Not asked once the effect's signal has aborted. */
  readonly onError?: (error: unknown) => ErrorMeaning;
  /**
   * What identifies the input, as JSON: another value under the same key is a conflict. By default the input itself.
   * Leave out what may differ between two sendings of one request, such as a timestamp.
   */
  readonly fingerprint?: (input: Input) => unknown;
  readonly retention?: Retention;
  /** Keys are UUIDs of version 7 or ULIDs, and carry the time they were made (rule E8). */
  readonly keyTime?: boolean;
  /** Whether the record holds the raw key beside its hash; false where keys are personal data. Default true. */
  readonly storeKey?: boolean;
  /** How long an owner that says nothing is taken to be alive, in milliseconds; 5,000 to an hour. Default 30,000. */
  readonly leaseMs?: number;
  /**
   * The longest a request that `run` sent can stay in flight after its process stopped, in milliseconds: 0, or 5,000 to an
   * hour. Nobody takes over before that. Default `leaseMs`. 0 only where the ledger is unique on the operation ID,
   * `reconcile` makes it refuse lower attempts before it looks (`absentIsFinal`), or `run` settles in the ledger's transaction
   * (`settlingWrite`): a ledger that is fenced, and has not yet seen the later attempt, still takes what the earlier one sent.
   */
  readonly recoverAfterMs?: number;
  /** From then on the lease of a run that hangs is no longer renewed, in milliseconds; at least `leaseMs`. Default an hour. */
  readonly maxRunMs?: number;
  /** A record that would be larger, in bytes, has its result in an object of its own (rule E9). Default 262,144. */
  readonly inlineBytesMax?: number;
  /** What of a failure is recorded beside its name, message and code: JSON. By default nothing; never its stack. */
  readonly serializeError?: (error: unknown) => Readonly<Record<string, unknown>>;
  /** Makes what is thrown to a retry of a recorded failure. By default an `Error` with its members. */
  readonly deserializeError?: ((failure: RecordedFailure) => unknown) | undefined;
  /** Copies the input, so that the caller cannot change it under `run`. By default `structuredClone`. */
  readonly copyInput?: (input: Input) => Input;
}

/** An operation with at most one effect per key. */
export interface OperationDefinition<Input, Value> {
  readonly name: string;
  readonly run: (input: Input, context: RunContext) => Value | PromiseLike<Value>;
  readonly recovery: Recovery<Input, NoInfer<Value>>;
  readonly onError: (error: unknown) => ErrorMeaning;
  readonly fingerprint: (input: Input) => unknown;
  readonly retention: Required<Retention>;
  readonly keyTime: boolean;
  readonly storeKey: boolean;
  readonly leaseMs: number;
  readonly recoverAfterMs: number;
  readonly maxRunMs: number;
  readonly inlineBytesMax: number;
  readonly serializeError: (error: unknown) => Readonly<Record<string, unknown>>;
  readonly deserializeError: ((failure: RecordedFailure) => unknown) | undefined;
  readonly copyInput: (input: Input) => Input;
}

const LEASE_MS_MIN = 5_000;
const HOUR_MS = 3_600_000;
const NAMES: readonly (keyof OperationOptions<unknown, unknown>)[] = [
  "name",
  "run",
  "recovery",
  "onError",
  "fingerprint",
  "retention",
  "keyTime",
  "storeKey",
  "leaseMs",
  "recoverAfterMs",
  "maxRunMs",
  "inlineBytesMax",
  "serializeError",
  "deserializeError",
  "copyInput",
];

/**
 * Defines an operation for `Idempotency.execute`. Define it once and keep the object: calls of one process share one run
 * only when they are of the same object.
 *
 * @throws {InvalidArgumentError} for a policy that is incomplete or contradicts itself, saying what to write.
 */
export function defineOperation<Input, Value>(
  options: OperationOptions<Input, Value>,
): OperationDefinition<Input, Value> {
  checkNames(options, NAMES, "what defineOperation takes");
  const {
    name,
    run,
    onError = () => "recover",
    fingerprint = (input) => input,
    keyTime = false,
    storeKey = true,
    leaseMs = 30_000,
    recoverAfterMs = leaseMs,
    maxRunMs = HOUR_MS,
    inlineBytesMax = 262_144,
    serializeError = () => ({}),
    deserializeError,
    copyInput = copyOf,
  } = options;
  checkOperationName(name);
  checkFunction(run, "run, the effect,");
  for (const [member, value] of Object.entries({ onError, fingerprint, serializeError, copyInput })) {
    checkFunction(value, `${member}, where it is given,`);
  }
  if (deserializeError !== undefined) checkFunction(deserializeError, "deserializeError, where it is given,");
  for (const [member, value] of Object.entries({ keyTime, storeKey })) {
    if (typeof value !== "boolean") throw new InvalidArgumentError(`${member} must be true or false`);
  }
  const recovery = checkRecovery(options.recovery);
  if (!isLeaseMs(leaseMs)) {
    throw new InvalidArgumentError(
      `leaseMs is ${String(leaseMs)}: give ${LEASE_MS_MIN} to ${HOUR_MS} whole milliseconds; it is renewed while run goes on`,
    );
  }
  if (recoverAfterMs !== 0 && !isLeaseMs(recoverAfterMs)) {
    throw new InvalidArgumentError(
      `recoverAfterMs is ${String(recoverAfterMs)}: give ${LEASE_MS_MIN} to ${HOUR_MS} whole milliseconds, the longest a request ` +
        "of run can stay in flight; or 0 where the ledger is unique on the operation ID, reconcile shuts lower attempts out of it, or run settles " +
        "in the ledger's own transaction",
    );
  }
  if (!(Number.isSafeInteger(maxRunMs) && maxRunMs >= leaseMs)) {
    throw new InvalidArgumentError(
      `maxRunMs is ${String(maxRunMs)}: give whole milliseconds, at least leaseMs (${leaseMs})`,
    );
  }
  if (!(Number.isSafeInteger(inlineBytesMax) && inlineBytesMax >= 0)) {
    throw new InvalidArgumentError(`inlineBytesMax is ${String(inlineBytesMax)}: give whole bytes, 0 or more`);
  }
  return Object.freeze({
    name,
    run,
    recovery,
    onError,
    fingerprint,
    retention: Object.freeze(checkRetention(options.retention)),
    keyTime,
    storeKey,
    leaseMs,
    recoverAfterMs,
    maxRunMs,
    inlineBytesMax,
    serializeError,
    deserializeError,
    copyInput,
  });
}

/** Whole, because the record holds it as a count: one with a fraction could be read by nobody. */
function isLeaseMs(ms: number): boolean {
  return Number.isSafeInteger(ms) && ms >= LEASE_MS_MIN && ms <= HOUR_MS;
}

/** @throws {InvalidArgumentError} */
export function checkOperationName(name: unknown): void {
  if (typeof name !== "string" || name === "" || name.length > 200) {
    throw new InvalidArgumentError("the operation's name must be a string of 1 to 200 characters");
  }
}

function checkRecovery<Input, Value>(recovery: Recovery<Input, Value>): Recovery<Input, Value> {
  if (recovery === "hold" || recovery === "rerun") return recovery;
  if (typeof recovery !== "object" || recovery === null) {
    throw new InvalidArgumentError(
      'recovery says what to do when a process died in the middle of run: give { reconcile } to ask the ledger, "rerun" ' +
        'if run is idempotent by operationId, or "hold" to leave it to a person',
    );
  }
  checkObject(recovery, "recovery");
  checkNames(recovery, ["reconcile", "absentIsFinal"], "recovery");
  const { reconcile, absentIsFinal = false } = recovery;
  checkFunction(reconcile, "recovery.reconcile, which asks the ledger,");
  if (typeof absentIsFinal !== "boolean")
    throw new InvalidArgumentError("recovery.absentIsFinal must be true or false");
  return Object.freeze({ reconcile, absentIsFinal });
}
