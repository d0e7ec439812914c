/**
 * `Idempotency.execute` in every schedule of a few callers: what `docs/protocol.md` §7 promises, for every kind of ledger
 * and every policy. `FIRSTWRITE_EXPLORE=full`, which `pnpm explore` sets, adds what takes minutes.
 */

import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";

import {
  defineOperation,
  fingerprintOf,
  formatTime,
  recordAddress,
  type ErrorMeaning,
  type Json,
} from "@firstwrite/core";
import {
  DeclinedError,
  DuplicateRowError,
  exploreOperation,
  operationScenario,
  replay,
  walk,
  type Fault,
  type LedgerClient,
  type OperationPlan,
  type StartingRecord,
} from "@firstwrite/simulator";

const DAY_MS = 24 * 3_600_000;
const LEASE_MS = 6_000;
const START = Date.UTC(2026, 0, 1);

type Plan = OperationPlan<Json, Json>;

/** How the operation under test goes about its ledger. */
interface Policy {
  readonly ledger: "unique" | "fenced" | "plain";
  /** `shutsOut`: a reconcile that fences before it answers, and says so. */
  readonly recovery: "reconcile" | "shutsOut" | "rerun" | "hold";
  /** What an error of the ledger means that is final. */
  readonly declined: ErrorMeaning;
}

/** A policy's plan: two callers of one input, unless `rest` says otherwise. */
function planOf(policy: Policy, rest: Partial<Plan>): Plan {
  const { ledger, recovery, declined } = policy;
  return {
    callers: 2,
    inputs: [{ amount: 5 }],
    faultsMax: 0,
    request: { deadlineMs: 20_000 },
    ledger: {
      unique: ledger === "unique",
      fenced: ledger === "fenced",
      // Run again on a ledger that takes a second row, an operation has its effect twice: its author's choice.
      mayHaveTwoRows: recovery === "rerun" && ledger !== "unique",
      faults: [...(rest.faults ?? storeFaults).filter((fault) => fault !== "repeatedLater"), "declined"],
    },
    operation: ({ ledger: client }) =>
      defineOperation<Json, Json>({
        name: "pay",
        leaseMs: LEASE_MS,
        recoverAfterMs: recoverAfterMs(policy),
        run: (input, { operationId, attempt, signal }) =>
          isValid(input)
            ? insertOnce(client, { operationId, attempt, value: input }, signal)
            : Promise.reject(new DeclinedError()),
        onError: (error) => (error instanceof DeclinedError ? declined : "recover"),
        recovery: recovery === "rerun" || recovery === "hold" ? recovery : { ...reconcileWith(client, recovery) },
      }),
    ...rest,
  };
}

/** E3: 0 where the ledger is unique, or where reconcile makes it refuse what is still in flight. */
function recoverAfterMs({ ledger, recovery }: Policy): number {
  return ledger === "unique" || recovery === "shutsOut" ? 0 : LEASE_MS;
}

/** A moment after the lease is over that the record speaks of. */
function pastLeaseMs(policy: Policy): number {
  return LEASE_MS + recoverAfterMs(policy) + 1;
}

/** What fails its validation, before anything is sent. */
const invalid: Json = { amount: 0 };
function isValid(input: Json): boolean {
  return !isDeepStrictEqual(input, invalid);
}

/** A `run` that meets its own operation in the ledger returns that row (E6). */
async function insertOnce(
  ledger: LedgerClient,
  row: Parameters<LedgerClient["insert"]>[0],
  signal: AbortSignal,
): Promise<Json> {
  signal.throwIfAborted();
  try {
    return await ledger.insert(row);
  } catch (error) {
    if (error instanceof DuplicateRowError) return error.row.value;
    throw error;
  }
}

