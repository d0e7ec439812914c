import { setMember } from "./copy-of.ts";
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
  return copy(value, what, undefined, 0);
}

/**
 * The canonical form of RFC 8785: equal for values that are equal as JSON, whatever the order of their keys.
 *
 * @throws {InvalidArgumentError} as {@link toJson}.
 */
export function canonicalJson(value: unknown, what: string): string {
  return serialize(toJson(value, what));
}

/**
 * Numbers, strings and literals are as ECMAScript's own `JSON.stringify` writes them (RFC 8785 §3.2.2), and members in the
 * order of their names' UTF-16 code units (§3.2.3), which is that of `Array.prototype.sort`. Written here, and held
 * against the package `canonicalize` by a test, because every call makes a fingerprint: this is half of its time.
 */
function serialize(json: Json): string {
  if (typeof json !== "object" || json === null) return JSON.stringify(json);
  if (isArray(json)) return `[${json.map(serialize).join(",")}]`;
  let members = "";
  for (const name of inOrder(Object.keys(json))) {
    members += `${members === "" ? "" : ","}${JSON.stringify(name)}:${serialize(json[name] ?? null)}`;
  }
  return `{${members}}`;
}

/** Most are in order as they come; sorting even those takes more memory than the rest of a fingerprint. */
function inOrder(names: string[]): string[] {
  const isSorted = names.every((name, index) => index === 0 || (names[index - 1] ?? "") < name);
  return isSorted ? names : names.toSorted();
}

/** `Array.isArray` does not narrow a readonly array. */
function isArray(json: readonly Json[] | JsonObject): json is readonly Json[] {
  return Array.isArray(json);
}

// fatal: bytes that are not UTF-8 must not become replacement characters in silence.
const utf8 = new TextDecoder("utf-8", { fatal: true });

/** The JSON object in `bytes`; `undefined` for bytes that are not UTF-8, not JSON or not an object. */
export function parseJsonObject(bytes: Uint8Array): JsonObject | undefined {
  try {
    const json: Json = JSON.parse(utf8.decode(bytes));
    return isJsonObject(json) ? json : undefined;
  } catch {
    return undefined;
  }
}

export function isJsonObject(json: Json | undefined): json is JsonObject {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}

/** Where a part of a value is; made into words only when something is wrong with it. */
type Path = string | { readonly parent: Path; readonly member: string | number };

function copy(value: unknown, parent: Path, member: string | number | undefined, depth: number): Json {
  if (depth > DEPTH_MAX) throw refusal(parent, member, `is nested deeper than ${DEPTH_MAX} levels, or cyclic`);
  switch (typeof value) {
    case "boolean":
      return value;
    case "string":
      // RFC 8785 §3.2.2.2: a lone surrogate must end the canonicalization with an error.
      if (!value.isWellFormed()) throw refusal(parent, member, "has a lone surrogate: give well-formed Unicode");
      return value;
    case "number":
      if (!Number.isFinite(value)) throw refusal(parent, member, `is ${value}, which JSON does not have`);
      // JSON text has no -0: whoever gets the copy gets what a later reader of its bytes gets.
      return value === 0 ? 0 : value;
    case "object":
      if (value === null) return null;
      if ("toJSON" in value && typeof value.toJSON === "function")
        return copyConverted(value, value.toJSON(), parent, member, depth);
      return copyContainer(value, member === undefined ? parent : { parent, member }, depth);
    default:
      throw refusal(parent, member, `is of type ${typeof value}, which JSON does not have`);
  }
}

function copyConverted(
  value: object,
  converted: unknown,
  parent: Path,
  member: string | number | undefined,
  depth: number,
): Json {
  // A Date that is no time becomes null, and so would be equal to a value that is missing.
  if (converted === null && kindOf(value) === "object Date") {
    throw refusal(parent, member, "is an invalid Date: give a time");
  }
  return copy(converted, parent, member, depth + 1);
}

function copyContainer(value: object, path: Path, depth: number): Json {
  if (Array.isArray(value)) return Array.from(value, (item, index) => copy(item, path, index, depth + 1));
  // Class instances are taken by their own members; a Map, a Set, bytes or an Error would come out empty or strange.
  if (kindOf(value) !== "object Object") {
    throw refusal(path, undefined, `is ${kindOf(value)}, not plain JSON: convert it first`);
  }
  const names = Object.keys(value);
  if (names.length === 0 && !isPlain(value)) {
    // What it holds is in #private members or accessors; two that differ would both be {}.
    throw refusal(path, undefined, "is an instance of a class without members that JSON sees: give it a toJSON");
  }
  const members: Record<string, Json> = {};
  for (const name of names) {
    const of: unknown = Reflect.get(value, name);
    if (of === undefined) continue;
    if (!name.isWellFormed()) {
      throw new InvalidArgumentError(
        `a member name of ${inWords(path)} has a lone surrogate: give well-formed Unicode`,
      );
    }
    setMember(members, name, copy(of, path, name, depth + 1));
  }
  return members;
}

/** Also in another realm, such as a test environment's, whose `Object.prototype` is not this one's. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

function kindOf(value: object): string {
  return Object.prototype.toString.call(value).slice(1, -1);
}

function refusal(parent: Path, member: string | number | undefined, why: string): InvalidArgumentError {
  return new InvalidArgumentError(`${inWords(member === undefined ? parent : { parent, member })} ${why}`);
}

function inWords(path: Path): string {
  if (typeof path === "string") return path;
  const { parent, member } = path;
  return typeof member === "number" ? `${inWords(parent)}[${member}]` : `${inWords(parent)}.${member}`;
}
