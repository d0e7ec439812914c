import assert from "node:assert/strict";

import type { ConditionalStore, Version, WriteOutcome } from "@firstwrite/core";

import {
  mustRead,
  mustRefuse,
  mustWrite,
  Patience,
  readOf,
  sameBytes,
  sendUntilTaken,
  type Write,
} from "../answers.ts";
import { afterNonce, newBody, newBodyWith, nonceOf, type Bench } from "../bench.ts";
import type { Suite } from "../suite.ts";

const rounds = 20;
const racers = 32;
/** Long enough to let another's replace through, short enough to stay in the race. */
const lostRacePauseMs = 50;

/**
 * Real races, across both clients where there are two. A service can answer every condition right one call after the
 * other and still break each of these: that was seen, and a suite that does not race calls it good.
 */
export function raceRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("races", () => {
    suite.test(`one of ${racers} creators of a name wins, ${rounds} times`, async (bench) => {
      for (let round = 0; round < rounds; round += 1) {
        const name = bench.name();
        await oneWins(bench, (store) => ({ store, name, bytes: newBody() }), eitherClient(bench));
      }
    });

    suite.test(`one of ${racers} creators of a name wins at one client, ${rounds} times`, async (bench) => {
      for (let round = 0; round < rounds; round += 1) {
        const name = bench.name();
        await oneWins(
          bench,
          (store) => ({ store, name, bytes: newBody() }),
          () => bench.store,
        );
      }
    });

    suite.test(`one of ${racers} replacers from one version wins, ${rounds} times`, async (bench) => {
      const name = bench.name();
      let { version } = await mustWrite(bench, { store: bench.store, name, bytes: newBody() });
      for (let round = 0; round < rounds; round += 1) {
        const expected = version;
        version = await oneWins(bench, (store) => ({ store, name, expected, bytes: newBody() }), eitherClient(bench));
      }
    });

    suite.test("8 workers that count by compare-and-swap lose no increment", async (bench) => {
      const name = bench.name();
      await mustWrite(bench, { store: bench.store, name, bytes: countBody(0) });
      const tally = await contest(bench, name, 10, (body) => countBody(countOf(body) + 1));
      const record = await readOf(bench.store, name);
      assert.ok(record !== undefined, "the counter is there");
      const count = countOf(record.bytes);
      assert.ok(
        count >= tally.done.size && count <= tally.done.size + tally.either.size,
        `the counter is at ${count} after ${tally.done.size} acknowledged increments and ${tally.either.size} without an answer`,
      );
    });

    suite.test("body and version belong together: no write skips one it did not read (P3)", async (bench) => {
      const name = bench.name();
      const first = newBody();
      await mustWrite(bench, { store: bench.store, name, bytes: first });
      const parents = new Map<string, string>();
      const tally = await contest(bench, name, 8, (body) => {
        const next = newBody();
        parents.set(nonceOf(next), nonceOf(body));
        return next;
      });
      // Each body knows the one it was made from, so what was ever the record is the line from the last to the first.
      // A body paired with a newer version than its own has its replace done, and the line misses what it skipped.
      const record = await readOf(bench.second, name);
      assert.ok(record !== undefined, "the record is there");
      const line = new Set<string>();
      let at: string | undefined = nonceOf(record.bytes);
      for (; at !== undefined && at !== nonceOf(first); at = parents.get(at)) line.add(at);
      assert.equal(at, nonceOf(first), "the record goes back to the first body");
      const skipped = [...tally.done].filter((nonce) => !line.has(nonce));
      assert.equal(skipped.length, 0, `${skipped.length} of ${tally.done.size} acknowledged replaces were skipped`);
      const refused = [...line].filter((nonce) => !tally.done.has(nonce) && !tally.either.has(nonce));
      assert.equal(refused.length, 0, `${refused.length} refused replaces were done`);
    });

    suite.test("the version of `written` is that of the bytes written, whoever writes next", async (bench) => {
      for (let round = 0; round < rounds; round += 1) await settleAfterATakeover(bench);
    });
  });
}

/** All write at once. One is the record in the end, it alone was told `written`, and all others were refused. */
async function oneWins(
  bench: Bench,
  write: (store: ConditionalStore) => Write,
  pick: (index: number) => ConditionalStore,
): Promise<Version> {
  const entries = Array.from({ length: racers }, (_, index) => write(pick(index)));
  const outcomes = await Promise.all(
    entries.map(async (entry) => ({ entry, outcome: await sendUntilTaken(bench, entry) })),
  );
  const winners = outcomes.filter(({ outcome }) => outcome.kind === "written");
  assert.ok(winners.length <= 1, `${winners.length} of ${racers} were told \`written\``);
  const [first] = entries;
  assert.ok(first !== undefined, "someone races");
  const record = await readOf(bench.store, first.name);
  assert.ok(record !== undefined, "nobody's bytes are the record");
  const owner = outcomes.find(({ entry }) => sameBytes(entry.bytes, record.bytes));
  assert.ok(owner !== undefined, "the record is of none who raced: all lost");
  if (winners.length === 1) assert.equal(owner, winners[0], "the record is not that of the one told `written`");
  else assert.equal(owner.outcome.kind, "unknown", "the record is of one who was told `refused`");
  await mustRead(bench.second, first.name, owner.entry.bytes);
  return owner.outcome.kind === "written" ? owner.outcome.version : record.version;
}

