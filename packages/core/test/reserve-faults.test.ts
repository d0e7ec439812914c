import assert from "node:assert/strict";
import { Idempotency, IdempotencyConflictError, StoreError, type Reservation } from "@firstwrite/core";
import { MemoryStore, VirtualClock, type Fault, type Operation } from "@firstwrite/memory";
import {
  assign,
  bench,
  bytesOf,
  byOperationId,
  clockLike,
  DAY_MS,
  ending,
  input,
  isStoreError,
  parse,
  recordName,
  request,
  returned,
  threw,
  TTL_MS,
  WatchedStore,
  type Ending,
} from "./setup.ts";

const faults: readonly (Fault | undefined)[] = [
  undefined,
  "lostRequest",
  "lostReply",
  "landsLate",
  "contended",
  "hangs",
  "denied",
  "away",
];
/** When a write that is held up reaches the store. */
const landings = ["before the repeat", "after the repeat", "after the call"] as const;

/** Every fault, or none, at each of the first three requests: two faults in any pair of places, and three in a row. */
const plans: readonly (readonly (Fault | undefined)[])[] = faults.flatMap((first) =>
  faults.flatMap((second) => faults.map((third) => [first, second, third])),
);

interface Start {
  /** Makes the store what it is before the calls. */
  readonly prepare: (memory: MemoryStore, clock: VirtualClock) => Promise<void>;
  readonly callers: number;
  readonly readFirst?: boolean;
  /** Whether the record that is found may be overwritten. */
  readonly mayReplace?: boolean;
}

async function withStale(memory: MemoryStore, clock: VirtualClock): Promise<void> {
  const other = new Idempotency({ store: memory, runtime: new VirtualClock({ seed: 99 }) });
  await other.reserve(assign, request, "another input", byOperationId);
  await clock.advance(TTL_MS + 1);
}

const starts: Readonly<Record<string, Start>> = {
  "a new key": { prepare: async () => {}, callers: 1 },
  "a new key, read first": { prepare: async () => {}, callers: 1, readFirst: true },
  "a stale key": { prepare: withStale, callers: 1, mayReplace: true },
  "a stale key, read first": { prepare: withStale, callers: 1, readFirst: true, mayReplace: true },
  "a new key, two processes at once": { prepare: async () => {}, callers: 2 },
  "a stale key, two processes at once": { prepare: withStale, callers: 2, readFirst: true, mayReplace: true },
};

async function explore(start: Start, plan: readonly (Fault | undefined)[], landing: (typeof landings)[number]) {
  const clock = new VirtualClock();
  const memory = new MemoryStore({ clock });
  await start.prepare(memory, clock);
  const before = await memory.read(recordName);
  const store = new WatchedStore(memory);
  store.plan = plan;
  const land = (): void => {
    while (memory.lateWrites > 0) memory.land();
  };
  let writesSinceLate = 0;
  store.before = (operation: Operation) => {
    if (memory.lateWrites === 0) writesSinceLate = 0;
    else if (operation !== "read") writesSinceLate += 1;
    if (landing === "before the repeat" && writesSinceLate === 1 && operation !== "read") land();
    if (landing === "after the repeat" && writesSinceLate > 0 && operation === "read") land();
  };
  const calls = Array.from({ length: start.callers }, (_, seed) => {
    // Each a process of its own: another flight, and other operation IDs.
    const runtime = clockLike(clock, seed + 1);
    const idempotency = new Idempotency({ store, runtime, deadlineMs: 60_000 });
    return ending(
      clock,
      idempotency.reserve(assign, { ...request, readFirst: start.readFirst ?? false }, input, byOperationId),
    );
  });
  const ends = await Promise.all(calls);
  memory.heal();
  land();
  const after = await memory.read(recordName);
  const retry = await new Idempotency({ store: memory, runtime: clockLike(clock, 50) }).reserve(
    assign,
    request,
    input,
    byOperationId,
  );
  return { ends, before, after, retry, clock };
}

