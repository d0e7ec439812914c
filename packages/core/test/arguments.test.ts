import assert from "node:assert/strict";
import {
  checkObjectName,
  checkWrite,
  defineReservation,
  encodeScope,
  fingerprintOf,
  Idempotency,
  InvalidArgumentError,
  objectNameFault,
  SingleFlight,
  StoreError,
  toVersion,
} from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";
import { assign, bench, byOperationId, ending, input, isStoreError, request, threw, untyped } from "./setup.ts";

const store = new MemoryStore();

async function asPromise(call: () => unknown): Promise<unknown> {
  return call();
}

const construct = (options: unknown): unknown => Reflect.construct(Idempotency, [options]);

const chosen = (choice: unknown): readonly unknown[] => [assign, request, input, () => choice];

describe("wrong arguments get a typed error that says what to do", () => {
  const constructed: readonly [title: string, options: unknown, message: RegExp][] = [
    ["no options", undefined, /^what an Idempotency is made of must be an object$/],
    ["no store", {}, /^store must be a ConditionalStore: open one with openStore\(url\) or construct one$/],
    ["a store that is a URL", { store: "s3://b" }, /^store must be a ConditionalStore/],
    ["a promise of a store", { store: Promise.resolve(store) }, /^store must be a ConditionalStore/],
    [
      "a store without traits",
      { store: { create() {}, replace() {}, read() {} } },
      /^store must be a ConditionalStore/,
    ],
    ["a prefix without slash", { store, prefix: "p" }, /^the prefix "p" must end with "\/"$/],
    ["a prefix that is none", { store, prefix: 7 }, /^the prefix 7 must end with "\/"$/],
    ["a prefix of a slash", { store, prefix: "/" }, /the prefix has an empty segment/],
    [
      "a prefix that climbs",
      { store, prefix: "a/../" },
      /the prefix has an empty segment, or one that is "\." or "\.\."/,
    ],
    ["a deadline of 0", { store, deadlineMs: 0 }, /^deadlineMs is 0: give milliseconds above 0$/],
    ["a deadline in words", { store, deadlineMs: "5s" }, /^deadlineMs is 5s: give milliseconds above 0$/],
    [
      "P9: a deadline of an hour",
      { store, deadlineMs: 3_600_000 },
      /^deadlineMs is 3600000: give less than an hour \(3600000\)$/,
    ],
    ["an endless deadline", { store, deadlineMs: Infinity }, /^deadlineMs is Infinity: give milliseconds above 0$/],
    ["a negative timeout", { store, requestTimeoutMs: -1 }, /^requestTimeoutMs is -1: give milliseconds above 0$/],
    [
      "a timeout no timer can wait for",
      { store, requestTimeoutMs: 2 ** 31 },
      /^requestTimeoutMs is 2147483648: give less than an hour/,
    ],
  ];
  for (const [title, options, message] of constructed) {
    it(`new Idempotency: ${title}`, () => {
      assert.throws(
        () => construct(options),
        (error) => InvalidArgumentError.is(error) && message.test(error.message),
      );
    });
  }

  const defined: readonly [title: string, options: unknown, message: RegExp][] = [
    ["no options", undefined, /must be an object/],
    ["no name", {}, /^the operation's name must be a string of 1 to 200 characters$/],
    ["an empty name", { name: "" }, /name must be a string of 1 to 200/],
    ["a name of 201 characters", { name: "n".repeat(201) }, /name must be a string of 1 to 200/],
    [
      "a fingerprint that is none",
      { name: "n", fingerprint: ["amount"] },
      /^fingerprint must be a function of the input; leave it out/,
    ],
    ["a retention that is none", { name: "n", retention: 5 }, /^retention must be an object$/],
    [
      "an option it does not have",
      { name: "n", ttlMs: 5 },
      /cannot have "ttlMs": it takes name, fingerprint, retention, keyTime$/,
    ],
    [
      "a retention it does not have",
      { name: "n", retention: { ttl: 5 } },
      /^retention cannot have "ttl": it takes retryWindowMs,/,
    ],
    ["a retention of null", { name: "n", retention: null }, /^retention must be an object$/],
  ];
  for (const [title, options, message] of defined) {
    it(`defineReservation: ${title}`, () => {
      assert.throws(
        () => untyped(defineReservation, undefined, [options]),
        (error) => InvalidArgumentError.is(error) && message.test(error.message),
      );
    });
  }

  const called: readonly [title: string, args: readonly unknown[], message: RegExp][] = [
    ["nothing", [], /^the operation must be an object$/],
    [
      "an operation that is none",
      [{ name: "n" }, request, input, byOperationId],
      /^the operation must come from defineReservation/,
    ],
    ["no request", [assign], /^the request, which has scope and key, must be an object$/],
    [
      "a misspelt member",
      [assign, { ...request, readfirst: true }, input, byOperationId],
      /cannot have "readfirst": it takes scope, key,/,
    ],
    ["no scope", [assign, { key: "k" }, input, byOperationId], /^the scope must be a string that is not empty$/],
    [
      "no key",
      [assign, { scope: "s" }, input, byOperationId],
      /^the idempotency key must be a string that is not empty$/,
    ],
    [
      "a key that is a number",
      [assign, { scope: "s", key: 5 }, input, byOperationId],
      /^the idempotency key must be a string/,
    ],
    ["no input", [assign, request, undefined, byOperationId], /^the fingerprint of the input is of type undefined/],
    ["no chooser", [assign, request, input], /^the chooser of the value must be a function$/],
    [
      "a deadline of an hour",
      [assign, { ...request, deadlineMs: 3.6e6 }, input, byOperationId],
      /give less than an hour/,
    ],
    [
      "a deadline that is no number",
      [assign, { ...request, deadlineMs: Number.NaN }, input, byOperationId],
      /give milliseconds above 0/,
    ],
    [
      "a controller for a signal",
      [assign, { ...request, signal: new AbortController() }, input, byOperationId],
      /^signal must be an AbortSignal: of an AbortController, give its signal$/,
    ],
    ["a chooser without choice", chosen(undefined), /^what the chooser returns must be an object$/],
    ["a chooser without value", chosen({}), /^the reserved value is of type undefined/],
    ["an asynchronous chooser", chosen(Promise.resolve({ value: 1 })), /^the reserved value is of type undefined/],
    ["three phases", chosen({ value: 1, phases: 3 }), /^phases must be 1 or 2/],
    ["fields that are none", chosen({ value: 1, fields: 5 }), /^the record's fields must be an object$/],
    ["fields that are not JSON", chosen({ value: 1, fields: { n: 1n } }), /^the record's fields\.n is of type bigint/],
    ["a value that is not JSON", chosen({ value: { at: Symbol("x") } }), /^the reserved value\.at is of type symbol/],
    ["a value with a lone surrogate", chosen({ value: "\udfff" }), /^the reserved value has a lone surrogate/],
  ];
  for (const [title, args, message] of called) {
    it(`reserve, before any request: ${title}`, async () => {
      const { clock, idempotency, store: watched } = bench();
      // oxlint-disable-next-line typescript/unbound-method -- it is called on `idempotency` below
      const call = asPromise(() => untyped(idempotency.reserve, idempotency, args));
      const error = threw(await ending(clock, call));
      assert.ok(InvalidArgumentError.is(error), String(error));
      assert.match(error.message, message);
      assert.deepEqual(watched.sent, []);
      assert.equal(clock.nextTimerMs, undefined);
    });
  }

  it("reserve: what the operation's own fingerprint throws is thrown as it is", async () => {
    const { idempotency, store: watched } = bench();
    const thrown = new Error("no amount");
    const operation = defineReservation({
      name: "n",
      fingerprint: () => {
        throw thrown;
      },
    });
    await assert.rejects(idempotency.reserve(operation, request, input, byOperationId), (error) => error === thrown);
    assert.deepEqual(watched.sent, []);
  });

  it("session, deadline, encodeScope, fingerprintOf, toVersion, SingleFlight.run", async () => {
    const { idempotency, clock } = bench();
    assert.equal(idempotency.deadline(undefined), 30_000);
    assert.throws(
      () => idempotency.deadline(-5),
      (error) => InvalidArgumentError.is(error),
    );
    assert.throws(() => untyped(encodeScope, undefined, [undefined]), /the scope must be a string that is not empty/);
    assert.throws(() => fingerprintOf(undefined), /^InvalidArgumentError: the fingerprint is of type undefined/);
    assert.throws(() => toVersion(""), TypeError);
    const flights = new SingleFlight<number>(clock, "memory");
    const limits = { deadlineMs: 1, signal: JSON.parse("{}") };
    await assert.rejects(
      flights.run("k", limits, async () => 1),
      (error) => InvalidArgumentError.is(error),
    );
  });
});

describe("object names and records that a store refuses before it sends anything", () => {
  const traits = { name: "small", nameBytesMax: 20, recordBytesMax: 4, clockGranularityMs: 0 };

  for (const name of ["a", "a/b.json", "é".repeat(10), ".a/..b", "a b+c%2F?#\\:*"]) {
    it(`taken: ${JSON.stringify(name)}`, () => assert.equal(objectNameFault(traits, name), undefined));
  }

  const refused: readonly [name: unknown, fault: RegExp][] = [
    ["", /empty segment/],
    ["/a", /empty segment/],
    ["a/", /empty segment/],
    ["a//b", /empty segment/],
    [".", /empty segment, or one that is "\." or "\.\."/],
    ["a/../b", /empty segment/],
    ["a/./b", /empty segment/],
    ["a\n", /control character: remove it/],
    ["a\u0085", /control character/],
    ["a\ud800", /not well-formed Unicode: remove lone surrogates/],
    ["é".repeat(11), /is 22 bytes long; the store takes 20/],
    [7, /not well-formed Unicode/],
    [undefined, /not well-formed Unicode/],
  ];
  for (const [name, fault] of refused) {
    it(`refused: ${JSON.stringify(name) ?? "undefined"}`, () => {
      assert.throws(
        () => untyped(checkObjectName, undefined, [traits, name]),
        (error) => StoreError.is(error) && error.code === "INVALID_ARGUMENT" && fault.test(error.message),
      );
    });
  }

  it("a record longer than the store takes, or no bytes", () => {
    checkWrite(traits, "a", new Uint8Array(4));
    for (const [bytes, message] of [
      [new Uint8Array(5), "small: the record is 5 bytes long; the store takes 4"],
      ["text", "small: a record is given as a Uint8Array"],
      [undefined, "small: a record is given as a Uint8Array"],
    ] as const) {
      assert.throws(() => untyped(checkWrite, undefined, [traits, "a", bytes]), { message, code: "INVALID_ARGUMENT" });
    }
  });

  it("reserve passes on what a store cannot take, with nothing stored", async () => {
    for (const limits of [{ nameBytesMax: 80 }, { recordBytesMax: 100 }]) {
      const { memory, reserve, store: watched } = bench({ traits: limits });
      isStoreError(threw(await reserve()), "INVALID_ARGUMENT");
      assert.deepEqual(watched.sent, ["create"]);
      for await (const { name } of memory.list("")) assert.fail(name);
    }
  });
});
