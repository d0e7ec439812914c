import assert from "node:assert/strict";

import { StoreError } from "@firstwrite/core";
import {
  explore,
  NoAnswerError,
  replay,
  Violation,
  walk,
  type CallerSetup,
  type Checks,
  type Fault,
  type Scenario,
  type StartingRecord,
} from "@firstwrite/simulator";

const HOUR_MS = 3_600_000;
const bytes = (text: string): Uint8Array => Buffer.from(text);

/** The numbers that callers have returned. */
interface Returned {
  readonly numbers: number[];
}

/** A counter that callers add one to by compare-and-swap, the right way or a wrong one. */
function counter(
  add: (store: CallerSetup["store"]) => Promise<number>,
  overrides: Partial<Scenario<number, Returned>> = {},
): Scenario<number, Returned> {
  return {
    callers: 2,
    faults: [],
    faultsMax: 0,
    model: () => ({ numbers: [] }),
    start: ({ store }) => add(store),
    checks: {
      onEnded(ending, _caller, { model: { numbers } }) {
        assert.equal(ending.kind, "returned");
        if (ending.kind !== "returned") return;
        assert.ok(!numbers.includes(ending.result), "two callers got the same number");
        numbers.push(ending.result);
      },
    },
    ...overrides,
  };
}

async function addOne(store: CallerSetup["store"]): Promise<{ next: number; kind: string }> {
  const record = await store.read("n").catch(() => undefined);
  const next = record === undefined ? 1 : Number(Buffer.from(record.bytes).toString()) + 1;
  const { kind } =
    record === undefined
      ? await store.create("n", bytes(`${next}`))
      : await store.replace("n", record.version, bytes(`${next}`));
  return { next, kind };
}

/** Adds one until an answer says `written`, or one that is taken for it. */
function untilWritten(alsoTaken?: string): (store: CallerSetup["store"]) => Promise<number> {
  return async (store) => {
    for (;;) {
      const { next, kind } = await addOne(store);
      if (kind === "written" || kind === alsoTaken) return next;
    }
  };
}

const right = untilWritten();
const takesRefusalForSuccess = untilWritten("refused");

/** The counter is the number of calls that returned. */
const exactCount: Checks<number, Returned> = {
  onEnded: (_ending, _caller, { model }) => {
    model.numbers.push(0);
  },
  atRest: async (_retry, { records, model }) => {
    const count = Number(Buffer.from(records.get("n")?.bytes ?? bytes("0")).toString());
    assert.equal(count, model.numbers.length, "the counter is not the number of calls");
  },
};

async function violationOf<Result, Model>(scenario: Scenario<Result, Model>): Promise<Violation> {
  const error: unknown = await explore(scenario).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof Violation, `no violation was found: ${String(error)}`);
  return error;
}

/** Everything that a scenario of callers that return text can come to, sorted: what each returned, or why it did not. */
async function outcomesOf<Model>(
  scenario: Omit<Scenario<string, Model>, "checks"> & { readonly look?: (model: Model) => string },
  how: (scenario: Scenario<string, Model & { ends: string[] }>) => Promise<unknown> = explore,
): Promise<string[]> {
  const outcomes = new Set<string>();
  const { model: open, start, look, ...rest } = scenario;
  await how({
    ...rest,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a scenario without a model has nothing but the ends
    model: () => ({ ...(open?.() as Model), ends: Array.from({ length: scenario.callers }, () => "crashed") }),
    start,
    checks: {
      onEnded(ending, caller, { model: { ends } }) {
        if (caller < ends.length) ends[caller] = ending.kind === "returned" ? ending.result : String(ending.error);
      },
      async atRest(_retry, { model }) {
        outcomes.add([...model.ends, ...(look === undefined ? [] : [look(model)])].join(" | "));
      },
    },
  });
  return [...outcomes].toSorted();
}

