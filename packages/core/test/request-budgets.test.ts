import assert from "node:assert/strict";
import { settle } from "@firstwrite/memory";
import {
  bench,
  crashIn,
  Effect,
  leavesNothing,
  operationOf,
  returned,
  rewrite,
  threw,
  TTL_MS,
  type Bench,
  type Ending,
} from "./setup.ts";

describe("request budgets of reserve (protocol §8)", () => {
  const budgets: readonly [
    title: string,
    sent: Readonly<Record<"first" | "again" | "conflict" | "stale", string>>,
    readFirst: boolean,
  ][] = [
    [
      "as it is",
      { first: "create", again: "create read", conflict: "create read", stale: "create read replace" },
      false,
    ],
    ["readFirst", { first: "read create", again: "read", conflict: "read", stale: "read replace" }, true],
  ];
  for (const [title, sent, readFirst] of budgets) {
    it(`${title}: first ${sent.first}, again ${sent.again}, conflict ${sent.conflict}, stale ${sent.stale}`, async () => {
      const { clock, reserve, store } = bench();
      const took = (): string => store.take().join(" ");
      returned(await reserve({ readFirst }));
      assert.equal(took(), sent.first, "first");
      returned(await reserve({ readFirst }));
      assert.equal(took(), sent.again, "again");
      threw(await reserve({ readFirst }, "another input"));
      assert.equal(took(), sent.conflict, "conflict");
      await clock.advance(TTL_MS + 1);
      assert.ok(returned(await reserve({ readFirst })).created);
      assert.equal(took(), sent.stale, "stale");
    });
  }
});

describe("request budgets of execute (protocol §8)", () => {
  leavesNothing();

  const crashed = async (on: Bench): Promise<void> => {
    await crashIn(on, operationOf());
    await on.clock.advance(60_001);
  };
  const rows: readonly [
    title: string,
    prepare: (on: Bench) => Promise<unknown>,
    call: (on: Bench, readFirst: boolean) => Promise<Ending<unknown>>,
    sent: string,
  ][] = [
    ["first", async () => {}, (on, readFirst) => on.execute(operationOf(), { readFirst }), "create replace"],
    [
      "replay",
      (on) => on.execute(operationOf()),
      (on, readFirst) => on.execute(operationOf(), { readFirst }),
      "create read",
    ],
    [
      "in progress",
      (on) => crashIn(on, operationOf()),
      (on, readFirst) => on.execute(operationOf(), { readFirst }),
      "create read",
    ],
    [
      "conflict",
      (on) => on.execute(operationOf()),
      (on, readFirst) => on.execute(operationOf(), { readFirst }, "another"),
      "create read",
    ],
    [
      "held",
      async (on) => {
        await crashed(on);
        await rewrite(on, { status: "held", lease_ms: undefined });
      },
      (on, readFirst) => on.execute(operationOf(), { readFirst }),
      "create read",
    ],
    ["takeover", crashed, (on, readFirst) => on.execute(operationOf(), { readFirst }), "create read replace replace"],
    [
      "takeover, to held",
      crashed,
      (on, readFirst) => on.execute(operationOf({ recovery: "hold" }), { readFirst }),
      "create read replace",
    ],
    [
      "released",
      async (on) => {
        await crashed(on);
        await rewrite(on, { status: "released", lease_ms: undefined });
      },
      (on, readFirst) => on.execute(operationOf(), { readFirst }),
      "create read replace replace",
    ],
    [
      "released by another input",
      async (on) => {
        await on.execute(
          operationOf({
            onError: () => "retry",
            run: () => {
              throw new Error("invalid");
            },
          }),
          {},
          "another",
        );
      },
      (on, readFirst) => on.execute(operationOf(), { readFirst }),
      "create read replace replace",
    ],
    [
      "stale",
      async (on) => {
        await on.execute(operationOf());
        await on.clock.advance(TTL_MS + 1);
      },
      (on, readFirst) => on.execute(operationOf(), { readFirst }),
      "create read replace replace",
    ],
  ];
  for (const [title, prepare, call, sent] of rows) {
    const first = title === "first";
    for (const readFirst of [false, true]) {
      const budget = !readFirst ? sent : first ? `read ${sent}` : sent.replace("create ", "");
      it(`${title}${readFirst ? ", readFirst" : ""}: ${budget}`, async () => {
        const on = bench();
        await prepare(on);
        on.store.take();
        await call(on, readFirst);
        assert.equal(on.store.take().join(" "), budget);
      });

      it(`${title}${readFirst ? ", readFirst" : ""}: 1,000 callers in one process cost as one`, async () => {
        const on = bench();
        await prepare(on);
        on.store.take();
        const operation = operationOf(title === "takeover, to held" ? { recovery: "hold" } : {});
        const ofInput = title === "conflict" ? "another" : undefined;
        const calls = Array.from({ length: 1000 }, () => on.start(operation, { readFirst }, ofInput));
        await Promise.all(calls.map((started) => started.ends()));
        assert.equal(on.store.take().join(" "), budget);
      });
    }
  }

  it("from the cache: nothing", async () => {
    const on = bench({ cache: { entriesMax: 10 } });
    await on.execute(operationOf());
    on.store.take();
    await on.execute(operationOf());
    assert.deepEqual(on.store.take(), []);
  });

  it("a run costs one replace more for each third of its lease", async () => {
    for (const thirds of [0, 1, 2, 3, 30]) {
      const on = bench();
      const effect = new Effect();
      const call = on.start(operationOf({ run: effect.run }), { deadlineMs: 3_000_000 });
      await settle();
      await on.clock.advance(thirds * 10_000 + 5_000);
      effect.last.finish();
      await call.ends();
      assert.deepEqual(on.store.take(), ["create", ...Array(thirds).fill("replace"), "replace"]);
    }
  });

  it("a large result costs one create more for the first call, and one read more for each replay", async () => {
    const on = bench();
    const operation = operationOf({ inlineBytesMax: 0 });
    await on.execute(operation);
    assert.deepEqual(on.store.take(), ["create", "create", "replace"]);
    await on.execute(operation);
    assert.deepEqual(on.store.take(), ["create", "read", "read"]);
  });
});
