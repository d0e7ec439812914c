import assert from "node:assert/strict";

import { InvalidArgumentError } from "@firstwrite/core";
import * as fc from "fast-check";

import { checkKeyOptions, parseIdempotencyKey, type ParsedKey } from "../src/key.ts";

const strict = checkKeyOptions({});
const lenient = checkKeyOptions({ format: "lenient" });
const strictly = (field: string | undefined): ParsedKey => parseIdempotencyKey(field, strict);
const leniently = (field: string | undefined): ParsedKey => parseIdempotencyKey(field, lenient);

/** RFC 8941 §3.3.3, `sf-string`, written down a second time. */
const sfString = /^"(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"$/;
const serialize = (key: string): string => `"${key.replace(/["\\]/g, "\\$&")}"`;

const printable = fc.string({
  unit: fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCharCode(code)),
  minLength: 1,
  maxLength: 255,
});
/** Near misses: quotes, escapes, separators, controls and what is beyond ASCII. */
const nearly = fc.string({
  unit: fc.constantFrom(...Array.from('"\\,;=a1 ?:*@%\t\u0000\u001f\u007f\u0080é\u2028')),
  maxLength: 12,
});

describe("the key", () => {
  it("is any text of RFC 8941, as it was before it was serialized", () => {
    fc.assert(
      fc.property(printable, (key) => {
        assert.deepEqual(strictly(serialize(key)), { kind: "key", key });
        assert.deepEqual(leniently(serialize(key)), { kind: "key", key });
      }),
    );
  });

  it("is taken exactly where the grammar takes the value", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          nearly,
          nearly.map((text) => `"${text}"`),
        ),
        (field) => {
          // HTTP's own whitespace around a value is no part of it.
          const value = field.replace(/^[ \t]+|[ \t]+$/g, "");
          const legal = sfString.test(value) && value !== '""';
          assert.equal(strictly(field).kind, legal ? "key" : "invalid");
        },
      ),
      { numRuns: 3_000 },
    );
  });

  it("in lenient mode may go without quotes, and is then the same key", () => {
    const bare = fc.string({
      unit: fc
        .integer({ min: 0x21, max: 0x7e })
        .map((code) => String.fromCharCode(code))
        .filter((character) => !'",;'.includes(character)),
      minLength: 1,
      maxLength: 255,
    });
    fc.assert(
      fc.property(bare, (key) => {
        assert.deepEqual(leniently(key), { kind: "key", key });
        assert.deepEqual(leniently(key), leniently(serialize(key)));
      }),
    );
  });

  it("in lenient mode is never two keys, nor one with parameters, nor half of a String", () => {
    for (const field of [
      "a,b",
      "a, b",
      "a;b",
      "a b",
      '"a',
      'a"',
      '"a"b',
      '"a";v=1',
      '"a","b"',
      "é",
      "\u007f",
      "",
      " ",
    ]) {
      assert.equal(leniently(field).kind, "invalid", field);
    }
  });

  it("is missing only where there is no such header", () => {
    assert.deepEqual(strictly(undefined), { kind: "missing" });
    assert.equal(strictly("").kind, "invalid");
  });

  it("is never repeated in what a client is told", () => {
    fc.assert(
      fc.property(fc.string({ minLength: 8 }), (field) => {
        const parsed = strictly(`\u0001${field}`);
        assert.ok(parsed.kind === "invalid" && !parsed.why.includes(field));
      }),
    );
  });

  it("has options that are checked", () => {
    const wrong: readonly Parameters<typeof checkKeyOptions>[0][] = [
      { lengthMin: 0 },
      { lengthMax: 256 },
      { lengthMin: 9, lengthMax: 8 },
      { lengthMin: 1.5 },
      // @ts-expect-error -- for callers without types
      { format: "loose" },
      // @ts-expect-error -- for callers without types
      { required: "no" },
      // @ts-expect-error -- for callers without types
      { check: /x/ },
      // @ts-expect-error -- a misspelt option must not be passed over
      { lenghtMin: 8 },
    ];
    for (const options of wrong) assert.throws(() => checkKeyOptions(options), InvalidArgumentError.is);
  });
});
