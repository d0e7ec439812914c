import assert from "node:assert/strict";
import * as fc from "fast-check";
import {
  extendReservation,
  InvalidArgumentError,
  recordAddress,
  reserveIn,
  StoreError,
  UnsupportedRecordError,
  type HeldRecord,
  type Json,
  type StoreSession,
} from "@firstwrite/core";
import { checkFields, decodeRecord, encodeRecord, type IdempotencyRecord, type WritableRecord } from "../src/record.ts";
import {
  assign,
  bench,
  bytesOf,
  byOperationId,
  DAY_MS,
  input,
  isStoreError,
  recordName,
  request,
  returned,
  storedAs,
  threw,
  TTL_MS,
  type Bench,
} from "./setup.ts";

const address = recordAddress("idempotency/", request.scope, request.key);
const inputHash = "sha256:ea5ab6ae40e4cfd3b1cf8a3b4b8f1f5a18e4d3e1a3f2d1dff0e6d0cbb8c8a000";

/** A record as it is stored. */
const present: Readonly<Record<string, Json>> = {
  format: 1,
  scope: "acme",
  key: "k1",
  key_hash: address.keyHash,
  input_hash: inputHash,
  operation_id: "op",
  status: "ready",
  attempt: 1,
  ttl_ms: TTL_MS,
  created_at: "2026-01-01T00:00:00.000Z",
  expires_at: "2026-01-31T00:00:00.000Z",
  write_id: "0123456789abcdef0123456789abcdef",
  result: { kind: "value", encoding: "json", body: "op" },
};

const taskId = "8d0e3bb6-6fd5-4c5d-a5a5-0f3f9f6a1c11";

/** The layout before this library: exactly these eight fields. */
const older: Readonly<Record<string, Json>> = {
  key: "k1",
  key_hash: address.keyHash,
  task_id: taskId,
  task_key: `tasks/8/${taskId}.json`,
  created_at: "2026-01-01T00:00:00.123456Z",
  expires_at: "2026-01-31T00:00:00.123456789+00:00",
  task_type: "charge",
  input_hash: inputHash,
};

function without(record: Readonly<Record<string, Json>>, ...names: string[]): Record<string, Json> {
  return Object.fromEntries(Object.entries(record).filter(([name]) => !names.includes(name)));
}

function sessionOf({ idempotency }: Bench): StoreSession {
  return idempotency.session({ signal: new AbortController().signal, endsAtMs: Infinity });
}

async function held(on: Bench, hash: string, readFirst = false): Promise<HeldRecord> {
  assert.ok(hash.startsWith("sha256:"));
  const reserved = await reserveIn(sessionOf(on), {
    operation: "assign",
    ttlMs: TTL_MS,
    address,
    inputHash: `sha256:${hash.slice(7)}`,
    choose: byOperationId,
    readFirst,
  });
  return reserved.held;
}

