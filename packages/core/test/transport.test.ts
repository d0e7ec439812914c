import assert from "node:assert/strict";
import { isStrongETag, neverConnected, parseHttpDate } from "@firstwrite/core";

const failure = (details: object): Error => Object.assign(new Error("no"), details);

describe("neverConnected", () => {
  it("goes by the system call that failed, and not by a code that an open connection can end with too", () => {
    for (const syscall of ["connect", "getaddrinfo"])
      assert.ok(neverConnected(failure({ syscall, code: "ETIMEDOUT" })));
    for (const syscall of ["read", "write"]) assert.ok(!neverConnected(failure({ syscall, code: "ETIMEDOUT" })));
    assert.ok(!neverConnected(failure({ code: "ECONNREFUSED" })));
  });

  it("asks for a failed connection to every address that was tried", () => {
    const connect = failure({ syscall: "connect" });
    assert.ok(neverConnected(new AggregateError([connect, connect])));
    assert.ok(!neverConnected(new AggregateError([connect, failure({ syscall: "read" })])));
    assert.ok(!neverConnected(new AggregateError([])));
  });

  it("says no to what is no Error", () => {
    for (const thrown of [undefined, null, "connect", { syscall: "connect" }]) assert.ok(!neverConnected(thrown));
  });
});

describe("parseHttpDate", () => {
  it("gives epoch milliseconds", () => {
    assert.equal(parseHttpDate("Thu, 01 Jan 2026 00:00:05 GMT"), Date.UTC(2026, 0, 1, 0, 0, 5));
  });

  it("takes no other form of a time, and no time that does not exist", () => {
    for (const text of [
      "",
      "yesterday",
      "2026-01-01 00:00:00",
      "Thu, 01 Jan 2026 00:00:05",
      "Thu, 99 Jan 2026 00:00:05 GMT",
    ]) {
      assert.equal(parseHttpDate(text), undefined, text);
    }
  });
});

describe("isStrongETag", () => {
  it("takes a quoted tag and a bare one, whatever they say", () => {
    for (const etag of [
      '"d41d8cd98f00b204e9800998ecf8427e-2"',
      '"0x8D7F1A2B3C4D5E6"',
      '"CRC32-9z2Xaw=="',
      "bare-token",
    ]) {
      assert.ok(isStrongETag(etag), etag);
    }
  });

  it("takes no weak tag, no empty one, and none that If-Match reads as a list or as any", () => {
    for (const etag of ["", '""', 'W/"abc"', 'w/"abc"', "W/abc", '"a', 'a"', "*", '"*"', '"a", "b"', "a b", '"é"']) {
      assert.ok(!isStrongETag(etag), etag);
    }
  });
});
