import assert from "node:assert/strict";
import { setTimeout as realTimeout } from "node:timers";
import {
  executionOf,
  Idempotency,
  IdempotencyConflictError,
  InProgressError,
  InvalidArgumentError,
  OutcomeUnknownError,
  type EffectContext,
  type Executed,
  type Reconciled,
} from "@firstwrite/core";
import { settle } from "@firstwrite/memory";
import {
  aborter,
  bench,
  crashIn,
  Effect,
  input,
  isStoreError,
  leavesNothing,
  operationOf,
  processOf,
  request,
  returned,
  rewrite,
  sleep,
  threw,
  type Bench,
  type Ending,
} from "./setup.ts";

/** Another process runs the operation; `finish` ends its run. */
async function withOwner(on: Bench, operation = operationOf()) {
  const effect = new Effect();
  const call = processOf(on, 77).start({ ...operation, run: effect.run });
  await settle();
  on.store.take();
  return {
    async finish(value: unknown): Promise<void> {
      effect.last.finish(value);
      await call.ends();
      on.store.take();
    },
  };
}

function valuesOf(ends: readonly Ending<Executed<unknown>>[]): Executed<unknown>[] {
  return ends.map((end) => returned(end));
}

/** One object, so that its calls share a flight. */
const pay = operationOf();

