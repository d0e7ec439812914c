import assert from "node:assert/strict";
import { Idempotency, recordAddress } from "@firstwrite/core";
import { classifyOperation, classifyReservation, isStale, type ReservationVerdict } from "../src/classify.ts";
import { decodeRecord, type IdempotencyRecord } from "../src/record.ts";
import { VirtualClock } from "@firstwrite/memory";
import { assign, bench, byOperationId, DAY_MS, input, request, returned, storedAs, threw, TTL_MS } from "./setup.ts";

const address = recordAddress("idempotency/", request.scope, request.key);
const record: IdempotencyRecord = {
  format: 1,
  scope: "acme",
  key: "k1",
  keyHash: address.keyHash,
  inputHash: "sha256:mine",
  operationId: "op",
  status: "ready",
  attempt: 1,
  takeover: false,
  leaseMs: undefined,
  ttlMs: 1000,
  createdAt: "2026-01-01T00:00:00Z",
  expiresAt: "2026-01-01T00:00:01Z",
  writeId: "w",
  result: { kind: "value", encoding: "json", body: 1 },
  fields: {},
};
const olderLayout: IdempotencyRecord = { ...record, format: 0, ttlMs: undefined, writeId: undefined, scope: undefined };
const expiresAt = Date.UTC(2026, 0, 1, 0, 0, 1);
const firstPhase: IdempotencyRecord = { ...record, status: "creating", leaseMs: 0 };

describe("staleness (E2.1)", () => {
  const ages: readonly [title: string, of: IdempotencyRecord, granularityMs: number, ageMs: number, stale: boolean][] =
    [
      ["ready, new", record, 0, 0, false],
      ["case 50: ready at its TTL to the millisecond", record, 0, 1000, false],
      ["case 50: ready a millisecond after", record, 0, 1001, true],
      ["case 50: ready, at the TTL and the store's granularity", record, 2000, 3000, false],
      ["case 50: ready, a millisecond after that", record, 2000, 3001, true],
      ["ready, written after it was read by a skewed store", record, 0, -5000, false],
      ["released at its TTL", { ...record, status: "released" }, 0, 1000, false],
      ["released after its TTL", { ...record, status: "released" }, 0, 1001, true],
      ["creating, its lease live", { ...record, status: "creating", leaseMs: 500, result: undefined }, 0, 1e15, false],
      ["creating, without owner or value", { ...firstPhase, result: undefined }, 0, 1e15, false],
      ["creating, with a value and an owner", { ...firstPhase, leaseMs: 1 }, 0, 1e15, false],
      ["held", { ...record, status: "held" }, 0, 1e15, false],
      ["T7: a reservation's first phase, at its TTL", firstPhase, 0, 1000, false],
      ["T7: a reservation's first phase, after", firstPhase, 0, 1001, true],
    ];
  for (const [title, of, granularityMs, ageMs, stale] of ages) {
    it(`${title}: ${stale ? "stale" : "not stale"}`, () => {
      for (const modifiedAt of [0, expiresAt, 4e12]) {
        assert.equal(isStale(of, storedAs("", { modifiedAt, readAt: modifiedAt + ageMs }), granularityMs), stale);
      }
    });
  }

  it("case 50: the older layout is over after its expires_at, by the store's clock and granularity", () => {
    assert.deepEqual(
      [0, 1].map((ms) => olderIsStale(expiresAt + ms, 0)),
      [false, true],
    );
    assert.deepEqual(
      [2000, 2001].map((ms) => olderIsStale(expiresAt + ms, 2000)),
      [false, true],
    );
  });

  it("the older layout's sub-millisecond expiry counts in milliseconds", () => {
    const stored = { key_hash: address.keyHash, task_id: "t", created_at: record.createdAt, input_hash: "h" };
    const older = decodeRecord("memory", address, storedAs({ ...stored, expires_at: "2026-01-01T00:00:01.000999Z" }));
    assert.equal(isStale(older, storedAs("", { readAt: expiresAt }), 0), false);
    assert.equal(isStale(older, storedAs("", { readAt: expiresAt + 1 }), 0), true);
  });

  for (const jumpMs of [-400 * DAY_MS, 400 * DAY_MS]) {
    it(`no caller's clock is in it: one that is ${jumpMs / DAY_MS} days off makes nothing stale or immortal`, async () => {
      const { clock, memory, reserve } = bench();
      const skewed = new VirtualClock({ startAt: clock.now() + jumpMs, seed: 2 });
      const other = new Idempotency({ store: memory, runtime: skewed });
      const theirs = (key: string) => other.reserve(assign, { ...request, key }, input, byOperationId);
      const values = [(await theirs("k1")).value, returned(await reserve({ key: "k2" })).value];
      await clock.advance(TTL_MS);
      assert.deepEqual([returned(await reserve()).value, (await theirs("k2")).value], values);
      await clock.advance(1);
      assert.ok(returned(await reserve()).created && (await theirs("k2")).created);
    });
  }
});