interface Tally {
  /** The nonces of replaces that are known to have been done. */
  readonly done: Set<string>;
  /** Those of replaces without an answer, that may have been done and overwritten before anyone looked. */
  readonly either: Set<string>;
}

/**
 * Eight workers each read, change, and replace at the version read, until that was done so many times. Every second
 * time a worker goes on from the version its own write was given, without reading.
 */
async function contest(
  bench: Bench,
  name: string,
  perWorker: number,
  change: (body: Uint8Array) => Uint8Array,
): Promise<Tally> {
  const tally: Tally = { done: new Set(), either: new Set() };
  const pick = eitherClient(bench);
  const work = async (_: unknown, worker: number): Promise<void> => {
    const store = pick(worker);
    let patience = new Patience(bench, lostRacePauseMs);
    let held: { readonly bytes: Uint8Array; readonly version: Version } | undefined;
    for (let ended = 0; ended < perWorker;) {
      const base = held ?? (await readOf(store, name));
      assert.ok(base !== undefined, `the record ${name} is gone`);
      const write = { store, name, expected: base.version, bytes: change(base.bytes) };
      const fate = await fateOf(bench, write);
      held = undefined;
      if (fate.kind === "refused") {
        await patience.pause(() => `no compare-and-swap on ${name} was done in ${bench.patienceMs} ms`);
        continue;
      }
      patience = new Patience(bench, lostRacePauseMs);
      tally[fate.kind].add(nonceOf(write.bytes));
      ended += 1;
      if (fate.kind === "done" && ended % 2 === 1) held = { bytes: write.bytes, version: fate.version };
    }
  };
  await Promise.all(Array.from({ length: 8 }, work));
  return tally;
}

type Fate = { kind: "done"; version: Version } | { kind: "either" } | { kind: "refused" };

/**
 * An `unknown` replace is repeated with the same bytes until it is decided: whichever lands is the same write. Refused
 * in the end, it may have been done and overwritten since; it can no longer land.
 */
async function fateOf(bench: Bench, write: Write): Promise<Fate> {
  let wasUnknown = false;
  for (let tries = 0; tries < 5; tries += 1) {
    const outcome = await sendUntilTaken(bench, write);
    if (outcome.kind === "written") return { kind: "done", version: outcome.version };
    if (outcome.kind === "refused" && !wasUnknown) return outcome;
    const record = await readOf(write.store, write.name);
    if (record !== undefined && sameBytes(record.bytes, write.bytes)) return { kind: "done", version: record.version };
    if (outcome.kind === "refused") return { kind: "either" };
    wasUnknown = true;
  }
  return assert.fail(`a replace of ${write.name} stayed \`unknown\``);
}

/** An owner writes; another takes the record over as soon as it shows; the owner's version must be of no more use. */
async function settleAfterATakeover(bench: Bench): Promise<void> {
  const name = bench.name();
  const owner = { store: bench.store, name, bytes: newBody() };
  const takeOver = async (): Promise<Uint8Array> => {
    const patience = new Patience(bench);
    for (;;) {
      const record = await readOf(bench.second, name);
      if (record !== undefined) {
        const bytes = newBody();
        await mustWrite(bench, { store: bench.second, name, expected: record.version, bytes });
        return bytes;
      }
      await patience.pause(() => `the record ${name} never showed`);
    }
  };
  const claim = async (): Promise<WriteOutcome> => {
    const first = await sendUntilTaken(bench, owner);
    // Without an answer there is no version to test; but the other waits for the record.
    const patience = new Patience(bench);
    for (let last = first; last.kind === "unknown"; last = await sendUntilTaken(bench, owner)) {
      await patience.pause(() => `create(${JSON.stringify(name)}) stayed \`unknown\``);
    }
    return first;
  };
  const [outcome, taken] = await Promise.all([claim(), takeOver()]);
  assert.notEqual(outcome.kind, "refused", "the only create was refused");
  if (outcome.kind === "written") {
    await mustRefuse(bench, { ...owner, expected: outcome.version, bytes: newBody() }, taken);
  }
}

function eitherClient({ store, second }: Bench): (index: number) => ConditionalStore {
  return (index) => (index % 2 === 0 ? store : second);
}

const countBody = (count: number): Uint8Array => newBodyWith(Buffer.from(String(count), "latin1"));
const countOf = (body: Uint8Array): number => Number(Buffer.from(afterNonce(body)).toString("latin1"));
