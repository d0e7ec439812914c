import assert from "node:assert/strict";
import { idempotent, IdempotencyConflictError, InvalidArgumentError } from "@firstwrite/core";
import { bench, parse, untyped } from "./setup.ts";

interface Order {
  readonly id: string;
  readonly amount: number;
}

describe("idempotent", () => {
  it("runs a plain function once per key, which comes from the input", async () => {
    const { idempotency } = bench();
    const ids: string[] = [];
    const charge = idempotent(
      async ({ amount }: Order, { operationId }) => {
        ids.push(operationId);
        return amount * 2;
      },
      { idempotency, name: "charge", recovery: "hold", key: ({ id }) => id },
    );
    assert.equal(await charge({ id: "o1", amount: 5 }), 10);
    assert.equal(await charge({ id: "o1", amount: 5 }), 10);
    assert.equal(await charge({ id: "o2", amount: 6 }), 12);
    assert.equal(ids.length, 2);
    await assert.rejects(charge({ id: "o1", amount: 6 }), (error) => IdempotencyConflictError.is(error));
  });

  it("without a key of its own, the same input is the same operation", async () => {
    const { idempotency } = bench();
    let runs = 0;
    const count = idempotent(() => (runs += 1), { idempotency, name: "count", recovery: "rerun" });
    assert.deepEqual(await Promise.all([count({ a: 1, b: 2 }), count({ b: 2, a: 1 }), count({ a: 2 })]), [1, 1, 2]);
  });

  it("the caller's key, scope and limits go before", async () => {
    const { idempotency, memory } = bench();
    const count = idempotent((n: number) => n, {
      idempotency,
      name: "count",
      scope: (n) => `s${n}`,
      recovery: "rerun",
    });
    await count(1, { key: "k" });
    await count(2, { key: "k", scope: "mine", readFirst: true });
    const found: unknown[] = [];
    for await (const { name } of memory.list("idempotency/")) {
      const { scope, key } = parse((await memory.read(name))?.bytes ?? Buffer.of());
      found.push([scope, key]);
    }
    assert.deepEqual(found, [
      ["s1", "k"],
      ["mine", "k"],
    ]);
  });

  it("refuses what is missing, when it is defined", () => {
    const { idempotency } = bench();
    const run = (): number => 1;
    const mistakes: [why: RegExp, options: unknown][] = [
      [/must be an object/, undefined],
      [/new Idempotency/, { name: "n", recovery: "hold" }],
      [/recovery says what to do/, { idempotency, name: "n" }],
      [/key, where it is given, must be a function/, { idempotency, name: "n", recovery: "hold", key: "k" }],
      [/cannot have "runs"/, { idempotency, name: "n", recovery: "hold", runs: run }],
    ];
    for (const [why, options] of mistakes) {
      assert.throws(
        () => untyped(idempotent, undefined, [run, options]),
        (error) => InvalidArgumentError.is(error) && why.test(error.message),
        String(why),
      );
    }
  });
});
