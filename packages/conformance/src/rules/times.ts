import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import type { ConditionalStore, StoredRecord } from "@firstwrite/core";

import { mustRead, mustWrite } from "../answers.ts";
import { newBody, type Bench } from "../bench.ts";
import type { Suite } from "../suite.ts";

/**
 * Leases end by `readAt - modifiedAt`, so these two must be of one clock, the store's, and in milliseconds. How long
 * things took is measured here by this process's monotonic clock; what the time is is never compared.
 */
export function timeRules<S extends ConditionalStore>(suite: Suite<S>): void {
  let recorded: Promise<Timeline> | undefined;
  // One pause longer than the store's granularity is enough for all of these.
  const timeline = (bench: Bench): Promise<Timeline> => (recorded ??= record(bench));

  suite.group("times are the store's", () => {
    suite.test("`modifiedAt`, `readAt` and `at` are epoch milliseconds", async (bench) => {
      const { created, rewritten, reads } = await timeline(bench);
      for (const { record } of reads) {
        mustBeEpochMs("modifiedAt", record.modifiedAt);
        mustBeEpochMs("readAt", record.readAt);
      }
      mustBeEpochMs("at", created.at);
      mustBeEpochMs("at", rewritten.at);
    });

    suite.test("`modifiedAt` is not after `readAt`, but for the granularity", async (bench) => {
      const { granularityMs, reads } = await timeline(bench);
      for (const { record } of reads) {
        assert.ok(
          record.modifiedAt <= record.readAt + granularityMs,
          `written ${record.modifiedAt}, read ${record.readAt}`,
        );
      }
    });

    suite.test("`readAt - modifiedAt` is the age of the record, to the granularity", async (bench) => {
      const { granularityMs, reads } = await timeline(bench);
      for (const { record, write, sentMs, answeredMs } of reads) {
        mustLieBetween(
          "readAt - modifiedAt",
          record.readAt - record.modifiedAt,
          sentMs - write.answeredMs,
          answeredMs - write.sentMs,
          granularityMs,
        );
      }
    });

    suite.test("`readAt` goes on from one read to the next", async (bench) => {
      const { granularityMs, early, late } = await timeline(bench);
      mustLieBetween(
        "from one `readAt` to the next",
        late.record.readAt - early.record.readAt,
        late.sentMs - early.answeredMs,
        late.answeredMs - early.sentMs,
        granularityMs,
      );
    });

    suite.test("reading does not move `modifiedAt`", async (bench) => {
      const { early, late } = await timeline(bench);
      assert.equal(late.record.modifiedAt, early.record.modifiedAt);
    });

    suite.test("rewriting moves `modifiedAt`", async (bench) => {
      const { granularityMs, early, after, created, rewritten } = await timeline(bench);
      mustLieBetween(
        "from one `modifiedAt` to the next",
        after.record.modifiedAt - early.record.modifiedAt,
        rewritten.sentMs - created.answeredMs,
        rewritten.answeredMs - created.sentMs,
        granularityMs,
      );
      assert.ok(after.record.modifiedAt > early.record.modifiedAt, "a rewrite has a later `modifiedAt`");
    });

    suite.test("`at` of `written` is when the record was modified, to the granularity", async (bench) => {
      const { granularityMs, early, after, created, rewritten } = await timeline(bench);
      for (const [write, { record }] of [
        [created, early],
        [rewritten, after],
      ] as const) {
        mustLieBetween(
          "at - modifiedAt",
          write.at - record.modifiedAt,
          0,
          write.answeredMs - write.sentMs,
          granularityMs,
        );
      }
    });

    suite.test("both clients tell the same times", async (bench) => {
      const { second, late } = await timeline(bench);
      assert.equal(second.record.modifiedAt, late.record.modifiedAt, "`modifiedAt` of one record");
    });
  });
}

interface TimedWrite {
  readonly at: number;
  readonly sentMs: number;
  readonly answeredMs: number;
}

interface TimedRead {
  readonly record: StoredRecord;
  /** The write whose record it found. */
  readonly write: TimedWrite;
  readonly sentMs: number;
  readonly answeredMs: number;
}

interface Timeline {
  readonly granularityMs: number;
  readonly created: TimedWrite;
  readonly rewritten: TimedWrite;
  /** Just after the create, one granularity later, then by the second client, and just after the rewrite. */
  readonly early: TimedRead;
  readonly late: TimedRead;
  readonly second: TimedRead;
  readonly after: TimedRead;
  readonly reads: readonly TimedRead[];
}

async function record(bench: Bench): Promise<Timeline> {
  const { store } = bench;
  const name = bench.name();
  const read = async (from: ConditionalStore, bytes: Uint8Array, write: TimedWrite): Promise<TimedRead> => {
    const sentMs = performance.now();
    const found = await mustRead(from, name, bytes);
    return { record: found, write, sentMs, answeredMs: performance.now() };
  };
  const first = newBody();
  const createdSentMs = performance.now();
  const { at, version } = await mustWrite(bench, { store, name, bytes: first });
  const created = { at, sentMs: createdSentMs, answeredMs: performance.now() };
  const early = await read(store, first, created);

  const granularityMs = store.traits.clockGranularityMs;
  assert.ok(Number.isFinite(granularityMs), `traits.clockGranularityMs is ${granularityMs}`);
  await sleep(granularityMs + pauseMs);
  const late = await read(store, first, created);
  const second = await read(bench.second, first, created);

  const next = newBody();
  const rewrittenSentMs = performance.now();
  const rewrite = await mustWrite(bench, { store, name, expected: version, bytes: next });
  const rewritten = { at: rewrite.at, sentMs: rewrittenSentMs, answeredMs: performance.now() };
  const after = await read(store, next, rewritten);
  return { granularityMs, created, rewritten, early, late, second, after, reads: [early, late, second, after] };
}

/** Two timers that are read one after the other, and a clock that is being slewed, differ by less than this. */
const measuringMs = 20;
/** Beyond the granularity by more than what measuring may be off, so that a clock that stands still shows. */
const pauseMs = 60;

function mustBeEpochMs(what: string, ms: number): void {
  // From 2001 to 5138: a time in seconds or in microseconds is outside.
  assert.ok(Number.isFinite(ms) && ms > 1e12 && ms < 1e14, `${what} is ${ms}, which is no time in epoch milliseconds`);
}

function mustLieBetween(what: string, ms: number, low: number, high: number, granularityMs: number): void {
  const allowed = granularityMs + measuringMs;
  assert.ok(
    ms >= low - allowed && ms <= high + allowed,
    `${what} is ${ms} ms, and was ${low.toFixed(0)} to ${high.toFixed(0)} ms by the clock here (granularity ${granularityMs} ms)`,
  );
}
