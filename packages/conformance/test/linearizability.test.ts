import assert from "node:assert/strict";

import { checkLinearizability, describeHistory, type RecordedCall, type RegisterCall } from "@firstwrite/conformance";
import { VirtualClock } from "@firstwrite/memory";

type Outcome = "written" | "refused" | "unknown";

describe("linearizability", () => {
  describe("allows", () => {
    it("a history of nothing", () => allowed([]));

    it("calls one after the other, each seeing the last", () =>
      allowed([
        read(1, 2, undefined),
        create(3, 4, "a", "written"),
        read(5, 6, "a"),
        create(7, 8, "b", "refused"),
        replace(9, 10, "a", "c", "written"),
        replace(11, 12, "a", "d", "refused"),
        read(13, 14, "c"),
      ]));

    it("a read that overlaps a write, either way", () => {
      allowed([create(1, 4, "a", "written"), read(2, 3, undefined)]);
      allowed([create(1, 4, "a", "written"), read(2, 3, "a")]);
    });

    it("creators at once of which one wins", () =>
      allowed([
        create(1, 6, "a", "refused"),
        create(2, 5, "b", "written"),
        create(3, 4, "c", "refused"),
        read(7, 8, "b"),
      ]));

    it("a refused create that began before the winner's did, and ended after", () =>
      allowed([create(1, 10, "a", "refused"), create(5, 6, "b", "written")]));

    it("an unknown write that never lands", () => allowed([create(1, 2, "a", "unknown"), read(3, 4, undefined)]));

    it("an unknown write that landed at once", () => allowed([create(1, 2, "a", "unknown"), read(3, 4, "a")]));

    it("an unknown write that lands late, after reads that did not see it", () =>
      allowed([
        create(1, 2, "a", "unknown"),
        read(3, 4, undefined),
        read(5, 6, undefined),
        read(7, 8, "a"),
        create(9, 10, "b", "refused"),
      ]));

    it("an unknown replace that lands late, as long as its condition still holds", () =>
      allowed([
        create(1, 2, "a", "written"),
        replace(3, 4, "a", "b", "unknown"),
        read(5, 6, "a"),
        read(7, 8, "b"),
        replace(9, 10, "b", "c", "written"),
        read(11, 12, "c"),
      ]));

    it("an unknown replace whose condition had gone when it arrived", () =>
      allowed([
        create(1, 2, "a", "written"),
        replace(3, 4, "a", "b", "unknown"),
        replace(5, 6, "a", "c", "written"),
        read(7, 8, "c"),
        read(9, 10, "c"),
      ]));

    it("two unknown writes of which the second lands first", () =>
      allowed([create(1, 2, "a", "unknown"), create(3, 4, "b", "unknown"), read(5, 6, "b"), read(7, 8, "b")]));

    it("a refused replace at the current body, if its version came from a read: a newer body with an older version", () =>
      allowed([create(1, 2, "a", "written"), replace(3, 4, "a", "b", "refused", "read"), read(5, 6, "a")]));

    it("names that know nothing of one another", () =>
      allowed([
        { ...create(1, 2, "a", "written"), name: "one" },
        { ...read(3, 4, undefined), name: "other" },
      ]));
  });

  describe("does not allow", () => {
    it("a stale read: a read begun after `written` that finds what was there before", () => {
      impossible([create(1, 2, "a", "written"), read(3, 4, undefined)]);
      impossible([create(1, 2, "a", "written"), replace(3, 4, "a", "b", "written"), read(5, 6, "a")]);
    });

    it("reads that go back, though each overlaps the write", () =>
      impossible([create(1, 10, "a", "written"), read(2, 3, "a"), read(4, 5, undefined)]));

    it("two winners of a create", () => impossible([create(1, 4, "a", "written"), create(2, 3, "b", "written")]));

    it("two winners of a replace from one version", () =>
      impossible([
        create(1, 2, "a", "written"),
        replace(3, 6, "a", "b", "written"),
        replace(4, 5, "a", "c", "written"),
        read(7, 8, "c"),
      ]));

    it("a lost update: an acknowledged write that nobody sees and nothing replaced", () =>
      impossible([
        create(1, 2, "a", "written"),
        replace(3, 4, "a", "b", "written"),
        read(5, 6, "a"),
        replace(7, 8, "a", "c", "written"),
      ]));

    it("a body paired with a newer version: its replace is done though another body was the record", () =>
      impossible([
        create(1, 2, "a", "written"),
        replace(3, 4, "a", "b", "written"),
        replace(5, 6, "a", "c", "written", "read"),
      ]));

    it("a create that was refused where there was never a record", () => impossible([create(1, 2, "a", "refused")]));

    it("a replace refused at the version that its own `written` gave, with no other write", () =>
      impossible([create(1, 2, "a", "written"), replace(3, 4, "a", "b", "refused")]));

    it("a refused write that was done", () =>
      impossible([create(1, 2, "a", "written"), create(3, 4, "b", "refused"), read(5, 6, "b")]));

    it("a value nobody wrote: one that was contended or rejected, and left out of the history for that", () =>
      impossible([read(1, 2, "a")]));

    it("an unknown write that takes effect before it was called", () =>
      impossible([read(1, 2, "a"), create(3, 4, "a", "unknown")]));

    it("an unknown write that lands twice: its condition is false the second time", () =>
      impossible([
        create(1, 2, "a", "written"),
        replace(3, 4, "a", "b", "unknown"),
        read(5, 6, "b"),
        replace(7, 8, "b", "c", "written"),
        read(9, 10, "b"),
      ]));

    it("an unknown write that lands over another record", () =>
      impossible([create(1, 2, "a", "unknown"), create(3, 4, "b", "written"), read(5, 6, "b"), read(7, 8, "a")]));

    it("an unknown write that was seen, and then was not", () =>
      impossible([create(1, 2, "a", "unknown"), read(3, 4, "a"), read(5, 6, undefined)]));
  });

  it("says which name, which calls, and how far an order goes", () => {
    const history = [
      { ...create(1, 2, "fine", "written"), name: "other" },
      create(3, 4, "a", "written"),
      create(5, 6, "b", "unknown"),
      read(7, 8, undefined),
    ];
    const found = checkLinearizability(history);
    assert.ok(found.kind === "impossible");
    assert.equal(found.name, "n");
    assert.deepEqual(found.fits, [history[1]]);
    assert.equal(
      describeHistory(found.calls),
      "3..4      worker 0: create a -> written\n5..       worker 0: create b -> unknown\n7..8      worker 0: read -> none",
    );
  });

  it("agrees with a search of every order, on 20,000 small random histories", () => {
    const random = new VirtualClock({ seed: 20_261_130 });
    const found = { linearizable: 0, impossible: 0 };
    for (let count = 0; count < 20_000; count += 1) {
      const history = randomHistory(random);
      const { kind } = checkLinearizability(history);
      assert.equal(kind === "linearizable", someOrderFits(history, undefined), describeHistory(history));
      found[kind] += 1;
    }
    assert.ok(Math.min(found.linearizable, found.impossible) > 2_000, `${JSON.stringify(found)} is too one-sided`);
  });

  it("takes no longer than a blink for 60 calls of which half are unknown", () => {
    const history: RecordedCall[] = [create(0, 1, "v0", "written")];
    for (let at = 1; at < 30; at += 1) {
      history.push(replace(at * 4, at * 4 + 1, "v0", `lost${at}`, "unknown"), read(at * 4 + 2, at * 4 + 3, "v0"));
    }
    const startedMs = performance.now();
    allowed(history);
    impossible([...history, read(200, 201, undefined)]);
    assert.ok(performance.now() - startedMs < 1_000, "the memoisation does not work");
  });
});

