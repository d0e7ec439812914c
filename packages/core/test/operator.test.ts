import assert from "node:assert/strict";
import {
  defineOperation,
  executionOf,
  Idempotency,
  InProgressError,
  InvalidArgumentError,
  OperationHeldError,
  type Executed,
  type Inspection,
  type OperationOptions,
} from "@firstwrite/core";
import { bench, ending, input, isStoreError, recordName, request, returned, threw, type Bench } from "./setup.ts";

const note = { by: "jo", why: "ticket 7" };
const LEASE_OVER_MS = 60_001;

/** An operation whose first run is never heard of again; later runs go by `run`. */
function crashed(on: Bench, options: Partial<OperationOptions<unknown, unknown>> = {}) {
  let runs = 0;
  const { run = () => "ran", onError = () => "recover", ...rest } = options;
  const gone = new Error("gone");
  const operation = defineOperation<unknown, unknown>({
    name: "charge",
    recovery: "hold",
    ...rest,
    run(given, context) {
      runs += 1;
      // Its process is gone: it renews nothing and settles nothing.
      return runs === 1 ? Promise.reject(gone) : run(given, context);
    },
    onError: (error) => (error === gone ? "recover" : onError(error)),
  });
  const execute = () => ending<Executed<unknown>>(on.clock, on.idempotency.execute(operation, request, input));
  return { execute, runs: () => runs };
}

/** The operation is held, as a call after the crash leaves it. */
async function heldOperation(options: Partial<OperationOptions<unknown, unknown>> = {}) {
  const on = bench();
  const operation = crashed(on, options);
  threw(await operation.execute());
  await on.clock.advance(LEASE_OVER_MS);
  const error = threw(await operation.execute());
  assert.ok(OperationHeldError.is(error), String(error));
  const { operationId = "" } = error;
  return { ...on, ...operation, operationId };
}

async function inspected({ idempotency, clock }: Pick<Bench, "idempotency" | "clock">): Promise<Inspection> {
  const found = returned(await ending(clock, idempotency.inspect(request)));
  assert.ok(found, "there is a record");
  return found;
}