describe("execute: one flight in a process (I1)", () => {
  leavesNothing();

  it("I1: 1,000 calls at once cost as one: a first run, a replay, one in progress", async () => {
    const on = bench();
    const { signal } = aborter();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    const thousand = () => Array.from({ length: 1000 }, () => on.start(operation, { signal }));
    const all = thousand();
    await settle();
    effect.last.finish({ paid: [5] });
    const first = valuesOf(await Promise.all(all.map((call) => call.ends())));
    assert.deepEqual(on.store.take(), ["create", "replace"]);
    assert.equal(first.filter(({ replayed }) => !replayed).length, 1, "one is told that it ran");
    assert.ok(first.every(({ recorded, operationId }) => recorded && operationId === effect.last.context.operationId));

    const again = valuesOf(await Promise.all(thousand().map((call) => call.ends())));
    assert.deepEqual(on.store.take(), ["create", "read"]);
    assert.ok(again.every(({ replayed }) => replayed));

    await rewrite(on, { status: "creating", lease_ms: 60_000, result: undefined });
    const busy = await Promise.all(thousand().map((call) => call.ends()));
    assert.deepEqual(on.store.take(), ["create", "read"]);
    assert.ok(busy.every((end) => InProgressError.is(threw(end))));
    assert.equal(effect.runs.length, 1);
  });

  it("I1: each caller's value is its own copy, bytes too", async () => {
    for (const made of [{ list: [1] }, Buffer.from([1])]) {
      const on = bench();
      const operation = operationOf({ run: () => made });
      const [one, two] = valuesOf(
        await Promise.all([on.start(operation), on.start(operation)].map((call) => call.ends())),
      );
      assert.ok(one && two);
      const { value } = one;
      if (Buffer.isBuffer(value)) value[0] = 9;
      else Object.assign(Object(value), { list: [1, 2] });
      assert.deepEqual(two.value, made);
      assert.deepEqual(returned(await on.execute(operation)).value, made);
    }
  });

  it("I1: a thrown error reaches all, and says what is known of it", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run, onError: () => "replay" });
    const calls = Array.from({ length: 5 }, () => on.start(operation));
    await settle();
    const thrown = new Error("no funds");
    effect.last.fail(thrown);
    for (const call of calls) assert.equal(threw(await call.ends()), thrown);
    const { operationId } = effect.last.context;
    assert.deepEqual(executionOf(thrown), { operationId, replayed: false, recorded: true });
  });

  it("I1: another input, operation object, scope or key is another flight", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    const calls = [
      on.start(operation),
      on.start(operation, {}, "another input"),
      on.start(operationOf({ run: effect.run })),
      on.start(operation, { key: "k2" }),
      on.start(operation, { scope: "acme2" }),
    ];
    await settle();
    assert.equal(effect.runs.length, 3);
    for (const run of effect.runs) run.finish();
    const [first, conflict, busy, ...others] = await Promise.all(calls.map((call) => call.ends()));
    assert.ok(first && conflict && busy);
    assert.ok(IdempotencyConflictError.is(threw(conflict)));
    assert.ok(InProgressError.is(threw(busy)));
    for (const end of [first, ...others]) assert.equal(returned(end).replayed, false);
  });

  it("I1: joiners keep their own deadlines before anything began", async () => {
    const on = bench();
    on.memory.inject("hangs");
    const [long, short] = [20_000, 1_000].map((deadlineMs) => on.start(pay, { deadlineMs }));
    assert.ok(long && short);
    const left = await short.ends();
    isStoreError(threw(left), "UNAVAILABLE");
    assert.equal(left.tookMs, 1_000);
    assert.equal(returned(await long.ends()).replayed, false);
    assert.deepEqual(on.store.take(), ["create", "read", "create", "replace"]);
  });

  it("I1: a joiner with a later deadline carries the flight on for itself", async () => {
    const on = bench();
    on.memory.inject("hangs");
    const short = on.start(pay, { deadlineMs: 1_000 });
    await on.clock.advance(500);
    const long = on.start(pay, { deadlineMs: 20_000 });
    isStoreError(threw(await short.ends()), "UNAVAILABLE");
    assert.equal(returned(await long.ends()).replayed, false);
    assert.deepEqual(on.store.take(), ["create", "read", "create", "replace"], "one flight");
  });

  it("I1: joiners keep their own waitMs", async () => {
    const on = bench();
    const owner = await withOwner(on);
    const calls = [0, 500, 20_000].map((waitMs) => on.start(pay, { waitMs }));
    await on.clock.advance(600);
    assert.deepEqual(
      calls.map(({ end }) => end?.tookMs),
      [0, 500, undefined],
    );
    await owner.finish("theirs");
    const [now, soon, late] = await Promise.all(calls.map((call) => call.ends()));
    assert.ok(now && soon && late);
    assert.ok(InProgressError.is(threw(now)) && InProgressError.is(threw(soon)));
    assert.equal(returned(late).value, "theirs");
  });

  it("I1: joiners keep their own signals: one's cancelling ends its own wait alone", async () => {
    for (const leaver of [0, 1]) {
      const on = bench();
      on.memory.inject("hangs");
      const abort = aborter();
      const calls = [0, 1].map((nth) => on.start(pay, nth === leaver ? { signal: abort.signal } : {}));
      await settle();
      const reason = new Error("left");
      abort.abort(reason);
      await settle();
      assert.deepEqual(
        calls.map(({ end }) => end?.kind),
        leaver === 0 ? ["threw", undefined] : [undefined, "threw"],
      );
      const ends = await Promise.all(calls.map((call) => call.ends()));
      for (const [nth, end] of ends.entries()) {
        if (nth === leaver) assert.equal(threw(end), reason);
        else assert.equal(returned(end).replayed, false);
      }
    }
  });

  it("I1: a joiner while the flight waits for another's lease is told what is true when it joins", async () => {
    for (const settled of [false, true]) {
      const on = bench();
      const owner = await withOwner(on);
      const waiter = on.start(pay, { waitMs: 25_000, deadlineMs: 29_000 });
      await on.clock.advance(10_000);
      if (settled) await owner.finish("theirs");
      on.store.take();
      const joiner = on.start(pay);
      await settle();
      const { end } = joiner;
      assert.ok(end, "it does not wait for the flight's next look");
      assert.deepEqual(on.store.take(), ["read"]);
      if (settled) assert.equal(returned(end).value, "theirs");
      else assert.ok(InProgressError.is(threw(end)));
      if (!settled) await owner.finish("theirs");
      assert.equal(returned(await waiter.ends()).value, "theirs");
    }
  });

  it("I1: a joiner while the flight's look is under way is not told what that look was sent too early to see", async () => {
    const on = bench();
    const owner = await withOwner(on);
    // Answers take long: the look that says `creating` is answered after the owner has settled.
    on.store.travelBack = () => sleep(on.clock, 1_000);
    const waiter = on.start(pay, { waitMs: 20_000 });
    await on.clock.advance(1_500);
    on.store.travelBack = undefined;
    await owner.finish("theirs");
    const joiner = on.start(pay);
    const joined = await joiner.ends();
    assert.equal(returned(joined).value, "theirs");
    assert.equal(joined.tookMs, 500, "as soon as that look is over, and it looks anew");
    assert.equal(returned(await waiter.ends()).value, "theirs");
  });

  it("I1: before it began it ends with its last joiner: nothing more is sent, and a new call begins anew", async () => {
    const on = bench();
    on.memory.inject("hangs");
    const aborts = [aborter(), aborter()];
    const calls = aborts.map(({ signal }) => on.start(pay, { signal }));
    await settle();
    for (const abort of aborts) abort.abort();
    for (const call of calls) assert.equal(threw(await call.ends()), aborts[0] && threw(await call.ends()));
    await on.clock.advance(100_000);
    assert.deepEqual(on.store.take(), ["create"]);
    assert.equal(returned(await on.execute(operationOf())).replayed, false);
  });

  it("I1: a call at the very moment that the last joiner leaves begins anew, and does not end with it", async () => {
    for (let ticks = 0; ticks < 20; ticks += 1) {
      const on = bench();
      on.memory.inject("hangs");
      const abort = aborter();
      const leaver = on.start(pay, { signal: abort.signal });
      await settle();
      abort.abort(new Error("left"));
      for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
      assert.equal(returned(await on.execute(pay)).recorded, true, `after ${ticks} ticks`);
      threw(await leaver.ends());
    }
  });

  it("I1: no run follows a reconcile whose callers have all cancelled, and the next call recovers at once", async () => {
    const on = bench();
    const asked = new Effect();
    const effect = new Effect();
    const absent: Reconciled<unknown> = "absent";
    const recovery = { reconcile: (...given: Parameters<Effect["run"]>) => asked.run(...given).then(() => absent) };
    await crashIn(on, operationOf({ recovery }));
    await on.clock.advance(60_001);
    const abort = aborter();
    const reason = new Error("hung up");
    const operation = operationOf({ recovery, run: effect.run });
    const call = on.start(operation, { signal: abort.signal });
    await settle();
    abort.abort(reason);
    await settle();
    assert.equal(asked.last.context.signal.reason, reason);
    asked.last.finish();
    await settle();
    assert.equal(effect.runs.length, 0);
    assert.ok(OutcomeUnknownError.is(threw(await call.ends())));
    assert.deepEqual(pick(await on.stored(), ["status", "lease_ms", "takeover"]), ["creating", 0, true]);
    const next = on.start(operation);
    await settle();
    asked.last.finish();
    await settle();
    effect.last.finish("paid");
    assert.equal(returned(await next.ends()).value, "paid");
  });

  it("I1: nobody joins a run that was cancelled", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    const abort = aborter();
    const first = on.start(operation, { signal: abort.signal });
    await settle();
    abort.abort(new Error("hung up"));
    threw(await first.ends());
    assert.ok(InProgressError.is(threw(await on.execute(operation))), "told that it is in progress");
    effect.last.finish("paid after all");
    await settle();
    assert.equal(returned(await on.execute(operation)).value, "paid after all");
    assert.equal(effect.runs.length, 1);
  });

  it("I1, E4: a run goes on past every deadline, and settles when it ends", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    const calls = [1_000, 8_000].map((deadlineMs) => on.start(operation, { deadlineMs }));
    for (const [nth, deadlineMs] of [1_000, 8_000].entries()) {
      const end = await calls[nth]?.ends();
      assert.ok(end);
      const error = threw(end);
      assert.ok(OutcomeUnknownError.is(error));
      assert.deepEqual([error.operationId, end.tookMs], [effect.last.context.operationId, deadlineMs]);
    }
    await on.clock.advance(300_000);
    assert.equal(effect.last.context.signal.aborted, false, "a deadline cancels nothing");
    effect.last.finish("late");
    await settle();
    assert.equal((await on.stored())["status"], "ready");
    assert.equal(returned(await on.execute(operation)).value, "late");
    assert.equal(effect.runs.length, 1);
  });

  it("I1: a call may join a run whose first callers have left, and gets its result", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    threw(await on.execute(operation, { deadlineMs: 1_000 }));
    const joiner = on.start(operation, { deadlineMs: 500 });
    await settle();
    assert.equal(effect.last.context.remainingMs, 500);
    effect.last.finish("late");
    assert.deepEqual(returned(await joiner.ends()).value, "late");
  });

  const leavings: readonly [
    title: string,
    leave: (calls: { abort: () => void; wait: () => Promise<void> }[]) => Promise<void>,
    aborts: boolean,
  ][] = [
    ["all cancel", async (calls) => calls.forEach(({ abort }) => abort()), true],
    ["one cancels, the other stays", async ([one]) => one?.abort(), false],
    [
      "one cancels, the other leaves at its deadline",
      async ([one, two]) => {
        one?.abort();
        await two?.wait();
      },
      false,
    ],
    [
      "one leaves at its deadline, the other cancels",
      async ([one, two]) => {
        await one?.wait();
        two?.abort();
      },
      true,
    ],
    ["all leave at their deadlines", async ([, two]) => two?.wait(), false],
  ];
  for (const [title, leave, aborts] of leavings) {
    it(`I1: ${title}: the run's signal ${aborts ? "aborts" : "does not abort"}, and it settles`, async () => {
      const on = bench();
      const effect = new Effect();
      const operation = operationOf({ run: effect.run });
      const reason = new Error("hung up");
      const calls = [1_000, 2_000].map((deadlineMs) => {
        const abort = aborter();
        const call = on.start(operation, { deadlineMs, signal: abort.signal });
        return { call, abort: () => abort.abort(reason), wait: async () => void (await call.ends()) };
      });
      await settle();
      await leave(calls);
      await settle();
      const { signal, operationId } = effect.last.context;
      assert.equal(signal.aborted, aborts);
      if (aborts) assert.equal(signal.reason, reason);
      effect.last.finish("done");
      for (const { call } of calls) {
        const end = await call.ends();
        if (end.kind === "returned") continue;
        assert.ok(OutcomeUnknownError.is(end.error), "the effect may have started");
        assert.equal(end.error.operationId, operationId);
      }
      await settle();
      assert.equal((await on.stored())["status"], "ready");
    });
  }

  it("I1: a call whose signal has aborted already begins nothing, and leaves nothing to the next", async () => {
    const on = bench();
    const reason = new Error("hung up");
    const operation = operationOf({ fingerprint: () => 1, run: (given) => given });
    const call = { readFirst: true, signal: AbortSignal.abort(reason) };
    assert.equal(threw(await on.execute(operation, call, "the first one's input")), reason);
    assert.deepEqual(on.store.take(), []);
    assert.equal(returned(await on.execute(operation, {}, "its own input")).value, "its own input");
    assert.deepEqual(on.store.take(), ["create", "replace"], "and not the first one's options");
  });

  it("I1: a flight that lost ownership takes no new joiner while its run goes on", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run });
    const call = on.start(operation);
    await on.clock.advance(1_000);
    // A person, or a process whose store's clock jumped, took it over.
    await rewrite(on, { attempt: 2, takeover: true, write_id: "theirs" });
    await on.clock.advance(10_000);
    const [lost] = effect.runs;
    assert.ok(lost?.context.signal.aborted, "the renewal noticed");
    await rewrite(on, { lease_ms: 0 });
    const joiner = on.start(operation);
    await settle();
    assert.equal(effect.runs.length, 2, "the new call takes over");
    effect.last.finish("theirs");
    assert.deepEqual(returned(await joiner.ends()).value, "theirs");
    const ends = await call.ends();
    assert.equal(
      returned(ends).value,
      "theirs",
      "E5: the one that lost is told what was recorded, though its run hangs",
    );
    lost.fail(new Error("not this"));
  });

  it("E3: a run that hangs past maxRunMs is not waited for by new calls for ever: they take over", async () => {
    const on = bench();
    const effect = new Effect();
    const operation = operationOf({ run: effect.run, maxRunMs: 60_000 });
    const hung = on.start(operation, { deadlineMs: 1_000 });
    assert.ok(OutcomeUnknownError.is(threw(await hung.ends())));
    await on.clock.advance(200_000);
    assert.ok(effect.last.context.signal.aborted);
    const next = on.start(operation);
    await settle();
    assert.equal(effect.runs.length, 2, "the lease is over, so another process would run it, and so does this one");
    effect.last.finish("second");
    assert.equal(returned(await next.ends()).value, "second");
    effect.runs[0]?.finish("first, much later");
    await settle();
    assert.equal(returned(await on.execute(operation)).value, "second");
  });
});

