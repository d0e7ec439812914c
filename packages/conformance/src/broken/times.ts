/** Faults of the times, on which every lease rests. */

import type { StoredRecord, WriteOutcome } from "@firstwrite/core";

import { bothWrites, broken, brokenTogether, forward, type BrokenStore, type Fault } from "./broken-store.ts";

type Times = Pick<StoredRecord, "modifiedAt" | "readAt">;

const hoursMs = 3_600_000;

export const brokenTimes: readonly BrokenStore[] = [
  broken("tells times in seconds", "`modifiedAt`, `readAt` and `at` are epoch milliseconds", (sound) => ({
    ...readTimes(({ modifiedAt, readAt }) => ({ modifiedAt: modifiedAt / 1_000, readAt: readAt / 1_000 }))(
      sound,
      sound,
    ),
    ...writeTimes((at) => at / 1_000)(sound, sound),
  })),
  broken(
    "tells times in microseconds",
    "`modifiedAt`, `readAt` and `at` are epoch milliseconds",
    readTimes(({ modifiedAt, readAt }) => ({ modifiedAt: modifiedAt * 1_000, readAt: readAt * 1_000 })),
  ),
  broken(
    "tells a date that it could not parse",
    "`modifiedAt`, `readAt` and `at` are epoch milliseconds",
    readTimes(({ readAt }) => ({ modifiedAt: Number.NaN, readAt })),
  ),
  broken(
    "tells the millisecond of the second for the time, as getUTCMilliseconds does",
    "`modifiedAt`, `readAt` and `at` are epoch milliseconds",
    writeTimes((at) => new Date(at).getUTCMilliseconds()),
  ),
  broken(
    "takes `readAt` from the caller's clock, which is hours ahead",
    "`readAt - modifiedAt` is the age of the record, to the granularity",
    readTimes(({ modifiedAt, readAt }) => ({ modifiedAt, readAt: readAt + 3 * hoursMs })),
  ),
  broken(
    "takes `readAt` from the caller's clock, which is behind",
    "`modifiedAt` is not after `readAt`, but for the granularity",
    readTimes(({ modifiedAt, readAt }) => ({ modifiedAt, readAt: readAt - 3 * hoursMs })),
  ),
  broken(
    "gives `modifiedAt` for `readAt`",
    "`readAt - modifiedAt` is the age of the record, to the granularity",
    readTimes(({ modifiedAt }) => ({ modifiedAt, readAt: modifiedAt })),
  ),
  brokenTogether("tells when the record was created for when it was modified", "rewriting moves `modifiedAt`", () => {
    const created = new Map<string, number>();
    return (sound) => ({
      async read(name, options) {
        const record = await sound.read(name, options);
        if (record === undefined) return undefined;
        const modifiedAt = created.get(name) ?? record.modifiedAt;
        created.set(name, modifiedAt);
        return { ...record, modifiedAt };
      },
    });
  }),
  broken(
    "tells when the record was last read for when it was modified",
    "reading does not move `modifiedAt`",
    readTimes(({ readAt }) => ({ modifiedAt: readAt, readAt })),
  ),
  broken("tells when it was opened for when it read", "`readAt` goes on from one read to the next", (sound) => {
    const openedAt = Date.now();
    return readTimes(({ modifiedAt }) => ({ modifiedAt, readAt: openedAt }))(sound, sound);
  }),
  broken(
    "cuts times to seconds, and says that it is exact",
    "`readAt - modifiedAt` is the age of the record, to the granularity",
    readTimes(({ modifiedAt, readAt }) => ({ modifiedAt: cut(modifiedAt), readAt: cut(readAt) })),
  ),
  broken(
    "takes `at` from the caller's clock, which is hours behind",
    "`at` of `written` is when the record was modified, to the granularity",
    writeTimes((at) => at - 3 * hoursMs),
  ),
  brokenTogether("tells times in the time zone of the client", "both clients tell the same times", () => {
    let clients = 0;
    return (sound) => {
      clients += 1;
      const zoneMs = clients * hoursMs;
      const moved = readTimes(({ modifiedAt, readAt }) => ({
        modifiedAt: modifiedAt + zoneMs,
        readAt: readAt + zoneMs,
      }));
      return { ...moved(sound, sound), ...writeTimes((at) => at + zoneMs)(sound, sound) };
    };
  }),
];

function cut(ms: number): number {
  return Math.floor(ms / 1_000) * 1_000;
}

function readTimes(change: (times: Times) => Times): Fault {
  return (sound) => ({
    async read(name, options) {
      const record = await sound.read(name, options);
      return record && { ...record, ...change(record) };
    },
  });
}

function writeTimes(change: (at: number) => number): Fault {
  return (sound) =>
    bothWrites(async (name, bytes, expected, options): Promise<WriteOutcome> => {
      const outcome = await forward(sound, name, bytes, expected, options);
      return outcome.kind === "written" ? { ...outcome, at: change(outcome.at) } : outcome;
    });
}
