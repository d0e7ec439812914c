import assert from "node:assert/strict";

import type { ConditionalStore } from "@firstwrite/core";

import { mustRead, mustWrite, newRecord, readOf, sameBytes } from "../answers.ts";
import { newBody } from "../bench.ts";
import type { Suite } from "../suite.ts";

/** P3: a read begun after `written` sees that write or a later one, whoever reads. */
export function freshnessRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("a read is never stale (P3)", () => {
    suite.test("a read after `written` sees the write", async (bench) => {
      const { store } = bench;
      let { name, version } = await newRecord(bench);
      for (let count = 0; count < 20; count += 1) {
        const bytes = newBody();
        ({ version } = await mustWrite(bench, { store, name, expected: version, bytes }));
        await mustRead(store, name, bytes);
      }
    });

    suite.test("a read after `written` sees the write even while older reads are under way", async (bench) => {
      const { store } = bench;
      let { name, version } = await newRecord(bench);
      for (let count = 0; count < 20; count += 1) {
        const bytes = newBody();
        const older = Array.from({ length: 4 }, () => store.read(name).catch(() => undefined));
        ({ version } = await mustWrite(bench, { store, name, expected: version, bytes }));
        await mustRead(store, name, bytes);
        await Promise.all(older);
      }
    });

    suite.test("a read while others write finds one of their records, whole", async (bench) => {
      const { store, second } = bench;
      let { name, bytes, version } = await newRecord(bench);
      for (let count = 0; count < 20; count += 1) {
        const before = bytes;
        const next = newBody(256).fill(count, 32);
        const reading = Promise.all([store, second, store, second].map((client) => readOf(client, name)));
        const writing = mustWrite(bench, { store, name, expected: version, bytes: next });
        const [records, written] = await Promise.all([reading, writing]);
        for (const record of records) {
          assert.ok(record !== undefined, "a record that is being replaced was not found");
          const whole = sameBytes(record.bytes, before) || sameBytes(record.bytes, next);
          assert.ok(whole, "a read found a body that nobody wrote, or one that was long gone");
        }
        ({ version } = written);
        bytes = next;
      }
    });

    suite.test(
      "a record created by one client is seen by the other, which had found none",
      async (bench) => {
        const { store, second } = bench;
        const write = { store, name: bench.name(), bytes: newBody() };
        await mustRead(second, write.name, undefined);
        await mustWrite(bench, write);
        await mustRead(second, write.name, write.bytes);
      },
      ["second"],
    );

    suite.test(
      "a rewrite by one client is seen by the other, which had read the record",
      async (bench) => {
        const clients = [bench.store, bench.second] as const;
        let { name, bytes, version } = await newRecord(bench);
        for (let count = 0; count < 20; count += 1) {
          const [writer, reader] = count % 2 === 0 ? clients : ([clients[1], clients[0]] as const);
          await mustRead(reader, name, bytes);
          bytes = newBody();
          ({ version } = await mustWrite(bench, { store: writer, name, expected: version, bytes }));
          await mustRead(reader, name, bytes);
        }
      },
      ["second"],
    );

    suite.test(
      "every read sends a request: nothing is kept from an earlier one",
      async (bench) => {
        const { name } = await newRecord(bench);
        const before = await bench.requests();
        for (let count = 0; count < 3; count += 1) await bench.store.read(name);
        assert.ok((await bench.requests()) - before >= 3, "three reads sent fewer than three requests");
      },
      ["requests"],
    );
  });
}
