import assert from "node:assert/strict";

import { parsePayoutRequest } from "@firstwrite/payouts";

const whole = { amount: "10.00", currency: "EUR", destination: "acct_1" };

describe("a payout request", () => {
  it("comes to one form, whatever the order and spaces", () => {
    const request = { amountMinor: 1000, currency: "EUR", destination: "acct_1" };
    assert.deepEqual(parsePayoutRequest(JSON.stringify(whole)), { request });
    assert.deepEqual(parsePayoutRequest('\n{ "destination":"acct_1",\t"currency" : "\\u0045UR", "amount": "10" } '), {
      request,
    });
  });

  const refused: readonly [title: string, body: string, why: RegExp][] = [
    ["what is not JSON", "{", /must be JSON/],
    ["a list", "[]", /must be a JSON object/],
    ["null", "null", /must be a JSON object/],
    [
      "a member that is unknown",
      JSON.stringify({ ...whole, note: "for John" }),
      /none of amount, currency, destination/,
    ],
    ["a member of the prototype", '{"amount":"1","currency":"EUR","destination":"a","__proto__":"x"}', /none of/],
    ["a member that is missing", JSON.stringify({ amount: "1", currency: "EUR" }), /destination must be/],
    ["a currency that is not paid in", JSON.stringify({ ...whole, currency: "XXX" }), /currency must be one of/],
    ["a currency in small letters", JSON.stringify({ ...whole, currency: "eur" }), /currency must be one of/],
    ["a currency that is a member of every object", JSON.stringify({ ...whole, currency: "toString" }), /currency/],
    ["a float", JSON.stringify({ ...whole, amount: 10.5 }), /amount must be a string/],
    ["a destination with a space", JSON.stringify({ ...whole, destination: "acct 1" }), /destination must be/],
    [
      "a destination that is too long",
      JSON.stringify({ ...whole, destination: "a".repeat(101) }),
      /destination must be/,
    ],
    ["a member twice", '{"amount":"1","amount":"2","currency":"EUR","destination":"a"}', /a member twice/],
    [
      "a member twice, once in escapes",
      '{"\\u0061mount":"1","amount":"2","currency":"EUR","destination":"a"}',
      /twice/,
    ],
  ];
  for (const [title, body, why] of refused) {
    it(`is refused for ${title}, in a sentence without its values`, () => {
      const parsed = parsePayoutRequest(body);
      assert.ok("fault" in parsed);
      assert.match(parsed.fault, why);
      assert.ok(!/John|acct|XXX|toString/.test(parsed.fault), parsed.fault);
    });
  }
});
