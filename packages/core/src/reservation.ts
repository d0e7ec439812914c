import { checkNames } from "./check-argument.ts";
import { InvalidArgumentError } from "./errors.ts";
import { checkOperationName } from "./operation.ts";
import { checkRetention, type Retention } from "./retention.ts";

/** What {@link defineReservation} takes. */
export interface ReservationOptions<Input> {
  /** Names the operation in events. 1 to 200 characters. */
  readonly name: string;
  /**
   * What identifies the input, as JSON: another value under the same key is a conflict. By default the input itself.
   * Leave out what may differ between two sendings of one request, such as a timestamp.
   */
  readonly fingerprint?: (input: Input) => unknown;
  readonly retention?: Retention;
  /**
   * Keys are UUIDs of version 7 or ULIDs, and carry the time they were made. One that is older than the retry window
   * (`retryWindowMs` and `brokerDelayMs`) is refused with `KeyTooOldError` instead of beginning a second operation.
   */
  readonly keyTime?: boolean;
}

/** An operation whose value is chosen at the claim: first write wins, and there is nothing to run. */
export interface ReservationDefinition<Input> {
  readonly name: string;
  readonly fingerprint: (input: Input) => unknown;
  readonly retention: Required<Retention>;
  readonly keyTime: boolean;
}

/**
 * Defines an operation for `Idempotency.reserve`. Define it once and keep the object: calls of one process share their
 * requests only when they are of the same object.
 *
 * @throws {InvalidArgumentError} for a policy that contradicts itself.
 */
export function defineReservation<Input>(options: ReservationOptions<Input>): ReservationDefinition<Input> {
  checkNames(options, ["name", "fingerprint", "retention", "keyTime"], "what defineReservation takes");
  const { name, fingerprint = (input) => input, retention, keyTime = false } = options;
  checkOperationName(name);
  if (typeof fingerprint !== "function") {
    throw new InvalidArgumentError("fingerprint must be a function of the input; leave it out to use the input itself");
  }
  if (typeof keyTime !== "boolean") throw new InvalidArgumentError("keyTime must be true or false");
  return Object.freeze({ name, fingerprint, keyTime, retention: Object.freeze(checkRetention(retention)) });
}
