import canonicalize from "canonicalize";

import { InvalidArgumentError } from "./errors.ts";

/** A JSON value (RFC 8259). */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [name: string]: Json;
}

/** Deeper values are refused: parsers of other languages stop at depths of this order. */
const DEPTH_MAX = 500;

/**
 * A plain copy of `value` as JSON, which the caller can no longer change.
 *
 * Stricter than `JSON.stringify`, which loses data in silence (a `Map` is `{}`, `NaN` is `null`) and so would make two
 * different inputs look equal. Objects with `toJSON`, such as `Date`, are what it returns; members that are `undefined`
 * are left out; anything else that JSON does not have is refused.
 *
 * @param what names the value in the error: `"the input"`.
 * @throws {InvalidArgumentError} naming the path of the first part that is not JSON.
 */
export function toJson(value: unknown, what: string): Json {
  return copy(value, what, 0);
}

/**
 * The canonical form of RFC 8785: equal for values that are equal as JSON, whatever the order of their keys.
 *
 * @throws {InvalidArgumentError} as {@link toJson}.
 */
export function canonicalJson(value: unknown, what: string): string {
  const text = canonicalize(toJson(value, what));
  if (text === undefined) throw new InvalidArgumentError(`${what} is not JSON`);
  return text;
}

/** The JSON object in `bytes`; `undefined` for bytes that are not UTF-8, not JSON or not an object. */
export function parseJsonObject(bytes: Uint8Array): JsonObject | undefined {
  try {
    // fatal: bytes that are not UTF-8 must not become replacement characters in silence.
    const json: Json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    return isJsonObject(json) ? json : undefined;
  } catch {
    return undefined;
  }
}

export function isJsonObject(json: Json | undefined): json is JsonObject {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}

function copy(value: unknown, path: string, depth: number): Json {
  if (depth > DEPTH_MAX) throw new InvalidArgumentError(`${path} is nested deeper than ${DEPTH_MAX} levels, or cyclic`);
  switch (typeof value) {
    case "boolean":
      return value;
    case "string":
      return wellFormed(value, path);
    case "number":
      if (!Number.isFinite(value)) throw new InvalidArgumentError(`${path} is ${value}, which JSON does not have`);
      // JSON text has no -0: whoever gets the copy gets what a later reader of its bytes gets.
      return value === 0 ? 0 : value;
    case "object":
      if (value === null) return null;
      if ("toJSON" in value && typeof value.toJSON === "function")
        return copyConverted(value, value.toJSON(), path, depth);
      if (Array.isArray(value)) return Array.from(value, (item, index) => copy(item, `${path}[${index}]`, depth + 1));
      return copyObject(value, path, depth);
    default:
      throw new InvalidArgumentError(`${path} is of type ${typeof value}, which JSON does not have`);
  }
}

function copyConverted(value: object, converted: unknown, path: string, depth: number): Json {
  // A Date that is no time becomes null, and so would be equal to a value that is missing.
  if (converted === null && kindOf(value) === "object Date") {
    throw new InvalidArgumentError(`${path} is an invalid Date: give a time`);
  }
  return copy(converted, path, depth + 1);
}

function copyObject(value: object, path: string, depth: number): JsonObject {
  // Class instances are taken by their own members; a Map, a Set, bytes or an Error would come out empty or strange.
  if (kindOf(value) !== "object Object") {
    throw new InvalidArgumentError(`${path} is ${kindOf(value)}, not plain JSON: convert it first`);
  }
  const entries = Object.entries(value);
  if (entries.length === 0 && !isPlain(value)) {
    // What it holds is in #private members or accessors; two that differ would both be {}.
    throw new InvalidArgumentError(
      `${path} is an instance of a class without members that JSON sees: give it a toJSON`,
    );
  }
  const members: [string, Json][] = [];
  for (const [name, member] of entries) {
    if (member === undefined) continue;
    wellFormed(name, `a member name of ${path}`);
    members.push([name, copy(member, `${path}.${name}`, depth + 1)]);
  }
  // fromEntries defines members, so that one named "__proto__" stays a member.
  return Object.fromEntries(members);
}

/** Also in another realm, such as a test environment's, whose `Object.prototype` is not this one's. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function kindOf(value: object): string {
  return Object.prototype.toString.call(value).slice(1, -1);
}

function wellFormed(text: string, path: string): string {
  // RFC 8785 §3.2.2.2: a lone surrogate must end the canonicalization with an error.
  if (!text.isWellFormed()) throw new InvalidArgumentError(`${path} has a lone surrogate: give well-formed Unicode`);
  return text;
}
