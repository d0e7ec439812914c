import assert from "node:assert/strict";
import { executionOf, Idempotency, IdempotencyConflictError, InvalidArgumentError } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";
import {
  bench,
  crashIn,
  leavesNothing,
  operationOf,
  processOf,
  returned,
  sleep,
  threw,
  TTL_MS,
  type Bench,
} from "./setup.ts";

const cache = { entriesMax: 2 };

/** How many requests one call of each key cost. */
async function costs(on: Bench, keys: readonly string[], operation = operationOf()): Promise<number[]> {
  const sent: number[] = [];
  for (const key of keys) {
    on.store.take();
    await on.execute(operation, { key });
    sent.push(on.store.take().length);
  }
  return sent;
}

describe("the replay cache (I2)", () => {
  leavesNothing();

  it("I2: answers a replay with no request, as a replay, with a copy for each caller", async () => {
    const on = bench({ cache });
    const operation = operationOf({ run: () => ({ list: [1] }) });
    const first = returned(await on.execute(operation));
    on.store.take();
    const again = returned(await on.execute(operation));
    assert.deepEqual(again, { ...first, replayed: true });
    Object.assign(Object(again.value), { list: [] });
    assert.deepEqual(returned(await on.execute(operation)).value, { list: [1] });
    assert.deepEqual(on.store.take(), []);
  });

  it("I2: there is none by default", async () => {
    const on = bench();
    await on.execute(operationOf());
    assert.deepEqual(await costs(on, ["k1"]), [2]);
  });

  it("I2: a result that was read is kept like one that was settled", async () => {
    const on = bench({ cache });
    returned(await processOf(on, 3).execute(operationOf()));
    assert.deepEqual(await costs(on, ["k1", "k1"]), [2, 0]);
  });

  it("I2: a recorded failure is ready, too: thrown with no request", async () => {
    const on = bench({ cache });
    const operation = operationOf({ onError: () => "replay", run: () => Promise.reject(new Error("no funds")) });
    await on.execute(operation);
    on.store.take();
    const error = threw(await on.execute(operation));
    assert.ok(error instanceof Error && error.message === "no funds");
    assert.deepEqual([executionOf(error)?.replayed, executionOf(error)?.recorded], [true, true]);
    assert.deepEqual(on.store.take(), []);
  });

  it("I2: a hit compares input_hash: another input or operation is a conflict, said by the store", async () => {
    const on = bench({ cache });
    returned(await on.execute(operationOf()));
    for (const [operation, ofInput] of [
      [operationOf(), "another"],
      [operationOf({ name: "refund" }), undefined],
    ] as const) {
      assert.ok(IdempotencyConflictError.is(threw(await on.execute(operation, {}, ofInput ?? { amount: 5 }))));
    }
    assert.deepEqual(await costs(on, ["k1"]), [0], "and the entry stays");
  });

  for (const clockGranularityMs of [0, 2_000]) {
    it(`I2: an entry lives until the granularity of ${clockGranularityMs} before the earliest that anyone takes it for stale`, async () => {
      const on = bench({ cache, traits: { clockGranularityMs } });
      returned(await on.execute(operationOf()));
      await on.clock.advance(TTL_MS - clockGranularityMs - 1);
      assert.deepEqual(await costs(on, ["k1"]), [0]);
      await on.clock.advance(1);
      assert.deepEqual(await costs(on, ["k1"]), [2]);
    });
  }

  it("I2: what was read is as old as the store says, from before its read was sent, by no wall clock", async () => {
    const on = bench({ cache });
    returned(await processOf(on, 3).execute(operationOf()));
    await on.clock.advance(TTL_MS - 10_000);
    // The read's answer takes long.
    on.store.travelBack = async (operation) => (operation === "read" ? sleep(on.clock, 4_000) : undefined);
    returned(await on.execute(operationOf()));
    on.store.travelBack = undefined;
    on.clock.jump(-TTL_MS);
    const left = 10_000 - 4_000;
    await on.clock.advance(left - 1);
    assert.deepEqual(await costs(on, ["k1"]), [0]);
    await on.clock.advance(1);
    assert.notDeepEqual(await costs(on, ["k1"]), [0]);
  });

  const kept: Readonly<Record<string, (on: Bench) => Promise<unknown>>> = {
    "an offloaded result": (on) => on.execute(operationOf({ inlineBytesMax: 0 })),
    "a run in progress": (on) => crashIn(on, operationOf()),
    "what was released": (on) =>
      on.execute(operationOf({ onError: () => "retry", run: () => Promise.reject(new Error()) })),
    "an outcome that is not recorded": async (on) => {
      on.memory.inject("denied", { on: "replace" });
      return on.execute(operationOf());
    },
    "a held operation": (on) => on.execute(operationOf({ run: () => 5n })),
  };
  for (const [title, prepare] of Object.entries(kept)) {
    it(`I2: never holds ${title}`, async () => {
      const on = bench({ cache });
      await prepare(on);
      const [cost] = await costs(on, ["k1"]);
      assert.ok(cost !== undefined && cost >= 2, `${cost} requests`);
    });
  }

  it("I2: is bounded, and forgets what was used least lately", async () => {
    const on = bench({ cache });
    await costs(on, ["a", "b"]);
    assert.deepEqual(await costs(on, ["a", "b", "a"]), [0, 0, 0]);
    await costs(on, ["c"]);
    assert.deepEqual(await costs(on, ["a", "b"]), [0, 2]);
  });

  it("I2: a result of before staleness is not given for the operation after it", async () => {
    const on = bench({ cache });
    let runs = 0;
    const operation = operationOf({ run: () => (runs += 1) });
    returned(await on.execute(operation));
    await on.clock.advance(TTL_MS + 1);
    assert.equal(returned(await on.execute(operation)).value, 2);
    assert.equal(returned(await on.execute(operation)).value, 2);
  });

  it("refuses a size that is none, and other names", () => {
    for (const [wrong, message] of [
      [{ entriesMax: 0 }, /^cache\.entriesMax is 0: give a whole number above 0$/],
      [{ entriesMax: 1.5 }, /^cache\.entriesMax is 1\.5/],
      [{ entriesMax: "9" }, /^cache\.entriesMax is 9/],
      [{ max: 5 }, /^cache cannot have "max": it takes entriesMax$/],
      [5, /^cache must be an object$/],
    ] as const) {
      assert.throws(
        () => Reflect.construct(Idempotency, [{ store: new MemoryStore(), cache: wrong }]),
        (error) => InvalidArgumentError.is(error) && message.test(error.message),
      );
    }
  });
});
