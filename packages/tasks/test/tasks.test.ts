import assert from "node:assert/strict";

import {
  days,
  fingerprintOf,
  IdempotencyConflictError,
  InvalidArgumentError,
  onEvent,
  sha256,
  StoreError,
  type ConditionalStore,
  type Runtime,
} from "@firstwrite/core";
import { MemoryStore, VirtualClock } from "@firstwrite/memory";
import { TaskGoneError, Tasks, type Submission, type SubmitOptions } from "@firstwrite/tasks";

const HOUR_MS = 3_600_000;
const hex = (text: string): string => sha256(text).slice("sha256:".length);

describe("Tasks", () => {
  let clock: VirtualClock;
  let store: MemoryStore;
  let tasks: Tasks;
  let requests: string[];
  let stopListening: () => void;

  beforeEach(() => {
    clock = new VirtualClock();
    store = new MemoryStore({ clock });
    tasks = new Tasks({ store, runtime: clock });
    requests = [];
    stopListening = onEvent("firstwrite:store-request", ({ operation, outcome }) =>
      requests.push(`${operation} ${outcome}`),
    );
  });
  afterEach(() => stopListening());

  const submit = (input: unknown = { amount: 5 }, options: SubmitOptions = {}, type = "charge") =>
    tasks.submit(type, input, { idempotencyKey: "k", ...options });
  const record = async (scope = "charge", key = "k"): Promise<Record<string, unknown>> =>
    read(store, `idempotency/${scope}/${hex(`${decodeURIComponent(scope)}:${key}`)}.json`);

  describe("T1, T2: the first call and its repeats", () => {
    it("makes one task, and every repeat gets it", async () => {
      const first = await submit();
      const again = await submit();
      assert.equal(first.created, true);
      assert.equal(again.created, false);
      assert.deepEqual(again.task, first.task);
      assert.equal(first.task.taskKey, `tasks/${first.task.taskId.slice(0, 1)}/${first.task.taskId}.json`);
      assert.match(first.task.taskId, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    });

    it("costs 1 request without a key, 2 with one, 3 for a repeat (§8)", async () => {
      await tasks.submit("charge", {});
      assert.deepEqual(requests.splice(0), ["create written"]);
      await submit();
      assert.deepEqual(requests.splice(0), ["create written", "create written"]);
      await submit();
      assert.deepEqual(requests.splice(0), ["create refused", "read found", "read found"]);
    });

    it("writes the task as canonical JSON of its content, and nothing else", async () => {
      const { task } = await submit(
        { b: 1, a: [undefined, 2].slice(1), when: new Date(0) },
        { options: { retries: 3 } },
      );
      const stored = await store.read(task.taskKey);
      assert.equal(
        Buffer.from(stored?.bytes ?? []).toString(),
        `{"created_at":"2026-01-01T00:00:00.000Z","input":{"a":[2],"b":1,"when":"1970-01-01T00:00:00.000Z"},` +
          `"options":{"retries":3},"task_id":"${task.taskId}","task_type":"charge"}`,
      );
    });

    it("without a key every call makes a task", async () => {
      const one = await tasks.submit("charge", {});
      const two = await tasks.submit("charge", {});
      assert.notEqual(one.task.taskId, two.task.taskId);
      assert.ok(one.created && two.created);
    });

    it("a thousand calls at once cost as much as one, and one of them is told that it is new (I1)", async () => {
      const all = await Promise.all(Array.from({ length: 1000 }, () => submit()));
      assert.deepEqual(requests, ["create written", "create written"]);
      assert.equal(all.filter(({ created }) => created).length, 1);
      assert.equal(new Set(all.map(({ task }) => task.taskId)).size, 1);
    });

    it("the caller cannot change what is being submitted, nor what others get", async () => {
      const input = { amount: 5 };
      const both = Promise.all([submit(input), submit({ amount: 5 })]);
      input.amount = 6;
      const [one, two] = await both;
      assert.deepEqual(one.task.input, { amount: 5 });
      Object.assign(one.task.input as object, { amount: 7 });
      assert.deepEqual(two.task.input, { amount: 5 });
    });
  });

  describe("the record", () => {
    it("has the eight fields of the older layout, and ours", async () => {
      const { task } = await submit();
      const { write_id, ...rest } = await record();
      assert.match(String(write_id), /^[0-9a-f]{32}$/);
      assert.deepEqual(rest, {
        key: "k",
        key_hash: sha256("charge:k"),
        task_id: task.taskId,
        task_key: task.taskKey,
        created_at: "2026-01-01T00:00:00.000Z",
        expires_at: "2026-01-31T00:00:00.000Z",
        task_type: "charge",
        input_hash: fingerprintOf({ amount: 5 }),
        format: 1,
        scope: "charge",
        operation_id: task.taskId,
        status: "ready",
        attempt: 1,
        ttl_ms: days(30),
        result: { kind: "value", encoding: "json", body: task.taskId },
      });
    });

    it("of the older layout is honoured: its task is found", async () => {
      const taskId = await putOlder(store);
      await store.create(`tasks/3/${taskId}.json`, Buffer.from(JSON.stringify({ id: taskId, input: { amount: 5 } })));
      const { task, created } = await submit();
      assert.equal(task.taskId, taskId);
      assert.equal(created, false);
      await assert.rejects(submit({ amount: 6 }), IdempotencyConflictError.is);
    });

    it("of the older layout whose task is missing: the task is made with its ID and its created_at (T4)", async () => {
      const taskId = await putOlder(store);
      const { task, recovered } = await submit();
      assert.equal(task.taskId, taskId);
      assert.equal(recovered, true);
      assert.equal(task.createdAt, "2025-12-31T00:00:00.123456789Z");
      const rewritten = await record();
      assert.equal(rewritten["format"], 1);
      assert.equal(rewritten["created_at"], "2025-12-31T00:00:00.123456789Z");
      assert.equal(rewritten["task_key"], `tasks/3/${taskId}.json`);
      assert.deepEqual((await submit()).task, task);
    });

    it("of the older layout that is over is overwritten, by its own expires_at (T8)", async () => {
      const taskId = await putOlder(store);
      await clock.advance(days(30));
      const { task, created } = await submit({ amount: 6 });
      assert.notEqual(task.taskId, taskId);
      assert.equal(created, true);
    });

    it("of the older layout in a scope that is encoded now is found where it was, at one request more", async () => {
      const taskId = await putOlder(store, {}, "a/b c", "a/b c");
      await store.create(`tasks/3/${taskId}.json`, Buffer.from(JSON.stringify({ id: taskId, input: { amount: 5 } })));
      assert.equal((await submit({ amount: 5 }, { scope: "a/b c" })).task.taskId, taskId);
      requests.length = 0;
      const other = await submit({ amount: 5 }, { scope: "a/b d" });
      assert.equal(other.created, true);
      assert.deepEqual(requests, ["read absent", "create written", "create written"]);
    });

    it("of the older layout in an encoded scope that is over is overwritten where it is: one register a key", async () => {
      await putOlder(store, {}, "a b", "a b");
      await clock.advance(days(31));
      const { task } = await submit({ amount: 6 }, { scope: "a b" });
      assert.equal((await submit({ amount: 6 }, { scope: "a b" })).task.taskId, task.taskId);
      assert.equal(await store.read(`idempotency/a%20b/${hex("a b:k")}.json`), undefined);
    });

    it("of the older layout is rewritten with a TTL in whole milliseconds, whatever part of a day was asked for", async () => {
      await putOlder(store);
      const { task } = await submit({ amount: 5 }, { ttlDays: 1.1 });
      assert.equal((await record())["ttl_ms"], 95_040_000);
      assert.deepEqual((await submit({ amount: 5 }, { ttlDays: 1.1 })).task, task);
    });

    for (const scope of ["a$&b", "$1", "a/b", "é"]) {
      it(`of the older layout is looked for under the scope as it is: ${scope}`, async () => {
        const taskId = await putOlder(store, {}, scope, scope);
        assert.equal((await submit({ amount: 5 }, { scope })).task.taskId, taskId);
      });
    }

    for (const scope of ["..", "a//b", "é".repeat(33)]) {
      it(`is not looked for under a scope that names no object: ${scope}`, async () => {
        const tight = new MemoryStore({ clock, traits: { nameBytesMax: 290 } });
        tasks = new Tasks({ store: tight, runtime: clock });
        const { task } = await submit({ amount: 5 }, { scope });
        assert.equal((await submit({ amount: 5 }, { scope })).task.taskId, task.taskId);
      });
    }

    it("keeps fields it does not know through a rewrite", async () => {
      await putOlder(store, { trace: { id: 7 } });
      await submit();
      assert.deepEqual((await record())["trace"], { id: 7 });
    });

    it("whose task's name holds another task is CORRUPT", async () => {
      const { task } = await submit();
      store.expire(task.taskKey);
      await store.create(task.taskKey, Buffer.from('{"task_id":"3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11"}'));
      await assert.rejects(submit(), (error) => StoreError.is(error) && error.code === "CORRUPT");
    });

    it("that names no task is CORRUPT", async () => {
      await putOlder(store, { task_key: "tasks/0/elsewhere.json" });
      await assert.rejects(submit(), (error) => StoreError.is(error) && error.code === "CORRUPT");
    });
  });

  describe("T3: conflicts", () => {
    it("another input, other options, or another type in a wider scope; nothing is written", async () => {
      await submit({ amount: 5 }, { scope: "queue", options: { retries: 1 } });
      const before = await record("queue");
      const conflicts: [unknown, SubmitOptions, string][] = [
        [{ amount: 6 }, { scope: "queue", options: { retries: 1 } }, "charge"],
        [{ amount: 5 }, { scope: "queue", options: { retries: 2 } }, "charge"],
        [{ amount: 5 }, { scope: "queue" }, "charge"],
        [{ amount: 5 }, { scope: "queue", options: { retries: 1 } }, "refund"],
      ];
      requests.length = 0;
      for (const [input, options, type] of conflicts) {
        await assert.rejects(submit(input, options, type), IdempotencyConflictError.is);
      }
      assert.ok(
        requests.every((request) => request === "create refused" || request === "read found"),
        String(requests),
      );
      assert.deepEqual(await record("queue"), before);
    });

    it("keys of different task types, scopes and letter cases do not meet", async () => {
      const all = [
        await submit(),
        await submit({ amount: 5 }, {}, "refund"),
        await submit({ amount: 5 }, { scope: "queue" }),
        await submit({ amount: 5 }, { scope: "Charge" }),
        await submit({ amount: 5 }, { idempotencyKey: "K" }),
      ];
      assert.ok(all.every(({ created }) => created));
    });

    it("at once in one process too: nobody joins a call of another input, options, type, TTL or phases (I1)", async () => {
      const calls = [
        submit({ amount: 5 }, { scope: "queue" }),
        submit({ amount: 6 }, { scope: "queue" }),
        submit({ amount: 5 }, { scope: "queue", options: { retries: 1 } }),
        submit({ amount: 5 }, { scope: "queue" }, "refund"),
      ];
      const ends = await Promise.allSettled(calls);
      const conflicts = ends.filter((end) => end.status === "rejected" && IdempotencyConflictError.is(end.reason));
      assert.equal(conflicts.length, 3);
      requests.length = 0;
      await Promise.all([{}, { ttlDays: 2 }, { phases: 2 as const }].map((options) => submit({}, options)));
      assert.equal(requests.filter((request) => request.startsWith("create ")).length, 4, String(requests));
    });

    it("a custom scope named like a type shares its folder, as in the older layout", async () => {
      const { task } = await submit();
      assert.equal((await submit({ amount: 5 }, { scope: "charge" })).task.taskId, task.taskId);
    });
  });

  describe("T4, T5: a producer that died between the two writes", () => {
    it("its task is made with the same ID, by a rewrite of the record first", async () => {
      store.inject("denied", { on: "create", name: /^tasks\// });
      await assert.rejects(submit(), (error) => StoreError.is(error) && error.code === "PERMISSION_DENIED");
      const claimed = await record();
      await clock.advance(HOUR_MS);
      requests.length = 0;
      const { task, created, recovered } = await submit();
      assert.deepEqual(requests, ["create refused", "read found", "read absent", "replace written", "create written"]);
      assert.equal(task.taskId, claimed["task_id"]);
      assert.equal(task.createdAt, claimed["created_at"]);
      store.expire(task.taskKey);
      const all = await Promise.all([submit(), submit(), submit()]);
      assert.equal(all.filter((one) => one.recovered).length, 1, "one call of a flight is told");
      assert.deepEqual([created, recovered], [false, true]);
      const rewritten = await record();
      assert.equal(rewritten["created_at"], claimed["created_at"]);
      assert.equal(rewritten["expires_at"], "2026-01-31T01:00:00.000Z");
      assert.notEqual(rewritten["write_id"], claimed["write_id"]);
    });

    const limitMs = 30_000 + HOUR_MS;
    for (const [granularityMs, leftMs, rewritten] of [
      [0, limitMs, true],
      [0, limitMs + 1, false],
      [500, limitMs + 500, true],
      [500, limitMs + 501, false],
    ] as const) {
      it(`T5: a claim with ${leftMs} ms left at a granularity of ${granularityMs} is ${rewritten ? "" : "not "}rewritten before its task is made`, async () => {
        store = new MemoryStore({ clock, traits: { clockGranularityMs: granularityMs } });
        store.inject("lostReply", { on: "create" });
        // The store's clock jumps before the claim is read back.
        let jumpMs = days(1) - leftMs;
        const jumping = interposed(store, async () => {});
        jumping.read = async (name, options) => {
          clock.jump(jumpMs);
          jumpMs = 0;
          return store.read(name, options);
        };
        tasks = new Tasks({ store: jumping, runtime: clock });
        await submit({}, { ttlDays: 1 });
        const rewrite = rewritten ? ["replace written"] : [];
        assert.deepEqual(requests, ["create unknown", "read found", ...rewrite, "create written"]);
      });
    }

    it("a task that another made meanwhile was not recovered by this call", async () => {
      store.inject("denied", { on: "create", name: /^tasks\// });
      await assert.rejects(submit());
      const other = new Tasks({ store, runtime: clockLike(clock, 11) });
      let theirs: Promise<Submission> | undefined;
      const slow = interposed(store, async (operation, _, name) => {
        if (operation !== "create" || !name.startsWith("tasks/")) return;
        await (theirs ??= other.submit("charge", { amount: 5 }, { idempotencyKey: "k" }));
      });
      tasks = new Tasks({ store: slow, runtime: clock });
      assert.deepEqual([(await submit()).recovered, (await theirs)?.recovered], [false, true]);
    });

    it("a record that could not outlive the call is given a day, not rewritten for ever (T5)", async () => {
      const { task } = await submit();
      store.expire(task.taskKey);
      const short = await record();
      store.expire(`idempotency/charge/${hex("charge:k")}.json`);
      await store.create(
        `idempotency/charge/${hex("charge:k")}.json`,
        Buffer.from(JSON.stringify({ ...short, ttl_ms: HOUR_MS })),
      );
      requests.length = 0;
      assert.equal((await submit()).task.taskId, task.taskId);
      assert.deepEqual(requests, ["create refused", "read found", "read absent", "replace written", "create written"]);
      assert.equal((await record())["ttl_ms"], days(1));
    });

    it("a task create whose reply was lost is found, not doubled", async () => {
      store.inject("lostReply", { on: "create", name: /^tasks\// });
      const { task, created } = await submit();
      assert.equal(created, true);
      assert.deepEqual((await tasks.get(task.taskId))?.input, { amount: 5 });
    });

    it("a claim whose reply was lost is recognised, and the call is told that it is new", async () => {
      store.inject("lostReply", { on: "create" });
      const { created } = await submit();
      assert.equal(created, true);
      assert.deepEqual(requests, ["create unknown", "read found", "create written"]);
    });
  });

  describe("T6: tombstones", () => {
    it("finish keeps the name taken, and a repeat of the submit finds it finished", async () => {
      const { task } = await submit();
      const finished = await tasks.finish(task.taskId);
      assert.equal(finished?.state, "finished");
      assert.equal(finished?.input, undefined);
      assert.equal(finished?.createdAt, task.createdAt);
      const again = await submit();
      assert.deepEqual([again.task.taskId, again.task.state, again.created], [task.taskId, "finished", false]);
    });

    it("finishing twice, or at once, changes nothing", async () => {
      const { task } = await submit();
      const both = await Promise.all([tasks.finish(task.taskId), tasks.finish(task.taskId)]);
      await clock.advance(1000);
      const later = await tasks.finish(task.taskId);
      assert.ok(both.every((done) => done?.finishedAt === later?.finishedAt));
    });

    for (const fault of ["lostReply", "lostRequest", "landsLate", "contended", "away"] as const) {
      it(`finish with ${fault} ends finished`, async () => {
        const { task } = await submit();
        store.inject(fault, { on: "replace" });
        const finishing = tasks.finish(task.taskId);
        await clock.advance(5000);
        assert.equal((await finishing)?.state, "finished");
        if (store.lateWrites > 0) store.land();
        assert.equal((await tasks.get(task.taskId))?.state, "finished");
      });
    }

    it("a late create finds the tombstone", async () => {
      store.inject("landsLate", { on: "create", name: /^tasks\// });
      const submitting = submit();
      await clock.advance(5000);
      const { task } = await submitting;
      await tasks.finish(task.taskId);
      store.land();
      assert.equal((await tasks.get(task.taskId))?.state, "finished");
    });

    it("get and finish of no task: undefined; of no ID: INVALID_ARGUMENT", async () => {
      assert.equal(await tasks.get("3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11"), undefined);
      assert.equal(await tasks.finish("3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11"), undefined);
      for (const id of ["", "x", "../../etc", "3B0F3C1E-9D64-4B8F-8A55-0D6D1F6F2A11"]) {
        await assert.rejects(tasks.get(id), InvalidArgumentError.is);
        await assert.rejects(tasks.finish(id), InvalidArgumentError.is);
      }
    });
  });

  describe("T7: two phases", () => {
    it("creating with lease 0, then ready, at one more write", async () => {
      const seen: unknown[] = [];
      const watching = interposed(store, async (_, bytes, name) => {
        if (name.startsWith("idempotency/")) seen.push(pick(bytes));
      });
      tasks = new Tasks({ store: watching, runtime: clock });
      await submit({}, { phases: 2 });
      assert.deepEqual(seen, [
        ["creating", 0, 2],
        ["ready", undefined, 2],
      ]);
      assert.deepEqual(requests, ["create written", "create written", "replace written"]);
    });

    it("a confirmed task that was deleted is reported, not made again", async () => {
      const { task } = await submit({}, { phases: 2 });
      store.expire(task.taskKey);
      await assert.rejects(
        submit({}, { phases: 2 }),
        (error) => TaskGoneError.is(error) && error.taskId === task.taskId,
      );
      await assert.rejects(submit({}), TaskGoneError.is);
    });

    it("with one phase it is made again, with the same ID", async () => {
      const { task } = await submit();
      store.expire(task.taskKey);
      const again = await submit();
      assert.deepEqual([again.task.taskId, again.recovered], [task.taskId, true]);
    });

    it("a repeat confirms what a producer that died left unconfirmed", async () => {
      store.inject("denied", { on: "replace" });
      await assert.rejects(submit({}, { phases: 2 }));
      assert.equal((await record())["status"], "creating");
      await submit({}, { phases: 2 });
      assert.equal((await record())["status"], "ready");
    });

    it("who claimed the key is told so, though another confirmed its task first", async () => {
      const other = new Tasks({ store, runtime: clockLike(clock, 11) });
      let confirmedBy: Promise<Submission> | undefined;
      const slow = interposed(store, async (operation) => {
        if (operation !== "replace") return;
        await (confirmedBy ??= other.submit("charge", {}, { idempotencyKey: "k", phases: 2 }));
      });
      tasks = new Tasks({ store: slow, runtime: clock });
      assert.deepEqual([(await submit({}, { phases: 2 })).created, (await confirmedBy)?.created], [true, false]);
    });

    it("who made a missing task is told so, though another confirmed it first", async () => {
      store.inject("denied", { on: "create", name: /^tasks\// });
      await assert.rejects(submit({}, { phases: 2 }));
      const other = new Tasks({ store, runtime: clockLike(clock, 11) });
      let confirmedBy: Promise<Submission> | undefined;
      const slow = interposed(store, async (operation, bytes) => {
        if (operation !== "replace" || pick(bytes)[0] !== "ready") return;
        await (confirmedBy ??= other.submit("charge", {}, { idempotencyKey: "k", phases: 2 }));
      });
      tasks = new Tasks({ store: slow, runtime: clock });
      const mine = await submit({}, { phases: 2 });
      const theirs = await confirmedBy;
      assert.deepEqual([mine.recovered, theirs?.recovered], [true, false]);
      assert.equal((await record())["status"], "ready");
    });

    it("an unconfirmed record goes stale like any other, and is never taken over", async () => {
      store.inject("denied", { on: "replace" });
      await assert.rejects(submit({}, { phases: 2, ttlDays: 1 }));
      const { task_id: first, attempt } = await record();
      assert.equal(attempt, 1);
      await clock.advance(days(1) + 1);
      const { task, created } = await submit({ other: true }, { phases: 2, ttlDays: 1 });
      assert.notEqual(task.taskId, first);
      assert.equal(created, true);
    });
  });

  describe("T8: after the TTL", () => {
    it("at its last moment the key is still the old task's; after it, a new one's for everyone", async () => {
      const { task } = await submit({}, { ttlDays: 1 });
      await clock.advance(days(1));
      assert.equal((await submit({}, { ttlDays: 1 })).task.taskId, task.taskId);
      await clock.advance(1);
      const race = Promise.all(
        Array.from({ length: 8 }, () =>
          new Tasks({ store, runtime: clock }).submit("charge", { amount: 6 }, { idempotencyKey: "k", ttlDays: 1 }),
        ),
      );
      await clock.advance(5000);
      const racing = await race;
      assert.equal(new Set(racing.map((won) => won.task.taskId)).size, 1);
      assert.notEqual(racing[0]?.task.taskId, task.taskId);
      assert.equal(racing.filter(({ created }) => created).length, 1);
      assert.deepEqual(racing[0]?.task.input, { amount: 6 });
    });

    it("counts by the store's clock alone: a producer whose clock is years off makes no second task", async () => {
      const { task } = await submit({}, { ttlDays: 1 });
      const wrong = new VirtualClock({ startAt: Date.UTC(2036, 0, 1), seed: 7 });
      const again = await new Tasks({ store, runtime: wrong }).submit(
        "charge",
        {},
        { idempotencyKey: "k", ttlDays: 1 },
      );
      assert.equal(again.task.taskId, task.taskId);
    });
  });

  describe("what it refuses before any request", () => {
    const misspelt: object = { key: "k" };
    const wrong: [string, () => Promise<unknown>, RegExp][] = [
      ["an empty key", () => submit({}, { idempotencyKey: "" }), /idempotency key/],
      ["a key of 256 characters", () => submit({}, { idempotencyKey: "x".repeat(256) }), /256 characters.*255/],
      ["a control character in the key", () => submit({}, { idempotencyKey: "a\nb" }), /control character/],
      ["a lone surrogate in the key", () => submit({}, { idempotencyKey: "\uD800" }), /lone surrogate/],
      ["an empty type", () => submit({}, {}, ""), /the task type must be a string that is not empty/],
      [
        "a misspelt option, which would leave the key out",
        () => tasks.submit("charge", {}, misspelt),
        /cannot have "key": it takes idempotencyKey,/,
      ],
      ["a type named queue", () => submit({}, {}, "queue"), /rename it/],
      ["a scope of 201 bytes", () => submit({}, { scope: "x".repeat(201) }), /201 bytes/],
      ["a scope without a key", () => tasks.submit("charge", {}, { scope: "queue" }), /without an idempotencyKey/],
      ["a TTL below a day", () => submit({}, { ttlDays: 0.9 }), /at least 1/],
      ["an endless TTL", () => submit({}, { ttlDays: Infinity }), /ttlDays is Infinity/],
      ["an hour's deadline", () => submit({}, { deadlineMs: HOUR_MS }), /less than an hour/],
      ["input that is not JSON", () => submit({ at: 1n }), /the task's input\.at is of type bigint/],
      ["input that JSON would lose", () => submit(new Map([["a", 1]])), /Map/],
      ["options that are not JSON", () => submit({}, { options: { f: () => {} } }), /the task's options\.f/],
    ];
    for (const [title, act, message] of wrong) {
      it(title, async () => {
        await assert.rejects(act, (error) => InvalidArgumentError.is(error) && message.test(error.message));
        assert.deepEqual(requests, []);
      });
    }
  });

  it("a task too large for the store is refused before its key is taken", async () => {
    const small = new MemoryStore({ clock, traits: { recordBytesMax: 2000 } });
    tasks = new Tasks({ store: small, runtime: clock });
    const bytes = async (length: number): Promise<number> => {
      const { task } = await submit("x".repeat(length));
      return (await small.read(task.taskKey))?.bytes.byteLength ?? 0;
    };
    await assert.rejects(
      submit("x".repeat(3000)),
      (error) => InvalidArgumentError.is(error) && /3135 bytes.*takes 2000/.test(error.message),
    );
    assert.deepEqual(requests, []);
    // The longest that fits, under the same key.
    assert.equal(await bytes(3000 - 1135), 2000);
  });

  it("without a key, nobody is told that sending it again is safe", async () => {
    store.inject("landsLate", { on: "create" });
    store.inject("away", { times: Infinity });
    const failed = assert.rejects(tasks.submit("charge", {}, { deadlineMs: 5000 }), (error) => {
      assert.ok(StoreError.is(error) && error.code === "UNAVAILABLE");
      assert.match(
        error.message,
        /may have been made; without an idempotency key, sending it again can make a second one/,
      );
      return true;
    });
    await clock.advance(5000);
    await failed;
  });

  it("a store that is away until the deadline: UNAVAILABLE with its trouble; sent again, one task", async () => {
    store.inject("away", { times: Infinity });
    const submitting = submit({}, { deadlineMs: 5000 });
    const failed = assert.rejects(submitting, (error) => {
      assert.ok(StoreError.is(error) && error.code === "UNAVAILABLE");
      assert.match(error.message, /5000 ms: send it again with the same key/);
      assert.ok(StoreError.is(error.cause));
      return true;
    });
    await clock.advance(5000);
    await failed;
    store.heal();
    assert.equal((await submit()).created, true);
  });
});

/** `store`, with something done before each of its writes. */
function interposed(
  store: ConditionalStore,
  before: (operation: "create" | "replace", bytes: Uint8Array, name: string) => Promise<void>,
): ConditionalStore {
  return {
    traits: store.traits,
    async create(name, bytes, options) {
      await before("create", bytes, name);
      return store.create(name, bytes, options);
    },
    async replace(name, version, bytes, options) {
      await before("replace", bytes, name);
      return store.replace(name, version, bytes, options);
    },
    read: (name, options) => store.read(name, options),
  };
}

/** The time of `clock`, and randomness of its own: another process. */
function clockLike(clock: VirtualClock, seed: number): Runtime {
  const own = new VirtualClock({ seed });
  return {
    now: () => clock.now(),
    monotonicMs: () => clock.monotonicMs(),
    setTimer: (ms, fire) => clock.setTimer(ms, fire),
    random: () => own.random(),
    randomBytes: (length) => own.randomBytes(length),
  };
}

function pick(bytes: Uint8Array): unknown[] {
  const { status, lease_ms, phases } = JSON.parse(Buffer.from(bytes).toString());
  return [status, lease_ms, phases];
}

async function read(store: ConditionalStore, name: string): Promise<Record<string, unknown>> {
  const stored = await store.read(name);
  assert.ok(stored, `there is no record ${name}`);
  return JSON.parse(Buffer.from(stored.bytes).toString());
}

/** Puts a record of the older layout, as a producer before this library wrote it. */
async function putOlder(
  store: ConditionalStore,
  changes: Record<string, unknown> = {},
  folder = "charge",
  scope = "charge",
): Promise<string> {
  const taskId = "3b0f3c1e-9d64-4b8f-8a55-0d6d1f6f2a11";
  const name = `idempotency/${folder}/${hex(`${scope}:k`)}.json`;
  const fields = {
    key: "k",
    key_hash: sha256(`${scope}:k`),
    task_id: taskId,
    task_key: `tasks/3/${taskId}.json`,
    created_at: "2025-12-31T00:00:00.123456789Z",
    expires_at: "2026-01-30T00:00:00.123456789Z",
    task_type: "charge",
    input_hash: fingerprintOf({ amount: 5 }),
    ...changes,
  };
  await store.create(name, Buffer.from(JSON.stringify(fields)));
  return taskId;
}
