import assert from "node:assert/strict";
import { VirtualClock } from "@firstwrite/memory";
import { Backoff } from "../src/backoff.ts";
import { nodeRuntime, sleep } from "../src/runtime.ts";
import { ending } from "./setup.ts";

class FixedRandom extends VirtualClock {
  readonly #value: number;
  constructor(value: number) {
    super();
    this.#value = value;
  }
  override random(): number {
    return this.#value;
  }
}

describe("backoff", () => {
  const never = new AbortController().signal;
  const ceilings = [25, 50, 100, 200, 400, 800, 1600, 2000, 2000, 2000];

  for (const random of [0, 0.5, 1 - 2 ** -53]) {
    it(`has full jitter: a random number of ${random} waits that part of a ceiling that doubles to 2 s`, async () => {
      const clock = new FixedRandom(random);
      const backoff = new Backoff(clock);
      for (const ceiling of ceilings) {
        const { tookMs } = await ending(clock, backoff.wait(never));
        assert.ok(Math.abs(tookMs - ceiling * random) < 1e-6, `${tookMs} of ${ceiling}`);
      }
    });
  }

  it("ends at once, and leaves no timer, when the signal aborts before or during", async () => {
    const clock = new FixedRandom(0.5);
    const abort = new AbortController();
    const waiting = new Backoff(clock).wait(abort.signal);
    assert.equal(clock.nextTimerMs, 12.5);
    abort.abort();
    await waiting;
    await new Backoff(clock).wait(abort.signal);
    assert.equal(clock.nextTimerMs, undefined);
    assert.equal(clock.monotonicMs(), 0);
  });

  it("a timer of the real runtime never fires before its time by the monotonic clock", async () => {
    for (let round = 0; round < 40; round += 1) {
      const startedAt = nodeRuntime.monotonicMs();
      await sleep(nodeRuntime, 1.3, never);
      assert.ok(nodeRuntime.monotonicMs() - startedAt >= 1.3);
    }
  });
});
