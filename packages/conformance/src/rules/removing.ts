import assert from "node:assert/strict";

import { StoreError, type ConditionalStore, type RemoveOutcome, type Version } from "@firstwrite/core";

import { mustRead, mustWrite, newRecord, Patience } from "../answers.ts";
import { newBody, type Bench } from "../bench.ts";
import type { Suite } from "../suite.ts";

/** The optional `remove`. */
export function removingRules<S extends ConditionalStore>(suite: Suite<S>): void {
  const test = (title: string, body: (bench: Bench, remove: Remove) => Promise<void>): void =>
    suite.test(title, async (bench) => {
      const { store } = bench;
      if (store.remove === undefined) {
        assert.equal("remove" in store, false, "a store without a conditional delete has no `remove`");
        bench.notRun("the store has no remove()");
        return;
      }
      await body(bench, (name, at) => removed(bench, store, name, at));
    });

  suite.group("removing, where the service deletes on condition", () => {
    test("a remove at the record's version removes it, and a create makes it anew", async (bench, remove) => {
      const { name, version } = await newRecord(bench);
      assert.equal((await remove(name, version)).kind, "removed");
      assert.equal(await bench.store.read(name), undefined);
      const bytes = newBody();
      await mustWrite(bench, { store: bench.store, name, bytes });
      await mustRead(bench.store, name, bytes);
    });

    test("a remove at a stale version is refused, and the record stays", async (bench, remove) => {
      const { store } = bench;
      const { name, version } = await newRecord(bench);
      const bytes = newBody();
      await mustWrite(bench, { store, name, bytes, expected: version });
      assert.equal((await remove(name, version)).kind, "refused");
      await mustRead(store, name, bytes);
    });

    // S3's own page says 204 for one that is not there, and others refuse; both leave nothing there.
    test("a remove of a missing record is answered, and leaves it missing", async (bench, remove) => {
      const { name, version } = await newRecord(bench);
      const missing = bench.name();
      await remove(missing, version);
      assert.equal(await bench.store.read(missing), undefined);
      await remove(name, version);
      await remove(name, version);
      assert.equal(await bench.store.read(name), undefined);
    });

    test("a remove takes no other record away", async (bench, remove) => {
      const folder = bench.name("/");
      const others = await Promise.all(
        [`${folder}a`, `${folder}a.b`, `${folder}A`].map(async (name) => {
          const bytes = newBody();
          await mustWrite(bench, { store: bench.store, name, bytes });
          return { name, bytes };
        }),
      );
      const { name, version } = await newRecord(bench);
      await remove(name, version);
      for (const other of others) await mustRead(bench.store, other.name, other.bytes);
    });

    test("a version from before a remove fits no record made after it", async (bench, remove) => {
      const { store } = bench;
      const { name, version } = await newRecord(bench);
      await remove(name, version);
      const bytes = newBody();
      await mustWrite(bench, { store, name, bytes });
      assert.equal((await store.replace(name, version, newBody())).kind, "refused");
      assert.equal((await remove(name, version)).kind, "refused");
      await mustRead(store, name, bytes);
    });

    test("a remove whose signal has aborted rejects UNAVAILABLE, and the record stays", async (bench) => {
      const { store } = bench;
      const { name, bytes, version } = await newRecord(bench);
      const answer: unknown = await store
        .remove?.(name, version, { signal: AbortSignal.abort() })
        .catch((error: unknown) => error);
      assert.ok(StoreError.is(answer), "an aborted remove rejects with a StoreError");
      assert.equal(answer.code, "UNAVAILABLE", answer.message);
      await mustRead(store, name, bytes);
    });
  });
}

type Remove = (name: string, at: Version) => Promise<RemoveOutcome>;

/** Nobody else touches the record, so that an `unknown` remove is decided by a read, and else sent again. */
async function removed(bench: Bench, store: ConditionalStore, name: string, at: Version): Promise<RemoveOutcome> {
  const patience = new Patience(bench);
  for (;;) {
    const outcome = await store.remove?.(name, at);
    assert.ok(outcome !== undefined);
    if (outcome.kind === "removed" || outcome.kind === "refused") return outcome;
    assert.ok(outcome.kind === "contended" || outcome.kind === "unknown", `the outcome is ${JSON.stringify(outcome)}`);
    if (outcome.kind === "unknown" && (await store.read(name)) === undefined) return { kind: "removed" };
    await patience.pause(() => `a remove was not decided in ${bench.patienceMs} ms`);
  }
}
