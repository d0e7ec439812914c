import { checkNames, InvalidArgumentError } from "@firstwrite/core";
import { parseItem } from "structured-headers";

/** What a route says of its keys. */
export interface KeyOptions {
  /**
   * `"strict"`: a String of RFC 8941 alone, with its quotes, as §2.1 of the draft has it. `"lenient"`: a value without
   * quotes, too, as payment clients are used to send it; `k` and `"k"` are then one key. Default `"strict"`.
   */
  readonly format?: "strict" | "lenient";
  /** Whether a request without a key is refused. If not, it runs unprotected and nothing is stored. Default true. */
  readonly required?: boolean;
  /** The fewest characters of a key. Default 1. */
  readonly lengthMin?: number;
  /** The most characters of a key, up to 255. Default 255. */
  readonly lengthMax?: number;
  /** Refuses keys that could be guessed or drawn twice (§5 of the draft): true takes the key. By default all are taken. */
  readonly check?: (key: string) => boolean;
}

export type CheckedKeyOptions = Required<KeyOptions>;

export type ParsedKey =
  | { readonly kind: "key"; readonly key: string }
  | { readonly kind: "missing" }
  /** `why` is for the client, and does not repeat the value. */
  | { readonly kind: "invalid"; readonly why: string };

/** What the engine takes. */
const LENGTH_MAX = 255;

/** @throws {InvalidArgumentError} */
export function checkKeyOptions(options: KeyOptions): CheckedKeyOptions {
  checkNames(options, ["format", "required", "lengthMin", "lengthMax", "check"], "key");
  const { format = "strict", required = true, lengthMin = 1, lengthMax = LENGTH_MAX, check = () => true } = options;
  if (format !== "strict" && format !== "lenient") {
    throw new InvalidArgumentError(
      'key.format must be "strict" (an RFC 8941 String) or "lenient" (quotes may be missing)',
    );
  }
  if (typeof required !== "boolean") throw new InvalidArgumentError("key.required must be true or false");
  if (typeof check !== "function") {
    throw new InvalidArgumentError("key.check must be a function that returns true for a key to be taken");
  }
  const sound = [lengthMin, lengthMax].every((length) => Number.isSafeInteger(length) && length >= 1);
  if (!sound || lengthMin > lengthMax || lengthMax > LENGTH_MAX) {
    throw new InvalidArgumentError(
      `key.lengthMin and key.lengthMax are ${String(lengthMin)} and ${String(lengthMax)}: give 1 to ${LENGTH_MAX}, the lesser first`,
    );
  }
  return { format, required, lengthMin, lengthMax, check };
}

/**
 * The key in a request's `Idempotency-Key`, by what a route says of its keys: for whoever looks an operation up by it.
 *
 * @param field `undefined` or null where the request has no such field; an empty one is there, and wrong.
 * @throws {InvalidArgumentError} for options that a route would refuse.
 */
export function parseIdempotencyKey(field: string | null | undefined, options: KeyOptions = {}): ParsedKey {
  return parseKey(field, checkKeyOptions(options));
}

/** The key in the field's value: of several lines, those joined by commas (RFC 8941 §4.2), which then are no Item. */
export function parseKey(field: string | null | undefined, options: CheckedKeyOptions): ParsedKey {
  if (field === undefined || field === null) return { kind: "missing" };
  const value = field.replace(/^[ \t]+|[ \t]+$/g, "");
  const key = options.format === "lenient" && isBare(value) ? value : stringItem(value);
  if (key === undefined) {
    return {
      kind: "invalid",
      why:
        options.format === "strict"
          ? 'the value must be one RFC 8941 String, with its quotes and without parameters: Idempotency-Key: "8e03978e"'
          : 'the value must be one key, in quotes or without: Idempotency-Key: "8e03978e"',
    };
  }
  const { lengthMin, lengthMax } = options;
  if (key.length < lengthMin || key.length > lengthMax) {
    return { kind: "invalid", why: `the key must have ${lengthMin} to ${lengthMax} characters` };
  }
  if (!options.check(key))
    return { kind: "invalid", why: "the key does not have the form that this resource asks for" };
  return { kind: "key", key };
}

/**
 * Visible ASCII without `"`, `,` and `;`, which would make it a part of something else: a list of two keys, or a token
 * with a parameter, must not become a key of its own by being taken as it stands.
 */
function isBare(value: string): boolean {
  return /^[!#-+\--:<-~]+$/.test(value);
}

/** The String that is the whole value. The draft's grammar, `sf-string`, leaves no room for parameters. */
function stringItem(value: string): string | undefined {
  if (!value.startsWith('"')) return undefined;
  try {
    const [item, parameters] = parseItem(value);
    return typeof item === "string" && parameters.size === 0 ? item : undefined;
  } catch {
    return undefined;
  }
}