describe("operators (E10)", () => {
  it("inspect tells what stands there, by key and by key hash, and changes nothing", async () => {
    const on = await heldOperation();
    const before = await on.memory.read(recordName);
    const found = await inspected(on);
    const { keyHash, operationId } = found;
    const { clock } = on;
    assert.deepEqual(found, {
      name: recordName,
      scope: "acme",
      key: "k1",
      keyHash,
      operationId: on.operationId,
      status: "held",
      attempt: 2,
      takeover: true,
      createdAt: found.createdAt,
      modifiedAt: before?.modifiedAt,
      leaseLeftMs: undefined,
      stale: false,
      result: undefined,
      history: [],
    });
    assert.equal(operationId, on.operationId);
    assert.deepEqual(await on.idempotency.inspect({ scope: "acme", keyHash }), found);
    assert.equal(await on.idempotency.inspect({ scope: "acme", key: "none" }), undefined);
    assert.equal((await on.memory.read(recordName))?.version, before?.version);
    assert.equal(clock.nextTimerMs, undefined, "no timer is left");
  });

  it("settle with a value: every later call is answered with it, and nothing runs", async () => {
    const on = await heldOperation();
    const { operationId } = on;
    const settled = await on.idempotency.settle(request, { value: { paid: true } }, { ...note, operationId });
    assert.equal(settled.status, "ready");
    assert.equal(settled.attempt, 3);
    assert.equal(settled.takeover, true);
    const { value, replayed, recorded } = returned(await on.execute());
    assert.deepEqual({ value, replayed, recorded }, { value: { paid: true }, replayed: true, recorded: true });
    assert.equal(on.runs(), 1);
  });

  it("settle with a failure: every later call is thrown it", async () => {
    const on = await heldOperation();
    const { operationId } = on;
    await on.idempotency.settle(request, { failure: new RangeError("no funds") }, { ...note, operationId });
    const error = threw(await on.execute());
    assert.ok(error instanceof Error);
    assert.equal(`${error.name}: ${error.message}`, "RangeError: no funds");
    assert.deepEqual(executionOf(error), { operationId, replayed: true, recorded: true });
    assert.equal(on.runs(), 1);
  });

  it("release to recovery: the next call reconciles, and under hold it is held again", async () => {
    const holding = await heldOperation();
    await holding.idempotency.release(request, { ...note, operationId: holding.operationId });
    assert.ok(OperationHeldError.is(threw(await holding.execute())));
    assert.equal(holding.runs(), 1);

    const answers = ["unknown", { found: "the row" }] as const;
    let asked = 0;
    const on = await heldOperation({ recovery: { reconcile: () => answers[asked++] ?? "unknown" } });
    const { status, leaseLeftMs } = await on.idempotency.release(request, { ...note, operationId: on.operationId });
    assert.deepEqual({ status, leaseLeftMs }, { status: "creating", leaseLeftMs: 0 });
    assert.equal(returned(await on.execute()).value, "the row");
    assert.deepEqual([asked, on.runs()], [2, 1]);
  });

  it("release because nothing happened: the next call runs it, as the same operation", async () => {
    const on = await heldOperation();
    const { operationId } = on;
    const released = await on.idempotency.release(request, { ...note, operationId, nothingHappened: true });
    assert.equal(released.status, "released");
    const { value, operationId: ran } = returned(await on.execute());
    assert.deepEqual({ value, ran }, { value: "ran", ran: operationId });
    assert.equal((await inspected(on)).takeover, true, "a paused owner may be behind it for ever");
  });

  it("a failure after a person's release is not final: the paused owner may still commit (†)", async () => {
    const refuse = (): never => {
      throw new Error("refused");
    };
    for (const meaning of ["replay", "retry"] as const) {
      const on = await heldOperation({ onError: () => meaning, run: refuse });
      const { operationId } = on;
      await on.idempotency.release(request, { ...note, operationId, nothingHappened: true });
      assert.match(String(threw(await on.execute())), /refused/);
      const { status } = await inspected(on);
      assert.equal(status, "creating", meaning);
    }
  });

  it("whatever a person writes is marked as by takeover: a paused owner may be behind it (†)", async () => {
    const on = bench();
    const operation = crashed(on, { recovery: "rerun" });
    threw(await operation.execute());
    await on.clock.advance(LEASE_OVER_MS);
    const { operationId, takeover } = await inspected(on);
    assert.equal(takeover, false);
    const released = await on.idempotency.release(request, { ...note, operationId, nothingHappened: true });
    assert.equal(released.takeover, true);
  });

  it("a creating record is a person's only when its lease is over", async () => {
    const on = bench();
    const operation = crashed(on, { recovery: "rerun" });
    threw(await operation.execute());
    const { operationId, leaseLeftMs } = await inspected(on);
    assert.equal(leaseLeftMs, 30_000);
    const settle = () => on.idempotency.settle(request, { value: 1 }, { ...note, operationId });
    await assert.rejects(settle(), (error) => InProgressError.is(error) && error.retryAfterMs === 30_000);
    await on.clock.advance(30_001);
    assert.equal((await inspected(on)).leaseLeftMs, 0);
    assert.equal((await settle()).status, "ready");
  });

  it("who acted, when and why is kept, through every later write", async () => {
    const on = await heldOperation();
    const { operationId } = on;
    await on.idempotency.release(request, { ...note, operationId });
    threw(await on.execute());
    await on.idempotency.settle(request, { value: 1 }, { by: "sam", why: "found it", operationId });
    const { history } = await inspected(on);
    const at = new Date(on.clock.now()).toISOString();
    assert.deepEqual(history, [
      { at, by: "jo", why: "ticket 7", action: "released to recovery", attempt: 3 },
      { at, by: "sam", why: "found it", action: "settled", attempt: 5 },
    ]);
  });

  it("refuses what a person cannot mean, and writes nothing", async () => {
    const on = await heldOperation();
    const { operationId, idempotency } = on;
    const before = (await on.memory.read(recordName))?.version;
    const mistakes: [why: RegExp, act: () => Promise<unknown>][] = [
      [/is .* now, not other/, () => idempotency.settle(request, { value: 1 }, { ...note, operationId: "other" })],
      [/no record/, () => idempotency.settle({ scope: "acme", key: "none" }, { value: 1 }, { ...note, operationId })],
      [/by must be/, () => idempotency.settle(request, { value: 1 }, { ...note, by: "", operationId })],
      [/why must be/, () => idempotency.release(request, { ...note, why: "", operationId })],
      [/the result is object Map/, () => idempotency.settle(request, { value: new Map() }, { ...note, operationId })],
      [/keyHash must be/, () => idempotency.inspect({ scope: "acme", keyHash: "k1" })],
      [/scope must be/, () => idempotency.inspect({ scope: "", key: "k1" })],
    ];
    for (const [why, act] of mistakes) {
      await assert.rejects(act(), (error) => InvalidArgumentError.is(error) && why.test(error.message), String(why));
    }
    assert.equal((await on.memory.read(recordName))?.version, before);
    await idempotency.settle(request, { value: 1 }, { ...note, operationId });
    await assert.rejects(idempotency.release(request, { ...note, operationId }), /ready: there is nothing to decide/);
  });

  it("an attempt that came after the one that was looked at is left alone: it may have had an effect", async () => {
    const on = await heldOperation({ recovery: { reconcile: () => "unknown" } });
    const { operationId } = on;
    const { attempt } = await inspected(on);
    await on.idempotency.release(request, { ...note, operationId, attempt });
    assert.ok(OperationHeldError.is(threw(await on.execute())));
    const before = (await on.memory.read(recordName))?.version;
    const settle = (of: number) => on.idempotency.settle(request, { value: 1 }, { ...note, operationId, attempt: of });
    await assert.rejects(settle(attempt), /is at attempt 4 now, not 2: inspect it again/);
    assert.equal((await on.memory.read(recordName))?.version, before);
    assert.equal((await settle(4)).status, "ready");
  });

  it("a write that comes first wins, and the person is told to look again", async () => {
    const on = await heldOperation();
    const { operationId } = on;
    on.store.before = (operation) => {
      if (operation !== "replace") return;
      on.store.before = () => {};
      on.memory.inject("lostRequest", { on: "replace" });
      on.memory.expire(recordName);
    };
    await assert.rejects(
      on.idempotency.settle(request, { value: 1 }, { ...note, operationId }),
      /changed by another write/,
    );
  });

  it("a write whose answer is lost is recognised", async () => {
    const on = await heldOperation();
    const { operationId } = on;
    on.memory.inject("lostReply", { on: "replace" });
    const settled = returned(
      await ending(on.clock, on.idempotency.settle(request, { value: 1 }, { ...note, operationId })),
    );
    assert.deepEqual([settled.status, settled.attempt], ["ready", 3]);
  });

  it("list tells what is not decided, of one scope or of all, and what cannot be read", async () => {
    const on = await heldOperation();
    const { memory, clock } = on;
    const idempotency = new Idempotency({ store: memory, runtime: clock });
    const settled = defineOperation({ name: "s", recovery: "rerun", run: () => 1 });
    await idempotency.execute(settled, { scope: "acme", key: "done" }, 1);
    const stuck = defineOperation({
      name: "stuck",
      recovery: "rerun",
      run: (): never => {
        throw new Error("stuck");
      },
    });
    await assert.rejects(idempotency.execute(stuck, { scope: "a/b", key: "k2" }, 1));
    await memory.create("idempotency/acme/ff.json", Buffer.from("{}"));
    await memory.create("idempotency/acme/ff.x.1.y.result", Buffer.from("x"));
    const listed = async (options?: Parameters<typeof idempotency.list>[0]) => {
      const names: string[] = [];
      for await (const found of idempotency.list(options)) {
        names.push("scope" in found ? `${found.scope} ${found.key} ${found.status}` : `${found.name} ${found.status}`);
      }
      return names.toSorted();
    };
    assert.deepEqual(await listed(), ["a/b k2 creating", "acme k1 held", "idempotency/acme/ff.json unreadable"]);
    assert.deepEqual(await listed({ scope: "a/b" }), ["a/b k2 creating"]);
    assert.deepEqual(await listed({ scope: "acme", statuses: ["ready"] }), [
      "acme done ready",
      "idempotency/acme/ff.json unreadable",
    ]);
  });

  it("list of a store without a listing is UNSUPPORTED", async () => {
    // A WatchedStore has none.
    const { idempotency } = bench();
    await assert.rejects(idempotency.list().next(), (error) => {
      isStoreError(error, "UNSUPPORTED");
      return true;
    });
  });
});
