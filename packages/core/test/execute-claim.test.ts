import assert from "node:assert/strict";
import {
  days,
  defineOperation,
  IdempotencyConflictError,
  InProgressError,
  onEvent,
  OperationHeldError,
  sha256,
  StoreError,
  UnsupportedRecordError,
  type Executed,
} from "@firstwrite/core";
import { settle, type Operation } from "@firstwrite/memory";
import {
  assign,
  bench,
  bytesOf,
  clockLike,
  crashIn,
  Effect,
  input,
  isStoreError,
  leavesNothing,
  operationOf,
  processOf,
  recordName,
  returned,
  rewrite,
  sleep,
  threw,
  TTL_MS,
  type Bench,
} from "./setup.ts";

const keyHash = sha256("acme:k1");
/** `leaseMs` and `recoverAfterMs`, both at their defaults. */
const LEASE_OVER_MS = 60_000;

/** Where a call begins, and what it is to send, ask of the effect and answer. */
interface Start {
  readonly prepare: (on: Bench) => Promise<unknown>;
  readonly sent: readonly Operation[];
  readonly runs: number;
  readonly attempt?: number;
  readonly sameOperation?: boolean;
  readonly takeover?: true;
}

async function withResult(on: Bench): Promise<string> {
  return returned(await on.execute(operationOf())).operationId;
}

