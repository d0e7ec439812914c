import assert from "node:assert/strict";
import { inspect } from "node:util";
import { days, executionOf, Idempotency, sha256, type OperationOptions } from "@firstwrite/core";
import { settle } from "@firstwrite/memory";
import {
  bench,
  crashIn,
  Effect,
  ending,
  heardDuring,
  leavesNothing,
  operationOf,
  rewrite,
  returned,
  sleep,
  threw,
  type Bench,
  type Ending,
} from "./setup.ts";

const keyHash = sha256("acme:k1");

/** What was heard but the store's requests. */
async function toldDuring(run: () => Promise<unknown>): Promise<[string, object][]> {
  return (await heardDuring(run)).filter(([name]) => name !== "firstwrite:store-request");
}

const failing = (meaning: "replay" | "retry") =>
  operationOf({ onError: () => meaning, run: () => Promise.reject(new Error("no funds")) });

describe("execute: events", () => {
  leavesNothing();

  it("tell each answered call: replayed, recorded, value or failure, and how long it took", async () => {
    const cases = [
      [operationOf(), { replayed: false, recorded: true, kind: "value" }],
      [operationOf(), { replayed: true, recorded: true, kind: "value" }],
      [failing("retry"), { replayed: false, recorded: false, kind: "failure" }],
      [failing("replay"), { replayed: false, recorded: true, kind: "failure" }],
      [failing("replay"), { replayed: true, recorded: true, kind: "failure" }],
    ] as const;
    const first = bench();
    const other = bench();
    for (const [nth, [operation, facts]] of cases.entries()) {
      const on = nth < 2 ? first : other;
      on.store.travelBack = () => sleep(on.clock, 50);
      const told = await toldDuring(() => on.execute(operation));
      const { operation_id: operationId } = await on.stored();
      // Two requests, of 50 ms each; the second attempt of the released one has two more.
      const durationMs = nth === 3 ? 200 : 100;
      assert.deepEqual(told, [
        ["firstwrite:executed", { operation: "pay", operationId, keyHash, ...facts, durationMs }],
      ]);
    }
  });

  it("tell of each request, the large result's too", async () => {
    const on = bench();
    const heard = await heardDuring(() => on.execute(operationOf({ inlineBytesMax: 0 })));
    const requests = heard.flatMap(([, told]) => ("outcome" in told ? [`${told.operation} ${told.outcome}`] : []));
    assert.deepEqual(requests, ["create written", "create written", "replace written"]);
  });

  it("tell of a takeover, with the attempt that took over, before its effect", async () => {
    const on = bench();
    const operationId = await crashIn(on, operationOf());
    await on.clock.advance(60_001);
    const [takenOver] = await toldDuring(() => on.execute(operationOf()));
    assert.deepEqual(takenOver, ["firstwrite:taken-over", { operation: "pay", operationId, keyHash, attempt: 2 }]);
  });

  it("tell of a held operation, when it becomes so and when it is met", async () => {
    const on = bench();
    const operationId = await crashIn(on, operationOf());
    await on.clock.advance(60_001);
    const held = ["firstwrite:held", { operation: "pay", operationId, keyHash }];
    const operation = operationOf({ recovery: "hold" });
    assert.deepEqual(await toldDuring(() => on.execute(operation)), [held]);
    assert.deepEqual(await toldDuring(() => on.execute(operation)), [held]);
  });

  it("tell of a conflict, with the operation that has the key", async () => {
    const on = bench();
    const { operationId } = returned(await on.execute(operationOf()));
    const refund = operationOf({ name: "refund" });
    assert.deepEqual(await toldDuring(() => on.execute(refund)), [
      ["firstwrite:conflict", { operation: "refund", operationId, keyHash }],
    ]);
  });

  it("tell of a lost answer that was resolved", async () => {
    const on = bench();
    on.memory.inject("lostReply", { on: "replace" });
    const [resolved] = await toldDuring(() => on.execute(operationOf()));
    assert.deepEqual(resolved, ["firstwrite:unknown-resolved", { store: "memory", mine: true }]);
  });

  it("tell once of an ownership that was lost, as soon as it is known, by a later format too", async () => {
    for (const format of [1, 2]) {
      const on = bench();
      const effect = new Effect();
      const call = on.start(operationOf({ run: effect.run }));
      await settle();
      const { operationId } = effect.last.context;
      await rewrite(on, { attempt: 2, write_id: "theirs", format });
      const told = await toldDuring(async () => {
        effect.last.finish();
        threw(await call.ends());
      });
      assert.deepEqual(told, [["firstwrite:ownership-lost", { operation: "pay", operationId, keyHash, attempt: 1 }]]);
    }
  });

  it("tell once of a result that is not recorded, and why", async () => {
    const cases: readonly [title: string, value: unknown, denied: boolean, reason: string][] = [
      ["cannot be encoded", 5n, false, "not recordable"],
      ["is too large", "x".repeat(5_000), false, "not recordable"],
      ["the store denies it", "done", true, "store"],
      ["cannot be encoded, and the store denies to hold it", 5n, true, "store"],
    ];
    for (const [title, value, denied, reason] of cases) {
      const on = bench({ traits: { recordBytesMax: 1_000 } });
      if (denied) on.memory.inject("denied", { on: "replace", times: 2 });
      const told = await toldDuring(() => on.execute(operationOf({ run: () => value })));
      const reasons = told.flatMap(([name, message]) =>
        name === "firstwrite:not-recorded" && "reason" in message ? [message.reason] : [],
      );
      assert.deepEqual(reasons, [reason], title);
      on.memory.heal();
    }
  });

  it("tell each call of a flight, one of them as run", async () => {
    const on = bench();
    const operation = operationOf();
    const told = await toldDuring(() => Promise.all([1, 2, 3].map(() => on.execute(operation))));
    const replayed = told.flatMap(([, message]) => ("replayed" in message ? [message.replayed] : []));
    assert.deepEqual(replayed, [false, true, true]);
  });
});

