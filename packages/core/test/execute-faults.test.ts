import assert from "node:assert/strict";
import {
  InProgressError,
  OutcomeUnknownError,
  StoreError,
  type EffectContext,
  type OperationOptions,
  type Reconciled,
} from "@firstwrite/core";
import { type Fault } from "@firstwrite/memory";
import {
  allEnd,
  bench,
  bytesOf,
  crashIn,
  operationOf,
  parse,
  processOf,
  recordName,
  returned,
  rewrite,
  sleep,
  TTL_MS,
  type Bench,
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
const landings = ["before the next write", "after the next write", "after the calls"] as const;

/** Every fault, or none, at each of three requests in a row. */
const plans: readonly (readonly (Fault | undefined)[])[] = faults.flatMap((first) =>
  faults.flatMap((second) => faults.map((third) => [first, second, third])),
);

interface Start {
  readonly prepare: (on: Bench) => Promise<unknown>;
  readonly callers: number;
  /** How many requests come before the planned ones. */
  readonly after?: number;
  readonly runMs?: number;
  readonly options?: (ledger: Ledger) => Partial<OperationOptions<unknown, unknown>>;
}

/** Where the effect goes: one row per operation, as a payment provider keeps them by its idempotency key. */
class Ledger {
  readonly rows = new Map<string, string>();
  runs = 0;

  pay({ operationId, attempt }: EffectContext): string {
    this.runs += 1;
    const row = this.rows.get(operationId) ?? `paid by attempt ${attempt}`;
    this.rows.set(operationId, row);
    return row;
  }

  readonly reconcile = (_: unknown, { operationId }: EffectContext): Reconciled<unknown> => {
    const row = this.rows.get(operationId);
    return row === undefined ? "absent" : { found: row };
  };
}

const leaseOver = async (on: Bench): Promise<void> => {
  await crashIn(on, operationOf());
  await on.clock.advance(60_001);
};
const reconciling = ({ reconcile }: Ledger): Partial<OperationOptions<unknown, unknown>> => ({
  recovery: { reconcile },
});

const starts: Readonly<Record<string, Start>> = {
  "a new key": { prepare: async () => {}, callers: 1 },
  "a run with a renewal": { prepare: async () => {}, callers: 1, after: 1, runMs: 11_000 },
  "the settling write": { prepare: async () => {}, callers: 1, after: 1 },
  "a takeover, reconcile": { prepare: leaseOver, callers: 1, after: 2, options: reconciling },
  "a takeover by two processes, rerun": { prepare: leaseOver, callers: 2, after: 1, runMs: 100 },
  "a new key, two processes at once": { prepare: async () => {}, callers: 2, runMs: 100, options: reconciling },
  "what was released, two processes": {
    prepare: async (on) => {
      await crashIn(on, operationOf());
      await rewrite(on, { status: "released", lease_ms: undefined });
    },
    callers: 2,
    after: 2,
  },
  "what another input released, two processes": {
    prepare: async (on) => {
      await crashIn(on, operationOf({ fingerprint: () => "another" }));
      await rewrite(on, { status: "released", lease_ms: undefined });
    },
    callers: 2,
    after: 2,
  },
  "a stale key, two processes": {
    prepare: async (on) => {
      returned(await on.execute(operationOf(), {}, "another input"));
      await on.clock.advance(TTL_MS + 1);
    },
    callers: 2,
    after: 2,
  },
};

async function explore(start: Start, plan: readonly (Fault | undefined)[], landing: (typeof landings)[number]) {
  const on = bench();
  const { clock, memory, store } = on;
  await start.prepare(on);
  store.take();
  store.plan = [...Array<undefined>(start.after ?? 0), ...plan];
  const land = (): void => {
    while (memory.lateWrites > 0) memory.land();
  };
  let writesSinceLate = 0;
  store.before = (operation) => {
    if (memory.lateWrites === 0) writesSinceLate = 0;
    else if (operation !== "read") writesSinceLate += 1;
    if (landing === "before the next write" && writesSinceLate === 1 && operation !== "read") land();
    if (landing === "after the next write" && writesSinceLate > 0 && operation === "read") land();
  };
  const ledger = new Ledger();
  const operation = operationOf({
    ...start.options?.(ledger),
    async run(_, context) {
      if (start.runMs !== undefined) await sleep(clock, start.runMs);
      return ledger.pay(context);
    },
  });
  const processes = Array.from({ length: start.callers }, (_, seed) => processOf(on, seed + 1));
  const ends = await allEnd(processes.map((one) => one.start(operation, { deadlineMs: 60_000, waitMs: 60_000 })));
  // What goes on settling without them ends in its own time.
  while (clock.nextTimerMs !== undefined) await clock.advance(clock.nextTimerMs);
  store.plan = [];
  memory.heal();
  land();
  const after = await memory.read(recordName);
  await clock.advance(60_001);
  const { runs } = ledger;
  const retry = await processOf(on, 50).execute(operation);
  return { ends, after, retry, clock, ledger, runsBefore: runs };
}

describe("execute, with every fault at every request (U1 to U4, E1 to E6)", () => {
  for (const [title, start] of Object.entries(starts)) {
    for (const landing of landings) {
      it(`${title}; a held-up write lands ${landing}`, async () => {
        // Where nothing is held up the three are the same.
        const different = landing === landings[0] ? plans : plans.filter((plan) => plan.includes("landsLate"));
        for (const plan of different) {
          const where = `after the faults ${plan.map((fault) => fault ?? "none").join(", ")}: `;
          const { ends, after, retry, clock, ledger, runsBefore } = await explore(start, plan, landing);
          const answer = returned(retry);
          assert.ok(answer.recorded, `${where}when all is quiet, a retry is recorded`);
          assert.equal(answer.value, ledger.rows.get(answer.operationId), `${where}and is what the ledger has`);
          assert.equal(ledger.rows.size, 1, `${where}one effect`);
          assert.ok(runsBefore <= start.callers, `${where}a call runs once at the most`);
          for (const end of ends) {
            assert.ok(end.tookMs <= 60_000, `${where}every call ends by its deadline`);
            if (end.kind === "returned") {
              assert.equal(end.value.operationId, answer.operationId, `${where}all are of one operation`);
              assert.equal(end.value.value, answer.value, `${where}all get one value`);
              if (!end.value.recorded) {
                assert.ok(plan.includes("denied"), `${where}only a denial keeps it from being recorded`);
              } else {
                assert.ok(after !== undefined, where);
                assert.equal(parse(after.bytes)["status"], "ready", `${where}what was answered is recorded`);
              }
            } else {
              const { error } = end;
              const allowed =
                (StoreError.is(error) && error.code === "PERMISSION_DENIED" && plan.includes("denied")) ||
                OutcomeUnknownError.is(error) ||
                InProgressError.is(error);
              assert.ok(allowed, `${where}${String(error)}`);
            }
          }
          assert.equal(clock.nextTimerMs, undefined, `${where}no timer is left`);
        }
      });
    }
  }
});

describe("execute: the claim, case by case", () => {
  it("E2: a claim that lands when its caller has given up is taken over when its lease is over, and no effect was lost", async () => {
    const on = bench();
    on.store.plan = ["landsLate", ...Array.from({ length: 100 }, (): Fault => "away")];
    const end = await on.execute(operationOf({ run: () => assert.fail("ran") }), { deadlineMs: 5_000 });
    assert.ok(end.kind === "threw" && StoreError.is(end.error));
    on.store.plan = [];
    on.memory.heal();
    on.memory.land();
    await on.clock.advance(60_001);
    assert.equal(returned(await on.execute(operationOf())).recorded, true);
    assert.equal((await on.stored())["attempt"], 2);
  });

  it("U1: a claim that is refused by its own first copy is ours", async () => {
    const on = bench();
    on.store.plan = ["lostReply", "hangs"];
    let runs = 0;
    const operation = operationOf({ run: () => (runs += 1) });
    assert.equal(returned(await on.execute(operation)).recorded, true);
    assert.equal(runs, 1);
    assert.equal((await on.stored())["attempt"], 1);
  });

  it("U3: a record that is gone after an unknown takeover is claimed anew, at the create", async () => {
    const on = bench();
    await leaseOver(on);
    on.store.plan = [undefined, undefined, "lostRequest"];
    on.store.before = (operation) => {
      if (operation === "read" && on.store.sent.length === 3) on.memory.expire(recordName);
    };
    assert.equal(returned(await on.execute(operationOf())).recorded, true);
    assert.equal((await on.stored())["attempt"], 1);
  });

  it("E2: an unreadable record that is written over a claim ends the call without a run", async () => {
    const on = bench();
    on.store.plan = ["lostRequest"];
    on.store.before = (operation) => {
      if (operation === "read") void on.memory.create(recordName, bytesOf("{"));
    };
    const end = await on.execute(operationOf({ run: () => assert.fail("ran") }));
    assert.ok(end.kind === "threw" && StoreError.is(end.error) && end.error.code === "CORRUPT");
  });
});
