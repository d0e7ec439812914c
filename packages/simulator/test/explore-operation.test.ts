/** Mistakes that authors of operations make, and the schedule that shows each. */

import assert from "node:assert/strict";

import { defineOperation, type ErrorMeaning, type Json, type Recovery } from "@firstwrite/core";
import {
  DeclinedError,
  DuplicateRowError,
  exploreOperation,
  NoAnswerError,
  operationScenario,
  replay,
  Violation,
  type LedgerClient,
  type OperationPlan,
} from "@firstwrite/simulator";

interface Author {
  readonly recovery: (ledger: LedgerClient) => Recovery<number, Json>;
  readonly recoverAfterMs: number;
  readonly onError?: (error: unknown) => ErrorMeaning;
  /** What to do about a row that is there; by default it is the answer. */
  readonly onDuplicate?: (error: DuplicateRowError) => Json;
}

function payment(author: Author, rest: Partial<OperationPlan<number, Json>>): OperationPlan<number, Json> {
  return {
    callers: 2,
    inputs: [5],
    faultsMax: 1,
    ledger: {},
    operation: ({ ledger }) =>
      defineOperation<number, Json>({
        name: "pay",
        leaseMs: 5_000,
        recoverAfterMs: author.recoverAfterMs,
        async run(amount, { operationId, attempt }) {
          try {
            return await ledger.insert({ operationId, attempt, value: amount });
          } catch (error) {
            if (error instanceof DuplicateRowError) return author.onDuplicate?.(error) ?? error.row.value;
            throw error;
          }
        },
        onError: author.onError ?? (() => "recover"),
        recovery: author.recovery(ledger),
      }),
    ...rest,
  };
}

/** Looks into the ledger, and does no more. */
const looks = (ledger: LedgerClient): Recovery<number, Json> => ({
  async reconcile(_amount, { operationId }) {
    const row = await ledger.find(operationId);
    return row === undefined ? "absent" : { found: row.value };
  },
});

/** Looks after it has shut out whatever is still under way, or believes it has. */
const shutsOut = (ledger: LedgerClient): Recovery<number, Json> => ({
  absentIsFinal: true,
  async reconcile(_amount, { operationId, attempt }) {
    await ledger.fence(operationId, attempt);
    const row = await ledger.find(operationId);
    return row === undefined ? "absent" : { found: row.value };
  },
});

const onlyIfDeclined = (meaning: ErrorMeaning) => (error: unknown) =>
  error instanceof DeclinedError ? meaning : "recover";
const declining = ["lostRequest", "lostReply", "landsLate", "declined"] as const;

const mistakes: {
  readonly title: string;
  readonly wrong: OperationPlan<number, Json>;
  readonly mended: OperationPlan<number, Json>;
  readonly found: RegExp;
}[] = [
  {
    title: "a reconcile that answers absent while the first attempt's row is under way",
    wrong: payment({ recovery: looks, recoverAfterMs: 0 }, {}),
    mended: payment({ recovery: looks, recoverAfterMs: 5_000 }, {}),
    found: /rule 6: an operation has two rows in the ledger/,
  },
  {
    title: "a reconcile that says absent is final, of a ledger that is not fenced",
    wrong: payment(
      { recovery: shutsOut, recoverAfterMs: 0, onError: onlyIfDeclined("replay") },
      { ledger: { unique: true, faults: declining }, faultsMax: 2 },
    ),
    mended: payment(
      { recovery: shutsOut, recoverAfterMs: 0, onError: onlyIfDeclined("replay") },
      { ledger: { unique: true, fenced: true, faults: declining }, faultsMax: 2 },
    ),
    found: /rule 6: the record is a settled failure, and the ledger has 1 rows/,
  },
  {
    title: "a run that throws for the row of its own operation",
    wrong: payment(
      {
        recovery: () => "rerun",
        recoverAfterMs: 0,
        onDuplicate(error) {
          throw error;
        },
      },
      { ledger: { unique: true } },
    ),
    mended: payment({ recovery: () => "rerun", recoverAfterMs: 0 }, { ledger: { unique: true } }),
    found: /rule 6: the ledger has a row, and its record is attempt \d .* after a retry/,
  },
  {
    title: "rerun on a ledger that takes a second row",
    wrong: payment({ recovery: () => "rerun", recoverAfterMs: 5_000 }, {}),
    mended: payment({ recovery: () => "rerun", recoverAfterMs: 5_000 }, { ledger: { unique: true } }),
    found: /rule 6: an operation has two rows in the ledger/,
  },
  {
    title: "an error that says nothing, taken for a final one",
    wrong: payment({ recovery: looks, recoverAfterMs: 5_000, onError: () => "replay" }, {}),
    mended: payment(
      {
        recovery: looks,
        recoverAfterMs: 5_000,
        onError: (error) => (error instanceof NoAnswerError ? "recover" : "replay"),
      },
      {},
    ),
    found: /rule 6: the record is a settled failure, and the ledger has 1 rows/,
  },
  {
    title: "an error that says nothing, taken for nothing having happened",
    wrong: payment({ recovery: looks, recoverAfterMs: 5_000, onError: () => "retry" }, {}),
    mended: payment(
      { recovery: looks, recoverAfterMs: 5_000, onError: onlyIfDeclined("retry") },
      { ledger: { faults: declining } },
    ),
    found: /rule 6: an operation has two rows in the ledger/,
  },
  {
    title: "the same, where another input has the key by then",
    wrong: payment({ recovery: looks, recoverAfterMs: 5_000, onError: () => "retry" }, { inputs: [5, 6] }),
    mended: payment(
      { recovery: looks, recoverAfterMs: 5_000, onError: onlyIfDeclined("retry") },
      { inputs: [5, 6], ledger: { faults: declining }, faultsMax: 2 },
    ),
    found: /rule 6: the ledger has a row of \S+, which was released, and whose key another input has/,
  },
];

describe("exploreOperation", () => {
  for (const { title, wrong, mended, found } of mistakes) {
    it(`finds ${title}, and not what mends it`, async () => {
      const violation: unknown = await exploreOperation(wrong).catch((error: unknown) => error);
      assert.ok(violation instanceof Violation, `nothing was found: ${String(violation)}`);
      assert.match(violation.message, found);
      await assert.rejects(replay(operationScenario(wrong), violation.schedule), found);
      const { states } = await exploreOperation(mended);
      assert.ok(states > 50, `${states} states`);
    });
  }

  it("runs checks of one's own beside those of the protocol", async () => {
    const seen = new Set<string>();
    await exploreOperation(
      payment(
        { recovery: looks, recoverAfterMs: 5_000 },
        {
          checks: {
            onWritten: ({ name }) => void seen.add(`written ${name.split("/")[1]}`),
            onServed: ({ label }) => void seen.add(label.split(" ")[0] ?? ""),
            onReported: (report, caller) => void seen.add(`${caller} reports`),
            onEnded: ({ kind }) => void seen.add(kind),
            atRest: async (_retry, { model }) => void seen.add(`${model.ledger.rows.length} rows`),
          },
        },
      ),
    );
    assert.deepEqual([...seen].toSorted(), [
      "0 reports",
      "1 reports",
      "1 rows",
      "2 reports",
      "insert",
      "returned",
      "threw",
      "written explored",
    ]);
  });

  it("takes a ledger at its word that an operation may have two rows", async () => {
    const { states } = await exploreOperation(
      payment({ recovery: () => "rerun", recoverAfterMs: 5_000 }, { ledger: { mayHaveTwoRows: true } }),
    );
    assert.ok(states > 50, `${states} states`);
  });
});
