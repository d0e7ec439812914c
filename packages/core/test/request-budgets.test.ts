import assert from "node:assert/strict";
import { bench, returned, threw, TTL_MS } from "./setup.ts";

describe("request budgets of reserve (protocol §8)", () => {
  const budgets: readonly [
    title: string,
    sent: Readonly<Record<"first" | "again" | "conflict" | "stale", string>>,
    readFirst: boolean,
  ][] = [
    [
      "as it is",
      { first: "create", again: "create read", conflict: "create read", stale: "create read replace" },
      false,
    ],
    ["readFirst", { first: "read create", again: "read", conflict: "read", stale: "read replace" }, true],
  ];
  for (const [title, sent, readFirst] of budgets) {
    it(`${title}: first ${sent.first}, again ${sent.again}, conflict ${sent.conflict}, stale ${sent.stale}`, async () => {
      const { clock, reserve, store } = bench();
      const took = (): string => store.take().join(" ");
      returned(await reserve({ readFirst }));
      assert.equal(took(), sent.first, "first");
      returned(await reserve({ readFirst }));
      assert.equal(took(), sent.again, "again");
      threw(await reserve({ readFirst }, "another input"));
      assert.equal(took(), sent.conflict, "conflict");
      await clock.advance(TTL_MS + 1);
      assert.ok(returned(await reserve({ readFirst })).created);
      assert.equal(took(), sent.stale, "stale");
    });
  }
});