describe("reserve, with every fault at every call (U1 to U4)", () => {
  for (const [title, start] of Object.entries(starts)) {
    for (const landing of landings) {
      it(`${title}; a held-up write lands ${landing}`, async () => {
        for (const plan of plans) {
          const where = `after the faults ${plan.map((fault) => fault ?? "none").join(", ")}: `;
          const { ends, before, after, retry, clock } = await explore(start, plan, landing);
          for (const end of ends) {
            assert.ok(end.tookMs <= 60_000, `${where}every call ends by its deadline`);
            if (end.kind === "returned") {
              assert.equal(end.value.value, retry.value, `${where}all get the value of the first`);
              assert.equal(end.value.operationId, end.value.value, `${where}the ID is the record's`);
            } else {
              const { error } = end;
              assert.ok(StoreError.is(error), `${where}${String(error)}`);
              assert.equal(error.code, "PERMISSION_DENIED", `${where}only a denial is final here`);
              assert.ok(plan.includes("denied"), where);
            }
          }
          const claims = [...ends.flatMap((end) => (end.kind === "returned" ? [end.value] : [])), retry];
          assert.ok(claims.filter(({ created }) => created).length <= 1, `${where}one is told that it made the claim`);
          if (ends.some(({ kind }) => kind === "returned")) {
            assert.ok(after !== undefined, `${where}what was answered is stored`);
            assert.equal(parse(after.bytes)["operation_id"], retry.operationId, `${where}and stays`);
            assert.equal(retry.created, false, `${where}and is not claimed again`);
            assert.notEqual(after.version, before?.version, `${where}a stale record is not an answer`);
          }
          assert.equal(clock.nextTimerMs, undefined, `${where}no timer is left`);
        }
      });
    }
  }
});

