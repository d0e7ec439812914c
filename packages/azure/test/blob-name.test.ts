import assert from "node:assert/strict";

import { array, assert as check, constantFrom, property } from "fast-check";

import { blobNameFault, fromBlobName, toBlobName, toBlobNamePrefix } from "../src/blob-name.ts";

/** Rich in what is encoded, and in what looks as if it were. */
const names = array(
  constantFrom("a", ".", "/", "\\", "%", "2", "5", "E", "C", "e", "%2E", "%5C", "%25", "é", "\u{1f984}"),
  {
    maxLength: 12,
  },
).map((parts) => parts.join(""));

describe("azure: the names of blobs", () => {
  it("are the records' own, but for what Azure would take for another name", () => {
    for (const [name, blobName] of [
      ["scope/0123abcd.json", "scope/0123abcd.json"],
      ["sc%C3%B6pe/0123abcd.json", "sc%C3%B6pe/0123abcd.json"],
      [".a/..b/c.d", ".a/..b/c.d"],
      ["a b+c", "a b+c"],
      ["a.", "a%2E"],
      ["a..", "a.%2E"],
      ["a./b", "a%2E/b"],
      ["a\\b", "a%5Cb"],
      ["a%2E", "a%252E"],
      ["a%5Cb%25", "a%255Cb%2525"],
      ["a%2e", "a%2e"],
      ["%", "%"],
    ] as const) {
      assert.equal(toBlobName(name), blobName);
      assert.equal(fromBlobName(blobName), name);
    }
  });

  it("lead back to the record's name, whatever it is, and no two share one", () => {
    check(
      property(names, (name) => assert.equal(fromBlobName(toBlobName(name)), name)),
      { numRuns: 5000 },
    );
  });

  it("have no backslash and no segment that ends with a dot", () => {
    check(
      property(names, (name) => assert.doesNotMatch(toBlobName(name), /\\|\.(\/|$)/)),
      { numRuns: 5000 },
    );
  });

  it("begin with the prefix's, for every name that begins with the prefix", () => {
    check(
      property(names, names, (prefix, rest) => toBlobName(prefix + rest).startsWith(toBlobNamePrefix(prefix))),
      { numRuns: 20_000 },
    );
  });

  it("are 1,024 characters at the most, in 254 segments, none of them for private use", () => {
    assert.equal(blobNameFault("x".repeat(1024)), undefined);
    assert.match(String(blobNameFault("x".repeat(1025))), /1025 characters/);
    assert.equal(blobNameFault("é".repeat(1024)), undefined);
    assert.equal(blobNameFault("x/".repeat(253) + "x"), undefined);
    assert.match(String(blobNameFault("x/".repeat(254) + "x")), /255 segments/);
    for (const character of ["\ue000", "\ufffe", "\uffff", "\ufdd0", "\u{f0000}"]) {
      assert.match(String(blobNameFault(`a${character}`)), /private use/);
    }
  });
});
