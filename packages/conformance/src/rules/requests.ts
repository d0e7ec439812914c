import assert from "node:assert/strict";

import type { ConditionalStore } from "@firstwrite/core";

import { letPass, newRecord, send } from "../answers.ts";
import { newBody } from "../bench.ts";
import type { Suite } from "../suite.ts";

/** P1: a write sends at most one request, whatever the client below it would like to do. */
export function requestRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("one request a write (P1)", () => {
    suite.test(
      "a write sends one request, written or refused",
      async (bench) => {
        const { store } = bench;
        const { name, version } = await newRecord(bench);
        const missing = bench.name();
        const writes = [
          { store, name: bench.name(), bytes: newBody() },
          { store, name, bytes: newBody() },
          { store, name, expected: version, bytes: newBody() },
          { store, name, expected: version, bytes: newBody() },
          { store, name: missing, expected: version, bytes: newBody() },
        ];
        for (const write of writes) {
          const before = await bench.requests();
          const { kind } = await send(write);
          assert.equal((await bench.requests()) - before, 1, `requests of a write that was ${kind}`);
        }
      },
      ["requests"],
    );

    for (const fault of ["lostRequest", "lostReply", "contended", "away"] as const) {
      suite.test(
        `a write that meets "${fault}" is not sent again, then or later`,
        async (bench) => {
          const { store } = bench;
          const { name, version } = await newRecord(bench);
          const writes = [
            { store, name: bench.name(), bytes: newBody() },
            { store, name, expected: version, bytes: newBody() },
          ];
          const kinds: string[] = [];
          const before = await bench.requests();
          for (const write of writes) {
            await bench.inject(fault, "write");
            const kind = await send(write).then(
              (outcome) => outcome.kind,
              () => "rejected",
            );
            kinds.push(kind);
            await bench.heal();
          }
          await letPass(50);
          const sent = (await bench.requests()) - before;
          assert.ok(
            sent <= writes.length,
            `${sent} requests for ${writes.length} writes that were ${kinds.join(" and ")}`,
          );
        },
        ["requests", fault],
      );
    }
  });
}
