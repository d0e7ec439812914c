import assert from "node:assert/strict";
import { defineReservation, fingerprintOf, IdempotencyConflictError } from "@firstwrite/core";
import { bench, byOperationId, ending, request, returned, threw } from "./setup.ts";

describe("fingerprint", () => {
  it("is the SHA-256 of the canonical form", () => {
    // printf '{"A":2,"a":1}' | sha256sum
    const digest = "sha256:a166305513c7b0cbb7a16b969b021e6e05d91d5f56fa3d8b7d7e2d1232811c68";
    assert.equal(fingerprintOf({ a: 1, A: 2 }), digest);
    assert.equal(fingerprintOf({}), "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
  });

  it("peer fault: {a,A} and {A,a} are one input, and reordered keys are no conflict", async () => {
    const { reserve } = bench();
    const first = returned(await reserve({}, { a: 1, A: 2, nested: { x: 1, y: 2 } }));
    const again = returned(await reserve({}, { nested: { y: 2, x: 1 }, A: 2, a: 1 }));
    assert.equal(again.value, first.value);
    assert.ok(IdempotencyConflictError.is(threw(await reserve({}, { A: 1, a: 2, nested: { x: 1, y: 2 } }))));
  });

  it("peer fault: two operations that share scope, key and input never replay each other", async () => {
    const { idempotency } = bench();
    const [invoice, ticket] = ["invoice", "ticket"].map((name) => defineReservation<object>({ name }));
    assert.ok(invoice !== undefined && ticket !== undefined);
    const numbered = await idempotency.reserve(invoice, request, { a: 1 }, () => ({ value: "INV-1" }));
    assert.equal(numbered.created, true);
    await assert.rejects(
      idempotency.reserve(ticket, request, { a: 1 }, () => ({ value: "T-1" })),
      IdempotencyConflictError.is,
    );
  });

  it("peer fault: an input changed by the caller while the call is going on is still the one that was given", async () => {
    const { clock, idempotency, reserve } = bench();
    const changing = { amount: 5 };
    const call = idempotency.reserve(defineReservation({ name: "assign" }), request, changing, byOperationId);
    changing.amount = 6;
    returned(await ending(clock, call));
    returned(await reserve({}, { amount: 5 }));
    assert.ok(IdempotencyConflictError.is(threw(await reserve({}, changing))));
  });

  it("is of what the operation says identifies the input, and nothing else", async () => {
    const { clock, idempotency } = bench();
    const operation = defineReservation({
      name: "pay",
      fingerprint: (p: { amount: number; sentAt: number }) => p.amount,
    });
    const pay = (amount: number, sentAt: number) =>
      ending(clock, idempotency.reserve(operation, request, { amount, sentAt }, byOperationId));
    const first = returned(await pay(5, 1));
    assert.equal(returned(await pay(5, 2)).value, first.value);
    assert.ok(IdempotencyConflictError.is(threw(await pay(6, 1))));
  });
});
