/**
 * Amounts of money, as requests have them and as the ledger does.
 *
 * A request's amount is a JSON **string** that is a decimal number of the currency's major unit: `"10"`, `"10.0"` and
 * `"10.00"` are ten euros, the same amount, and so the same request. A JSON number is refused however it is written:
 * `10.00` and `1e1` have become binary floating point before anybody can look at their digits.
 */

/** The decimal places of each currency that is paid out in, as ISO 4217 lists them. */
const decimalPlaces = {
  AUD: 2,
  BHD: 3,
  CAD: 2,
  CHF: 2,
  CZK: 2,
  DKK: 2,
  EUR: 2,
  GBP: 2,
  JPY: 0,
  KRW: 0,
  KWD: 3,
  NOK: 2,
  PLN: 2,
  SEK: 2,
  TND: 3,
  USD: 2,
} as const;

export type Currency = keyof typeof decimalPlaces;

export const currencies: readonly string[] = Object.keys(decimalPlaces);

/** The most that one payout is of: far below where whole numbers end to be exact, so that sums are exact, too. */
export const AMOUNT_MINOR_MAX = 1_000_000_000_000;

/** No sign, no exponent, no digits that say nothing before the first one. */
const decimal = /^(0|[1-9]\d*)(?:\.(\d+))?$/;

export function isCurrency(text: unknown): text is Currency {
  return typeof text === "string" && Object.hasOwn(decimalPlaces, text);
}

/** An amount in the currency's minor unit: cents, or yen; or the sentence that says what is wrong, which repeats no value. */
export type ParsedAmount = { readonly minor: number } | { readonly fault: string };

export function parseAmount(amount: unknown, currency: Currency): ParsedAmount {
  if (typeof amount === "number") {
    return { fault: 'amount must be a string, such as "10.00": a JSON number may have been rounded on its way' };
  }
  if (typeof amount !== "string") return { fault: 'amount must be a string, such as "10.00"' };
  const [, whole, fraction = ""] = decimal.exec(amount) ?? [];
  if (whole === undefined) {
    return {
      fault: 'amount must be a plain decimal number, such as "10.00": no sign, exponent, spaces or leading zeros',
    };
  }
  const places = decimalPlaces[currency];
  if (fraction.length > places) {
    return { fault: `amount must have at most ${places} decimal places: ${currency} has no smaller unit` };
  }
  // Exact up to the most that there may be: digits alone, never a multiplication of a fraction.
  const minor = Number(whole + fraction.padEnd(places, "0"));
  if (minor === 0) return { fault: "amount must be more than zero" };
  if (minor > AMOUNT_MINOR_MAX) return { fault: "amount is more than one payout may be of" };
  return { minor };
}

/** The one way an amount is written: with all of the currency's decimal places. */
export function formatAmount(minor: number, currency: Currency): string {
  const places = decimalPlaces[currency];
  const digits = String(minor).padStart(places + 1, "0");
  return places === 0 ? digits : `${digits.slice(0, -places)}.${digits.slice(-places)}`;
}
