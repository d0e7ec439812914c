import assert from "node:assert/strict";
import { nodeRuntime, SessionEnded, StoreSession, type Runtime } from "@firstwrite/core";
import { MemoryStore, VirtualClock } from "@firstwrite/memory";
import { Backoff } from "../src/backoff.ts";
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

function session(runtime: Runtime, signal: AbortSignal): StoreSession {
  const life = { signal, endsAtMs: Infinity };
  return new StoreSession(new MemoryStore(), { runtime, life, requestTimeoutMs: 1000 });
}

describe("backoff", () => {
  const never = new AbortController().signal;
  const ceilings = [25, 50, 100, 200, 400, 800, 1600, 2000, 2000, 2000];

  for (const random of [0, 0.5, 1 - 2 ** -53]) {
    it(`has full jitter: a random number of ${random} waits that part of a ceiling that doubles to 2 s`, async () => {
      const clock = new FixedRandom(random);
      const backoff = new Backoff(clock);
      for (const ceiling of ceilings) {
        const { tookMs } = await ending(clock, session(clock, never).pause(backoff));
        assert.ok(Math.abs(tookMs - ceiling * random) < 1e-6, `${tookMs} of ${ceiling}`);
      }
    });
  }

  it("ends at once, and leaves no timer, when the signal aborts before or during", async () => {
    const clock = new FixedRandom(0.5);
    const abort = new AbortController();
    const waiting = session(clock, abort.signal).pause(new Backoff(clock));
    assert.equal(clock.nextTimerMs, 12.5);
    abort.abort();
    await waiting;
    await session(clock, abort.signal).pause(new Backoff(clock));
    assert.equal(clock.nextTimerMs, undefined);
    assert.equal(clock.monotonicMs(), 0);
  });

  it("a session that finishes ends its pause at once, sends nothing more, and leaves no timer", async () => {
    const clock = new FixedRandom(0.5);
    const finishing = session(clock, never);
    const waiting = finishing.pause(new Backoff(clock));
    finishing.finish();
    await waiting;
    await finishing.pause(new Backoff(clock));
    await assert.rejects(finishing.read("a"), SessionEnded);
    assert.equal(clock.nextTimerMs, undefined);
    assert.equal(clock.monotonicMs(), 0);
  });

  it("a timer of the real runtime never fires before its time by the monotonic clock", async () => {
    for (let round = 0; round < 40; round += 1) {
      const startedAt = nodeRuntime.monotonicMs();
      await new Promise<void>((resolve) => void nodeRuntime.setTimer(1.3, resolve));
      assert.ok(nodeRuntime.monotonicMs() - startedAt >= 1.3);
    }
  });

  it("a timer of the real runtime may be longer than one of Node's, which would fire at once", async () => {
    const warnings: Error[] = [];
    const warned = (warning: Error): void => void warnings.push(warning);
    process.on("warning", warned);
    let fired = 0;
    const cancels = [2 ** 31, 1e12, Infinity].map((ms) => nodeRuntime.setTimer(ms, () => (fired += 1)));
    await new Promise<void>((resolve) => void nodeRuntime.setTimer(20, resolve));
    for (const cancel of cancels) cancel();
    process.off("warning", warned);
    assert.equal(fired, 0);
    assert.deepEqual(warnings, []);
  });
});