describe("execute: called from inside its own effect (I1)", () => {
  leavesNothing();

  /** What a call of the same operation from inside gives, by where it is made. */
  const places: Readonly<Record<string, (on: Bench, again: () => Promise<unknown>) => Promise<unknown>>> = {
    "its run": (on, again) => on.execute(operationOf({ run: again })),
    "its run, after an await": (on, again) =>
      on.execute(
        operationOf({
          run: async () => {
            await sleep(on.clock, 10);
            return again();
          },
        }),
      ),
    "its reconcile": async (on, again) => {
      await crashIn(on, operationOf());
      await on.clock.advance(60_001);
      return on.execute(operationOf({ recovery: { reconcile: async () => ({ found: await again() }) } }));
    },
    "another operation's run": (on, again) =>
      on.execute(
        operationOf({
          run: async () => returned(await on.execute(operationOf({ name: "inner", run: again }), { key: "inner" })),
        }),
      ),
  };
  for (const [title, call] of Object.entries(places)) {
    it(`I1: from ${title}: an InvalidArgumentError that says what to do, not a deadlock`, async () => {
      const on = bench();
      let refusal: unknown;
      await call(on, async () => {
        const within = new Idempotency({ store: on.store, runtime: on.clock });
        for (const idempotency of [on.idempotency, within]) {
          refusal = await idempotency.execute(operationOf(), request, input).catch((error: unknown) => error);
          assert.ok(InvalidArgumentError.is(refusal), String(refusal));
        }
        return "refused";
      });
      assert.ok(InvalidArgumentError.is(refusal));
      assert.match(refusal.message, /from inside its own run.*give the inner operation a key of its own/);
    });
  }

  it("I1: another key, scope or store from inside is another operation", async () => {
    const on = bench();
    const other = bench();
    const inner = operationOf({ name: "inner", run: () => "inner" });
    const outer = operationOf({
      run: async () => [
        returned(await on.execute(inner, { key: "k2" })).value,
        returned(await on.execute(operationOf({ run: () => "scope" }), { scope: "other" })).value,
        returned(await other.execute(operationOf({ run: () => "store" }))).value,
      ],
    });
    assert.deepEqual(returned(await on.execute(outer)).value, ["inner", "scope", "store"]);
  });

  it("I1: what a finished run left behind, such as a timer, may call it again", async () => {
    const on = bench();
    const later = Promise.withResolvers<Ending<Executed<unknown>>>();
    const operation = operationOf({
      run() {
        // A real timer, in the run's own async context.
        realTimeout(() => void on.execute(operation).then(later.resolve, later.reject), 1);
        return "first";
      },
    });
    returned(await on.execute(operation));
    assert.equal(returned(await later.promise).replayed, true);
  });

  it("I1: a run may be begun from inside another operation's run, which does not make it that one", async () => {
    const on = bench();
    const contexts: EffectContext[] = [];
    const inner = operationOf({ name: "inner", run: (_, context) => void contexts.push(context) });
    const outer = operationOf({
      run: async (_, context) => {
        contexts.push(context);
        await Promise.all(["a", "b"].map(async (key) => returned(await on.execute(inner, { key }))));
      },
    });
    returned(await on.execute(outer));
    assert.equal(new Set(contexts.map(({ operationId }) => operationId)).size, 3);
  });
});

function pick(record: Record<string, unknown>, names: readonly string[]): unknown[] {
  return names.map((name) => record[name]);
}