function reconcileWith(
  ledger: LedgerClient,
  recovery: "reconcile" | "shutsOut",
): Exclude<ReturnType<Plan["operation"]>["recovery"], string> {
  return {
    absentIsFinal: recovery === "shutsOut",
    async reconcile(_input, { operationId, attempt, signal }) {
      signal.throwIfAborted();
      if (recovery === "shutsOut") await ledger.fence(operationId, attempt);
      const row = await ledger.find(operationId);
      return row === undefined ? "absent" : { found: row.value };
    },
  };
}

const storeFaults: readonly Fault[] = [
  "lostRequest",
  "lostReply",
  "landsLate",
  "repeatedLater",
  "crashBefore",
  "crashAfter",
  "contended",
  "away",
];
/** While time stands still, a reply held back is no more than a caller that is slow to send its next request. */
const faultsInTime: readonly Fault[] = [...storeFaults, "heldReply"];

const policies: Policy[] = [];
for (const declined of ["recover", "retry", "replay"] as const) {
  for (const ledger of ["unique", "fenced", "plain"] as const) {
    for (const recovery of ["reconcile", "shutsOut", "rerun", "hold"] as const) {
      // To say that absent is final is to have a ledger that refuses what comes later.
      if (recovery !== "shutsOut" || ledger === "fenced") policies.push({ ledger, recovery, declined });
    }
  }
}

const retrying = policies.filter(({ declined }) => declined === "retry");

function titleOf({ ledger, recovery, declined }: Policy): string {
  return `${ledger} ledger, ${recovery}, declined means ${declined}`;
}

/** A record of this operation that was there before. `input`: whose it is. */
function left(status: string, ageMs: number, input: Json, members: Record<string, Json> = {}): StartingRecord[] {
  const { name, scope, key, keyHash } = recordAddress("idempotency/", "explored", "key");
  const at = START - ageMs;
  const record = {
    format: 1,
    scope,
    key,
    key_hash: keyHash,
    input_hash: fingerprintOf(["pay", input]),
    operation_id: "3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11",
    status,
    attempt: 1,
    ttl_ms: 30 * DAY_MS,
    created_at: formatTime(at),
    expires_at: formatTime(at + 30 * DAY_MS),
    write_id: "f".repeat(32),
    ...members,
  };
  return [{ name, bytes: Buffer.from(JSON.stringify(record)), ageMs }];
}
const value = { result: { kind: "value", encoding: "json", body: { amount: 5 } } };

async function exploreAll(plans: readonly Plan[]): Promise<void> {
  let schedules = 0;
  let states = 0;
  for (const plan of plans) {
    const explored = await exploreOperation(plan);
    assert.ok(explored.schedules > 20, "the exploration was not cut short");
    schedules += explored.schedules;
    states += explored.states;
  }
  console.log(`      ${schedules} schedules, ${states} states`);
}

