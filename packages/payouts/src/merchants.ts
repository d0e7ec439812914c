import { createHash } from "node:crypto";

import { checkNames, InvalidArgumentError } from "@firstwrite/core";

/** Who may ask for payouts. */
export interface Merchant {
  /** The scope of its keys, and its account in the ledger. */
  readonly id: string;
  /** Of its API key, in hexadecimal: the key itself is nowhere here. */
  readonly apiKeySha256: string;
  /** What it signs the time of its keys with; it needs none if all of them are UUIDs of version 7. */
  readonly signingSecret?: string;
}

const MERCHANT_NAMES = ["id", "apiKeySha256", "signingSecret"];

/** The merchants by their API keys. */
export class Merchants {
  readonly #byApiKey = new Map<string, Merchant>();

  /** @throws {InvalidArgumentError} for what is not a list of merchants, saying what to write. */
  constructor(merchants: readonly Merchant[]) {
    if (!Array.isArray(merchants) || merchants.length === 0) {
      throw new InvalidArgumentError('there must be merchants: [{ "id": "acme", "apiKeySha256": "…" }]');
    }
    const ids = new Set<string>();
    for (const merchant of merchants) {
      checkMerchant(merchant);
      if (ids.has(merchant.id) || this.#byApiKey.has(merchant.apiKeySha256)) {
        throw new InvalidArgumentError(`the merchant ${merchant.id} is there twice, or has another's API key`);
      }
      ids.add(merchant.id);
      this.#byApiKey.set(merchant.apiKeySha256, merchant);
    }
  }

  /** By the value of the `Authorization` header. */
  authenticate(authorization: string | undefined): Merchant | undefined {
    const [, apiKey] = /^Bearer +(\S+)$/i.exec(authorization ?? "") ?? [];
    // Found by its hash, so that how long it takes says nothing of the key.
    return apiKey === undefined ? undefined : this.#byApiKey.get(sha256Hex(apiKey));
  }
}

/** What a merchant's `apiKeySha256` is. */
export function sha256Hex(apiKey: string): string {
  return createHash("sha256").update(apiKey).digest("hex");
}

/** @throws {InvalidArgumentError} for a file's text that is not a list of merchants. */
export function parseMerchants(text: string): Merchants {
  let value: Merchant[];
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new InvalidArgumentError('the merchants\' file must be JSON: [{ "id": "acme", "apiKeySha256": "…" }]', {
      cause,
    });
  }
  return new Merchants(value);
}

function checkMerchant(merchant: Merchant): void {
  checkNames(merchant, MERCHANT_NAMES, "a merchant");
  const { id, apiKeySha256, signingSecret } = merchant;
  if (typeof id !== "string" || !/^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$/.test(id)) {
    throw new InvalidArgumentError("a merchant's id must be 1 to 100 letters, digits, and _ . -");
  }
  if (typeof apiKeySha256 !== "string" || !/^[0-9a-f]{64}$/.test(apiKeySha256)) {
    throw new InvalidArgumentError(
      `apiKeySha256 of ${id} must be the SHA-256 of its API key in hexadecimal: printf %s "$KEY" | sha256sum`,
    );
  }
  if (signingSecret !== undefined && (typeof signingSecret !== "string" || signingSecret.length < 16)) {
    throw new InvalidArgumentError(`signingSecret of ${id} must be a string of 16 characters or more`);
  }
}
