import { hash } from "node:crypto";

import { canonicalJson } from "./canonical-json.ts";

/** `sha256:` and 64 hexadecimal digits. */
export type Digest = `sha256:${string}`;

export function sha256(data: string | Uint8Array): Digest {
  return `sha256:${hash("sha256", data)}`;
}

/**
 * What tells a retry from another request under the same key: the SHA-256 of the RFC 8785 form of what the operation
 * says identifies its input.
 *
 * @throws {InvalidArgumentError} when that is not JSON.
 */
export function fingerprintOf(value: unknown, what = "the fingerprint"): Digest {
  return sha256(canonicalJson(value, what));
}
