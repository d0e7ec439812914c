import assert from "node:assert/strict";
import { days, InProgressError, KeyTooOldError, type OperationOptions, type Reconciled } from "@firstwrite/core";
import { settle } from "@firstwrite/memory";
import {
  bench,
  clockLike,
  crashIn,
  DAY_MS,
  leavesNothing,
  operationOf,
  processOf,
  recordName,
  returned,
  rewrite,
  threw,
  type Bench,
  type Process,
} from "./setup.ts";

const retention = { retryWindowMs: days(2), brokerDelayMs: days(1), ttlMs: days(10) };
const start = Date.UTC(2026, 0, 1);

function operation(options: Partial<OperationOptions<unknown, unknown>> = {}) {
  return operationOf({ retention, ...options });
}

const never = operation({ run: () => assert.fail("ran") });

/** A machine whose clock is behind, and which has heard no time of the store's yet. */
function behind(on: Bench, byMs: number): Process {
  return processOf(on, 31, { runtime: { ...clockLike(on.clock, 31), now: () => on.clock.now() - byMs } });
}

async function recordOf({ stored }: Bench): Promise<unknown[]> {
  const { status, attempt, takeover, lease_ms: leaseMs } = await stored();
  return [status, attempt, takeover, leaseMs].filter((value) => value !== undefined);
}

