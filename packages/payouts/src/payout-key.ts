/** The key of a payout: the `Idempotency-Key` header, and when it was issued, without which a late retry could not be told. */

import { createHmac, timingSafeEqual } from "node:crypto";

import { parseItem } from "structured-headers";

import type { Merchant } from "./merchants.ts";

export interface PayoutKey {
  readonly key: string;
  /** Epoch milliseconds. */
  readonly issuedAt: number;
}

export type ParsedPayoutKey =
  | { readonly kind: "key"; readonly key: PayoutKey }
  | { readonly kind: "missing" }
  /** `why` does not repeat the key. */
  | { readonly kind: "invalid"; readonly why: string };

/** Signed by the merchant: `t=1764547200,v1=5f…`, an HMAC-SHA256 of `1764547200.KEY` in hexadecimal. */
export const KEY_TIME_HEADER = "idempotency-key-time";

export const KEY_LENGTH_MAX = 255;
const DAY_MS = 86_400_000;

/** @param timeField {@link KEY_TIME_HEADER}'s value. A key that is a UUID of version 7 needs none. */
export function parsePayoutKey(
  field: string | undefined,
  timeField: string | undefined,
  merchant: Merchant,
  nowMs: number,
): ParsedPayoutKey {
  if (field === undefined) return { kind: "missing" };
  const key = stringItem(field);
  if (key === undefined) {
    return invalid('The header must be one RFC 8941 String, in quotes: Idempotency-Key: "0197…".');
  }
  if (key.length === 0 || key.length > KEY_LENGTH_MAX)
    return invalid(`The key must have 1 to ${KEY_LENGTH_MAX} characters.`);
  const issuedAt = timeField === undefined ? timeOfUuidV7(key) : signedTime(key, timeField, merchant.signingSecret);
  if (issuedAt === undefined) {
    return invalid(
      timeField === undefined
        ? "The key must be a UUID of version 7, or come with Idempotency-Key-Time: without its age a late retry would be paid again."
        : "Idempotency-Key-Time is not signed by this merchant: t=UNIX_SECONDS,v1=HEX of HMAC-SHA256(signing secret, UNIX_SECONDS.KEY).",
    );
  }
  if (issuedAt - nowMs > DAY_MS) return invalid("The key was issued more than a day in the future.");
  return { kind: "key", key: { key, issuedAt } };
}

/** The value of {@link KEY_TIME_HEADER} for a key that was issued at `issuedAt`: what a client sends. */
export function signKeyTime(key: string, issuedAt: number, signingSecret: string): string {
  const seconds = Math.floor(issuedAt / 1_000);
  return `t=${seconds},v1=${mac(seconds, key, signingSecret).toString("hex")}`;
}

function invalid(why: string): ParsedPayoutKey {
  return { kind: "invalid", why };
}

/** The key in the header's value, whatever its age: the String that is all of it, no list, no parameters. */
export function stringItem(value: string): string | undefined {
  try {
    const [item, parameters] = parseItem(value);
    return typeof item === "string" && parameters.size === 0 ? item : undefined;
  } catch {
    return undefined;
  }
}

/** RFC 9562 §5.7: the first 48 bits are milliseconds since 1970. */
function timeOfUuidV7(key: string): number | undefined {
  const [, high, low] = /^([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i.exec(key) ?? [];
  return high === undefined || low === undefined ? undefined : Number.parseInt(high + low, 16);
}

function signedTime(key: string, field: string, signingSecret: string | undefined): number | undefined {
  const [, seconds, signature] = /^t=(\d{1,11}),v1=([0-9a-f]{64})$/.exec(field.trim()) ?? [];
  if (seconds === undefined || signature === undefined || signingSecret === undefined) return undefined;
  const isRight = timingSafeEqual(Buffer.from(signature, "hex"), mac(Number(seconds), key, signingSecret));
  return isRight ? Number(seconds) * 1_000 : undefined;
}

function mac(seconds: number, key: string, signingSecret: string): Buffer {
  return createHmac("sha256", signingSecret).update(`${seconds}.${key}`).digest();
}
