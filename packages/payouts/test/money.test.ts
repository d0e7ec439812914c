import assert from "node:assert/strict";

import {
  AMOUNT_MINOR_MAX,
  currencies,
  formatAmount,
  isCurrency,
  parseAmount,
  type Currency,
} from "@firstwrite/payouts";
import * as fc from "fast-check";

const currency = fc.constantFrom(...currencies).filter((code): code is Currency => isCurrency(code));

function minorOf(amount: unknown, of: Currency): number | undefined {
  const parsed = parseAmount(amount, of);
  return "minor" in parsed ? parsed.minor : undefined;
}

describe("amounts", () => {
  it("are what was decided", () => {
    const cases: readonly [amount: unknown, currency: Currency, minor: number | undefined][] = [
      ["10.00", "EUR", 1000],
      ["10.0", "EUR", 1000],
      ["10", "EUR", 1000],
      ["0.01", "EUR", 1],
      ["10", "JPY", 10],
      ["10.005", "KWD", 10_005],
      // A JSON number, however it was written, is a float by now.
      [10, "EUR", undefined],
      [10.0, "EUR", undefined],
      [1e1, "EUR", undefined],
      [0.1 + 0.2, "EUR", undefined],
      ["1e1", "EUR", undefined],
      ["10.000", "EUR", undefined],
      ["10.0", "JPY", undefined],
      ["010", "EUR", undefined],
      ["00.10", "EUR", undefined],
      [".5", "EUR", undefined],
      ["5.", "EUR", undefined],
      ["+5", "EUR", undefined],
      ["-5", "EUR", undefined],
      [" 5", "EUR", undefined],
      ["5\n", "EUR", undefined],
      ["5,00", "EUR", undefined],
      ["1_000", "EUR", undefined],
      ["٥", "EUR", undefined],
      ["0", "EUR", undefined],
      ["0.00", "EUR", undefined],
      ["", "EUR", undefined],
      ["Infinity", "EUR", undefined],
      [null, "EUR", undefined],
      [["10"], "EUR", undefined],
    ];
    for (const [amount, of, minor] of cases) assert.equal(minorOf(amount, of), minor, JSON.stringify([amount, of]));
  });

  it("are told apart by what is wrong with them, however many digits they have", () => {
    const faultOf = (amount: string): string => {
      const parsed = parseAmount(amount, "EUR");
      return "fault" in parsed ? parsed.fault : "";
    };
    for (const amount of ["10000000000.01", "99999999999999999999", "9".repeat(400), `1${"0".repeat(15)}.50`]) {
      assert.match(faultOf(amount), /more than one payout may be of/, amount);
    }
    assert.match(faultOf("1.0000000"), /at most 2 decimal places/);
    assert.match(faultOf("0".repeat(20)), /plain decimal number/);
  });

  it("come back as they went, to the last unit", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: AMOUNT_MINOR_MAX }), currency, (minor, of) => {
        assert.equal(minorOf(formatAmount(minor, of), of), minor);
      }),
    );
  });

  it("are the same amount however many zeros end them, and are written in one way", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 10_000_000 }), currency, fc.nat(3), (minor, of, zeros) => {
        const canonical = formatAmount(minor, of);
        const shortest = canonical.includes(".") ? canonical.replace(/\.?0+$/, "") : canonical;
        const point = shortest.includes(".") || zeros === 0 ? "" : ".";
        const text = `${shortest}${point}${"0".repeat(zeros)}`;
        const decimals = (amount: string): number => amount.split(".")[1]?.length ?? 0;
        // More decimal places than the currency has are refused, even where they are zeros.
        const isTaken = decimals(text) <= decimals(canonical);
        assert.equal(minorOf(text, of), isTaken ? minor : undefined, text);
      }),
    );
  });

  it("are exact, as by whole-number arithmetic", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 9_999_999_999n }), fc.integer({ min: 0, max: 99 }), (whole, cents) => {
        const minor = whole * 100n + BigInt(cents);
        const expected = minor === 0n || minor > BigInt(AMOUNT_MINOR_MAX) ? undefined : Number(minor);
        assert.equal(minorOf(`${whole}.${String(cents).padStart(2, "0")}`, "EUR"), expected);
      }),
    );
  });

  it("never throw, and say what is wrong without repeating it", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.anything(), fc.double().map(String)), currency, (amount, of) => {
        const parsed = parseAmount(amount, of);
        if ("minor" in parsed) {
          assert.ok(Number.isSafeInteger(parsed.minor) && parsed.minor > 0);
          return;
        }
        assert.ok(parsed.fault.startsWith("amount "));
        if (typeof amount === "string" && amount.length > 6) assert.ok(!parsed.fault.includes(amount));
      }),
    );
  });
});