describe("execute, every schedule", function () {
  this.timeout(0);

  describe("two callers, two faults", () => {
    for (const policy of policies) {
      it(titleOf(policy), () => exploreAll([planOf(policy, { faults: storeFaults, faultsMax: 2 })]));
    }
  });

  describe("three callers, one fault", () => {
    for (const policy of policies) {
      it(titleOf(policy), () => exploreAll([planOf(policy, { callers: 3, faults: storeFaults, faultsMax: 1 })]));
    }
  });

  describe("two callers, and a pause past the lease: a takeover, and a zombie", () => {
    for (const policy of policies.filter(({ declined }) => declined === "recover")) {
      it(titleOf(policy), () => exploreAll([planOf(policy, { faultsMax: 0, jumpsMs: [pastLeaseMs(policy)] })]));
    }
    for (const policy of [
      { ledger: "unique", recovery: "reconcile", declined: "retry" },
      { ledger: "unique", recovery: "hold", declined: "retry" },
      { ledger: "fenced", recovery: "shutsOut", declined: "replay" },
    ] as const) {
      it(`one fault: ${titleOf(policy)}`, () =>
        exploreAll([planOf(policy, { faults: faultsInTime, faultsMax: 1, jumpsMs: [pastLeaseMs(policy)] })]));
    }
    it("three callers: unique ledger, reconcile", () => {
      const policy = { ledger: "unique", recovery: "reconcile", declined: "recover" } as const;
      return exploreAll([planOf(policy, { callers: 3, jumpsMs: [pastLeaseMs(policy)] })]);
    });
  });

  describe("two callers, one fault", () => {
    const policy: Policy = { ledger: "unique", recovery: "reconcile", declined: "recover" };
    const inTime = { faults: faultsInTime, faultsMax: 1 };
    const plans: Record<string, Plan> = {
      "a pause of a third of the lease: a renewal": planOf(policy, { ...inTime, jumpsMs: [LEASE_MS / 3] }),
      "a pause past the deadline": planOf(policy, { ...inTime, jumpsMs: [5_001], request: { deadlineMs: 5_000 } }),
      "callers that wait": planOf(policy, { ...inTime, request: { deadlineMs: 20_000, waitMs: 20_000 } }),
      "callers that read first": planOf(policy, { ...inTime, request: { deadlineMs: 20_000, readFirst: true } }),
      "wall clocks that are wrong by an hour": planOf(policy, { ...inTime, clockJumpsMs: [3_600_000, -3_600_000] }),
      "a store that is away for three requests": planOf(policy, { ...inTime, awayFor: 3 }),
      "two inputs": planOf(policy, { ...inTime, inputs: [{ amount: 5 }, { amount: 6 }] }),
      "two inputs, and a stale record of a third": planOf(policy, {
        ...inTime,
        inputs: [{ amount: 5 }, { amount: 6 }],
        records: left("ready", 30 * DAY_MS + 1, { amount: 7 }, value),
      }),
      "a record that is removed for its age": planOf(policy, {
        ...inTime,
        records: left("ready", 31 * DAY_MS, { amount: 5 }, value),
        removedAfterMs: 31 * DAY_MS - 1,
      }),
      "a record that is held": planOf(policy, { ...inTime, records: left("held", DAY_MS, { amount: 5 }) }),
      "a record that was released": planOf(policy, { ...inTime, records: left("released", DAY_MS, { amount: 5 }) }),
      "a record whose owner is gone": planOf(policy, {
        ...inTime,
        records: left("creating", LEASE_MS + 1, { amount: 5 }, { lease_ms: LEASE_MS }),
      }),
      "a record whose owner is gone, and a pause past the lease while it is asked what happened": planOf(policy, {
        ...inTime,
        records: left("creating", LEASE_MS + 1, { amount: 5 }, { lease_ms: LEASE_MS }),
        jumpsMs: [LEASE_MS + 1],
        faultsMax: 0,
      }),
      "an effect that is sent late in the lease": planOf(
        { ...policy, ledger: "plain" },
        { faults: ["heldReply"], faultsMax: 1, jumpsMs: [1_000, LEASE_MS - 999] },
      ),
      "a record whose owner is gone, under hold": planOf(
        { ...policy, recovery: "hold" },
        { ...inTime, records: left("creating", LEASE_MS + 1, { amount: 5 }, { lease_ms: LEASE_MS }) },
      ),
    };
    for (const [title, plan] of Object.entries(plans)) it(title, () => exploreAll([plan]));
  });

  describe("two inputs: what one of them was released from is the other's to begin", () => {
    const policy: Policy = { ledger: "unique", recovery: "reconcile", declined: "retry" };
    const valid: Json = { amount: 5 };
    const other: Json = { amount: 6 };
    const oneFault = { faults: storeFaults, faultsMax: 1 };
    const released = (input: Json, members: Record<string, Json> = {}): StartingRecord[] =>
      left("released", DAY_MS, input, members);
    const byPerson = { attempt: 2, takeover: true };
    const plans: Record<string, Plan> = {
      "one that fails its validation, two faults": planOf(policy, {
        inputs: [valid, invalid],
        faults: storeFaults,
        faultsMax: 2,
      }),
      "both may be declined, two faults": planOf(policy, {
        inputs: [valid, other],
        faults: storeFaults,
        faultsMax: 2,
      }),
      "a record of the one, two faults": planOf(policy, {
        inputs: [valid, other],
        records: released(valid),
        faults: storeFaults,
        faultsMax: 2,
      }),
      "a record of a third": planOf(policy, {
        inputs: [valid, other, { amount: 7 }],
        callers: 3,
        records: released({ amount: 8 }),
        ...oneFault,
      }),
      "a record of the one that a person released": planOf(policy, {
        inputs: [valid, other],
        records: released(valid, byPerson),
        ...oneFault,
      }),
      "a record of a third that a person released": planOf(policy, {
        inputs: [valid, other],
        records: released({ amount: 7 }, byPerson),
        ...oneFault,
      }),
      "a record of a third that is held": planOf(policy, {
        inputs: [valid, other],
        records: left("held", DAY_MS, { amount: 7 }),
        ...oneFault,
      }),
      "a pause past the lease": planOf(policy, {
        inputs: [valid, invalid],
        faults: faultsInTime,
        faultsMax: 1,
        jumpsMs: [pastLeaseMs(policy)],
      }),
      "a renewal that lands late, or its copy, or its answer": planOf(policy, {
        inputs: [valid, other],
        faults: ["landsLate", "repeatedLater", "heldReply"],
        faultsMax: 2,
        ledger: { unique: true, faults: ["heldReply", "declined"] },
        jumpsMs: [LEASE_MS / 3],
      }),
      "three callers that wait": planOf(policy, {
        inputs: [valid, other],
        callers: 3,
        ledger: { unique: true, faults: ["declined"] },
        faults: ["lostReply"],
        faultsMax: 2,
        request: { deadlineMs: 20_000, waitMs: 20_000 },
      }),
    };
    for (const [title, plan] of Object.entries(plans)) it(title, () => exploreAll([plan]));
    // How it recovers matters where two callers have one input.
    const recovering = retrying.filter(({ ledger, recovery }) => ledger === "unique" || recovery === "shutsOut");
    for (const each of recovering) {
      it(`three callers: ${titleOf(each)}`, () =>
        exploreAll([
          planOf(each, { inputs: [valid, invalid], callers: 3, ...oneFault }),
          planOf(each, { inputs: [invalid, valid], callers: 3, ...oneFault }),
        ]));
    }
    for (const each of recovering) {
      it(`three callers, and a pause past the lease: ${titleOf(each)}`, () =>
        exploreAll([planOf(each, { inputs: [valid, invalid], callers: 3, jumpsMs: [pastLeaseMs(each)] })]));
    }
  });

  const lateRenewal = planOf(
    { ledger: "unique", recovery: "reconcile", declined: "recover" },
    {
      ledger: { unique: true, faults: [] },
      faults: ["heldReply"],
      faultsMax: 1,
      records: left("creating", LEASE_MS + 1, { amount: 5 }, { lease_ms: LEASE_MS }),
      jumpsMs: [LEASE_MS / 3, LEASE_MS + 1],
    },
  );
  it("a renewal whose answer comes after the lease is over, counted from its sending", () =>
    // By this one an owner that counts from the answer runs what another has taken over.
    replay(
      operationScenario(lateRenewal),
      "apply 0, apply 0, apply 0, apply 1, jump 2000, wake 0, heldReply 0, jump 6001, apply 1, apply 1".split(", "),
    ));

  if (process.env["FIRSTWRITE_EXPLORE"] === "full") {
    it("a takeover, a renewal whose answer is late, and a pause past the lease", () => exploreAll([lateRenewal]));

    const telling: readonly Policy[] = [
      { ledger: "unique", recovery: "reconcile", declined: "retry" },
      { ledger: "unique", recovery: "rerun", declined: "replay" },
      { ledger: "unique", recovery: "hold", declined: "retry" },
      { ledger: "fenced", recovery: "shutsOut", declined: "replay" },
      { ledger: "plain", recovery: "reconcile", declined: "replay" },
    ];

    describe("two callers, two faults, and a pause past the lease", () => {
      for (const policy of telling) {
        const plan = planOf(policy, { faults: faultsInTime, faultsMax: 2, jumpsMs: [pastLeaseMs(policy)] });
        it(titleOf(policy), () => exploreAll([plan]));
      }
    });

    describe("three callers, one fault, and a pause past the lease", () => {
      for (const policy of telling) {
        const plan = planOf(policy, { faults: faultsInTime, faultsMax: 1, jumpsMs: [pastLeaseMs(policy)] });
        it(titleOf(policy), () => exploreAll([{ ...plan, callers: 3 }]));
      }
    });

    describe("two inputs, of which one fails its validation", () => {
      const inputs = [{ amount: 5 }, invalid] as const;
      for (const policy of retrying) {
        const pause = { inputs, faults: faultsInTime, faultsMax: 1, jumpsMs: [pastLeaseMs(policy)] };
        it(`one fault, and a pause past the lease: ${titleOf(policy)}`, () => exploreAll([planOf(policy, pause)]));
      }
      for (const policy of telling.filter(({ declined }) => declined === "retry")) {
        const pause = { inputs, faults: faultsInTime, jumpsMs: [pastLeaseMs(policy)] };
        // Two callers of two inputs never take over from each other: how they recover does not matter.
        if (policy.recovery === "reconcile") {
          it(`two faults, and a pause past the lease: ${titleOf(policy)}`, () =>
            exploreAll([planOf(policy, { ...pause, faultsMax: 2 })]));
        }
        it(`three callers, one fault, and a pause past the lease: ${titleOf(policy)}`, () =>
          exploreAll([planOf(policy, { ...pause, callers: 3, faultsMax: 1 })]));
      }
    });

    describe("two inputs, each of which may be declined", () => {
      const inputs = [{ amount: 5 }, { amount: 6 }] as const;
      const policy: Policy = { ledger: "unique", recovery: "reconcile", declined: "retry" };
      it("three callers, two faults", () =>
        exploreAll([planOf(policy, { inputs, callers: 3, faults: storeFaults, faultsMax: 2 })]));
      it("a record that a third was released from, one fault, and a pause past the lease", () => {
        const records = left("released", DAY_MS, { amount: 7 });
        const jumpsMs = [pastLeaseMs(policy)];
        return exploreAll([planOf(policy, { inputs, records, faults: faultsInTime, faultsMax: 1, jumpsMs })]);
      });
      it("two faults, and a pause past the lease", () =>
        exploreAll([planOf(policy, { inputs, faults: faultsInTime, faultsMax: 2, jumpsMs: [pastLeaseMs(policy)] })]));
    });

    describe("two callers, one fault, and two pauses: a renewal, and past the lease", () => {
      for (const policy of telling) {
        const jumpsMs = [LEASE_MS / 3, pastLeaseMs(policy)];
        it(titleOf(policy), () => exploreAll([planOf(policy, { faults: faultsInTime, faultsMax: 1, jumpsMs })]));
      }
    });
  }

  it("random walks of three callers, of one and of three inputs, three faults, and pauses to and past the lease", async () => {
    const seed = Number(process.env["FIRSTWRITE_SEED"] ?? Math.floor(Math.random() * 1_000_000));
    console.log(`      FIRSTWRITE_SEED=${seed}`);
    const walks = process.env["FIRSTWRITE_EXPLORE"] === "full" ? 20_000 : 100;
    for (const policy of policies) {
      const plan = planOf(policy, {
        callers: 3,
        faults: faultsInTime,
        faultsMax: 3,
        jumpsMs: [LEASE_MS / 3, pastLeaseMs(policy), LEASE_MS],
        beginLate: true,
      });
      await walk(operationScenario(plan), { seed, walks });
      if (policy.declined !== "retry") continue;
      await walk(operationScenario({ ...plan, inputs: [{ amount: 5 }, invalid, { amount: 6 }] }), { seed, walks });
    }
  });
});
