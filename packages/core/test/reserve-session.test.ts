import assert from "node:assert/strict";
import {
  extendReservation,
  fingerprintOf,
  recordAddress,
  reserveIn,
  type Reserved,
  type ReservationAttempt,
  type StoreSession,
} from "@firstwrite/core";
import {
  bench,
  bytesOf,
  byOperationId,
  DAY_MS,
  input,
  parse,
  recordName,
  request,
  TTL_MS,
  type Bench,
} from "./setup.ts";

const address = recordAddress("idempotency/", request.scope, request.key);
const olderName = "idempotency/older name/k1.json";
const older = {
  key: "k1",
  key_hash: address.keyHash,
  task_id: "the older task",
  task_key: "tasks/t/the older task.json",
  created_at: "2026-01-01T00:00:00Z",
  expires_at: "2026-01-11T00:00:00Z",
  task_type: "charge",
  input_hash: fingerprintOf(input),
};

function sessionOf({ idempotency }: Bench): StoreSession {
  return idempotency.session({ signal: new AbortController().signal, endsAtMs: Infinity });
}

async function reserve(on: Bench, attempt: Partial<ReservationAttempt> = {}): Promise<Reserved> {
  return reserveIn(sessionOf(on), {
    operation: "assign",
    ttlMs: TTL_MS,
    address,
    inputHash: fingerprintOf(input),
    choose: byOperationId,
    ...attempt,
  });
}

describe("what products get from a reservation (reserveIn)", () => {
  it("T5: at least how long the record lives on, from before the request that says so was sent", async () => {
    const on = bench();
    await on.clock.advance(500);
    const claimed = await reserve(on);
    assert.deepEqual([claimed.held.lifeLeftMs, claimed.held.asOfMs], [TTL_MS, 500]);
    await on.clock.advance(DAY_MS);
    const found = await reserve(on);
    assert.deepEqual([found.held.lifeLeftMs, found.held.asOfMs], [TTL_MS - DAY_MS, DAY_MS + 500]);
    const extended = await extendReservation(sessionOf(on), found.held, { ttlMs: 2 * DAY_MS });
    assert.deepEqual([extended?.lifeLeftMs, extended?.asOfMs], [2 * DAY_MS, DAY_MS + 500]);
  });

  it("T5: a claim found by a read after a lost reply is as old as the store says", async () => {
    const on = bench();
    on.memory.inject("lostReply");
    on.memory.inject("hangs", { on: "read" });
    const call = reserve(on);
    await on.clock.advance(11_000);
    const { created, held } = await call;
    assert.ok(created);
    assert.ok(held.asOfMs > 10_000 && held.asOfMs <= 11_000, "the read's, not the write's");
    assert.ok(Math.abs(held.lifeLeftMs + held.asOfMs - TTL_MS) < 0.01, "the write was done at 0");
  });

  it("the record of an older name is the key's record, at one request more", async () => {
    const on = bench();
    await on.memory.create(olderName, bytesOf(older));
    const found = await reserve(on, { olderName });
    assert.deepEqual([found.value, found.created, found.held.address.name], ["the older task", false, olderName]);
    assert.equal(found.held.lifeLeftMs, 10 * DAY_MS);
    assert.deepEqual(on.store.take(), ["read"]);
  });

  it("a stale record of an older name is overwritten there, and found there again", async () => {
    const on = bench();
    await on.memory.create(olderName, bytesOf(older));
    await on.clock.advance(10 * DAY_MS + 1);
    const claimed = await reserve(on, { olderName });
    assert.deepEqual([claimed.created, claimed.held.address.name], [true, olderName]);
    assert.equal((await reserve(on, { olderName })).value, claimed.value);
    assert.deepEqual(on.store.take(), ["read", "replace", "read"]);
    const written = await on.memory.read(olderName);
    assert.equal(parse(written?.bytes ?? bytesOf("{}"))["format"], 1);
    assert.equal(await on.memory.read(recordName), undefined);
  });

  it("read first, the older name is still looked under before the key's own", async () => {
    const on = bench();
    await reserve(on);
    on.store.take();
    await on.memory.create(olderName, bytesOf(older));
    assert.equal((await reserve(on, { olderName, readFirst: true })).held.address.name, olderName);
    assert.deepEqual(on.store.take(), ["read"]);
  });

  it("without a record of an older name the claim goes to the key's own", async () => {
    const on = bench();
    assert.equal((await reserve(on, { olderName })).held.address.name, recordName);
    assert.deepEqual(on.store.take(), ["read", "create"]);
  });

  it("T7: a first phase is creating without a lease until it is confirmed, and the same reservation meanwhile", async () => {
    const on = bench();
    const { value, held } = await reserve(on, { choose: ({ operationId }) => ({ value: operationId, phases: 2 }) });
    assert.deepEqual([held.record.status, held.record.leaseMs], ["creating", 0]);
    const again = await reserve(on);
    assert.deepEqual([again.value, again.created, again.held.record.status], [value, false, "creating"]);
    assert.ok(await extendReservation(sessionOf(on), again.held, { ttlMs: TTL_MS, confirm: true }));
    assert.equal((await reserve(on)).held.record.status, "ready");
  });
});