describe("reserve, case by case", () => {
  const cases: readonly [
    title: string,
    inject: readonly (Fault | undefined)[],
    sent: readonly Operation[],
    created: boolean,
    prepared?: "record" | "stale",
  ][] = [
    ["case 1: create commits, reply lost: created", ["lostReply"], ["create", "read"], true],
    [
      "case 2: the claim is held, and no second one is left behind",
      ["lostReply", "away"],
      ["create", "read", "read"],
      true,
    ],
    [
      "case 4: the overwriting of a stale record commits, reply lost",
      [undefined, undefined, "lostReply"],
      ["create", "read", "replace", "read"],
      true,
      "stale",
    ],
    ["case 5: refused by a foreign record", [], ["create", "read"], false, "record"],
    ["case 6: reply lost, and a foreign record is there", ["lostReply"], ["create", "read"], false, "record"],
    ["case 7: the read-back fails twice", ["lostReply", "away", "hangs"], ["create", "read", "read", "read"], true],
    ["case 11: 409 and nothing landed", ["contended"], ["create", "read", "create"], true],
    [
      "case 12: 409 on the overwriting of a stale record",
      [undefined, undefined, "contended"],
      ["create", "read", "replace", "read", "replace"],
      true,
      "stale",
    ],
    ["case 13: 409 and another holds the key", ["contended"], ["create", "read"], false, "record"],
    [
      "case 20: 429 under contention",
      ["contended", undefined, "contended"],
      ["create", "read", "create", "read", "create"],
      true,
    ],
    ["the request was lost", ["lostRequest"], ["create", "read", "create"], true],
    ["the store was away", ["away", "away"], ["create", "create", "create"], true],
    ["the request hangs until its timeout", ["hangs"], ["create", "read", "create"], true],
  ];
  for (const [title, plan, sent, created, prepared] of cases) {
    it(title, async () => {
      const { clock, memory, reserve, store, stored } = bench();
      const other = new Idempotency({ store: memory, runtime: clockLike(clock, 77) });
      const foreign = prepared === undefined ? undefined : await other.reserve(assign, request, input, byOperationId);
      if (prepared === "stale") await clock.advance(TTL_MS + 1);
      store.plan = plan;
      const end = returned(await reserve());
      assert.deepEqual(store.take(), sent);
      assert.equal(end.created, created);
      assert.equal(end.value === foreign?.value, !created);
      assert.equal((await stored())["operation_id"], end.operationId);
    });
  }

  it("case 5: a foreign record of another input is a conflict, not masked by a lost reply, and nothing is written", async () => {
    for (const plan of [[], ["lostReply"], ["contended"], ["hangs", "away"]] as const) {
      const { clock, memory, reserve, store, stored } = bench();
      const other = new Idempotency({ store: memory, runtime: clockLike(clock, 77) });
      await other.reserve(assign, request, "theirs", byOperationId);
      const before = await stored();
      store.plan = plan;
      const error = threw(await reserve());
      assert.ok(IdempotencyConflictError.is(error), String(error));
      assert.equal(error.operationId, before["operation_id"]);
      assert.deepEqual(await stored(), before);
    }
  });

  it("a copy that lands when its caller has given up is that caller's claim, and its retry gets it", async () => {
    const { memory, reserve, store, stored } = bench();
    store.plan = ["landsLate", ...Array.from({ length: 100 }, (): Fault => "away")];
    isStoreError(threw(await reserve({ deadlineMs: 5_000 })), "UNAVAILABLE");
    store.plan = [];
    assert.equal(await memory.read(recordName), undefined);
    memory.land();
    const landed = (await stored())["operation_id"];
    const retry = returned(await reserve());
    assert.deepEqual([retry.operationId, retry.created], [landed, false]);
  });

  it("a stale record that another has overwritten meanwhile gives the other's value", async () => {
    const { clock, memory, reserve, store } = bench();
    await withStale(memory, clock);
    const other = new Idempotency({ store: memory, runtime: clockLike(clock, 77) });
    let theirs: Promise<Reservation<string>> | undefined;
    store.before = (operation) => {
      if (operation === "replace")
        theirs ??= other.reserve(assign, { ...request, readFirst: true }, input, byOperationId);
    };
    // Theirs is two requests, and ours is held up until both are done.
    store.plan = [undefined, undefined, "away"];
    const mine = returned(await reserve());
    assert.deepEqual(await theirs, { value: mine.value, operationId: mine.operationId, created: true });
    assert.equal(mine.created, false);
  });

  it("a record removed between the refusal and the read is claimed anew", async () => {
    const { memory, reserve, store } = bench();
    await memory.create(recordName, bytesOf("whatever"));
    store.before = (operation) => {
      if (operation === "read") memory.expire(recordName);
    };
    const end = returned(await reserve());
    assert.ok(end.created);
    assert.deepEqual(store.sent, ["create", "read", "create"]);
  });

  it("a stale record removed before it is overwritten is claimed anew, at the create", async () => {
    const { clock, memory, reserve, store } = bench();
    await withStale(memory, clock);
    store.before = (operation) => {
      if (operation === "replace") memory.expire(recordName);
    };
    assert.ok(returned(await reserve()).created);
    assert.deepEqual(store.sent, ["create", "read", "replace", "read", "create"]);
  });

  it("a first caller and a later one get the same, also for what JSON writes in another way", async () => {
    const { clock, idempotency } = bench();
    const value = { minusZero: -0, at: new Date(0), none: undefined, proto: JSON.parse('{"__proto__":1}') };
    const call = (): Promise<Ending<Reservation<unknown>>> =>
      ending(
        clock,
        idempotency.reserve(assign, request, input, () => ({ value })),
      );
    const first = returned(await call());
    assert.deepEqual(returned(await call()).value, first.value);
    assert.deepEqual(Object.keys(Object(first.value)), ["minusZero", "at", "proto"]);
    assert.equal(clock.now() % DAY_MS, 0);
  });
});