describe("execute: a key that is too old begins no second effect (E8)", () => {
  leavesNothing();

  it("E8: tested before any request: at the window's end it is taken, a millisecond later refused", async () => {
    const on = bench();
    assert.equal(returned(await on.execute(operation(), { issuedAt: start - 3 * DAY_MS })).replayed, false);
    on.store.take();
    const error = threw(await on.execute(never, { key: "k2", issuedAt: start - 3 * DAY_MS - 1 }));
    assert.ok(KeyTooOldError.is(error));
    assert.equal(error.code, "KEY_TOO_OLD");
    assert.deepEqual(on.store.take(), []);
  });

  it("E8: by the store's time, too, once any answer has told it: refused before any request", async () => {
    const on = bench();
    const late = behind(on, days(20));
    returned(await late.execute(operation(), { key: "k2" }));
    on.store.take();
    assert.ok(KeyTooOldError.is(threw(await late.execute(never, { issuedAt: start - 5 * DAY_MS }))));
    assert.deepEqual(on.store.take(), []);
  });

  it("E8: against readAt, before a stale record is overwritten", async () => {
    const on = bench();
    returned(await on.execute(operation(), { issuedAt: start }));
    await on.clock.advance(days(10) + 1);
    const before = await on.memory.read(recordName);
    assert.ok(KeyTooOldError.is(threw(await behind(on, days(10)).execute(never, { issuedAt: start }))));
    assert.equal((await on.memory.read(recordName))?.version, before?.version);
  });

  it("E8: against readAt, before what was released goes on", async () => {
    const on = bench();
    await crashIn(on, operation());
    await rewrite(on, { status: "released", lease_ms: undefined });
    await on.clock.advance(days(4));
    assert.ok(KeyTooOldError.is(threw(await behind(on, days(4)).execute(never, { issuedAt: start }))));
    assert.deepEqual(await recordOf(on), ["released", 1]);
  });

  it("E8: against readAt, before what another input released is overwritten", async () => {
    const on = bench();
    await crashIn(on, operationOf({ fingerprint: () => "another" }));
    await rewrite(on, { status: "released", lease_ms: undefined });
    const { operation_id: before } = await on.stored();
    const { version } = (await on.memory.read(recordName)) ?? {};
    await on.clock.advance(days(4));
    assert.ok(KeyTooOldError.is(threw(await behind(on, days(4)).execute(never, { issuedAt: start }))));
    assert.equal((await on.memory.read(recordName))?.version, version);
    const { operationId } = returned(await on.execute(operation(), { issuedAt: on.clock.now() }));
    assert.notEqual(operationId, before);
  });

  it("E8: a result within its TTL is every caller's, however old the key", async () => {
    const on = bench();
    const { value } = returned(await on.execute(operation(), { issuedAt: start }));
    await on.clock.advance(days(4));
    assert.deepEqual(returned(await behind(on, days(4)).execute(never, { issuedAt: start })).value, value);
  });

  it("E8: against the claim's own time before run: a pruned record's claim is given back as released", async () => {
    const on = bench();
    await on.clock.advance(days(5));
    const error = threw(await behind(on, days(5)).execute(never, { issuedAt: start }));
    assert.ok(KeyTooOldError.is(error));
    assert.deepEqual(await recordOf(on), ["released", 1]);
    assert.equal(error.operationId, (await on.stored())["operation_id"]);
    const again = returned(await on.execute(operation(), { issuedAt: on.clock.now() }));
    assert.equal(again.operationId, error.operationId);
    assert.deepEqual(await recordOf(on), ["ready", 2]);
  });

  for (const recovery of ["rerun", "reconcile"] as const) {
    it(`E8: after takeover by ${recovery} it is given back as creating with lease 0, for one before may have had its effect`, async () => {
      const on = bench();
      let asked = 0;
      const reconcile = (): Reconciled<unknown> => {
        asked += 1;
        return "absent";
      };
      const options = recovery === "rerun" ? {} : { recovery: { reconcile } };
      await crashIn(on, operation(options));
      await on.clock.advance(days(5));
      const late = operation({ ...options, run: () => assert.fail("ran") });
      assert.ok(KeyTooOldError.is(threw(await behind(on, days(5)).execute(late, { issuedAt: start }))));
      assert.deepEqual(await recordOf(on), ["creating", 2, true, 0]);
      assert.equal(asked, recovery === "rerun" ? 0 : 1, "what the ledger knows is asked for first");
    });
  }

  it("E8: what the ledger found is settled, however old the key: it begins nothing", async () => {
    const on = bench();
    await crashIn(on, operation());
    await on.clock.advance(days(5));
    const recovery = { reconcile: async (): Promise<Reconciled<unknown>> => ({ found: "the row" }) };
    const late = operation({ recovery, run: () => assert.fail("ran") });
    assert.equal(returned(await behind(on, days(5)).execute(late, { issuedAt: start })).value, "the row");
  });

  it("E8: a giving back that is lost is repeated, and one that is denied leaves the claim to its lease", async () => {
    for (const fault of ["lostRequest", "lostReply", "contended", "away"] as const) {
      const on = bench();
      await on.clock.advance(days(5));
      on.memory.inject(fault, { on: "replace" });
      assert.ok(KeyTooOldError.is(threw(await behind(on, days(5)).execute(never, { issuedAt: start }))));
      assert.deepEqual(await recordOf(on), ["released", 1], fault);
    }
    const on = bench();
    await on.clock.advance(days(5));
    on.memory.inject("denied", { on: "replace" });
    assert.ok(KeyTooOldError.is(threw(await behind(on, days(5)).execute(never, { issuedAt: start }))));
    assert.deepEqual(await recordOf(on), ["creating", 1, 60_000]);
    assert.ok(InProgressError.is(threw(await on.execute(operation()))));
  });

  it("E8: a key that carries its time needs no issuedAt", async () => {
    const on = bench();
    const timed = operation({ keyTime: true });
    const key = (ms: number) =>
      `${ms
        .toString(16)
        .padStart(12, "0")
        .replace(/^(.{8})/, "$1-")}-7000-8000-000000000000`;
    returned(await on.execute(timed, { key: key(start - 3 * DAY_MS) }));
    assert.ok(KeyTooOldError.is(threw(await on.execute(timed, { key: key(start - 3 * DAY_MS - 1) }))));
  });

  it("E8: a cached result is not an old key's answer", async () => {
    const on = bench({ cache: { entriesMax: 10 } });
    returned(await on.execute(operation(), { issuedAt: start }));
    await on.clock.advance(3 * DAY_MS + 1);
    on.store.take();
    assert.ok(KeyTooOldError.is(threw(await on.execute(operation(), { issuedAt: start }))));
    await settle();
    assert.deepEqual(on.store.take(), []);
  });
});
