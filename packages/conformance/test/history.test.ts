import assert from "node:assert/strict";

import { MemoryStore } from "@firstwrite/memory";

import { BenchKeeper } from "../src/bench.ts";
import { recordHistory } from "../src/history.ts";
import { checkLinearizability, type RecordedCall } from "../src/linearizability.ts";

describe("recorded histories", () => {
  it("hold reads, writes that were done, refused and unknown, and fit a register", async () => {
    const history = await record(true);
    for (const [what, matches] of [
      ["a record read", (call: RecordedCall) => call.kind === "read" && call.value !== undefined],
      ["no record read", (call: RecordedCall) => call.kind === "read" && call.value === undefined],
      ["a create done", (call: RecordedCall) => call.kind === "create" && call.outcome === "written"],
      ["a create refused", (call: RecordedCall) => call.kind === "create" && call.outcome === "refused"],
      ["a replace done", (call: RecordedCall) => call.kind === "replace" && call.outcome === "written"],
      ["a replace refused", (call: RecordedCall) => call.kind === "replace" && call.outcome === "refused"],
      ["an unknown create", (call: RecordedCall) => call.kind === "create" && call.outcome === "unknown"],
      ["an unknown replace", (call: RecordedCall) => call.kind === "replace" && call.outcome === "unknown"],
      ["an unknown write that landed", (call: RecordedCall) => landed(history, call)],
    ] as const) {
      assert.ok(history.some(matches), what);
    }
    assert.deepEqual(checkLinearizability(history), { kind: "linearizable" });
  });

  it("are the same again for the same seed, as far as the store answers alike", async () => {
    const [one, same] = [await record(false), await record(false)];
    assert.deepEqual(choices(one), choices(same));
  });
});

async function record(faults: boolean): Promise<readonly RecordedCall[]> {
  const keeper = new BenchKeeper<MemoryStore>({
    open: async () => new MemoryStore(),
    ...(faults && {
      faults: {
        offers: ["lostRequest", "lostReply", "landsLate"],
        inject: (store, fault, on) => store.inject(fault, { on }),
        heal: (store) => store.heal(),
        land: (store) => {
          if (store.lateWrites > 0) store.land();
        },
      },
    }),
  });
  const bench = await keeper.bench(() => undefined);
  const histories: RecordedCall[] = [];
  for (let seed = 1; seed <= 10; seed += 1) histories.push(...(await recordHistory(bench, seed)));
  return histories;
}

function choices(history: readonly RecordedCall[]): string[] {
  return history.map(({ kind, worker }) => `${worker}: ${kind}`);
}

function landed(history: readonly RecordedCall[], call: RecordedCall): boolean {
  return (
    call.kind !== "read" &&
    call.outcome === "unknown" &&
    history.some((other) => other.kind === "read" && other.value === call.value)
  );
}