describe("explore", () => {
  it("finishes code that is right, and counts what it went through", async () => {
    const { schedules, states } = await explore(counter(right));
    assert.ok(schedules > 1 && states > schedules);
  });

  it("finds the order that breaks code that is wrong", async () => {
    const { message } = await violationOf(counter(takesRefusalForSuccess));
    assert.match(message, /two callers got the same number/);
  });

  it("runs the code of a caller once for all schedules in which it is told the same", async () => {
    let starts = 0;
    const { schedules } = await explore(
      counter(
        (store) => {
          starts += 1;
          return right(store);
        },
        { callers: 3, faults: ["lostReply"], faultsMax: 1, checks: {} },
      ),
    );
    assert.ok(starts * 10 < schedules, `${starts} starts in ${schedules} schedules`);
  });

  it("interchangeable callers lose no violation, and cost less", async () => {
    await violationOf(counter(takesRefusalForSuccess, { interchangeable: true }));
    const all = await explore(counter(right, { callers: 3 }));
    const fewer = await explore(counter(right, { callers: 3, interchangeable: true }));
    assert.ok(fewer.states < all.states * 0.7, `${fewer.states} of ${all.states}`);
  });

  // Each caller here is right but for one fault, so that a fault that is never played would go unseen.
  const blind: [Fault, (store: CallerSetup["store"]) => Promise<number>][] = [
    ["lostRequest", untilWritten("unknown")],
    ["lostReply", right],
    ["landsLate", right],
  ];
  for (const [fault, add] of blind) {
    it(`plays ${fault}`, async () => {
      await explore(counter(add));
      const { schedule } = await violationOf(counter(add, { faults: [fault], faultsMax: 1, checks: exactCount }));
      assert.ok(
        schedule.some((event) => event.startsWith(fault)),
        String(schedule),
      );
    });
  }

  it("plays contention", async () => {
    const outcomes = await outcomesOf({
      callers: 1,
      faults: ["contended"],
      faultsMax: 1,
      start: async ({ store }) => (await store.create("n", bytes("1"))).kind,
    });
    assert.deepEqual(outcomes, ["contended", "written"]);
  });

  it("plays a crash before and after a write", async () => {
    const ends = new Set<string>();
    await explore({
      ...counter(right),
      callers: 1,
      faults: ["crashBefore", "crashAfter"],
      faultsMax: 1,
      checks: {
        atRest: async (_retry, world) => {
          ends.add(`${world.isCrashed(0) ? "crashed" : "ended"} ${world.records.size}`);
        },
      },
    });
    assert.deepEqual([...ends].toSorted(), ["crashed 0", "crashed 1", "ended 1"]);
  });

  it("plays a copy of an answered write that lands once more, after whatever is written in between", async () => {
    // By content a version comes back, and with it what was to be overwritten: rule P8.
    const outcomes = await outcomesOf({
      callers: 1,
      faults: ["repeatedLater"],
      faultsMax: 1,
      model: () => ({ stored: [""] }),
      async start({ store }) {
        const first = await store.create("n", bytes("a"));
        const second = first.kind === "written" && (await store.replace("n", first.version, bytes("b")));
        if (second && second.kind === "written") await store.replace("n", second.version, bytes("a"));
        return Buffer.from((await store.read("n"))?.bytes ?? []).toString();
      },
    });
    assert.deepEqual(outcomes, ["a", "b"]);
  });

  it("plays a store that is away for one caller, for as many requests as the scenario says", async () => {
    const outcomes = (awayFor: number): Promise<string[]> =>
      outcomesOf({
        callers: 1,
        faults: ["away"],
        faultsMax: 1,
        awayFor,
        async start({ store }) {
          const ends: string[] = [];
          for (const value of ["1", "2", "3"]) {
            const end = await store.create(value, bytes(value)).catch((error: unknown) => error);
            ends.push(StoreError.is(end) ? end.code : "sent");
          }
          return ends.join(" ");
        },
      });
    assert.deepEqual(await outcomes(1), [
      "UNAVAILABLE sent sent",
      "sent UNAVAILABLE sent",
      "sent sent UNAVAILABLE",
      "sent sent sent",
    ]);
    assert.deepEqual(await outcomes(2), [
      "UNAVAILABLE UNAVAILABLE sent",
      "sent UNAVAILABLE UNAVAILABLE",
      "sent sent UNAVAILABLE",
      "sent sent sent",
    ]);
  });

  it("sets the wall clock of one caller, and neither its monotonic clock nor another's", async () => {
    const outcomes = await outcomesOf({
      callers: 2,
      faults: [],
      faultsMax: 1,
      clockJumpsMs: [-HOUR_MS],
      async start({ store, runtime }) {
        const before = runtime.now();
        await store.read("n");
        return `${runtime.now() - before} ${runtime.monotonicMs()}`;
      },
    });
    assert.deepEqual(outcomes, [`${-HOUR_MS} 0 | 0 0`, `0 0 | ${-HOUR_MS} 0`, "0 0 | 0 0"].toSorted());
  });

  it("lets time jump at any moment, and a request die that is in flight for too long", async () => {
    const outcomes = await outcomesOf({
      callers: 1,
      faults: [],
      faultsMax: 0,
      jumpsMs: [2 * HOUR_MS],
      start: async ({ store, runtime }) =>
        `${(await store.create("n", bytes("1"))).kind} after ${runtime.monotonicMs()}`,
    });
    assert.deepEqual(outcomes, ["unknown after 7200000", "written after 0"]);
  });

  it("tells two states apart by what a caller was told, not by the store alone", async () => {
    const { states } = await explore(counter(right, { callers: 1, faults: ["lostRequest"], faultsMax: 0 }));
    // Before the read, before the create, at the end.
    assert.equal(states, 3);
  });

  it("begins calls when the schedule says so, and after a jump", async () => {
    const scenario = {
      callers: 2,
      faults: [],
      faultsMax: 0,
      jumpsMs: [1_000],
      start: async ({ runtime }: CallerSetup<{ ends: string[] }>) => `${runtime.monotonicMs()}`,
    };
    assert.deepEqual(await outcomesOf(scenario), ["0 | 0"]);
    assert.deepEqual(await outcomesOf({ ...scenario, beginLate: true }), [
      "0 | 0",
      "0 | 1000",
      "1000 | 0",
      "1000 | 1000",
    ]);
  });

  describe("with records at the start", () => {
    const records: readonly StartingRecord[] = [
      { name: "old", bytes: bytes("o"), ageMs: 2 * HOUR_MS },
      { name: "new", bytes: bytes("n"), ageMs: 0 },
    ];
    const look = {
      callers: 1,
      faults: [],
      faultsMax: 0,
      records,
      async start({ store }: CallerSetup<{ ends: string[] }>): Promise<string> {
        const found = [await store.read("old"), await store.read("new")];
        return found.map((one) => (one === undefined ? "gone" : `${one.readAt - one.modifiedAt}`)).join(" ");
      },
    };

    it("shows each to callers with its age", async () => {
      assert.deepEqual(await outcomesOf(look), [`${2 * HOUR_MS} 0`]);
    });

    it("removes those that a lifecycle rule may remove, at any moment", async () => {
      assert.deepEqual(await outcomesOf({ ...look, removedAfterMs: HOUR_MS }), [`${2 * HOUR_MS} 0`, "gone 0"]);
      assert.deepEqual(await outcomesOf({ ...look, removedAfterMs: 3 * HOUR_MS }), [`${2 * HOUR_MS} 0`]);
    });
  });

  it("refuses code that sends two requests to the store at once, which no schedule of one caller has", async () => {
    const scenario = counter(async (store) => {
      await Promise.all([store.read("a"), store.read("b")]);
      return 1;
    });
    assert.match((await violationOf(scenario)).message, /caller 0 sent two requests to the store at once/);
  });

  it("refuses code that does another thing when it is told the same", async () => {
    let count = 0;
    const scenario = counter(
      async (store) => {
        count += 1;
        for (const name of ["a", "b"]) await store.create(`${name}${count}`, bytes(name));
        return count;
      },
      { callers: 1, faults: ["contended"], faultsMax: 1, checks: {} },
    );
    await assert.rejects(explore(scenario), /told the same again .*, the code did something else/);
  });
});

