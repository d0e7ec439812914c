import assert from "node:assert/strict";

import { explore, replay, Violation, type Scenario } from "@firstwrite/simulator";

const bytes = (text: string): Uint8Array => Buffer.from(text);

/** A counter that callers add one to by compare-and-swap, the right way or a wrong one. */
function counter(add: Adder, overrides: Partial<Scenario<number>> = {}): Scenario<number> {
  return {
    callers: 2,
    faults: [],
    faultsMax: 0,
    start: ({ store }) => add(store),
    checks: () => {
      const results: number[] = [];
      return {
        onEnded(ending) {
          assert.equal(ending.kind, "returned");
          if (ending.kind === "returned") results.push(ending.result);
          assert.equal(new Set(results).size, results.length, "two callers got the same number");
        },
      };
    },
    ...overrides,
  };
}

type Store = Parameters<Scenario<number>["start"]>[0]["store"];
type Adder = (store: Store) => Promise<number>;

const right: Adder = async (store) => {
  for (;;) {
    const record = await store.read("n");
    const next = record === undefined ? 1 : Number(Buffer.from(record.bytes).toString()) + 1;
    const outcome =
      record === undefined
        ? await store.create("n", bytes(`${next}`))
        : await store.replace("n", record.version, bytes(`${next}`));
    if (outcome.kind === "written") return next;
  }
};

/** Takes a refusal for success. */
const wrong: Adder = async (store) => {
  const record = await store.read("n");
  const next = record === undefined ? 1 : Number(Buffer.from(record.bytes).toString()) + 1;
  if (record === undefined) await store.create("n", bytes(`${next}`));
  else await store.replace("n", record.version, bytes(`${next}`));
  return next;
};

async function violationOf(scenario: Scenario<number>): Promise<Violation> {
  const error: unknown = await explore(scenario).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof Violation, `no violation was found: ${String(error)}`);
  return error;
}

describe("explore", () => {
  it("finishes code that is right, and counts what it went through", async () => {
    const { schedules, states } = await explore(counter(right));
    assert.ok(schedules > 1 && states > schedules);
  });

  it("finds the order that breaks code that is wrong, and its schedule replays it", async () => {
    const { schedule, message } = await violationOf(counter(wrong));
    assert.match(message, /two callers got the same number/);
    await assert.rejects(replay(counter(wrong), schedule), /two callers got the same number/);
    await replay(counter(right), []);
  });

  it("interchangeable callers lose no violation, and cost less", async () => {
    await violationOf(counter(wrong, { interchangeable: true }));
    const all = await explore(counter(right, { callers: 3 }));
    const fewer = await explore(counter(right, { callers: 3, interchangeable: true }));
    assert.ok(fewer.states < all.states * 0.6, `${fewer.states} of ${all.states}`);
  });

  // Each caller here is right but for one fault, so that a fault that is never played would go unseen.
  const blind: [string, Adder, Scenario<number>["faults"]][] = [
    ["lostRequest", assuming("written"), ["lostRequest"]],
    ["lostReply", assuming("retry"), ["lostReply"]],
    ["landsLate", assuming("retry"), ["landsLate"]],
  ];
  for (const [fault, add, faults] of blind) {
    it(`plays ${fault}`, async () => {
      await explore(counter(add));
      const scenario = counter(add, { faults, faultsMax: 1, checks: exactCount });
      const { schedule } = await violationOf(scenario);
      assert.ok(
        schedule.some((event) => event.startsWith(fault)),
        String(schedule),
      );
    });
  }

  it("plays contention", async () => {
    let contended = 0;
    await explore(
      counter(
        async (store) => {
          const outcome = await store.create("n", bytes("1"));
          if (outcome.kind === "contended") contended += 1;
          return Math.random();
        },
        { callers: 1, faults: ["contended"], faultsMax: 1 },
      ),
    );
    assert.equal(contended, 1);
  });

  it("plays a crash before and after a write", async () => {
    const ends = new Set<string>();
    await explore({
      ...counter(right),
      callers: 1,
      faults: ["crashBefore", "crashAfter"],
      faultsMax: 1,
      checks: () => ({
        atRest: async (_retry, world) => {
          ends.add(`${world.isCrashed(0) ? "crashed" : "ended"} ${world.records.size}`);
        },
      }),
    });
    assert.deepEqual([...ends].toSorted(), ["crashed 0", "crashed 1", "ended 1"]);
  });

  it("lets time jump at any moment, and a request die that is in flight for too long", async () => {
    const seen = new Set<string>();
    await explore<number>({
      callers: 1,
      faults: [],
      faultsMax: 0,
      jumpsMs: [2 * 3_600_000],
      start: async ({ store, runtime }) => {
        const outcome = await store.create("n", bytes("1"));
        seen.add(`${outcome.kind} after ${runtime.monotonicMs()}`);
        return 1;
      },
      checks: () => ({}),
    });
    assert.deepEqual([...seen].toSorted(), ["unknown after 7200000", "written after 0"]);
  });

  it("tells two states apart by what a caller was told, not by the store alone", async () => {
    const { states } = await explore(counter(right, { callers: 1, faults: ["lostRequest"], faultsMax: 0 }));
    // Before the read, before the create, at the end.
    assert.equal(states, 3);
  });
});

/** Adds one, and takes a lost answer for success, or for a reason to add again. */
function assuming(what: "written" | "retry"): Adder {
  return async (store) => {
    for (;;) {
      const record = await store.read("n").catch(() => undefined);
      const next = record === undefined ? 1 : Number(Buffer.from(record.bytes).toString()) + 1;
      const outcome =
        record === undefined
          ? await store.create("n", bytes(`${next}`))
          : await store.replace("n", record.version, bytes(`${next}`));
      if (outcome.kind === "written" || (outcome.kind === "unknown" && what === "written")) return next;
    }
  };
}

/** The counter is the number of calls that returned. */
function exactCount(): ReturnType<Scenario<number>["checks"]> {
  let returned = 0;
  return {
    onEnded: () => {
      returned += 1;
    },
    atRest: async (_retry, world) => {
      const count = Number(Buffer.from(world.records.get("n")?.bytes ?? bytes("0")).toString());
      assert.equal(count, returned, "the counter is not the number of calls");
    },
  };
}
