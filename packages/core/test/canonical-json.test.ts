import assert from "node:assert/strict";
import canonicalize from "canonicalize";
import * as fc from "fast-check";
import { canonicalJson, InvalidArgumentError, toJson } from "@firstwrite/core";

const cyclic: Record<string, unknown> = {};
cyclic["self"] = cyclic;

class Secret {
  readonly #value: number;
  constructor(value: number) {
    this.#value = value;
  }
  get value(): number {
    return this.#value;
  }
}

class Point {
  readonly x = 1;
  readonly #hidden = 2;
  get sum(): number {
    return this.x + this.#hidden;
  }
}

function nested(depth: number): unknown {
  let value: unknown = 0;
  for (let level = 0; level < depth; level += 1) value = [value];
  return value;
}

describe("canonical JSON (RFC 8785)", () => {
  const canonical: readonly [title: string, value: unknown, text: string][] = [
    ["case 48: -0 is 0", [-0, 0], "[0,0]"],
    // RFC 8785 §3.2.2.3 and appendix B.
    [
      "numbers are as ECMAScript writes them",
      [
        Number("333333333.33333329"),
        1e30,
        4.5,
        2e-3,
        0.000000000000000000000000001,
        1e21,
        1e20,
        5e-324,
        1.7976931348623157e308,
      ],
      "[333333333.3333333,1e+30,4.5,0.002,1e-27,1e+21,100000000000000000000,5e-324,1.7976931348623157e+308]",
    ],
    ["integers beyond 2^53 are what the double is", Number("9007199254740993"), "9007199254740992"],
    // RFC 8785 §3.2.2.2: only these are escaped.
    ["strings", '\u20ac$\u000f\nA\'B"\\\\"/\u2028', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/\u2028"'],
    // RFC 8785 §3.2.3: 1F600 is D83D DE00 in UTF-16, and so stands before FB33.
    [
      "case 48: names are in the order of their UTF-16 code units",
      { "\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7 },
      '{"\\r":2,"1":4,"\u0080":6,"\u00f6":7,"\u20ac":1,"\ud83d\ude00":5,"\ufb33":3}',
    ],
    ["peer fault: A and a are two names, in one order", { a: 1, A: 2 }, '{"A":2,"a":1}'],
    ["numeric names are ordered as text", { 10: 1, 9: 2 }, '{"10":1,"9":2}'],
    ["literals", [null, true, false], "[null,true,false]"],
    ["case 48: undefined members are left out", { a: undefined, b: 1 }, '{"b":1}'],
    ["peer fault: a Date is its toJSON", new Date(0), '"1970-01-01T00:00:00.000Z"'],
    [
      "toJSON may return what has a toJSON",
      { toJSON: () => ({ at: new Date(0) }) },
      '{"at":"1970-01-01T00:00:00.000Z"}',
    ],
    ["a toJSON that is no function is a member", { toJSON: 1 }, '{"toJSON":1}'],
    ["a Buffer is its toJSON", Buffer.from([1]), '{"data":[1],"type":"Buffer"}'],
    ["a class instance is its own members", new Point(), '{"x":1}'],
    ["an object without prototype", Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
    ["symbol members are left out, as JSON.stringify does", { [Symbol("s")]: 1 }, "{}"],
    ["one object in two places is no cycle", ((shared) => [shared, shared])({ a: 1 }), '[{"a":1},{"a":1}]'],
    ["a member named __proto__ stays one", JSON.parse('{"__proto__":{"a":1}}'), '{"__proto__":{"a":1}}'],
    ["500 levels", nested(500), `${"[".repeat(500)}0${"]".repeat(500)}`],
  ];
  for (const [title, value, text] of canonical) {
    it(title, () => assert.equal(canonicalJson(value, "the input"), text));
  }

  const refused: readonly [title: string, value: unknown, message: RegExp][] = [
    ["case 48: a lone surrogate in a value", { a: ["\ud800"] }, /^the input\.a\[0\] has a lone surrogate: /],
    [
      "case 48: a lone surrogate in a name",
      { a: { "\udc00": 1 } },
      /^a member name of the input\.a has a lone surrogate: /,
    ],
    ["case 48: undefined alone", undefined, /^the input is of type undefined/],
    ["case 48: an undefined item", [1, undefined], /^the input\[1\] is of type undefined/],
    // oxlint-disable-next-line no-sparse-arrays -- what it is about
    ["a hole in an array", [1, , 2], /^the input\[1\] is of type undefined/],
    ["case 48: a BigInt", { a: { b: 1n } }, /^the input\.a\.b is of type bigint/],
    ["a function", { f: () => 1 }, /^the input\.f is of type function/],
    ["a symbol", [Symbol("s")], /^the input\[0\] is of type symbol/],
    [
      "a class instance whose state is private",
      { p: new Secret(1) },
      /^the input\.p is an instance of a class without members/,
    ],
    ["NaN", { n: Number.NaN }, /^the input\.n is NaN/],
    ["an infinity", [-Infinity], /^the input\[0\] is -Infinity/],
    ["a Map", { m: new Map([[1, 2]]) }, /^the input\.m is object Map/],
    ["a Set", { s: new Set([1]) }, /^the input\.s is object Set/],
    ["bytes", { b: new Uint8Array(2) }, /^the input\.b is object Uint8Array/],
    ["an ArrayBuffer", new ArrayBuffer(2), /^the input is object ArrayBuffer/],
    ["a regular expression", [/x/], /^the input\[0\] is object RegExp/],
    ["an error", new Error("x"), /^the input is object Error/],
    ["a promise", { p: Promise.resolve(1) }, /^the input\.p is object Promise/],
    ["a boxed primitive", [Object("x")], /^the input\[0\] is object String/],
    [
      "a Date that is no time, which toJSON makes null",
      { at: new Date(Number.NaN) },
      /^the input\.at is an invalid Date/,
    ],
    ["a toJSON that returns nothing", { a: { toJSON: () => undefined } }, /^the input\.a is of type undefined/],
    ["a cycle", cyclic, /^the input(\.self){501} is nested deeper than 500 levels, or cyclic/],
    [
      "a cycle through toJSON",
      {
        toJSON() {
          return this;
        },
      },
      /^the input is nested deeper than 500 levels, or cyclic/,
    ],
    ["501 levels", nested(501), /^the input(\[0\]){501} is nested deeper/],
  ];
  for (const [title, value, message] of refused) {
    it(`refused with its path: ${title}`, () => {
      assert.throws(
        () => canonicalJson(value, "the input"),
        (error) => InvalidArgumentError.is(error) && message.test(error.message),
      );
    });
  }

  it("is what the package canonicalize makes of it (property)", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        assert.equal(canonicalJson(value, "the input"), canonicalize(toJson(value, "the input")));
      }),
      { numRuns: 300 },
    );
  });

  it("is the same whatever the order of members, at every depth (property)", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        assert.equal(canonicalJson(value, "the input"), canonicalJson(reversed(value), "the input"));
      }),
    );
  });

  it("tells apart whatever differs as JSON (property)", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (one, two) => {
        const same = canonicalJson(one, "the input") === canonicalJson(two, "the input");
        const parsed = JSON.parse(canonicalJson(one, "the input"));
        assert.deepEqual(parsed, toJson(one, "the input"));
        if (same) assert.deepEqual(toJson(one, "the input"), toJson(two, "the input"));
      }),
    );
  });

  it("copies: what the caller changes afterwards is not in it", () => {
    const mine = { list: [{ a: 1 }], member: { b: 1 } };
    const copy = toJson(mine, "the input");
    mine.list[0] = { a: 2 };
    mine.member.b = 2;
    assert.deepEqual(copy, { list: [{ a: 1 }], member: { b: 1 } });
  });

  it("copies -0 as what a later reader gets", () => {
    assert.ok(Object.is(toJson(-0, "the value"), 0));
  });

  it("keeps a member named __proto__ from becoming the prototype", () => {
    const copy = toJson(JSON.parse('{"__proto__":{"admin":true}}'), "the input");
    assert.deepEqual(Object.keys(Object(copy)), ["__proto__"]);
    assert.equal(Object.getPrototypeOf(copy), Object.prototype);
  });
});

function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .toReversed()
      .map(([name, member]) => [name, reversed(member)]),
  );
}
