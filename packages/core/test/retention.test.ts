import assert from "node:assert/strict";
import { days, defineReservation, InvalidArgumentError, type Retention } from "@firstwrite/core";
import { DAY_MS } from "./setup.ts";

describe("retention (E8)", () => {
  const taken: readonly [title: string, retention: Retention | undefined, ttlMs: number][] = [
    ["30 days by default", undefined, 30 * DAY_MS],
    ["30 days where it says something else", { auditMs: days(29) }, 30 * DAY_MS],
    [
      "a TTL a day longer than window and delay",
      { retryWindowMs: days(2), brokerDelayMs: days(1), ttlMs: days(4) },
      4 * DAY_MS,
    ],
    ["a TTL a day longer than the audit", { retryWindowMs: 1, auditMs: days(9), ttlMs: days(10) }, 10 * DAY_MS],
    ["one day, with nothing to cover", { ttlMs: days(1) }, DAY_MS],
    ["36,500 days", { ttlMs: days(36_500) }, 36_500 * DAY_MS],
  ];
  for (const [title, retention, ttlMs] of taken) {
    it(`taken: ${title}`, () => {
      const definition = defineReservation({ name: "op", ...(retention === undefined ? {} : { retention }) });
      assert.deepEqual(definition.retention, { retryWindowMs: 0, brokerDelayMs: 0, auditMs: 0, ...retention, ttlMs });
      assert.ok(Object.isFrozen(definition) && Object.isFrozen(definition.retention));
    });
  }

  const covers = "less than max(retryWindowMs + brokerDelayMs, auditMs) and a day: give at least";
  const refused: readonly [retention: Retention, message: string][] = [
    [{ ttlMs: DAY_MS - 1 }, `retention.ttlMs is 86399999, ${covers} 86400000`],
    [
      { retryWindowMs: days(2), brokerDelayMs: days(1), ttlMs: days(4) - 1 },
      `retention.ttlMs is 345599999, ${covers} 345600000`,
    ],
    [{ auditMs: days(9), ttlMs: days(9) }, `retention.ttlMs is 777600000, ${covers} 864000000`],
    [{ auditMs: days(30) }, `retention.ttlMs is 2592000000, ${covers} 2678400000`],
    [{ retryWindowMs: -1 }, "retention.retryWindowMs is -1: give whole milliseconds, 0 or more"],
    [{ brokerDelayMs: 0.5 }, "retention.brokerDelayMs is 0.5: give whole milliseconds, 0 or more"],
    [{ auditMs: Number.NaN }, "retention.auditMs is NaN: give whole milliseconds, 0 or more"],
    [{ ttlMs: Infinity }, "retention.ttlMs is Infinity: give whole milliseconds, 0 or more"],
    [
      { ttlMs: Number.MAX_SAFE_INTEGER },
      "retention.ttlMs is 9007199254740991: give at most 3153600000000, 36,500 days",
    ],
  ];
  for (const [retention, message] of refused) {
    it(`refused when it is defined: ${JSON.stringify(retention)}: ${message}`, () => {
      assert.throws(
        () => defineReservation({ name: "op", retention }),
        (error) => InvalidArgumentError.is(error) && error.message === message,
      );
    });
  }
});