describe("record (protocol §2)", () => {
  it("has the fields of the page, in JSON", async () => {
    const { reserve, stored, clock } = bench();
    const { operationId } = returned(await reserve());
    const { write_id: writeId, ...record } = await stored();
    assert.ok(typeof writeId === "string" && /^[0-9a-f]{32}$/.test(writeId), "write_id is 128 random bits");
    assert.match(operationId, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.deepEqual(record, {
      format: 1,
      scope: "acme",
      key: "k1",
      key_hash: address.keyHash,
      // printf '["reserve","assign",{"amount":5}]' | sha256sum
      input_hash: "sha256:ddeef1b0efe69e0bc1bd5f9d506246041e4f574d7c09d5a321520fb41c82bdbd",
      operation_id: operationId,
      status: "ready",
      attempt: 1,
      ttl_ms: TTL_MS,
      created_at: "2026-01-01T00:00:00.000Z",
      expires_at: "2026-01-31T00:00:00.000Z",
      result: { kind: "value", encoding: "json", body: operationId },
    });
    assert.equal(clock.now(), Date.UTC(2026, 0, 1));
  });

  it("comes back as it was written (property)", () => {
    const json = fc.jsonValue({ noUnicodeString: false }).map((value): Json => JSON.parse(JSON.stringify(value)));
    const body = fc.record({
      kind: fc.constantFrom("value" as const, "failure" as const),
      encoding: fc.constant("json" as const),
      body: json,
    });
    const own = fc.dictionary(
      fc.string().map((name) => `x_${name}`),
      json,
      { noNullPrototype: true },
    );
    const state = fc.oneof(
      fc.record({ status: fc.constant("ready" as const), leaseMs: fc.constant(undefined), result: body }),
      fc.record({
        status: fc.constant("creating" as const),
        leaseMs: fc.nat(),
        result: fc.option(body, { nil: undefined }),
      }),
      fc.record({
        status: fc.constantFrom("held" as const, "released" as const),
        leaseMs: fc.constant(undefined),
        result: fc.constant(undefined),
      }),
    );
    const records: fc.Arbitrary<WritableRecord> = fc
      .tuple(state, own, fc.integer({ min: 1 }), fc.integer({ min: 1 }), fc.boolean(), fc.boolean())
      .map(([ofState, fields, attempt, ttlMs, takeover, storeKey]) => ({
        format: 1,
        scope: address.scope,
        key: storeKey ? address.key : undefined,
        keyHash: address.keyHash,
        inputHash,
        operationId: "op",
        attempt,
        takeover,
        ttlMs,
        createdAt: "2026-01-01T00:00:00.000Z",
        expiresAt: "2026-01-31T00:00:00.000Z",
        writeId: "w",
        fields,
        ...ofState,
      }));
    fc.assert(
      fc.property(records, (record) => {
        const decoded = decodeRecord("memory", address, { ...storedAs(""), bytes: encodeRecord(record) });
        // A clone, for fast-check makes objects without a prototype.
        assert.deepEqual(decoded, structuredClone(record));
      }),
    );
  });

  describe("the layout before this library", () => {
    it("is read as ready, with the task as its value", () => {
      const decoded = decodeRecord("memory", address, storedAs(older));
      const expected: Partial<IdempotencyRecord> = {
        status: "ready",
        operationId: taskId,
        ttlMs: undefined,
      };
      assert.deepEqual({ ...decoded, ...expected }, decoded);
      assert.deepEqual(decoded.result, { kind: "value", encoding: "json", body: taskId });
      assert.deepEqual(decoded.fields, { task_id: taskId, task_key: older["task_key"], task_type: "charge" });
    });

    it("is rewritten in the present format, and keeps its eight fields but the expiry", async () => {
      const on = bench();
      await on.memory.create(recordName, bytesOf({ ...older, note: ["theirs"] }));
      const before = await held(on, inputHash, true);
      assert.ok(await extendReservation(sessionOf(on), before, { ttlMs: DAY_MS }));
      const record = await on.stored();
      assert.deepEqual(
        { ...record, write_id: "w" },
        {
          ...present,
          ...older,
          note: ["theirs"],
          operation_id: taskId,
          ttl_ms: DAY_MS,
          expires_at: "2026-01-02T00:00:00.000Z",
          write_id: "w",
          result: { kind: "value", encoding: "json", body: taskId },
        },
      );
      assert.equal((await held(on, inputHash, true)).record.format, 1, "and is read again");
    });

    for (const time of ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1234567+02:00", "2026-01-01t00:00:00.000001z"]) {
      it(`may have the RFC 3339 time ${time}`, () => {
        assert.equal(decodeRecord("memory", address, storedAs({ ...older, created_at: time })).createdAt, time);
      });
    }
  });

  describe("a rewrite (extendReservation)", () => {
    it("keeps what a later version or a person added, and stamps a new write", async () => {
      const on = bench();
      const extra = { trace: { id: 7 }, history: [{ who: "ana", why: "audit" }] };
      await on.memory.create(recordName, bytesOf({ ...present, ...extra, takeover: true }));
      await on.clock.advance(DAY_MS);
      const after = await extendReservation(sessionOf(on), await held(on, inputHash), { ttlMs: TTL_MS });
      assert.ok(after);
      const { write_id: writeId, ...record } = await on.stored();
      assert.notEqual(writeId, present["write_id"], "P8");
      assert.deepEqual(record, {
        ...without(present, "write_id"),
        ...extra,
        takeover: true,
        expires_at: "2026-02-01T00:00:00.000Z",
      });
    });

    it("with confirm ends the first phase", async () => {
      const on = bench();
      await on.memory.create(recordName, bytesOf({ ...present, status: "creating", lease_ms: 0 }));
      assert.ok(await extendReservation(sessionOf(on), await held(on, inputHash), { ttlMs: TTL_MS, confirm: true }));
      const record = await on.stored();
      assert.equal(record["status"], "ready");
      assert.ok(!("lease_ms" in record));
    });

    it("case 47: answers undefined and writes nothing when another write came first", async () => {
      const on = bench();
      await on.memory.create(recordName, bytesOf(present));
      const [mine, theirs] = [await held(on, inputHash), await held(on, inputHash)];
      assert.ok(await extendReservation(sessionOf(on), theirs, { ttlMs: TTL_MS }));
      const before = await on.stored();
      assert.equal(await extendReservation(sessionOf(on), mine, { ttlMs: TTL_MS }), undefined);
      assert.deepEqual(await on.stored(), before);
    });
  });

  it("of a higher format is refused, and nothing is written", async () => {
    for (const readFirst of [false, true]) {
      const { memory, reserve, store } = bench();
      await memory.create(recordName, bytesOf({ format: 2, all: "else is unknown" }));
      const error = threw(await reserve({ readFirst }));
      assert.ok(UnsupportedRecordError.is(error), String(error));
      assert.match(error.message, /is of format 2; this version reads up to 1: upgrade it/);
      assert.equal(error.keyHash, address.keyHash);
      assert.deepEqual(store.sent, readFirst ? ["read"] : ["create", "read"]);
    }
  });

  const corrupt: readonly [title: string, content: unknown, message: RegExp][] = [
    ["no bytes", "", /is not a JSON object/],
    ["half of a record", JSON.stringify(present).slice(0, 100), /is not a JSON object/],
    ["a list", [present], /is not a JSON object/],
    ["null", "null", /is not a JSON object/],
    ["an empty object", {}, /has no "key_hash"/],
    ["no format", without(present, "format"), /has no valid "format"/],
    ["no format, with a status alone", { ...older, status: "ready" }, /has no valid "format"/],
    ["no format, with a write ID alone", { ...older, write_id: "w" }, /has no valid "format"/],
    ["format 0", { ...present, format: 0 }, /has no valid "format"/],
    ["a negative format", { ...present, format: -1 }, /has no valid "format"/],
    ["a broken format", { ...present, format: 0.5 }, /has no valid "format"/],
    ["a format in words", { ...present, format: "1" }, /has no valid "format"/],
    ["another key's record", { ...present, key_hash: "sha256:00" }, /is of another key/],
    ["another scope's record", { ...present, scope: "emca" }, /is of another scope/],
    ["an empty key", { ...present, key: "" }, /has no "key"/],
    ["a key that is a number", { ...present, key: 1 }, /has no "key"/],
    ["no input hash", without(present, "input_hash"), /has no "input_hash"/],
    ["no operation ID", without(present, "operation_id"), /has no "operation_id"/],
    ["no status", without(present, "status"), /has no "status"/],
    ["an unknown status", { ...present, status: "done" }, /has the unknown status "done"/],
    ["no attempt", without(present, "attempt"), /has no valid "attempt"/],
    ["attempt 0", { ...present, attempt: 0 }, /has no valid "attempt"/],
    ["no TTL", without(present, "ttl_ms"), /has no valid "ttl_ms"/],
    ["a TTL of 0", { ...present, ttl_ms: 0 }, /has no valid "ttl_ms"/],
    ["a TTL in words", { ...present, ttl_ms: "1d" }, /has no valid "ttl_ms"/],
    ["creating without a lease", { ...present, status: "creating" }, /has no valid "lease_ms"/],
    ["creating with a negative lease", { ...present, status: "creating", lease_ms: -1 }, /has no valid "lease_ms"/],
    ["takeover in words", { ...present, takeover: "true" }, /has no valid "takeover"/],
    ["no write ID", without(present, "write_id"), /has no "write_id"/],
    ["no created_at", without(present, "created_at"), /has no "created_at"/],
    ["a created_at that is no time", { ...present, created_at: "yesterday" }, /has no valid "created_at"/],
    ["an expires_at that is no time", { ...present, expires_at: "2026-13-01T00:00:00Z" }, /has no valid "expires_at"/],
    ["a time without its offset", { ...older, expires_at: "2026-01-31T00:00:00.123456" }, /has no valid "expires_at"/],
    ["a date without a time", { ...older, expires_at: "2026-01-31" }, /has no valid "expires_at"/],
    ["ready without a result", without(present, "result"), /has no valid "result"/],
    ["a result in words", { ...present, result: "op" }, /has no valid "result"/],
    [
      "a result of an unknown kind",
      { ...present, result: { kind: "x", encoding: "json", body: 1 } },
      /no valid "result"/,
    ],
    [
      "a result in an unknown encoding",
      { ...present, result: { kind: "value", encoding: "x", body: 1 } },
      /no valid "result"/,
    ],
    ["a result without body", { ...present, result: { kind: "value", encoding: "json" } }, /no valid "result"/],
    ["the older layout without a task", without(older, "task_id"), /has no "task_id"/],
  ];
  for (const [title, content, message] of corrupt) {
    it(`is CORRUPT, and nothing is written over it: ${title}`, async () => {
      const { memory, reserve, store } = bench();
      await memory.create(recordName, bytesOf(content));
      const error = threw(await reserve());
      isStoreError(error, "CORRUPT");
      assert.match(error.message, message);
      assert.ok(error.message.includes(`memory: the record ${recordName} `), "it says which");
      assert.deepEqual(store.sent, ["create", "read"]);
    });
  }

  it("is CORRUPT when its bytes are not UTF-8", () => {
    const bytes = Uint8Array.from(bytesOf(present));
    bytes[bytes.indexOf(0x6b)] = 0xff;
    assert.throws(
      () => decodeRecord("memory", address, { ...storedAs(""), bytes }),
      (error) => StoreError.is(error),
    );
  });

  it("does not take an operation's own fields for its own", () => {
    const names =
      "format scope key key_hash input_hash operation_id status attempt takeover lease_ms ttl_ms created_at expires_at write_id result history";
    for (const name of names.split(" ")) {
      assert.throws(
        () => checkFields({ [name]: undefined }),
        (error) => InvalidArgumentError.is(error) && error.message.includes(`"${name}" of its own: give yours another`),
      );
    }
    assert.throws(() => checkFields({ own: { n: Number.NaN } }), /the record's fields\.own\.n is NaN/);
    assert.deepEqual(checkFields({ task_id: 1, skipped: undefined }), { task_id: 1 });
  });

  it("carries an operation's own fields, and refuses a name it needs before any request", async () => {
    const { clock, idempotency, store, stored } = bench();
    const choosing = (fields: Record<string, unknown>) => async () =>
      idempotency.reserve(assign, request, input, () => ({ value: 1, fields }));
    await assert.rejects(choosing({ status: "ready" }), (error) => InvalidArgumentError.is(error));
    assert.deepEqual(store.sent, []);
    await choosing({ task_id: "t" })();
    assert.equal((await stored())["task_id"], "t");
    assert.equal(clock.nextTimerMs, undefined);
  });
});
