import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { encodeScope, InvalidArgumentError, recordAddress } from "@firstwrite/core";
import { bench, recordName, threw } from "./setup.ts";

describe("object names (protocol §2)", () => {
  it("are {prefix}{scope}/{sha256 of scope:key}.json", () => {
    assert.equal(recordAddress("idempotency/", "acme", "k1").name, recordName);
    assert.equal(
      recordAddress("a/b/", "mérchant/1", "ключ").name,
      `a/b/m%C3%A9rchant%2F1/${createHash("sha256").update("mérchant/1:ключ").digest("hex")}.json`,
    );
  });

  const scopes: readonly [scope: string, folder: string][] = [
    ["AZaz09_.-", "AZaz09_.-"],
    [".", "%2E"],
    ["..", "%2E%2E"],
    ["...", "..."],
    [".a", ".a"],
    ["a/b", "a%2Fb"],
    ["../x", "..%2Fx"],
    ["%2E", "%252E"],
    ["!'()*~", "%21%27%28%29%2A%7E"],
    ["a b+c?d#e\\f:g", "a%20b%2Bc%3Fd%23e%5Cf%3Ag"],
    ["é😀", "%C3%A9%F0%9F%98%80"],
  ];
  for (const [scope, folder] of scopes) {
    it(`the scope ${JSON.stringify(scope)} is the folder ${folder}`, () => assert.equal(encodeScope(scope), folder));
  }

  it("no scope leaves its folder, and no two share one (property)", () => {
    const scope = fc.string({ unit: "binary", minLength: 1, maxLength: 12 }).filter((text) => !/\p{Cc}/u.test(text));
    const tricky = fc.string({
      unit: fc.constantFrom(".", "%", "2", "E", "e", "/", "a", "A"),
      minLength: 1,
      maxLength: 6,
    });
    const any = fc.oneof(scope, tricky);
    fc.assert(
      fc.property(any, any, (one, two) => {
        const folder = encodeScope(one);
        assert.match(folder, /^[A-Za-z0-9_.%-]+$/);
        assert.ok(folder !== "." && folder !== "..");
        assert.equal(decodeURIComponent(folder), one, "the scope can be read back, so it is the only one there");
        assert.equal(folder === encodeScope(two), one === two);
      }),
      { numRuns: 500 },
    );
  });

  it("scope and key that join to the same text are two records", () => {
    assert.notEqual(recordAddress("p/", "a:b", "c").name, recordAddress("p/", "a", "b:c").name);
  });

  const good: readonly [title: string, scope: string, key: string][] = [
    ["a scope of 200 bytes", "s".repeat(200), "k"],
    ["a scope of 200 bytes when encoded", "é".repeat(33) + "ss", "k"],
    ["a key of one character", "s", "k"],
    ["a key of 255 characters", "s", "k".repeat(255)],
    ["a key of 255 characters beyond the BMP", "s", "😀".repeat(255)],
    ["a key of blanks, quotes and slashes", "s", ` "../' `],
  ];
  for (const [title, scope, key] of good) it(`taken: ${title}`, () => void recordAddress("p/", scope, key));

  const refused: readonly [title: string, scope: string, key: string, message: RegExp][] = [
    ["an empty scope", "", "k", /the scope must be a string that is not empty/],
    ["a scope of 201 bytes", "s".repeat(201), "k", /the scope is 201 bytes long when percent-encoded.*: shorten it/],
    ["a scope of 201 bytes when encoded", "é".repeat(33) + "sss", "k", /the scope is 201 bytes long/],
    ["a scope with a control character", "a\nb", "k", /the scope has a control character: remove it/],
    ["a scope with a lone surrogate", "a\ud800", "k", /the scope has a lone surrogate/],
    ["an empty key", "s", "", /the idempotency key must be a string that is not empty/],
    [
      "a key of 256 characters",
      "s",
      "k".repeat(256),
      /the idempotency key is 256 characters long; the most is 255: shorten/,
    ],
    ["a key with U+0000", "s", "k\0", /the idempotency key has a control character: remove it/],
    ["a key with U+007F", "s", "k\u007f", /the idempotency key has a control character/],
    ["a key with U+0085", "s", "k\u0085", /the idempotency key has a control character/],
    ["a key with a lone surrogate", "s", "\udc00k", /the idempotency key has a lone surrogate/],
  ];
  for (const [title, scope, key, message] of refused) {
    it(`refused before any request: ${title}`, async () => {
      const { reserve, store } = bench();
      const error = threw(await reserve({ scope, key }));
      assert.ok(InvalidArgumentError.is(error), String(error));
      assert.match(error.message, message);
      assert.deepEqual(store.sent, []);
    });
  }
});
