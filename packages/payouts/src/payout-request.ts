import { isCurrency, parseAmount, currencies, type Currency } from "./money.ts";

/** What is asked for, in the one form that all ways of writing it come to. */
export interface PayoutRequest {
  readonly amountMinor: number;
  readonly currency: Currency;
  /** The account that is paid. */
  readonly destination: string;
}

/** `fault`: what to change, in a sentence that repeats nothing of the request. */
export type ParsedPayoutRequest = { readonly request: PayoutRequest } | { readonly fault: string };

const MEMBERS = ["amount", "currency", "destination"];

/** An identifier, as the ledger has them. */
const identifier = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$/;

/** A request's body as it came. Checked before anything is claimed, so that a refusal consumes no key. */
export function parsePayoutRequest(body: string): ParsedPayoutRequest {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return { fault: "The body must be JSON." };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { fault: 'The body must be a JSON object: {"amount": "10.00", "currency": "EUR", "destination": "…"}.' };
  }
  const members = Object.entries(value);
  if (members.some(([name]) => !MEMBERS.includes(name))) {
    return { fault: `The body has a member that is none of ${MEMBERS.join(", ")}.` };
  }
  const { amount, currency, destination }: Partial<Record<string, unknown>> = Object.fromEntries(members);
  if (!isCurrency(currency)) return { fault: `currency must be one of ${currencies.join(", ")}.` };
  const parsed = parseAmount(amount, currency);
  if ("fault" in parsed) return { fault: `${parsed.fault}.` };
  if (typeof destination !== "string" || !identifier.test(destination)) {
    return { fault: "destination must be an account's identifier: 1 to 100 letters, digits, and _ . -" };
  }
  // JSON.parse takes the last of two members of one name, and another reader may take the first. All that is taken so far
  // are three names and three strings.
  if (body.match(/"(?:[^"\\]|\\.)*"/g)?.length !== 2 * MEMBERS.length) {
    return { fault: "The body has a member twice." };
  }
  return { request: { amountMinor: parsed.minor, currency, destination } };
}
