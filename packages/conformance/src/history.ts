import { setTimeout as sleep } from "node:timers/promises";

import { StoreError, type ConditionalStore, type Version, type WriteOutcome } from "@firstwrite/core";
import { VirtualClock } from "@firstwrite/memory";

import { newBody, nonceOf, type Bench } from "./bench.ts";
import type { HarnessFault } from "./harness.ts";
import type { RecordedCall, RegisterCall } from "./linearizability.ts";

const workers = 4;
const callsPerWorker = 12;
const nameCount = 2;

/**
 * Lets a few workers call the store at random on a few names, and records what they were answered. Some writes are
 * aborted in flight, and lose their request or their reply where the harness can do that, so that there are `unknown`
 * outcomes. The seed fixes what each worker chooses; the order in which a real service answers is not the seed's.
 */
export async function recordHistory(bench: Bench, seed: number): Promise<readonly RecordedCall[]> {
  const history: RecordedCall[] = [];
  let events = 0;
  const tick = (): number => (events += 1);
  const names = Array.from({ length: nameCount }, () => bench.name());
  const lossy = (["lostRequest", "lostReply", "landsLate"] as const).filter((fault) => bench.offers.includes(fault));

  const work = async (_: unknown, worker: number): Promise<void> => {
    const random = new VirtualClock({ seed: seed * 31 + worker });
    const pick = <T>(items: readonly T[]): T | undefined => items[Math.floor(random.random() * items.length)];
    const held = new Map<string, Held>();
    const store = worker % 2 === 0 ? bench.store : bench.second;
    for (let call = 0; call < callsPerWorker; call += 1) {
      const name = pick(names) ?? "";
      const base = held.get(name);
      const choice = random.random();
      const disturb = random.random();
      const fault = disturb < 0.2 ? pick<HarnessFault>(lossy) : undefined;
      const abortMs = disturb > 0.85 ? random.random() * 3 : undefined;
      if (fault !== undefined) await bench.inject(fault, "write");
      const invokedAt = tick();
      const recorded =
        choice < 0.3 || (base === undefined && choice < 0.6)
          ? await recordRead(store, name, held)
          : await recordWrite(store, name, held, choice < 0.45 ? undefined : base, abortMs);
      if (recorded !== undefined) history.push({ worker, name, invokedAt, answeredAt: tick(), ...recorded });
      if (bench.offers.includes("landsLate") && random.random() < 0.3) await bench.land();
    }
  };
  await Promise.all(Array.from({ length: workers }, work));

  await bench.heal();
  // At rest: what was held lands now, or finds its condition false; then everybody must see the same.
  if (bench.offers.includes("landsLate"))
    for (let left = 0; left < workers * callsPerWorker; left += 1) await bench.land();
  for (const name of names) {
    for (const [worker, store] of [bench.store, bench.second].entries()) {
      const invokedAt = tick();
      const recorded = await recordRead(store, name, new Map());
      if (recorded !== undefined) history.push({ worker, name, invokedAt, answeredAt: tick(), ...recorded });
    }
  }
  return history;
}

interface Held {
  readonly version: Version;
  readonly value: string;
  readonly versionFrom: "written" | "read";
}

async function recordRead(
  store: ConditionalStore,
  name: string,
  held: Map<string, Held>,
): Promise<RegisterCall | undefined> {
  const record = await store.read(name).catch(nothingHappened);
  if (record === "rejected") return undefined;
  if (record === undefined) return { kind: "read", value: undefined };
  const value = nonceOf(record.bytes);
  held.set(name, { version: record.version, value, versionFrom: "read" });
  return { kind: "read", value };
}

async function recordWrite(
  store: ConditionalStore,
  name: string,
  held: Map<string, Held>,
  base: Held | undefined,
  abortMs: number | undefined,
): Promise<RegisterCall | undefined> {
  const bytes = newBody();
  const value = nonceOf(bytes);
  const abort = new AbortController();
  const options = { signal: abort.signal };
  const answer = (
    base === undefined ? store.create(name, bytes, options) : store.replace(name, base.version, bytes, options)
  ).catch(nothingHappened);
  if (abortMs !== undefined) void sleep(abortMs).then(() => abort.abort());
  const outcome: WriteOutcome | "rejected" = await answer;
  if (outcome === "rejected" || outcome.kind === "contended") return undefined;
  if (outcome.kind === "written") held.set(name, { version: outcome.version, value, versionFrom: "written" });
  return base === undefined
    ? { kind: "create", value, outcome: outcome.kind }
    : { kind: "replace", expected: base.value, versionFrom: base.versionFrom, value, outcome: outcome.kind };
}

/** A rejected promise means that nothing was written (P2), so it leaves no trace in a history. */
function nothingHappened(error: unknown): "rejected" {
  if (StoreError.is(error) && error.code === "UNAVAILABLE") return "rejected";
  throw error;
}