describe("the service", () => {
  interface Ledger {
    readonly rows: string[];
    readonly ends: string[];
  }

  const insertOnce = async ({ service }: CallerSetup<Ledger>): Promise<string> =>
    service
      .request("insert", ({ rows }) => rows.push("row"))
      .then(
        (count) => `row ${count}`,
        (error: unknown) => (error instanceof NoAnswerError ? "no answer" : String(error)),
      );

  const insert = (overrides: Partial<Scenario<string, Ledger>>): Promise<string[]> =>
    outcomesOf<Ledger>({
      callers: 1,
      faults: [],
      faultsMax: 1,
      model: () => ({ rows: [], ends: [] }),
      start: insertOnce,
      look: ({ rows }) => `${rows.length}`,
      ...overrides,
    });

  const faults: [Fault, string[]][] = [
    ["lostRequest", ["no answer | 0", "row 1 | 1"]],
    ["lostReply", ["no answer | 1", "row 1 | 1"]],
    ["landsLate", ["no answer | 1", "row 1 | 1"]],
    ["repeatedLater", ["row 1 | 1", "row 1 | 2"]],
    ["crashBefore", ["crashed | 0", "row 1 | 1"]],
    ["crashAfter", ["crashed | 1", "row 1 | 1"]],
    ["declined", ["Error: no funds for insert | 0", "row 1 | 1"]],
    ["contended", ["row 1 | 1"]],
    ["away", ["row 1 | 1"]],
  ];
  for (const [fault, expected] of faults) {
    it(`${fault}: ${expected.join(", or ")}`, async () => {
      const service = { decline: (label: string) => new Error(`no funds for ${label}`) };
      assert.deepEqual(await insert({ faults: [fault], service }), expected);
    });
  }

  it("has its own faults where the scenario says so", async () => {
    assert.deepEqual(await insert({ faults: ["lostRequest"], service: { faults: [] } }), ["row 1 | 1"]);
  });

  it("lets a request land late only as long as it can be in flight", async () => {
    const late = (inFlightMsMax: number): Promise<string[]> =>
      insert({ faults: ["landsLate"], service: { inFlightMsMax }, jumpsMs: [5_000] });
    assert.deepEqual(await late(5_000), ["no answer | 1", "row 1 | 1"]);
    assert.deepEqual(await late(4_999), ["no answer | 0", "no answer | 1", "row 1 | 1"]);
  });

  it("is a channel of its own: a caller waits for the store and the service at once", async () => {
    const orders = new Set<string>();
    await explore<string, { order: string[] }>({
      callers: 1,
      faults: ["crashAfter"],
      faultsMax: 1,
      model: () => ({ order: [] }),
      async start({ store, service }) {
        await Promise.all([store.create("n", bytes("1")), service.request("s", ({ order }) => order.push("service"))]);
        return "";
      },
      checks: {
        onWritten: (_change, { model }) => {
          model.order.push("store");
        },
        atRest: async (_retry, world) => {
          orders.add(world.model.order.join(" ") + (world.isCrashed(0) ? " crashed" : ""));
        },
      },
    });
    // What else a process had sent when it ended is in flight, and lands.
    assert.deepEqual(
      [...orders].toSorted(),
      ["service store", "service store crashed", "store service", "store service crashed"].toSorted(),
    );
  });

  it("tells checks what it did and for whom, and what callers report", async () => {
    const told = new Set<string>();
    await explore<string, Ledger>({
      callers: 2,
      faults: ["landsLate"],
      faultsMax: 1,
      model: () => ({ rows: [], ends: [] }),
      async start(caller) {
        caller.report({ begins: caller.index });
        return insertOnce(caller);
      },
      checks: {
        onServed: ({ label, caller, event }) => {
          told.add(`${label} of ${caller} by ${event}`);
        },
        onReported: (report, caller) => {
          told.add(`${JSON.stringify(report)} from ${caller}`);
        },
      },
    });
    assert.deepEqual([...told].toSorted(), [
      "insert of 0 by apply 0 service",
      "insert of 0 by land 0",
      "insert of 1 by apply 1 service",
      "insert of 1 by land 0",
      '{"begins":0} from 0',
      '{"begins":1} from 1',
    ]);
  });

  it("gives a request up with the caller's signal, and leaves it in flight", async () => {
    const outcomes = await insert({
      async start({ service, store }) {
        const abort = new AbortController();
        const inserted = service.request("insert", ({ rows }) => rows.push("row"), { signal: abort.signal });
        await store.read("n");
        abort.abort(new Error("enough"));
        return inserted.then(
          (count) => `row ${count}`,
          (error: unknown) => String(error),
        );
      },
    });
    assert.deepEqual(outcomes, ["Error: enough | 1", "row 1 | 1"]);
  });
});