describe("execute: what must not leak", () => {
  leavesNothing();

  const secrets = { key: "SECRETKEY", scope: "SECRETSCOPE", input: "SECRETINPUT", value: "SECRETVALUE" };
  const where = { scope: secrets.scope, key: secrets.key };
  type Options = Partial<OperationOptions<unknown, unknown>>;

  function call(on: Bench, options: Options = {}, given: Record<string, unknown> = {}): Promise<Ending<unknown>> {
    const operation = operationOf({ run: () => ({ of: secrets.value }), ...options });
    const { of = secrets.input, ...limits } = given;
    const request = { ...where, deadlineMs: 5_000, ...limits };
    return ending(on.clock, on.idempotency.execute(operation, request, { of }));
  }

  async function crashed(on: Bench): Promise<void> {
    await crashIn(on, operationOf({ fingerprint: () => ({ of: secrets.input }) }), where);
  }

  const runs: Readonly<Record<string, (on: Bench) => Promise<Ending<unknown>[]>>> = {
    "a first run and a replay": async (on) => [await call(on), await call(on)],
    "a conflict": async (on) => [await call(on), await call(on, {}, { of: "another" })],
    "an operation in progress, waited for and not": async (on) => {
      await crashed(on);
      return [await call(on), await call(on, {}, { waitMs: 100 })];
    },
    "a takeover to held": async (on) => {
      await crashed(on);
      await on.clock.advance(60_001);
      return [await call(on, { recovery: "hold" }), await call(on, { recovery: "hold" })];
    },
    "a reconcile that finds, and one that answers nothing": async (on) => {
      await crashed(on);
      await on.clock.advance(60_001);
      const end = await call(on, { recovery: { reconcile: () => JSON.parse("5") } });
      await on.clock.advance(60_001);
      return [end, await call(on, { recovery: { reconcile: () => ({ found: secrets.value }) } })];
    },
    "a run past the deadline": async (on) => {
      const effect = new Effect();
      const end = await call(on, { run: effect.run });
      effect.last.finish(secrets.value);
      await settle();
      return [end];
    },
    "a store that is away at the settle": async (on) => {
      on.memory.inject("away", { on: "replace", times: Infinity });
      const end = await call(on);
      await on.clock.advance(5_000);
      return [end];
    },
    "a store that hangs, denies, contends": async (on) => {
      const ends: Ending<unknown>[] = [];
      for (const fault of ["hangs", "denied", "contended", "lostRequest"] as const) {
        on.memory.inject(fault, { times: Infinity });
        ends.push(await call(on));
        on.memory.heal();
      }
      return ends;
    },
    "an ownership that was lost": async (on) => {
      const effect = new Effect();
      const waiting = call(on, { run: effect.run });
      await settle();
      on.memory.expire(`idempotency/${secrets.scope}/${sha256(`${secrets.scope}:${secrets.key}`).slice(7)}.json`);
      effect.last.finish(secrets.value);
      return [await waiting];
    },
    "a value that cannot be encoded": async (on) => [
      await call(on, { run: () => [secrets.value, new Map([[secrets.value, secrets.value]])] }),
      await call(on),
    ],
    "a value that is too large": async (on) => [await call(on, { run: () => secrets.value.repeat(500) })],
    "a large result that is gone": async (on) => {
      const first = await call(on, { inlineBytesMax: 0 });
      for await (const { name } of on.memory.list("")) if (name.endsWith(".result")) on.memory.expire(name);
      return [first, await call(on, { inlineBytesMax: 0 })];
    },
    "a key that is too old": async (on) => [await call(on, {}, { issuedAt: on.clock.now() - days(100) })],
    "a call from inside its own run": async (on) => {
      const ends: Ending<unknown>[] = [];
      const within = new Idempotency({ store: on.store, runtime: on.clock });
      await call(on, {
        async run() {
          ends.push(await call({ ...on, idempotency: within }));
        },
      });
      return ends;
    },
    "wrong arguments": async (on) => [
      await call(on, {}, { waitMs: -1 }),
      await call(on, {}, { of: [secrets.input, 1n] }),
      await call(on, {}, { of: () => secrets.input }),
      await call(on, { fingerprint: () => 1 }, { of: () => secrets.input }),
      await call(on, { keyTime: true }),
      await call(on, {}, { key: `${secrets.key}\n` }),
    ],
  };
  for (const [title, run] of Object.entries(runs)) {
    it(`no event and no error has the key, the scope, the input or the value in it: ${title}`, async () => {
      const on = bench({ traits: { recordBytesMax: 3_000 } });
      let ends: Ending<unknown>[] = [];
      const heard = await heardDuring(async () => (ends = await run(on)));
      const errors = ends.flatMap((end) => (end.kind === "threw" ? [end.error] : []));
      assert.ok(heard.length > 0 || errors.length > 0);
      assert.ok(
        errors.every((error) => executionOf(error)?.recorded !== true),
        "the engine's own errors",
      );
      // Every property, own or hidden, and every cause.
      const seen = inspect([heard, errors], {
        depth: Infinity,
        showHidden: true,
        maxStringLength: null,
        maxArrayLength: null,
      });
      for (const [what, secret] of Object.entries(secrets)) {
        assert.ok(!seen.includes(secret), `the ${what} is in ${seen}`);
      }
    });
  }
});
