import assert from "node:assert/strict";
import { uuidV4 } from "@firstwrite/core";
import { settle, VirtualClock } from "@firstwrite/memory";

const drawn = (seed?: number): unknown[] => {
  const clock = new VirtualClock(seed === undefined ? {} : { seed });
  return [uuidV4(clock), clock.random(), Buffer.from(clock.randomBytes(16)).toString("hex")];
};

describe("VirtualClock", () => {
  it("starts at 2026-01-01, or where it is told, and stands still by itself", async () => {
    const clock = new VirtualClock();
    assert.deepEqual([clock.now(), clock.monotonicMs()], [Date.UTC(2026, 0, 1), 0]);
    await settle();
    assert.equal(clock.now(), Date.UTC(2026, 0, 1));
    assert.equal(new VirtualClock({ startAt: 5 }).now(), 5);
  });

  it("advance moves both clocks by exactly so much", async () => {
    const clock = new VirtualClock({ startAt: 1000 });
    await clock.advance(30 * 86_400_000);
    await clock.advance(0.5);
    assert.deepEqual([clock.now(), clock.monotonicMs()], [2_592_001_000.5, 2_592_000_000.5]);
  });

  it("fires timers in the order they are due, among equals in the order they were set, each at its time", async () => {
    const clock = new VirtualClock();
    const fired: string[] = [];
    const set = (name: string, ms: number): unknown =>
      clock.setTimer(ms, () => fired.push(`${name}@${clock.monotonicMs()}`));
    set("late", 30);
    set("first", 10);
    set("second", 10);
    set("at once", -5);
    await clock.advance(10);
    assert.deepEqual(fired, ["at once@0", "first@10", "second@10"]);
    await clock.advance(19);
    assert.equal(fired.length, 3, "not a millisecond early");
    await clock.advance(1);
    assert.deepEqual(fired.at(-1), "late@30");
  });

  it("lets what a timer wakes run before the next one, and fires timers set meanwhile", async () => {
    const clock = new VirtualClock();
    const seen: string[] = [];
    const sleep = (ms: number): Promise<void> => new Promise((resolve) => clock.setTimer(ms, resolve));
    const worker = async (): Promise<void> => {
      await sleep(10);
      await Promise.resolve();
      seen.push(`woke at ${clock.monotonicMs()}`);
      await sleep(5);
      seen.push(`again at ${clock.monotonicMs()}`);
    };
    const working = worker();
    clock.setTimer(12, () => seen.push("at 12"));
    await clock.advance(100);
    await working;
    assert.deepEqual(seen, ["woke at 10", "at 12", "again at 15"]);
  });

  it("a cancelled timer never fires, also when another cancels it", async () => {
    const clock = new VirtualClock();
    const fired: string[] = [];
    const cancel = clock.setTimer(5, () => fired.push("cancelled"));
    cancel();
    cancel();
    const cancelLater = clock.setTimer(20, () => fired.push("cancelled by another"));
    clock.setTimer(10, cancelLater);
    await clock.advance(100);
    assert.deepEqual(fired, []);
    assert.equal(clock.nextTimerMs, undefined);
  });

  it("nextTimerMs is the time until the next timer", async () => {
    const clock = new VirtualClock();
    assert.equal(clock.nextTimerMs, undefined);
    clock.setTimer(50, () => {});
    clock.setTimer(20, () => {});
    assert.equal(clock.nextTimerMs, 20);
    await clock.advance(5);
    assert.equal(clock.nextTimerMs, 15);
    await clock.advance(15);
    assert.equal(clock.nextTimerMs, 30);
  });

  it("jump moves the wall clock alone", async () => {
    const clock = new VirtualClock({ startAt: 1000 });
    let fired = false;
    clock.setTimer(10, () => (fired = true));
    clock.jump(86_400_000);
    await settle();
    assert.deepEqual([clock.now(), clock.monotonicMs(), clock.nextTimerMs, fired], [86_401_000, 0, 10, false]);
    clock.jump(-86_400_000);
    assert.equal(clock.now(), 1000);
  });

  it("the same seed gives the same randomness, another seed another", () => {
    assert.deepEqual(drawn(7), drawn(7));
    assert.deepEqual(drawn(), drawn(1));
    assert.notDeepEqual(drawn(7), drawn(8));
  });

  it("random is in [0, 1), and bytes take every value", () => {
    const clock = new VirtualClock();
    for (let draw = 0; draw < 1000; draw += 1) {
      const random = clock.random();
      assert.ok(random >= 0 && random < 1);
    }
    assert.equal(new Set(clock.randomBytes(10_000)).size, 256);
  });
});