describe("execute: claims (E1, E2)", () => {
  leavesNothing();

  it("E1: a first call writes a claim, runs, settles, and the record holds every field of protocol §2", async () => {
    const on = bench();
    const effect = new Effect();
    const call = on.start(operationOf({ run: effect.run }));
    await settle();
    const { operationId, attempt } = effect.last.context;
    const claim = await on.stored();
    const common = {
      format: 1,
      scope: "acme",
      key: "k1",
      key_hash: keyHash,
      operation_id: operationId,
      attempt: 1,
      ttl_ms: TTL_MS,
      created_at: "2026-01-01T00:00:00.000Z",
      expires_at: "2026-01-31T00:00:00.000Z",
    };
    const { input_hash: inputHash, write_id: writeId, ...rest } = claim;
    assert.deepEqual(rest, { ...common, status: "creating", lease_ms: 60_000 });
    assert.equal(inputHash, sha256('["pay",{"amount":5}]'));
    assert.match(JSON.stringify(writeId), /^"[0-9a-f]{32}"$/);
    assert.equal(attempt, 1);
    effect.last.finish({ paid: 5 });
    assert.deepEqual(returned(await call.ends()), {
      value: { paid: 5 },
      operationId,
      replayed: false,
      recorded: true,
    });
    const { input_hash: sameHash, write_id: nextId, ...settled } = await on.stored();
    const result = { kind: "value", encoding: "json", body: { paid: 5 } };
    assert.deepEqual(settled, { ...common, status: "ready", result });
    assert.equal(sameHash, inputHash);
    assert.notEqual(nextId, writeId, "P8: no two writes carry equal bytes");
  });

  const starts: Readonly<Record<string, Start>> = {
    "E1: a new key": { prepare: async () => {}, sent: ["create", "replace"], runs: 1 },
    "E2.1: a stale result is a new operation": {
      prepare: async (on) => {
        const operationId = await withResult(on);
        await on.clock.advance(TTL_MS + 1);
        return operationId;
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
    },
    "E2.1: stale whatever its fingerprint was": {
      prepare: async (on) => {
        returned(await on.execute(operationOf(), {}, "another input"));
        await on.clock.advance(TTL_MS + 1);
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
    },
    "E2.3: a result is replayed": { prepare: withResult, sent: ["create", "read"], runs: 0, sameOperation: true },
    "E2.3: to its last millisecond": {
      prepare: async (on) => {
        const operationId = await withResult(on);
        await on.clock.advance(TTL_MS);
        return operationId;
      },
      sent: ["create", "read"],
      runs: 0,
      sameOperation: true,
    },
    "E2.4: released: the next attempt of the same operation": {
      prepare: async (on) => {
        const operationId = await crashIn(on, operationOf());
        await rewrite(on, { status: "released", lease_ms: undefined });
        return operationId;
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
      attempt: 2,
      sameOperation: true,
    },
    "E2.4: released by a person: takeover is never dropped again": {
      prepare: async (on) => {
        const operationId = await crashIn(on, operationOf());
        await rewrite(on, { status: "released", lease_ms: undefined, attempt: 4, takeover: true });
        return operationId;
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
      attempt: 5,
      sameOperation: true,
      takeover: true,
    },
    "E2.2: released by another input: a new operation, with nothing of the old": {
      prepare: async (on) => {
        const operationId = await crashIn(on, operationOf({ fingerprint: () => "another" }));
        await rewrite(on, { status: "released", lease_ms: undefined, attempt: 4 });
        return operationId;
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
      attempt: 1,
    },
    "E2.1: released and stale: a new operation, with nothing of the old": {
      prepare: async (on) => {
        await crashIn(on, operationOf());
        await rewrite(on, { status: "released", lease_ms: undefined, attempt: 4, takeover: true });
        await on.clock.advance(TTL_MS + 1);
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
      attempt: 1,
    },
    "E2.6: a lease that is over is taken over": {
      prepare: async (on) => {
        const operationId = await crashIn(on, operationOf());
        await on.clock.advance(LEASE_OVER_MS + 1);
        return operationId;
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
      attempt: 2,
      sameOperation: true,
      takeover: true,
    },
    "E2.6: creating never goes stale: a year later it is still taken over": {
      prepare: async (on) => {
        const operationId = await crashIn(on, operationOf());
        await on.clock.advance(days(365));
        return operationId;
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
      attempt: 2,
      sameOperation: true,
      takeover: true,
    },
    "E3: a lease of 0 has no live owner": {
      prepare: async (on) => {
        const operationId = await crashIn(on, operationOf());
        await rewrite(on, { lease_ms: 0 });
        return operationId;
      },
      sent: ["create", "read", "replace", "replace"],
      runs: 1,
      attempt: 2,
      sameOperation: true,
      takeover: true,
    },
  };
  for (const [title, { prepare, sent, runs, attempt = 1, sameOperation = false, takeover }] of Object.entries(starts)) {
    for (const readFirst of [false, true]) {
      it(`${title}${readFirst ? ", read first" : ""}`, async () => {
        const on = bench();
        const before = await prepare(on);
        on.store.take();
        let ran = 0;
        const operation = operationOf({ run: () => ({ paid: 5, nth: (ran += 1) }) });
        const { value, operationId, replayed, recorded } = returned(await on.execute(operation, { readFirst }));
        const isFirst = sent[0] === "create" && sent[1] !== "read";
        const expected: readonly Operation[] = !readFirst ? sent : isFirst ? ["read", ...sent] : sent.slice(1);
        assert.deepEqual(on.store.take(), expected);
        assert.equal(ran, runs);
        assert.deepEqual(value, runs === 0 ? { paid: 5 } : { paid: 5, nth: 1 });
        assert.deepEqual([replayed, recorded], [runs === 0, true]);
        assert.equal(operationId === before, sameOperation);
        const record = await on.stored();
        assert.deepEqual(
          [record["status"], record["operation_id"], record["attempt"], record["takeover"]],
          ["ready", operationId, attempt, takeover],
        );
      });
    }
  }

  it("E3: the lease is live to its last millisecond, by the store's clock, and over a granularity later", async () => {
    for (const clockGranularityMs of [0, 2_000]) {
      const on = bench({ traits: { clockGranularityMs } });
      await crashIn(on, operationOf());
      await on.clock.advance(LEASE_OVER_MS + clockGranularityMs);
      assert.ok(InProgressError.is(threw(await on.execute(operationOf()))));
      await on.clock.advance(1);
      returned(await on.execute(operationOf()));
    }
  });

  it("E3: no caller's clock is in it: one that is years ahead or behind waits for the lease as all do", async () => {
    for (const jumpMs of [days(-800), days(800)]) {
      const on = bench();
      await crashIn(on, operationOf());
      const skewed = processOf(on, 3, {
        runtime: { ...clockLike(on.clock, 3), now: () => on.clock.now() + jumpMs },
      });
      await on.clock.advance(LEASE_OVER_MS);
      assert.ok(InProgressError.is(threw(await skewed.execute(operationOf()))));
      await on.clock.advance(1);
      returned(await skewed.execute(operationOf()));
    }
  });

  const conflicts: Readonly<Record<string, (on: Bench) => Promise<unknown>>> = {
    "a result": withResult,
    "a run": (on) => crashIn(on, operationOf()),
    "a lease that is over": async (on) => {
      await crashIn(on, operationOf());
      await on.clock.advance(days(1));
    },
    "what a person released": async (on) => {
      await crashIn(on, operationOf());
      await rewrite(on, { status: "released", lease_ms: undefined, attempt: 2, takeover: true });
    },
    "what is held": async (on) => {
      await crashIn(on, operationOf());
      await rewrite(on, { status: "held", lease_ms: undefined });
    },
  };
  for (const [title, prepare] of Object.entries(conflicts)) {
    it(`E2.2: another input, or another operation, meets ${title}: a conflict, nothing runs, nothing is written`, async () => {
      for (const readFirst of [false, true]) {
        const on = bench();
        await prepare(on);
        const before = await on.memory.read(recordName);
        const { operation_id: operationId } = await on.stored();
        for (const [operation, ofInput] of [
          [operationOf({ run: () => assert.fail("ran") }), { amount: 6 }],
          [operationOf({ name: "refund", run: () => assert.fail("ran") }), input],
        ] as const) {
          const error = threw(await on.execute(operation, { readFirst, waitMs: 1_000 }, ofInput));
          assert.ok(IdempotencyConflictError.is(error), String(error));
          assert.deepEqual([error.code, error.operationId, error.keyHash], ["CONFLICT", operationId, keyHash]);
        }
        assert.equal((await on.memory.read(recordName))?.version, before?.version);
      }
    });
  }

  it("E2.2: what was released is another input's to begin, with a claim as fresh as any", async () => {
    for (const readFirst of [false, true]) {
      const on = bench();
      const nothing = operationOf({
        onError: () => "retry",
        run: () => {
          throw new Error("the amount is missing");
        },
      });
      threw(await on.execute(nothing, {}, { amount: 0 }));
      threw(await on.execute(nothing, {}, { amount: 0 }));
      const before = await on.stored();
      assert.deepEqual([before["status"], before["attempt"]], ["released", 2]);
      await rewrite(on, { later: 1 });
      await on.clock.advance(1_000);
      const conflicts: unknown[] = [];
      const stop = onEvent("firstwrite:conflict", (event) => conflicts.push(event));
      const effect = new Effect();
      const call = on.start(operationOf({ run: effect.run }), { readFirst });
      await settle();
      const claim = await on.stored();
      assert.deepEqual(
        [claim["status"], claim["attempt"], claim["takeover"], claim["created_at"], claim["later"]],
        ["creating", 1, undefined, "2026-01-01T00:00:01.000Z", undefined],
      );
      assert.deepEqual([effect.last.input, effect.last.context.attempt], [input, 1]);
      assert.notEqual(claim["operation_id"], before["operation_id"]);
      assert.notEqual(claim["input_hash"], before["input_hash"]);
      const error = threw(await on.execute(nothing, {}, { amount: 0 }));
      assert.ok(IdempotencyConflictError.is(error), "now the key is the other's");
      assert.equal(error.operationId, claim["operation_id"]);
      effect.last.finish("done");
      assert.equal(returned(await call.ends()).recorded, true);
      assert.equal(conflicts.length, 1);
      stop();
    }
  });

  it("E2.2: whoever waits for one whose key another input gets is told of the conflict", async () => {
    const on = bench();
    const effect = new Effect();
    const retry = operationOf({ run: effect.run, onError: () => "retry" });
    const first = on.start(retry);
    await settle();
    const waits = processOf(on, 7).start(operationOf({ run: () => assert.fail("ran") }), { waitMs: 20_000 });
    await settle();
    effect.last.fail(new Error("busy"));
    await settle();
    const other = new Effect();
    const second = processOf(on, 8).start(operationOf({ run: other.run }), {}, { amount: 6 });
    await settle();
    assert.equal(other.runs.length, 1);
    const error = threw(await waits.ends());
    assert.ok(IdempotencyConflictError.is(error), String(error));
    assert.equal(error.operationId, other.last.context.operationId);
    assert.match(String(threw(await first.ends())), /busy/);
    other.last.finish("done");
    returned(await second.ends());
  });

  it("E2.2: a reservation's record, its first phase too, is no operation's", async () => {
    const on = bench();
    const operation = operationOf({ name: "assign", fingerprint: () => 1, run: () => assert.fail("ran") });
    returned(await on.reserve());
    assert.ok(IdempotencyConflictError.is(threw(await on.execute(operationOf()))));
    await rewrite(on, { status: "creating", lease_ms: 0, input_hash: sha256('["assign",1]') });
    assert.ok(IdempotencyConflictError.is(threw(await on.execute(operation))));
  });

  it("E2.3: a record of the older layout is a conflict until its expires_at, and then free", async () => {
    const on = bench();
    const older = {
      key: "k1",
      key_hash: keyHash,
      task_id: "t",
      task_key: "tasks/t.json",
      created_at: "2026-01-01T00:00:00Z",
      expires_at: "2026-01-11T00:00:00Z",
      task_type: "pay",
      input_hash: sha256('{"amount":5}'),
    };
    await on.memory.create(recordName, bytesOf(older));
    assert.ok(IdempotencyConflictError.is(threw(await on.execute(operationOf()))));
    await on.clock.advance(days(10) + 1);
    assert.equal(returned(await on.execute(operationOf())).replayed, false);
    assert.equal((await on.stored())["format"], 1);
  });

  it("E2.7: held is a person's: OperationHeldError with the operation's ID, never stale, and nothing is written", async () => {
    const on = bench();
    const operationId = await crashIn(on, operationOf());
    await rewrite(on, { status: "held", lease_ms: undefined });
    await on.clock.advance(days(3_000));
    const before = await on.memory.read(recordName);
    const error = threw(await on.execute(operationOf({ run: () => assert.fail("ran") }), { waitMs: 1_000 }));
    assert.ok(OperationHeldError.is(error));
    assert.deepEqual([error.code, error.operationId, error.keyHash], ["HELD", operationId, keyHash]);
    assert.equal((await on.memory.read(recordName))?.version, before?.version);
  });

  it("a record of a later format is refused with what to do, and nothing is written", async () => {
    const on = bench();
    await withResult(on);
    await rewrite(on, { format: 2 });
    const before = await on.memory.read(recordName);
    const error = threw(await on.execute(operationOf({ run: () => assert.fail("ran") })));
    assert.ok(UnsupportedRecordError.is(error));
    assert.match(error.message, /is of format 2; this version reads up to 1: upgrade it/);
    assert.equal((await on.memory.read(recordName))?.version, before?.version);
  });

  it("a record that is none is a person's to look at, and nothing runs over it", async () => {
    const on = bench();
    await on.memory.create(recordName, bytesOf("{"));
    isStoreError(threw(await on.execute(operationOf({ run: () => assert.fail("ran") }))), "CORRUPT");
  });

  it("E2: a record removed between the refusal and the read is claimed anew", async () => {
    const on = bench();
    await withResult(on);
    on.store.take();
    on.store.before = (operation) => {
      if (operation === "read") on.memory.expire(recordName);
    };
    assert.equal(returned(await on.execute(operationOf())).replayed, false);
    assert.deepEqual(on.store.take(), ["create", "read", "create", "replace"]);
  });

  it("E2: one removed before its takeover is claimed anew, at the create", async () => {
    const on = bench();
    const before = await crashIn(on, operationOf());
    await on.clock.advance(LEASE_OVER_MS + 1);
    let removed = false;
    on.store.before = (operation) => {
      if (operation === "replace" && !removed) {
        removed = true;
        on.memory.expire(recordName);
      }
    };
    const { operationId } = returned(await on.execute(operationOf()));
    assert.notEqual(operationId, before);
    assert.equal((await on.stored())["attempt"], 1);
    assert.deepEqual(on.store.take(), ["create", "read", "replace", "read", "create", "replace"]);
  });

  it("what a person and a later version left in the record is carried along", async () => {
    const on = bench();
    await crashIn(on, operationOf());
    await rewrite(on, { lease_ms: 0, history: [{ by: "ann" }], later: { x: 1 } });
    returned(await on.execute(operationOf()));
    const record = await on.stored();
    assert.deepEqual([record["history"], record["later"]], [[{ by: "ann" }], { x: 1 }]);
  });

  it("two processes at once: one runs, the other is told that it is in progress, or waits for the same result", async () => {
    for (const waitMs of [0, 20_000]) {
      const on = bench();
      const other = processOf(on, 7);
      const effect = new Effect();
      const operation = operationOf({ run: effect.run });
      const calls = [on.start(operation, { waitMs }), other.start(operation, { waitMs })];
      await settle();
      assert.equal(effect.runs.length, 1);
      await on.clock.advance(5_000);
      effect.last.finish("done");
      const ends = await Promise.all(calls.map((call) => call.ends()));
      const values = ends.flatMap((end) => (end.kind === "returned" ? [end.value] : []));
      const { operationId } = effect.last.context;
      const own: Executed<unknown> = { value: "done", operationId, replayed: false, recorded: true };
      assert.deepEqual(values, waitMs === 0 ? [own] : [own, { ...own, replayed: true }]);
      for (const end of ends) {
        if (end.kind === "returned") continue;
        assert.ok(InProgressError.is(end.error));
        assert.deepEqual([end.error.operationId, end.error.keyHash], [operationId, keyHash]);
      }
    }
  });
});

describe("execute: waiting for another's lease (E2.5, waitMs)", () => {
  leavesNothing();

  it("is told at once by default, with the operation's ID and when to come again", async () => {
    const on = bench();
    const operationId = await crashIn(on, operationOf());
    const early = await on.execute(operationOf());
    const error = threw(early);
    assert.ok(InProgressError.is(error));
    assert.deepEqual(
      [error.code, error.operationId, error.keyHash, error.retryAfterMs, early.tookMs],
      ["IN_PROGRESS", operationId, keyHash, 1_000, 0],
    );
    await on.clock.advance(LEASE_OVER_MS - 20);
    const late = threw(await on.execute(operationOf()));
    assert.ok(InProgressError.is(late));
    assert.equal(late.retryAfterMs, 20, "not longer than the lease can last");
  });

  it("waits waitMs from when it found the record, and not a moment longer", async () => {
    for (const waitMs of [1, 3_000, 29_999]) {
      const on = bench();
      await crashIn(on, operationOf());
      const end = await on.execute(operationOf(), { waitMs });
      assert.ok(InProgressError.is(threw(end)));
      assert.equal(end.tookMs, waitMs);
    }
  });

  it("never waits beyond its deadline, however long waitMs is", async () => {
    for (const waitMs of [20_000, 1e12, Infinity]) {
      const on = bench();
      await crashIn(on, operationOf());
      const end = await on.execute(operationOf(), { waitMs, deadlineMs: 20_000 });
      assert.ok(InProgressError.is(threw(end)), String(threw(end)));
      assert.equal(end.tookMs, 20_000);
    }
  });

  it("takes over when the lease ends meanwhile", async () => {
    const on = bench();
    const operationId = await crashIn(on, operationOf());
    const end = await on.execute(operationOf(), { waitMs: 70_000, deadlineMs: 70_000 });
    assert.equal(returned(end).operationId, operationId);
    assert.ok(end.tookMs > LEASE_OVER_MS && end.tookMs <= LEASE_OVER_MS + 2_000, `${end.tookMs}`);
  });

  it("is bounded by waitMs also when a third caller wins the takeover at that moment", async () => {
    const on = bench();
    await crashIn(on, operationOf());
    await on.clock.advance(LEASE_OVER_MS - 900);
    const third = new Effect();
    const rival = processOf(on, 8, { store: on.memory });
    // Our takeover takes long to arrive, and the rival's comes before it; `waitMs` passes meanwhile.
    on.store.travel = async (operation) => {
      if (operation !== "replace") return;
      on.store.travel = undefined;
      rival.start(operationOf({ run: third.run }));
      await sleep(on.clock, 4_000);
    };
    const end = await on.execute(operationOf({ run: () => assert.fail("ran twice") }), { waitMs: 3_000 });
    assert.ok(InProgressError.is(threw(end)));
    assert.ok(end.tookMs < 10_000, `waited ${end.tookMs} ms, and was asked to wait 3000`);
    third.last.finish();
    await settle();
  });

  it("is not limited by waitMs while its own run goes on", async () => {
    const on = bench();
    const effect = new Effect();
    const call = on.start(operationOf({ run: effect.run }), { waitMs: 10 });
    await on.clock.advance(20_000);
    assert.equal(call.end, undefined);
    effect.last.finish("late");
    assert.equal(returned(await call.ends()).value, "late");
  });

  it("is not limited by waitMs once the record is settled, while its large result is read", async () => {
    const on = bench();
    const operation = operationOf({ run: () => "x".repeat(100), inlineBytesMax: 0 });
    const other = processOf(on, 9);
    const effect = new Effect();
    const theirs = other.start({ ...operation, run: effect.run });
    await settle();
    const mine = on.start(operation, { waitMs: 5_000 });
    await on.clock.advance(1_000);
    effect.last.finish("x".repeat(100));
    returned(await theirs.ends());
    on.store.travelBack = async (_, name) => (name.endsWith(".result") ? sleep(on.clock, 6_000) : undefined);
    assert.equal(returned(await mine.ends()).value, "x".repeat(100));
  });

  it("a store that fails until the deadline: InProgressError where the record was last creating, else UNAVAILABLE", async () => {
    for (const [prepare, isInProgress] of [
      [async (on: Bench) => crashIn(on, operationOf()), true],
      [async () => {}, false],
    ] as const) {
      const on = bench();
      await prepare(on);
      const call = on.start(operationOf({ run: () => assert.fail("ran") }), { waitMs: 60_000, deadlineMs: 20_000 });
      if (isInProgress) await on.clock.advance(100);
      on.memory.inject("away", { times: Infinity });
      if (!isInProgress) on.memory.inject("lostRequest", { times: Infinity });
      const end = await call.ends();
      const error = threw(end);
      assert.equal(end.tookMs, 20_000);
      if (isInProgress) assert.ok(InProgressError.is(error), String(error));
      else if (StoreError.is(error)) assert.match(error.message, /no effect was started: send it again/);
      assert.equal(StoreError.is(error), !isInProgress, String(error));
    }
  });

  it("a takeover that cannot be written until the deadline: InProgressError, for the last record read was creating", async () => {
    const on = bench();
    const operationId = await crashIn(on, operationOf());
    await on.clock.advance(LEASE_OVER_MS + 1);
    on.memory.inject("away", { on: "replace", times: Infinity });
    const error = threw(await on.execute(operationOf({ run: () => assert.fail("ran") })));
    assert.ok(InProgressError.is(error), String(error));
    assert.equal(error.operationId, operationId);
  });

  it("UNAVAILABLE and InProgressError say what the store last said", async () => {
    for (const [fault, cause] of [
      ["away", /injected: away/],
      ["hangs", /no answer to a (create|read) (within|before)/],
    ] as const) {
      for (const prepare of [crashIn, async () => {}] as const) {
        const on = bench();
        await prepare(on, operationOf());
        const call = on.start(operationOf(), { waitMs: 60_000, deadlineMs: 20_000 });
        if (prepare === crashIn) await on.clock.advance(100);
        on.memory.inject(fault, { times: Infinity });
        const fresh = prepare === crashIn ? call : on.start(operationOf(), { deadlineMs: 20_000, key: "k2" });
        const error = threw(await fresh.ends());
        assert.ok(error instanceof Error && error.cause instanceof Error, `${fault}: no cause`);
        assert.match(error.cause.message, cause);
        await call.ends();
      }
    }
  });

  it("a record that is refused each time is no tight loop", async () => {
    const on = bench();
    await crashIn(on, operationOf());
    await on.clock.advance(LEASE_OVER_MS + 1);
    on.store.replace = async () => {
      on.store.sent.push("replace");
      return { kind: "refused" };
    };
    threw(await on.execute(operationOf()));
    assert.ok(on.store.sent.length > 20 && on.store.sent.length < 200, `${on.store.sent.length} requests in 30 s`);
  });
});

describe("kinds of operation (§2)", () => {
  it("a reservation and an operation of one name, scope, key and input are two: neither answers the other", async () => {
    const effect = bench();
    await effect.reserve({});
    const named = defineOperation({ name: assign.name, recovery: "rerun", run: (): string => "ran" });
    assert.ok(IdempotencyConflictError.is(threw(await effect.execute(named))));
    const choice = bench();
    returned(await choice.execute(named));
    assert.ok(IdempotencyConflictError.is(threw(await choice.reserve({}))));
  });

  it("E2.2: a reservation may have the key of an operation in which nothing happened, and then it has it", async () => {
    for (const readFirst of [false, true]) {
      const on = bench();
      await crashIn(on, operationOf());
      await rewrite(on, { status: "released", lease_ms: undefined, attempt: 3 });
      const { operation_id: before } = await on.stored();
      on.store.take();
      const { created, operationId } = returned(await on.reserve({ readFirst }));
      assert.deepEqual(on.store.take(), readFirst ? ["read", "replace"] : ["create", "read", "replace"]);
      assert.ok(created);
      assert.notEqual(operationId, before);
      const { status, attempt, takeover } = await on.stored();
      assert.deepEqual([status, attempt, takeover], ["ready", 1, undefined]);
      assert.ok(IdempotencyConflictError.is(threw(await on.execute(operationOf()))));
    }
  });

  it("E2.2: nor has a reservation the key of one that was taken over, or is going on", async () => {
    for (const changes of [{ status: "released", lease_ms: undefined, takeover: true }, {}, { lease_ms: 0 }]) {
      const on = bench();
      await crashIn(on, operationOf());
      await rewrite(on, changes);
      const before = await on.memory.read(recordName);
      assert.ok(IdempotencyConflictError.is(threw(await on.reserve())));
      assert.equal((await on.memory.read(recordName))?.version, before?.version);
    }
  });
});
