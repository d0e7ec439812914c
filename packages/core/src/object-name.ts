import { InvalidArgumentError } from "./errors.ts";
import { sha256, type Digest } from "./fingerprint.ts";

const SCOPE_BYTES_MAX = 200;
const KEY_LENGTH_MAX = 255;
const controlCharacter = /\p{Cc}/u;

/** Where the record of one key stands. */
export interface RecordAddress {
  readonly scope: string;
  readonly key: string;
  readonly keyHash: Digest;
  /** `{prefix}{encoded scope}/{hash}.json` */
  readonly name: string;
}

/**
 * @throws {InvalidArgumentError} for a key that is not 1 to 255 characters of well-formed Unicode without control
 *   characters, or a scope that is empty or longer than 200 bytes when encoded.
 */
export function recordAddress(prefix: string, scope: string, key: string): RecordAddress {
  checkKey(key);
  const folder = encodeScope(scope);
  const keyHash = sha256(`${scope}:${key}`);
  return { scope, key, keyHash, name: `${prefix}${folder}/${keyHash.slice("sha256:".length)}.json` };
}

/**
 * A scope as one path segment: percent-encoded outside `A-Z a-z 0-9 _ . -`, so that no scope can leave its folder and no
 * two scopes share one.
 */
export function encodeScope(scope: string): string {
  checkText(scope, "the scope");
  if (scope === "." || scope === "..") return scope.replaceAll(".", "%2E");
  // encodeURIComponent leaves ! ' ( ) * ~ alone; they are encoded too, so that the rule has no exceptions.
  const encoded = encodeURIComponent(scope).replaceAll(
    /[!'()*~]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  if (encoded.length > SCOPE_BYTES_MAX) {
    throw new InvalidArgumentError(
      `the scope is ${encoded.length} bytes long when percent-encoded; the most is ${SCOPE_BYTES_MAX}: shorten it, or use a hash of it`,
    );
  }
  return encoded;
}

function checkKey(key: string): void {
  checkText(key, "the idempotency key");
  // Counted as a person would, by code points: an emoji is one character.
  const length = Array.from(key).length;
  if (length > KEY_LENGTH_MAX) {
    throw new InvalidArgumentError(
      `the idempotency key is ${length} characters long; the most is ${KEY_LENGTH_MAX}: shorten it, or use a hash of it`,
    );
  }
}

function checkText(text: string, what: string): void {
  if (typeof text !== "string" || text === "")
    throw new InvalidArgumentError(`${what} must be a string that is not empty`);
  if (!text.isWellFormed()) throw new InvalidArgumentError(`${what} has a lone surrogate: give well-formed Unicode`);
  if (controlCharacter.test(text)) throw new InvalidArgumentError(`${what} has a control character: remove it`);
}