function allowed(history: readonly RecordedCall[]): void {
  assert.deepEqual(checkLinearizability(history), { kind: "linearizable" });
}

function impossible(history: readonly RecordedCall[]): void {
  assert.equal(checkLinearizability(history).kind, "impossible");
}

const at = (invokedAt: number, answeredAt: number): Omit<RecordedCall, keyof RegisterCall> => ({
  worker: 0,
  name: "n",
  invokedAt,
  answeredAt,
});

function read(invokedAt: number, answeredAt: number, value: string | undefined): RecordedCall {
  return { ...at(invokedAt, answeredAt), kind: "read", value };
}

function create(invokedAt: number, answeredAt: number, value: string, outcome: Outcome): RecordedCall {
  return { ...at(invokedAt, answeredAt), kind: "create", value, outcome };
}

function replace(
  invokedAt: number,
  answeredAt: number,
  expected: string,
  value: string,
  outcome: Outcome,
  versionFrom: "written" | "read" = "written",
): RecordedCall {
  return { ...at(invokedAt, answeredAt), kind: "replace", expected, versionFrom, value, outcome };
}

/** Up to six calls at random times, with answers that often make sense. */
function randomHistory(random: VirtualClock): RecordedCall[] {
  const below = (n: number): number => Math.floor(random.random() * n);
  const pick = <T>(items: readonly [T, ...T[]]): T => items[below(items.length)] ?? items[0];
  const outcome = (): Outcome => pick(["written", "written", "refused", "unknown"]);
  return Array.from({ length: 2 + below(5) }, (_, index) => {
    const invokedAt = below(12);
    const answeredAt = invokedAt + 1 + below(6);
    const other = (): string => `v${below(4)}`;
    return pick([
      () => read(invokedAt, answeredAt, pick([undefined, other(), other()])),
      () => create(invokedAt, answeredAt, `v${index}`, outcome()),
      () => replace(invokedAt, answeredAt, other(), `v${index}`, outcome(), pick(["written", "read"])),
    ])();
  });
}

/** The same question answered by trying everything, as plainly as it can be said. */
function someOrderFits(left: readonly RecordedCall[], state: string | undefined): boolean {
  const mustHappen = left.filter((call) => call.kind === "read" || call.outcome !== "unknown");
  if (mustHappen.length === 0) return true;
  return left.some((call) => {
    if (mustHappen.some((other) => other.answeredAt <= call.invokedAt)) return false;
    const others = left.filter((other) => other !== call);
    if (call.kind === "read") return call.value === state && someOrderFits(others, state);
    const holds = call.kind === "create" ? state === undefined : state === call.expected;
    switch (call.outcome) {
      case "written":
        return holds && someOrderFits(others, call.value);
      case "unknown":
        return (holds && someOrderFits(others, call.value)) || someOrderFits(others, state);
      case "refused":
        return (!holds || (call.kind === "replace" && call.versionFrom === "read")) && someOrderFits(others, state);
    }
  });
}