describe("time that passes by itself", () => {
  /** Polls for a record until a deadline, as the engine does: without a pause, since jitter is zero. */
  const waitForRecord =
    (deadlineMs: number) =>
    async ({ store, runtime }: CallerSetup<{ ends: string[] }>): Promise<string> => {
      const over = new AbortController();
      const cancel = runtime.setTimer(deadlineMs, () => over.abort());
      while (!over.signal.aborted) {
        if ((await store.read("n")) !== undefined) {
          cancel();
          return `found after ${runtime.monotonicMs()}`;
        }
        await new Promise<void>((resolve) => {
          runtime.setTimer(0, resolve);
        });
      }
      return `gave up after ${runtime.monotonicMs()}`;
    };

  it("passes to the next timer when everybody waits, so that a deadline needs no jump", async () => {
    const outcomes = await outcomesOf({ callers: 1, faults: [], faultsMax: 0, start: waitForRecord(7_000) });
    assert.deepEqual(outcomes, ["gave up after 7000"]);
  });

  it("passes for nobody while somebody has something to do", async () => {
    const outcomes = await outcomesOf({
      callers: 2,
      faults: ["crashBefore"],
      faultsMax: 1,
      start: (caller: CallerSetup<{ ends: string[] }>) =>
        caller.index === 0
          ? waitForRecord(7_000)(caller)
          : caller.store.create("n", bytes("1")).then(({ kind }) => kind),
    });
    assert.deepEqual(outcomes, ["crashed | written", "found after 0 | written", "gave up after 7000 | crashed"]);
  });

  it("polling makes no states of its own, and a fault of a poll is played", async () => {
    const scenario = { callers: 1, faults: ["lostRequest"] as const, faultsMax: 0, start: waitForRecord(7_000) };
    const none = await explore<string, { ends: string[] }>({ ...scenario, checks: {} });
    assert.ok(none.states <= 12, `${none.states} states`);
    const lost = outcomesOf({
      ...scenario,
      faultsMax: 1,
      start: (caller: CallerSetup<{ ends: string[] }>) =>
        waitForRecord(7_000)(caller).catch((error: unknown) => String(error)),
    });
    assert.equal((await lost).length, 2);
  });

  it("does not take code for polling that counts what it asks", async () => {
    const outcomes = await outcomesOf({
      callers: 1,
      faults: [],
      faultsMax: 0,
      async start({ store, runtime }) {
        await store.read("n");
        await new Promise<void>((resolve) => {
          runtime.setTimer(0, resolve);
        });
        await store.read("n");
        return "done";
      },
    });
    assert.deepEqual(outcomes, ["done"]);
  });

  it("reports a call that never ends", async () => {
    const scenario = counter(async (store) => {
      await store.read("n");
      return new Promise<number>(() => {});
    });
    assert.match((await violationOf(scenario)).message, /the call of caller \d never ends/);
    const polls = counter(right, {
      callers: 1,
      start: ({ store, runtime }) =>
        new Promise<number>((_resolve, reject) => {
          const ask = (): void => {
            store.read("n").then(() => runtime.setTimer(0, ask), reject);
          };
          ask();
        }),
    });
    assert.match((await violationOf(polls)).message, /a call asks for the same again and again, and never ends/);
  });

  it("plays on what a call has begun after the call has ended", async () => {
    const stored = new Set<number>();
    await explore({
      callers: 1,
      faults: [],
      faultsMax: 0,
      async start({ store, runtime }) {
        runtime.setTimer(1_000, () => void store.create("later", bytes("1")));
      },
      checks: {
        atRest: async (_retry, { records }) => {
          stored.add(records.size);
        },
      },
    });
    assert.deepEqual([...stored], [1]);
  });

  it("lets time pass before the retry at rest", async () => {
    const retried: unknown[] = [];
    await explore({
      callers: 1,
      faults: [],
      faultsMax: 0,
      start: async ({ index, runtime }) => `caller ${index} after ${runtime.monotonicMs()}`,
      checks: {
        atRest: async (retry) => {
          retried.push(await retry(5_000));
        },
      },
    });
    assert.deepEqual(retried, [{ kind: "returned", result: "caller 1 after 5000" }]);
  });
});

