/** What of a request's body tells a retry from another request. */

import { canonicalJson, InvalidArgumentError, sha256 } from "@firstwrite/core";

/** A request's body, all of it. `parsed`: what a body parser before us left, the bytes being gone. */
export type RequestBody =
  | { readonly kind: "bytes"; readonly bytes: Uint8Array }
  | { readonly kind: "parsed"; readonly value: unknown };

/** What a body parser left: bytes, or text, where it could; anything else as it is. `"too large"`: more than `bytesMax`. */
export function parsedBody(value: unknown, bytesMax: number): RequestBody | "too large" {
  const bytes = typeof value === "string" ? Buffer.from(value) : value;
  if (!(bytes instanceof Uint8Array)) return { kind: "parsed", value };
  return bytes.byteLength > bytesMax ? "too large" : { kind: "bytes", bytes };
}

/** A member of the body by its name, or by the path to it. */
export type Field = string | readonly string[];

/**
 * What two requests under one key are compared by, beside their path and query, which always count.
 *
 * - `"body"`: the whole body. JSON by its canonical form, so that neither spaces nor the order of members count; anything
 *   else byte for byte.
 * - `{ fields }`: these members of a JSON body alone; a body that is not JSON counts as a whole.
 * - `"none"`: nothing: another payload under the same key gets the first one's answer.
 * - a function: what it returns, as JSON.
 */
export type FingerprintOption<Incoming> =
  | "body"
  | "none"
  | { readonly fields: readonly Field[] }
  | ((request: Incoming, body: RequestBody) => unknown);

/** @throws {InvalidArgumentError} */
export function checkFingerprint<Incoming>(fingerprint: FingerprintOption<Incoming>): FingerprintOption<Incoming> {
  if (fingerprint === "body" || fingerprint === "none" || typeof fingerprint === "function") return fingerprint;
  const fields = typeof fingerprint === "object" && fingerprint !== null ? fingerprint.fields : undefined;
  if (Array.isArray(fields) && fields.length > 0 && fields.every((field: unknown) => isField(field)))
    return fingerprint;
  throw new InvalidArgumentError(
    'fingerprint must be "body", "none", { fields: ["amount", ["destination", "iban"]] } or a function',
  );
}

function isField(field: unknown): boolean {
  const path = Array.isArray(field) ? field : [field];
  return path.length > 0 && path.every((name) => typeof name === "string");
}

/**
 * The text by which two requests of a key are compared.
 *
 * @param target path and query: a route's template may stand for many resources, and one's answer is not another's.
 * @throws {InvalidArgumentError} for what a function returned that is not JSON, and for a multipart body that was parsed.
 */
export function identityOf<Incoming>(
  fingerprint: FingerprintOption<Incoming>,
  target: string,
  contentType: string | undefined,
  body: RequestBody,
  incoming: Incoming,
): string {
  const digest = (kind: string, value: unknown): string =>
    canonicalJson([target, kind, sha256(canonicalJson(value, "the fingerprint of the request"))], "the identity");
  if (fingerprint === "none") return digest("none", null);
  if (typeof fingerprint === "function") return digest("own", fingerprint(incoming, body) ?? null);
  if (body.kind === "parsed" && /^\s*multipart\//i.test(contentType ?? "")) {
    // Its parts may be files that the parser put elsewhere; and its bytes, with their random boundary, are gone.
    throw new InvalidArgumentError(
      "a multipart body that was parsed before idempotent() needs a fingerprint function, which names what identifies its parts",
    );
  }
  const json = jsonOf(contentType, body);
  if (json === undefined) {
    // JSON that RFC 8785 has no form for, such as a lone surrogate: as a serializer puts it, members in their order.
    if (body.kind === "parsed") return digest("text", JSON.stringify(body.value) ?? null);
    return digest("bytes", sha256(body.bytes));
  }
  if (fingerprint === "body") return digest("json", json.value);
  return digest(
    "fields",
    fingerprint.fields.map((field) => pick(json.value, Array.isArray(field) ? field : [field])),
  );
}

/** In a list, so that a member that is missing differs from one that is null. */
function pick(value: unknown, path: readonly string[]): readonly unknown[] {
  let found: unknown = value;
  for (const name of path) {
    if (typeof found !== "object" || found === null || !Object.hasOwn(found, name)) return [];
    found = Reflect.get(found, name);
  }
  return [found];
}

/** The JSON that a body stands for; `undefined` where it is none, or its canonical form would not be all of it. */
function jsonOf(contentType: string | undefined, body: RequestBody): { readonly value: unknown } | undefined {
  if (body.kind === "parsed") {
    return isCanonicalizable(body.value) ? { value: body.value } : undefined;
  }
  if (!isJsonType(contentType)) return undefined;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body.bytes);
    const value: unknown = JSON.parse(text);
    return isFaithful(text, value) && isCanonicalizable(value) ? { value } : undefined;
  } catch {
    return undefined;
  }
}

/** `application/json`, and what RFC 6839 §3.1 makes of others. */
function isJsonType(contentType: string | undefined): boolean {
  return /^\s*(application\/json|[\w.!#$&^+-]+\/[\w.!#$&^+-]+\+json)\s*(;|$)/i.test(contentType ?? "");
}

function isCanonicalizable(value: unknown): boolean {
  try {
    canonicalJson(value, "the body");
    return true;
  } catch {
    return false;
  }
}

/**
 * Whether `value` is all that `text` says. `JSON.parse` rounds 9007199254740993 and drops the first of two members of one
 * name; a handler with another parser may see the difference, and so must the comparison.
 */
function isFaithful(text: string, value: unknown): boolean {
  let names = 0;
  // Strings, each with the colon that makes it a name, and numbers: of a text that is JSON.
  for (const [, colon, number] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|(-?\d[\d.eE+-]*)/gs)) {
    if (colon !== undefined) names += 1;
    if (number !== undefined && decimal(number) !== decimal(String(Number(number)))) return false;
  }
  return names === countNames(value);
}

/** A number's significant digits and their exponent: equal for numerals of equal value. */
function decimal(numeral: string): string {
  const [mantissa = "", exponent = "0"] = numeral.toLowerCase().split("e");
  const [whole = "", fraction = ""] = mantissa.replace("-", "").split(".");
  const digits = (whole + fraction).replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  if (significant === "") return "0";
  const scale = Number(exponent) - fraction.length + (digits.length - significant.length);
  return `${mantissa.startsWith("-") ? "-" : ""}${significant}e${scale}`;
}

function countNames(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const members = Object.values(value);
  const own = Array.isArray(value) ? 0 : members.length;
  return members.reduce<number>((sum, member) => sum + countNames(member), own);
}
