/** An effect that settles its record itself, in a transaction of its own: rule E5, `settlingWrite`. */

import assert from "node:assert/strict";
import {
  InvalidArgumentError,
  onEvent,
  OutcomeUnknownError,
  type FirstwriteEvents,
  type OperationOptions,
  type RunContext,
  type SettlingWrite,
} from "@firstwrite/core";
import { settle } from "@firstwrite/memory";
import {
  aborter,
  bench,
  leavesNothing,
  operationOf,
  processOf,
  recordName,
  returned,
  sleep,
  threw,
  type Bench,
} from "./setup.ts";

const LEASE_MS = 30_000;
const THIRD_MS = 10_000;

type Run = (context: RunContext) => Promise<unknown>;

function operation(
  run: Run,
  options: Partial<OperationOptions<unknown, unknown>> = {},
): ReturnType<typeof operationOf> {
  return operationOf({ recoverAfterMs: 0, run: (_input, context) => run(context), ...options });
}

/** What COMMIT does to the record. True: it was at `expected`. */
async function commit(on: Bench, { name, expected }: SettlingWrite, bytes: Uint8Array): Promise<boolean> {
  return (await on.memory.replace(name, expected, bytes)).kind === "written";
}

async function pays(on: Bench, { settlingWrite }: RunContext): Promise<unknown> {
  const write = await settlingWrite();
  assert.ok(await commit(on, write, write.encode({ paid: 5 })));
  return { paid: 5 };
}