describe("a violation", () => {
  const faults: readonly Fault[] = ["lostRequest", "lostReply", "landsLate", "crashBefore", "contended"];
  const wrong = counter(right, { callers: 2, faults, faultsMax: 2, checks: exactCount });

  it("is replayed by its schedule, which is as short as leaving out makes it", async () => {
    const { schedule } = await violationOf(wrong);
    assert.equal(schedule.length, 2, `a read, and a reply that is lost, are enough: ${schedule.join()}`);
    await assert.rejects(replay(wrong, schedule), /the counter is not the number of calls/);
    await replay(wrong, []);
  });

  it("has a message to be pasted into a test, and says what happened", async () => {
    const { message, trace } = await violationOf(wrong);
    assert.match(message, /^the counter is not the number of calls/);
    assert.match(message, /await replay\(scenario, \["apply \d", "lostReply \d"\]\);/);
    assert.match(trace.join("\n"), /caller \d: create n 1 bytes → /);
    assert.match(trace.join("\n"), /caller 1 returned \d/);
    for (const line of trace) assert.ok(message.includes(line));
  });

  it("is not found by a schedule of another scenario", async () => {
    await assert.rejects(replay(wrong, ["apply 7"]), /"apply 7" cannot happen after \[\], but apply 0, apply 1/);
  });

  it("says so when it does not happen again", async () => {
    let ended = 0;
    const flaky = counter(right, {
      callers: 1,
      checks: {
        onEnded() {
          ended += 1;
          assert.notEqual(ended, 1, "only once");
        },
      },
    });
    assert.match((await violationOf(flaky)).message, /only once \(but not when the schedule is played again/);
  });
});

describe("walk", () => {
  const wrong = counter(takesRefusalForSuccess, { callers: 3 });

  it("plays the same for the same seed, and another for another", async () => {
    const paths = async (seed: number): Promise<string> => {
      const ends: string[] = [];
      await walk(
        counter(right, {
          callers: 3,
          checks: {
            onEnded: (_ending, caller) => {
              ends.push(`${caller}`);
            },
          },
        }),
        { seed, walks: 20 },
      );
      return ends.join("");
    };
    assert.equal(await paths(1), await paths(1));
    assert.notEqual(await paths(1), await paths(2));
  });

  it("finds what is wrong, and its violation carries the seed", async () => {
    const error: unknown = await walk(wrong, { seed: 5, walks: 100 }).catch((thrown: unknown) => thrown);
    assert.ok(error instanceof Violation);
    assert.equal(error.seed, 5);
    assert.match(error.message, /two callers got the same number\nfound by the walk of seed 5/);
    await assert.rejects(replay(wrong, error.schedule), /two callers got the same number/);
  });

  it("plays nothing but moves without faults after the most steps it may have", async () => {
    const { steps } = await walk(counter(right, { callers: 1, faults: ["contended"], faultsMax: 1_000 }), {
      seed: 1,
      walks: 10,
      stepsMax: 20,
    });
    assert.ok(steps <= 10 * 23, `${steps} steps`);
  });

  it("comes to nothing that explore, which leaves out states it has seen, does not come to", async () => {
    const scenario = {
      callers: 2,
      faults: ["lostRequest", "lostReply", "landsLate", "heldReply", "crashBefore", "crashAfter"] as const,
      faultsMax: 2,
      jumpsMs: [2 * HOUR_MS],
      beginLate: true,
      start: async ({ store, runtime }: CallerSetup<{ ends: string[] }>) =>
        `${await untilWritten("unknown")(store)} after ${runtime.monotonicMs()}`,
    };
    const explored = await outcomesOf(scenario);
    const walked = await outcomesOf(scenario, (given) => walk(given, { seed: 7, walks: 5_000 }));
    assert.ok(walked.length > 10);
    assert.deepEqual(
      walked.filter((outcome) => !explored.includes(outcome)),
      [],
    );
  });
});
