/** What the types say already, for callers without them: a plain error instead of a `TypeError` from within. */

import { InvalidArgumentError } from "./errors.ts";

/** @throws {InvalidArgumentError} */
export function checkObject(value: unknown, what: string): void {
  if (typeof value !== "object" || value === null) throw new InvalidArgumentError(`${what} must be an object`);
}

/**
 * A misspelt option would be passed over in silence, and with it the key or the window it was to set.
 *
 * @throws {InvalidArgumentError} for a member of `value` that is none of `known`.
 */
export function checkNames(value: object, known: readonly string[], what: string): void {
  checkObject(value, what);
  const strange = Object.keys(value).find((name) => !known.includes(name));
  if (strange === undefined) return;
  throw new InvalidArgumentError(`${what} cannot have ${JSON.stringify(strange)}: it takes ${known.join(", ")}`);
}

/** @throws {InvalidArgumentError} */
export function checkFunction(value: unknown, what: string): void {
  if (typeof value !== "function") throw new InvalidArgumentError(`${what} must be a function`);
}

/** @throws {InvalidArgumentError} */
export function checkSignal(signal: unknown): void {
  if (signal === undefined) return;
  // By its shape, not by `instanceof`: test environments bring an AbortSignal of their own.
  if (typeof signal !== "object" || signal === null || !("aborted" in signal && "throwIfAborted" in signal)) {
    throw new InvalidArgumentError("signal must be an AbortSignal: of an AbortController, give its signal");
  }
}
