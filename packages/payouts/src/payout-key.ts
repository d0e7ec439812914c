/** When the key of a payout was issued, without which a late retry could not be told. */

import { createHmac, timingSafeEqual } from "node:crypto";

import { timeOfKey } from "@firstwrite/core";

import type { Merchant } from "./merchants.ts";

/** Signed by the merchant: `t=1764547200,v1=5f…`, an HMAC-SHA256 of `1764547200.KEY` in hexadecimal. */
export const KEY_TIME_HEADER = "idempotency-key-time";

/** `why` does not repeat the key. */
export type KeyTime = { readonly issuedAt: number } | { readonly why: string };

/** @param timeField {@link KEY_TIME_HEADER}'s value. A key that is a UUID of version 7 or a ULID needs none. */
export function timeOfPayoutKey(key: string, timeField: string | undefined, merchant: Merchant): KeyTime {
  if (timeField === undefined) {
    try {
      return { issuedAt: timeOfKey(key) };
    } catch {
      return {
        why: "The key must be a UUID of version 7 or a ULID, or come with Idempotency-Key-Time: without its age a late retry would be paid again.",
      };
    }
  }
  const issuedAt = signedTime(key, timeField, merchant.signingSecret);
  if (issuedAt !== undefined) return { issuedAt };
  return {
    why: "Idempotency-Key-Time is not signed by this merchant: t=UNIX_SECONDS,v1=HEX of HMAC-SHA256(signing secret, UNIX_SECONDS.KEY).",
  };
}

/** The value of {@link KEY_TIME_HEADER} for a key that was issued at `issuedAt`: what a client sends. */
export function signKeyTime(key: string, issuedAt: number, signingSecret: string): string {
  const seconds = Math.floor(issuedAt / 1_000);
  return `t=${seconds},v1=${mac(seconds, key, signingSecret).toString("hex")}`;
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