function olderIsStale(readAt: number, granularityMs: number): boolean {
  return isStale(olderLayout, storedAs("", { readAt, modifiedAt: 0 }), granularityMs);
}

describe("what a reservation may do with a record (E2)", () => {
  const now = { modifiedAt: 0, readAt: 1000 };
  const later = { modifiedAt: 0, readAt: 1001 };
  const verdicts: readonly [title: string, of: IdempotencyRecord, times: typeof now, verdict: ReservationVerdict][] = [
    ["the same input", record, now, "settled"],
    ["another input", { ...record, inputHash: "sha256:theirs" }, now, "conflict"],
    ["stale before the fingerprint: another input", { ...record, inputHash: "sha256:theirs" }, later, "stale"],
    ["stale: the same input", record, later, "stale"],
    ["a first phase of the same input", firstPhase, now, "settled"],
    ["a first phase of another input", { ...firstPhase, inputHash: "sha256:theirs" }, now, "conflict"],
    [
      "another kind of operation: running",
      { ...record, status: "creating", leaseMs: 9, result: undefined },
      now,
      "conflict",
    ],
    ["another kind of operation: held", { ...record, status: "held", result: undefined }, later, "conflict"],
    ["given back (E2.4)", { ...record, status: "released", result: undefined }, now, "released"],
    [
      "an operation in which nothing happened, another input (E2.2)",
      { ...record, status: "released", result: undefined, inputHash: "sha256:theirs" },
      now,
      "free",
    ],
    [
      "given back, or released by a person, another input",
      { ...record, status: "released", result: undefined, inputHash: "sha256:theirs", takeover: true },
      now,
      "conflict",
    ],
    [
      "given back, or released by a person, its own input",
      { ...record, status: "released", result: undefined, takeover: true },
      now,
      "released",
    ],
    ["given back and stale", { ...record, status: "released", result: undefined }, later, "stale"],
    [
      "another kind of operation: failed",
      { ...record, result: { kind: "failure", encoding: "json", body: 1 } },
      now,
      "conflict",
    ],
    ["the older layout, by its expires_at", olderLayout, { modifiedAt: 0, readAt: expiresAt }, "settled"],
    ["the older layout, after it", olderLayout, { modifiedAt: 0, readAt: expiresAt + 1 }, "stale"],
  ];
  for (const [title, of, times, verdict] of verdicts) {
    it(`${title}: ${verdict}`, () =>
      assert.equal(classifyReservation(of, storedAs("", times), "sha256:mine", 0), verdict));
  }

  it("E2.2: to an operation, a record of another input is free only when released, and never taken over", () => {
    const theirs = { ...record, inputHash: "sha256:theirs" };
    const undecided = { ...theirs, result: undefined };
    const records: readonly [of: IdempotencyRecord, verdict: string][] = [
      [{ ...undecided, status: "released" }, "free"],
      [{ ...undecided, status: "released", attempt: 7 }, "free"],
      [{ ...undecided, status: "released", takeover: true }, "conflict"],
      [{ ...undecided, status: "creating", leaseMs: 2000 }, "conflict"],
      [{ ...undecided, status: "creating", leaseMs: 0 }, "conflict"],
      [{ ...undecided, status: "creating", leaseMs: 500 }, "conflict"],
      [{ ...undecided, status: "held" }, "conflict"],
      [theirs, "conflict"],
      [firstPhase, "conflict"],
      [{ ...undecided, status: "released", inputHash: "sha256:mine" }, "released"],
      [{ ...undecided, status: "released", inputHash: "sha256:mine", takeover: true }, "released"],
    ];
    for (const [of, verdict] of records) {
      assert.equal(classifyOperation(of, storedAs("", now), "sha256:mine", 0).kind, verdict, JSON.stringify(of));
    }
    assert.equal(
      classifyOperation({ ...undecided, status: "released" }, storedAs("", later), "sha256:mine", 0).kind,
      "stale",
    );
  });

  it("T8: at the TTL the first value still counts; after it there is a new one, for another input too", async () => {
    const { clock, reserve } = bench();
    const first = returned(await reserve());
    await clock.advance(TTL_MS);
    assert.equal(returned(await reserve()).value, first.value);
    threw(await reserve({}, "another"));
    await clock.advance(1);
    const second = returned(await reserve({}, "another"));
    assert.ok(second.created);
    assert.notEqual(second.value, first.value);
    threw(await reserve());
  });
});