describe("execute: an effect that settles in its own transaction (E5)", () => {
  leavesNothing();

  it("is recorded as by the engine, for one read in place of its write", async () => {
    const on = bench();
    const paying = operation((context) => pays(on, context));
    const { operationId, ...first } = returned(await on.execute(paying));
    assert.deepEqual(first, { value: { paid: 5 }, replayed: false, recorded: true });
    assert.deepEqual(on.store.take(), ["create", "read"]);
    const { status, result, lease_ms: lease } = await on.stored();
    assert.deepEqual(
      [status, result, lease],
      ["ready", { kind: "value", encoding: "json", body: { paid: 5 } }, undefined],
    );
    const again = returned(await processOf(on, 7).execute(paying));
    assert.deepEqual(again, { value: { paid: 5 }, operationId, replayed: true, recorded: true });
  });

  it("is answered from the cache afterwards", async () => {
    const on = bench({ cache: { entriesMax: 10 } });
    const paying = operation((context) => pays(on, context));
    returned(await on.execute(paying));
    on.store.take();
    assert.equal(returned(await on.execute(paying)).replayed, true);
    assert.deepEqual(on.store.take(), []);
  });

  it("answers what was recorded, whatever run returns", async () => {
    const on = bench();
    const paying = operation(async (context) => {
      await pays(on, context);
      return "something else";
    });
    assert.deepEqual(returned(await on.execute(paying)).value, { paid: 5 });
  });

  it("settles like any other where nothing was encoded", async () => {
    const on = bench();
    const found = operation(async ({ settlingWrite }) => {
      await settlingWrite();
      return "found in the ledger";
    });
    const { value, recorded } = returned(await on.execute(found));
    assert.deepEqual([value, recorded], ["found in the ledger", true]);
    assert.deepEqual(on.store.take(), ["create", "replace"]);
  });

  it("takes the try of several that was committed", async () => {
    const on = bench();
    const paying = operation(async ({ settlingWrite }) => {
      const first = await settlingWrite();
      const rolledBack = [first.encode("first"), first.encode("first")];
      assert.notDeepEqual(rolledBack[0], rolledBack[1], "no two writes are equal (P8)");
      const second = await settlingWrite();
      assert.ok(await commit(on, second, second.encode("second")));
    });
    assert.equal(returned(await on.execute(paying)).value, "second");
  });

  it("gives nothing to what run has left behind", async () => {
    const on = bench();
    let left: RunContext | undefined;
    let write: SettlingWrite | undefined;
    const floating = operation(async (context) => {
      left = context;
      write = await context.settlingWrite();
      return "not awaited";
    });
    assert.equal(returned(await on.execute(floating)).recorded, true);
    const before = on.store.take();
    await assert.rejects(async () => left?.settlingWrite(), InvalidArgumentError.is);
    assert.throws(() => write?.encode("late"), InvalidArgumentError.is);
    assert.deepEqual([before, on.store.take()], [["create", "replace"], []]);
  });

  describe("the lease", () => {
    it("is not renewed any more, and the signal aborts when it is over", async () => {
      const on = bench();
      let aborted: boolean | undefined;
      const paying = operation(async (context) => {
        const write = await context.settlingWrite();
        await sleep(on.clock, LEASE_MS - 1);
        assert.equal(context.signal.aborted, false);
        await sleep(on.clock, 1);
        aborted = context.signal.aborted;
        // Nobody has taken it over: the compare-and-swap knows better than the lease.
        assert.ok(await commit(on, write, write.encode("late")));
      });
      const call = on.start(paying, { deadlineMs: 100_000 });
      await settle();
      on.store.take();
      await on.clock.advance(LEASE_MS);
      assert.deepEqual(on.store.take(), ["read"], "no renewal");
      assert.equal(aborted, true);
      assert.equal(returned(await call.ends()).value, "late");
    });

    it("takes no joiner any more once it is over", async () => {
      const on = bench();
      let runs = 0;
      const hanging = operation(async ({ settlingWrite }) => {
        runs += 1;
        if (runs > 1) return "second";
        await settlingWrite();
        await sleep(on.clock, 3 * LEASE_MS);
        return "first";
      });
      const first = on.start(hanging, { deadlineMs: 200_000 });
      await settle();
      await on.clock.advance(LEASE_MS + 2);
      assert.equal(returned(await on.execute(hanging)).value, "second", "by a takeover");
      assert.equal(returned(await first.ends()).value, "second");
    });

    it("gives the version of a renewal that was under way, once its answer is there", async () => {
      const on = bench();
      on.store.travelBack = (what) => (what === "replace" ? sleep(on.clock, 5_000) : Promise.resolve());
      const got: (number | string)[] = [];
      const paying = operation(async (context) => {
        await sleep(on.clock, THIRD_MS + 1);
        const write = await context.settlingWrite();
        got.push(on.clock.monotonicMs(), write.expected);
        assert.ok(await commit(on, write, write.encode("done")));
      });
      const call = on.start(paying, { deadlineMs: 100_000 });
      await settle();
      const claimed = await on.memory.read(recordName);
      await on.clock.advance(THIRD_MS + 2);
      const renewed = await on.memory.read(recordName);
      assert.notEqual(renewed?.version, claimed?.version);
      assert.equal(returned(await call.ends()).value, "done");
      assert.deepEqual(got, [THIRD_MS + 5_000, renewed?.version]);
    });

    it("gives nothing where a renewal is undecided until it is over", async () => {
      const on = bench();
      let why: unknown;
      const paying = operation(async ({ settlingWrite, signal }) => {
        await sleep(on.clock, THIRD_MS + 1);
        await settlingWrite().catch((error: unknown) => {
          assert.equal(error, signal.reason);
          why = error;
          throw error;
        });
      });
      const call = on.start(paying, { deadlineMs: 100_000 });
      await settle();
      on.memory.inject("hangs", { times: Infinity });
      await on.clock.advance(LEASE_MS);
      on.memory.heal();
      assert.equal(threw(await call.ends()), why);
      assert.match(String(why), /could not be renewed/);
      assert.equal((await on.stored())["status"], "creating", "the next call recovers");
    });

    it("gives nothing to a call whose callers have all cancelled", async () => {
      const on = bench();
      const abort = aborter();
      let why: unknown;
      const paying = operation(async ({ settlingWrite }) => {
        await sleep(on.clock, 1_000);
        await settlingWrite().catch((error: unknown) => (why = error));
        throw why;
      });
      const call = on.start(paying, { signal: abort.signal });
      await settle();
      abort.abort("enough");
      await call.ends();
      await on.clock.advance(1_000);
      await settle();
      assert.equal(why, "enough");
    });
  });

  describe("run that throws", () => {
    it("after its COMMIT, whose answer was lost: the value is the answer", async () => {
      const on = bench();
      const paying = operation(async (context) => {
        await pays(on, context);
        throw new Error("no answer to COMMIT");
      });
      const { value, recorded, replayed } = returned(await on.execute(paying));
      assert.deepEqual([value, recorded, replayed], [{ paid: 5 }, true, false]);
    });

    const outcomes = [
      ["recover", "creating"],
      ["retry", "released"],
      ["replay", "ready"],
    ] as const;
    for (const [meaning, status] of outcomes) {
      it(`and means ${meaning}: a COMMIT that comes later is refused`, async () => {
        const on = bench();
        const failure = new Error("no answer to COMMIT");
        let late: (() => Promise<boolean>) | undefined;
        const paying = operation(
          async ({ settlingWrite }) => {
            const write = await settlingWrite();
            const bytes = write.encode("too late");
            late = () => commit(on, write, bytes);
            throw failure;
          },
          { onError: () => meaning },
        );
        assert.equal(threw(await on.execute(paying)), failure);
        assert.equal((await on.stored())["status"], status);
        assert.deepEqual(on.store.take(), ["create", "read", "replace"]);
        assert.equal(await late?.(), false);
        assert.equal((await on.stored())["status"], status);
      });

      it(`and means ${meaning}: a COMMIT that comes between the look and the write is the answer`, async () => {
        const on = bench();
        let late: (() => Promise<boolean>) | undefined;
        const paying = operation(
          async ({ settlingWrite }) => {
            const write = await settlingWrite();
            const bytes = write.encode("just in time");
            late = () => commit(on, write, bytes);
            throw new Error("no answer to COMMIT");
          },
          { onError: () => meaning },
        );
        on.store.travel = async (what) => {
          if (what === "replace") assert.equal(await late?.(), true);
        };
        const { value, recorded, replayed } = returned(await on.execute(paying));
        assert.deepEqual([value, recorded, replayed], ["just in time", true, false]);
      });
    }
  });

  it("does not record what run returned without its COMMIT: the next call recovers, and a late COMMIT is refused", async () => {
    const on = bench();
    const heard: FirstwriteEvents["firstwrite:not-recorded"][] = [];
    const stop = onEvent("firstwrite:not-recorded", (message) => heard.push(message));
    let late: (() => Promise<boolean>) | undefined;
    const forgetful = operation(async ({ settlingWrite }) => {
      const write = await settlingWrite();
      const bytes = write.encode("paid");
      late = () => commit(on, write, bytes);
      return "paid";
    });
    const { value, recorded } = returned(await on.execute(forgetful));
    stop();
    assert.deepEqual([value, recorded], ["paid", false]);
    assert.deepEqual(
      heard.map(({ reason }) => reason),
      ["not recordable"],
    );
    assert.equal((await on.stored())["status"], "creating");
    assert.equal(await late?.(), false);
    const paying = operation((context) => pays(on, context));
    assert.equal(returned(await on.execute(paying)).recorded, true);
  });

  it("commits nothing where another owner has the record, and answers what that one recorded", async () => {
    const on = bench();
    const other = processOf(on, 9);
    let committed: boolean | undefined;
    const slow = operation(async ({ settlingWrite }) => {
      const write = await settlingWrite();
      await sleep(on.clock, LEASE_MS + 1_000);
      committed = await commit(on, write, write.encode("slow"));
      throw new Error("rolled back: the record has moved on");
    });
    const call = on.start(slow, { deadlineMs: 100_000 });
    await settle();
    await on.clock.advance(LEASE_MS + 500);
    const paying = operation((context) => pays(on, context));
    assert.deepEqual(returned(await other.execute(paying)).value, { paid: 5 });
    const { value, replayed } = returned(await call.ends());
    assert.deepEqual([value, replayed], [{ paid: 5 }, true]);
    assert.equal(committed, false);
  });

  it("returns the value with recorded: false when the store is away until the deadline, and replays it later", async () => {
    const on = bench();
    const paying = operation(async (context) => {
      const value = await pays(on, context);
      on.memory.inject("away", { times: Infinity });
      return value;
    });
    const { value, recorded } = returned(await on.execute(paying));
    assert.deepEqual([value, recorded], [{ paid: 5 }, false]);
    await on.clock.advance(60_000);
    on.memory.heal();
    assert.equal(returned(await on.execute(paying)).replayed, true);
  });

  it("is not told what it was when the record was removed meanwhile", async () => {
    const on = bench();
    const paying = operation(async (context) => {
      await pays(on, context);
      const stored = await on.memory.read(recordName);
      assert.ok(stored);
      assert.equal((await on.memory.remove(recordName, stored.version)).kind, "removed");
    });
    assert.ok(OutcomeUnknownError.is(threw(await on.execute(paying))));
  });

  it("refuses a value that cannot be recorded, before anything is committed", async () => {
    for (const [value, options] of [
      [() => {}, {}],
      ["x".repeat(2_000), { inlineBytesMax: 2_000 }],
    ] as const) {
      const on = bench();
      const paying = operation(async ({ settlingWrite }) => {
        const { encode } = await settlingWrite();
        return encode(value);
      }, options);
      assert.ok(InvalidArgumentError.is(threw(await on.execute(paying))));
      assert.deepEqual(on.store.take(), ["create", "replace"], "as of an effect that encoded nothing");
      assert.equal((await on.stored())["status"], "creating");
    }
  });
});
