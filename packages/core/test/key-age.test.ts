import assert from "node:assert/strict";

import {
  days,
  defineReservation,
  Idempotency,
  IdempotencyConflictError,
  InvalidArgumentError,
  KeyTooOldError,
  StoreError,
} from "@firstwrite/core";
import { MemoryStore, VirtualClock } from "@firstwrite/memory";

import { byOperationId, DAY_MS, input, operationOf, recordName, request } from "./setup.ts";

const retention = { retryWindowMs: days(2), brokerDelayMs: days(1), ttlMs: days(10) };
const assign = defineReservation<unknown>({ name: "assign", retention });
const timed = defineReservation<unknown>({ name: "timed", retention, keyTime: true });

describe("E8: a key that is too old begins no second operation", () => {
  const start = Date.UTC(2026, 0, 1);
  let clock: VirtualClock;
  let store: MemoryStore;
  let idempotency: Idempotency;

  beforeEach(() => {
    clock = new VirtualClock({ startAt: start });
    store = new MemoryStore({ clock });
    idempotency = new Idempotency({ store, runtime: clock });
  });
  const reserve = (issuedAt: number, by: Idempotency = idempotency) =>
    by.reserve(assign, { ...request, issuedAt }, input, byOperationId);
  const status = async (): Promise<unknown> => {
    const record = await store.read(recordName);
    return record && JSON.parse(Buffer.from(record.bytes).toString()).status;
  };

  it("one at the end of the window is taken, one past it is refused before any request", async () => {
    assert.equal((await reserve(start - 3 * DAY_MS)).created, true);
    store.expire(recordName);
    await assert.rejects(reserve(start - 3 * DAY_MS - 1), KeyTooOldError.is);
    assert.equal(await store.read(recordName), undefined);
  });

  it("a repeat within the window gets the value", async () => {
    const first = await reserve(start);
    await clock.advance(3 * DAY_MS);
    assert.equal((await reserve(start)).value, first.value);
  });

  it("without a retry window it is the TTL less a day", async () => {
    const plain = defineReservation<unknown>({ name: "plain", retention: { ttlMs: days(10) } });
    const at = (issuedAt: number) => idempotency.reserve(plain, { ...request, issuedAt }, input, byOperationId);
    await assert.rejects(at(start - 9 * DAY_MS - 1), KeyTooOldError.is);
    await at(start - 9 * DAY_MS);
  });

  it("a machine whose clock is behind learns the store's time by any answer", async () => {
    const behind = new VirtualClock({ startAt: start - 20 * DAY_MS, seed: 2 });
    const late = new Idempotency({ store, runtime: behind });
    await late.reserve(assign, { scope: "acme", key: "other" }, input, byOperationId);
    await assert.rejects(reserve(start - 5 * DAY_MS, late), KeyTooOldError.is);
    assert.equal(await store.read(recordName), undefined, "refused before any request");
  });

  it("also by the answer to a read", async () => {
    await reserve(start);
    const behind = new VirtualClock({ startAt: start - 20 * DAY_MS, seed: 2 });
    const late = new Idempotency({ store, runtime: behind });
    await late.reserve(assign, { ...request, readFirst: true }, input, byOperationId);
    await assert.rejects(
      late.reserve(assign, { scope: "acme", key: "other", issuedAt: start - 5 * DAY_MS }, input, byOperationId),
      KeyTooOldError.is,
    );
  });

  it("a store whose clock is behind makes no key younger than this machine knows it to be", async () => {
    const slow = new MemoryStore({ clock: { now: () => clock.now() - 20 * DAY_MS } });
    const late = new Idempotency({ store: slow, runtime: clock });
    await late.reserve(assign, { scope: "acme", key: "other" }, input, byOperationId);
    await assert.rejects(reserve(start - 5 * DAY_MS, late), KeyTooOldError.is);
  });

  it("with its first request, by readAt: a stale record is not overwritten", async () => {
    await reserve(start);
    await clock.advance(days(10) + 1);
    const behind = new Idempotency({ store, runtime: new VirtualClock({ startAt: start, seed: 2 }) });
    const before = await store.read(recordName);
    await assert.rejects(reserve(start, behind), KeyTooOldError.is);
    assert.equal((await store.read(recordName))?.version, before?.version);
  });

  it("with its first request, by the claim's own answer: a pruned record's claim is given back", async () => {
    const behind = new Idempotency({ store, runtime: new VirtualClock({ startAt: start - 5 * DAY_MS, seed: 2 }) });
    await assert.rejects(reserve(start - 5 * DAY_MS, behind), (error) => {
      assert.ok(KeyTooOldError.is(error) && error.code === "KEY_TOO_OLD");
      assert.match(error.message, /find out whether its request was done/);
      assert.ok(error.operationId);
      return true;
    });
    assert.equal(await status(), "released");
  });

  it("a giving back that was lost is sent again: the claim that stands is not taken for it (P8)", async () => {
    const behind = new VirtualClock({ startAt: start - 5 * DAY_MS, seed: 2 });
    store.inject("lostRequest", { on: "replace" });
    const call = new Idempotency({ store, runtime: behind }).reserve(
      assign,
      { ...request, issuedAt: start - 5 * DAY_MS },
      input,
      byOperationId,
    );
    const refused = assert.rejects(call, KeyTooOldError.is);
    await behind.advance(5000);
    await refused;
    assert.equal(await status(), "released");
  });

  it("what was given back goes on as the next attempt of the same operation", async () => {
    const behind = new Idempotency({ store, runtime: new VirtualClock({ startAt: start - 5 * DAY_MS, seed: 2 }) });
    const refused: unknown = await reserve(start - 5 * DAY_MS, behind).catch((error: unknown) => error);
    const { operationId, created } = await reserve(start);
    assert.ok(KeyTooOldError.is(refused));
    assert.deepEqual([operationId, created], [refused.operationId, true]);
    const { attempt } = JSON.parse(Buffer.from((await store.read(recordName))?.bytes ?? []).toString());
    assert.equal(attempt, 2);
    assert.equal(await status(), "ready");
  });

  it("a claim that is too old is nobody's answer before it is given back, nor when its caller died first", async () => {
    const behind = (seed: number): Idempotency =>
      new Idempotency({ store, runtime: new VirtualClock({ startAt: start - 5 * DAY_MS, seed }) });
    store.inject("denied", { on: "replace" });
    await assert.rejects(reserve(start - 5 * DAY_MS, behind(2)), StoreError.is);
    assert.equal(await status(), "ready", "not given back");
    await assert.rejects(reserve(start - 5 * DAY_MS, behind(3)), (error) => {
      assert.ok(KeyTooOldError.is(error));
      assert.ok(error.operationId);
      return true;
    });
  });

  it("a claim within the window is its callers' answer past it", async () => {
    const { value } = await reserve(start);
    await clock.advance(3 * DAY_MS + 1);
    const behind = new Idempotency({ store, runtime: new VirtualClock({ startAt: start, seed: 2 }) });
    assert.equal((await reserve(start, behind)).value, value);
  });

  describe("what was given back", () => {
    const giveBack = async (): Promise<string | undefined> => {
      const behind = new Idempotency({ store, runtime: new VirtualClock({ startAt: start - 5 * DAY_MS, seed: 2 }) });
      const refused: unknown = await reserve(start - 5 * DAY_MS, behind).catch((error: unknown) => error);
      assert.ok(KeyTooOldError.is(refused));
      return refused.operationId;
    };
    const rewrite = async (changes: Record<string, unknown>): Promise<void> => {
      const found = await store.read(recordName);
      assert.ok(found);
      const bytes = Buffer.from(JSON.stringify({ ...JSON.parse(Buffer.from(found.bytes).toString()), ...changes }));
      await store.replace(recordName, found.version, bytes);
    };

    it("is no other input's, nor an operation's: somebody may have been answered with it", async () => {
      await giveBack();
      const before = await store.read(recordName);
      const engine = new Idempotency({ store, runtime: clock });
      await assert.rejects(
        engine.reserve(assign, { ...request, issuedAt: start }, "another input", byOperationId),
        IdempotencyConflictError.is,
      );
      const pays = operationOf({ run: () => assert.fail("ran") });
      await assert.rejects(engine.execute(pays, request, input), IdempotencyConflictError.is);
      assert.equal((await store.read(recordName))?.version, before?.version);
    });

    it("is a new operation for all once it is stale (E2.1)", async () => {
      const operationId = await giveBack();
      await clock.advance(days(10) + 1);
      const again = await reserve(clock.now());
      assert.equal(again.created, true);
      assert.notEqual(again.operationId, operationId);
    });

    it("keeps what a person or a later version wrote in it, and that it binds to its input", async () => {
      await giveBack();
      await rewrite({ history: [{ who: "ann" }], later: 1 });
      await reserve(start);
      const record = JSON.parse(Buffer.from((await store.read(recordName))?.bytes ?? []).toString());
      assert.deepEqual([record.takeover, record.history, record.later], [true, [{ who: "ann" }], 1]);
    });
  });

  describe("keys that carry a time", () => {
    const withKey = (key: string) => idempotency.reserve(timed, { scope: "acme", key }, input, byOperationId);

    // The example of RFC 9562, appendix A.6, and of the ULID specification.
    const known: [string, string, number][] = [
      ["UUIDv7", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1_645_557_742_000],
      ["ULID", "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1_469_922_850_259],
    ];
    for (const [format, key, time] of known) {
      it(`reads a ${format}`, async () => {
        const at = async (startAt: number) => {
          const runtime = new VirtualClock({ startAt });
          const own = new Idempotency({ store: new MemoryStore({ clock: runtime }), runtime });
          return own.reserve(timed, { scope: "acme", key }, input, byOperationId);
        };
        assert.equal((await at(time + 3 * DAY_MS)).created, true);
        await assert.rejects(at(time + 3 * DAY_MS + 1), KeyTooOldError.is);
      });
    }

    for (const key of [
      "k",
      "3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11",
      "81ARZ3NDEKTSV4RRFFQ69G5FAV",
      "01ARZ3NDEKTSV4RRFFQ69G5FAU",
    ]) {
      it(`refuses ${key}, which carries none`, async () => {
        await assert.rejects(
          withKey(key),
          (error) => InvalidArgumentError.is(error) && /version 7 or a ULID/.test(error.message),
        );
      });
    }
  });

  it("a key from more than a day ahead is a mistake", async () => {
    assert.equal((await reserve(start + DAY_MS)).created, true);
    await assert.rejects(reserve(start + DAY_MS + 1), InvalidArgumentError.is);
    await assert.rejects(reserve(Number.NaN), InvalidArgumentError.is);
  });
});
