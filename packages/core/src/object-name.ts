import { InvalidArgumentError } from "./errors.ts";
import { sha256, type Digest } from "./fingerprint.ts";

const SCOPE_BYTES_MAX = 200;
const KEY_LENGTH_MAX = 255;
/** A scope that is its own encoding. */
const plainScope = /^(?!\.\.?$)[\w.-]{1,200}$/;
const controlCharacter = /\p{Cc}/u;

/** Where the record of one key stands. */
export interface RecordPlace {
  readonly scope: string;
  readonly keyHash: Digest;
  /** `{prefix}{encoded scope}/{hash}.json` */
  readonly name: string;
}

/** {@link RecordPlace}, of a key that is known. */
export interface RecordAddress extends RecordPlace {
  readonly key: string;
}

/**
 * Where the record of a key stands that is known by its hash alone, as logs and events name it.
 *
 * @throws {InvalidArgumentError}
 */
export function recordPlace(prefix: string, scope: string, keyHash: string): RecordPlace {
  if (typeof keyHash !== "string" || !isKeyHash(keyHash)) {
    throw new InvalidArgumentError("keyHash must be sha256: and 64 hexadecimal digits, as events and errors have it");
  }
  return { scope, keyHash, name: nameOf(prefix, encodeScope(scope), keyHash) };
}

function nameOf(prefix: string, folder: string, keyHash: Digest): string {
  return `${prefix}${folder}/${keyHash.slice("sha256:".length)}.json`;
}

function isKeyHash(text: string): text is Digest {
  return /^sha256:[0-9a-f]{64}$/.test(text);
}

/**
 * @throws {InvalidArgumentError} for a key that is not 1 to 255 characters of well-formed Unicode without control
 *   characters, or a scope that is empty or longer than 200 bytes when encoded.
 */
export function recordAddress(prefix: string, scope: string, key: string): RecordAddress {
  checkKey(key);
  const folder = encodeScope(scope);
  const keyHash = sha256(`${scope}:${key}`);
  return { scope, key, keyHash, name: nameOf(prefix, folder, keyHash) };
}

/**
 * A scope as one path segment: percent-encoded outside `A-Z a-z 0-9 _ . -`, so that no scope can leave its folder and no
 * two scopes share one.
 */
export function encodeScope(scope: string): string {
  if (typeof scope === "string" && plainScope.test(scope)) return scope;
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
  if (key.length <= KEY_LENGTH_MAX) return;
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
