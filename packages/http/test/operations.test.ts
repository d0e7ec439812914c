/** An operation that was defined before, under the header: what handlers have no use for. */

import assert from "node:assert/strict";

import {
  days,
  defineOperation,
  executionOf,
  Idempotency,
  IdempotencyConflictError,
  InvalidArgumentError,
  type EffectContext,
  type OperationDefinition,
  type OperationOptions,
} from "@firstwrite/core";
import {
  idempotencyContract,
  operationHandler,
  parseIdempotencyKey,
  problemResponse,
  type OperationHandlerOptions,
} from "@firstwrite/http";
import { MemoryStore, VirtualClock } from "@firstwrite/memory";

import { integrations, type TestServer } from "./integrations.ts";
import { answer, routes, type OperationRoute, type TestInput, type TestValue } from "./operation-integrations.ts";
import { problemOf, send, sleep, until, type Got } from "./setup.ts";

type Definition = OperationDefinition<TestInput, TestValue>;

const paid = (text: string): TestValue => ({
  status: 201,
  headers: { "content-type": "text/plain" },
  body: Buffer.from(text).toString("base64"),
});

function define(
  run: (input: TestInput, effect: EffectContext) => TestValue | Promise<TestValue>,
  options: Partial<OperationOptions<TestInput, TestValue>> = {},
): Definition {
  return defineOperation<TestInput, TestValue>({
    name: "payout.create",
    fingerprint: ({ body }) => body,
    recovery: "rerun",
    recoverAfterMs: 0,
    run,
    ...options,
  });
}

class Declined extends Error {
  readonly balance: number;
  constructor(balance: number) {
    super("declined");
    this.balance = balance;
  }
}

for (const { name } of integrations) {
  describe(`an operation on ${name}`, () => {
    let store: MemoryStore;
    const servers: TestServer[] = [];
    beforeEach(() => {
      store = new MemoryStore();
    });
    afterEach(() => Promise.all(servers.splice(0).map((server) => server.close())));
    const engine = (): Idempotency => new Idempotency({ store });
    const serve = async (
      operation: Definition,
      options: Partial<OperationRoute> = {},
    ): Promise<(sending?: Parameters<typeof send>[1]) => Promise<Got>> => {
      const server = await routes[name]({ idempotency: engine(), operation, answer, ...options });
      servers.push(server);
      return (sending) => send(server.url, sending);
    };
    const count = async (): Promise<number> => {
      let objects = 0;
      for await (const _ of store.list("")) objects += 1;
      return objects;
    };

    it("refuses by input before the key is claimed, whether it returns the Response or throws it", async () => {
      let runs = 0;
      const operation = define(() => paid(`run ${(runs += 1)}`));
      const bad = Buffer.from("bad").toString("base64");
      const thrown = Buffer.from("thrown").toString("base64");
      const serving = await serve(operation, {
        input(input) {
          if (input.body === bad) return Response.json({ fault: "returned" }, { status: 400 });
          if (input.body === thrown) throw Response.json({ fault: "thrown" }, { status: 422 });
          return input;
        },
      });
      const [one, two] = [await serving({ body: "bad" }), await serving({ body: "thrown" })];
      assert.deepEqual(
        [one.status, one.text, two.status, two.text],
        [400, '{"fault":"returned"}', 422, '{"fault":"thrown"}'],
      );
      assert.equal(one.headers.get("idempotency-operation-id"), null);
      assert.deepEqual([await count(), runs], [0, 0]);
      assert.equal((await serving({ body: "good" })).text, "run 1");
    });

    // Of the others the author's server sends.
    if (name !== "fetch" && name !== "hono") {
      it("takes a refusal that cannot be sent, or was sent before, for its author's mistake, and serves on", async () => {
        const shared = Response.json({ fault: "shared" }, { status: 400 });
        const refusals: readonly (Response | undefined)[] = [shared, shared, Response.error(), undefined];
        let times = 0;
        const serving = await serve(
          define(() => paid("run")),
          { input: (input) => refusals[times++] ?? input, onError: () => {} },
        );
        for (const status of [400, 500, 500, 201]) assert.equal((await serving()).status, status);
      });

      it("fails, and serves on, where its server does not send what `answer` made", async () => {
        const told: unknown[] = [];
        const serving = await serve(
          define(() => paid("run")),
          { answer: () => new Response("", { headers: { "x-a": "\u0001" } }), onError: (error) => told.push(error) },
        );
        for (const _ of [1, 2]) assert.equal((await serving()).status, 500);
        assert.match(told.map(String).join(), /Invalid character in header content.*Invalid character/);
      });
    }

    it("tells of what was done and could not be recorded", async () => {
      const told: unknown[] = [];
      const value: TestValue = Object.assign(paid("x"), { cents: 5n });
      const serving = await serve(
        define(() => value),
        { onError: (error) => told.push(error) },
      );
      const done = await serving();
      assert.deepEqual([done.status, done.text], [201, "x"]);
      const operationId = done.headers.get("idempotency-operation-id") ?? "";
      assert.deepEqual(
        told.map((error) => /^Error: operation (\S+) was done, and .* could not be recorded/.exec(String(error))?.[1]),
        [operationId],
      );
      assert.equal((await serving()).status, 409, "and is held for a person");
    });

    it("is one operation with a queue's call of the same scope and key, whichever is first", async () => {
      let runs = 0;
      const operation = define(() => paid(`run ${(runs += 1)}`));
      const serving = await serve(operation);
      const input: TestInput = { method: "", target: "", headers: {}, body: Buffer.from("x").toString("base64") };

      const first = await serving({ body: "x" });
      const queued = await engine().execute(operation, { scope: "a1", key: "k1" }, input);
      assert.equal(queued.replayed, true);
      assert.equal(Buffer.from(queued.value.body ?? "", "base64").toString(), first.text);
      assert.equal(queued.operationId, first.headers.get("idempotency-operation-id"));

      const before = await engine().execute(operation, { scope: "a1", key: "k2" }, input);
      const again = await serving({ key: '"k2"', body: "x" });
      assert.deepEqual([again.text, again.headers.get("idempotent-replayed")], ["run 2", "true"]);
      assert.equal(again.headers.get("idempotency-operation-id"), before.operationId);
      assert.equal(runs, 2);
    });

    it("waits no longer than waitMs for a queue's call of its own process, and then is answered 409", async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      let runs = 0;
      const operation = define(async () => {
        runs += 1;
        await promise;
        return paid("done");
      });
      const idempotency = engine();
      const serving = await serve(operation, { idempotency, waitMs: 100 });
      const input: TestInput = { method: "", target: "", headers: {}, body: Buffer.from("x").toString("base64") };
      const queued = idempotency.execute(operation, { scope: "a1", key: "k1" }, input);
      await until(() => runs === 1);
      const begun = performance.now();
      const refused = await serving({ body: "x" });
      assert.deepEqual([refused.status, problemOf(refused)["retry"]], [409, "same_key"]);
      const took = performance.now() - begun;
      assert.ok(took >= 99 && took < 2_000, `${took}`);
      resolve();
      const { operationId } = await queued;
      assert.equal(refused.headers.get("idempotency-operation-id"), operationId);
      assert.equal(problemOf(refused)["operation_id"], operationId);
      assert.deepEqual([(await serving({ body: "x" })).text, runs], ["done", 1]);
    });

    it("answers a recorded failure as `failure` says, and every retry the same", async () => {
      let runs = 0;
      const told: unknown[] = [];
      const operation = define(
        () => {
          runs += 1;
          throw new Declined(runs);
        },
        {
          onError: () => "replay",
          serializeError: (error) => (error instanceof Declined ? { balance: error.balance } : {}),
          deserializeError: ({ details }) => new Declined(Number(details?.["balance"])),
        },
      );
      const serving = await serve(operation, {
        failure(error, { recorded }) {
          assert.ok(error instanceof Declined && recorded);
          return new Response(`declined at ${error.balance}`, {
            status: 402,
            headers: { "idempotent-replayed": "no" },
          });
        },
        onError: (error) => told.push(error),
      });
      const [first, again] = [await serving(), await serving()];
      assert.deepEqual(
        [first.status, first.text, again.status, again.text],
        [402, "declined at 1", 402, "declined at 1"],
      );
      assert.deepEqual(
        [first.headers.get("idempotent-replayed"), again.headers.get("idempotent-replayed"), runs],
        [null, "true", 1],
      );
      assert.notEqual(first.headers.get("idempotency-operation-id"), null);
      assert.deepEqual(told, []);
    });

    it("says of what nobody made an answer of whether it is final, and tells it once", async () => {
      const told: unknown[] = [];
      let meaning: "replay" | "recover" = "replay";
      const failing = new Error("the processor is away: acct_1");
      const operation = define(
        () => {
          throw failing;
        },
        { onError: () => meaning },
      );
      const serving = await serve(operation, { onError: (error) => told.push(error) });
      for (const got of [await serving(), await serving()]) {
        assert.deepEqual([got.status, problemOf(got)["retry"]], [500, "never"]);
        assert.equal(problemOf(got)["type"], "urn:firstwrite:problem:operation-failed-for-good");
        assert.doesNotMatch(got.text, /acct_1/);
      }
      meaning = "recover";
      const unsure = await serving({ key: '"k2"' });
      assert.deepEqual([unsure.status, problemOf(unsure)["retry"]], [503, "same_key"]);
      assert.equal(unsure.headers.get("retry-after"), "1");
      assert.equal(problemOf(unsure)["operation_id"], unsure.headers.get("idempotency-operation-id"));
      assert.deepEqual(told, [failing, failing]);
    });

    it("refuses a key by its time: too old, from the future, or as issuedAt says", async () => {
      const operation = define(() => paid("done"), { retention: { ttlMs: days(10), retryWindowMs: days(7) } });
      const serving = await serve(operation, {
        issuedAt: (header) =>
          header("x-issued") === undefined
            ? problemResponse("key-invalid", { detail: "Say when." })
            : Date.now() + Number(header("x-issued")),
      });
      const at = (ms: number): Promise<Got> => serving({ headers: { "x-issued": String(ms) } });
      const unknown = await serving();
      assert.deepEqual([unknown.status, problemOf(unknown)["detail"]], [400, "Say when."]);
      const old = await at(-days(8));
      assert.deepEqual([old.status, problemOf(old)["retry"]], [422, "never"]);
      const ahead = await at(days(2));
      assert.deepEqual([ahead.status, problemOf(ahead)["type"]], [400, "urn:firstwrite:problem:key-invalid"]);
      assert.equal(await count(), 0);
      assert.equal((await at(-days(6))).text, "done");
    });

    it("answers other methods 405, and says which it takes", async () => {
      const operation = define(() => paid("done"));
      const serving = await serve(operation, { methods: ["POST", "PUT"] });
      for (const method of ["GET", "PATCH", "DELETE"]) {
        const got = await serving({ method, body: undefined });
        assert.deepEqual([got.status, got.headers.get("allow"), got.text], [405, "POST, PUT", ""]);
      }
      assert.equal((await serving({ method: "PUT" })).text, "done");
    });

    it("has one budget for each request, of which waiting is a part", async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      let runs = 0;
      let remainingMs = 0;
      const operation = define(async (_input, effect) => {
        runs += 1;
        remainingMs = effect.remainingMs;
        await promise;
        return paid("done");
      });
      const asked: number[] = [];
      const budget = (ms: number): Partial<OperationRoute> => ({
        idempotency: engine(),
        waitMs: 60_000,
        deadlineMs(header) {
          const begunAt = Number(header("x-begun-at"));
          asked.push(begunAt);
          return ms - (Date.now() - begunAt);
        },
      });
      const one = await serve(operation, budget(5_000));
      const two = await serve(operation, budget(1_000));
      const spent = await serve(operation, budget(-1));
      const now = (): { readonly headers: Record<string, string> } => ({
        headers: { "x-begun-at": String(Date.now()) },
      });
      const nothing = await spent(now());
      assert.deepEqual([nothing.status, problemOf(nothing)["type"]], [503, "urn:firstwrite:problem:store-unavailable"]);
      assert.deepEqual([await count(), runs], [0, 0]);

      const first = one(now());
      await until(() => runs === 1);
      assert.ok(remainingMs > 3_000 && remainingMs <= 5_000, `${remainingMs}`);
      const begun = performance.now();
      assert.equal((await two(now())).status, 409);
      const took = performance.now() - begun;
      assert.ok(took >= 500 && took < 4_000, `${took}`);
      assert.ok(asked.length > 3, "asked again after each pause");
      resolve();
      assert.equal((await first).text, "done");
    });

    it("keeps nothing of the principal or the key where it is told not to", async () => {
      const operation = define(() => paid("done"), { storeKey: false });
      const scopes: string[] = [];
      const serving = await serve(operation, {
        scope(principal) {
          scopes.push(principal);
          return "of-somebody";
        },
      });
      await serving({ key: '"secret-key"', headers: { "x-account": "secret-account" }, body: "secret-iban" });
      assert.deepEqual(scopes, ["secret-account"]);
      for (const [key, body] of [
        ['"secret-key"', "other"],
        ["secret-key", "secret-iban"],
      ] as const) {
        const got = await serving({ key, headers: { "x-account": "secret-account" }, body });
        assert.ok(got.status >= 400);
        assert.doesNotMatch(got.text + JSON.stringify([...got.headers]), /secret/);
      }
      for await (const { name: object } of store.list("")) {
        const stored = await store.read(object);
        assert.doesNotMatch(object + Buffer.from(stored?.bytes ?? []).toString(), /secret/);
      }
    });
  });
}

/** On the fetch core, which all integrations have in common. */
describe("an operation", () => {
  const request = (key = '"k1"', init: RequestInit = {}): Request =>
    new Request("http://x/payouts", { method: "POST", body: "{}", headers: { "idempotency-key": key }, ...init });
  const pay = (run: (input: string, effect: EffectContext) => unknown, options: object = {}) =>
    defineOperation<string, unknown>({ name: "pay", recovery: "rerun", recoverAfterMs: 0, run, ...options });
  const good = (): OperationHandlerOptions<Request, string, unknown> => ({
    idempotency: new Idempotency({ store: new MemoryStore() }),
    operation: pay((input) => `paid ${input}`),
    principal: () => "a1",
    input: (incoming) => incoming.text(),
    answer: (value) => Response.json(value, { status: 201 }),
    onError: () => {},
  });
  const problem = async (response: Response): Promise<Record<string, unknown>> => {
    const found: Record<string, unknown> = JSON.parse(await response.text());
    return found;
  };
  const typeOf = async (response: Response): Promise<string> =>
    String((await problem(response))["type"]).replace("urn:firstwrite:problem:", "");

  const wrong: readonly (readonly [Readonly<Record<string, unknown>>, RegExp])[] = [
    [{ idempotency: {} }, /new Idempotency/],
    [{ operation: undefined }, /operation must come from defineOperation/],
    [{ operation: () => 1 }, /operation must come from defineOperation/],
    [{ principal: "a1" }, /who asks/],
    [{ input: undefined }, /input must be a function/],
    [{ answer: 201 }, /answer must be a function/],
    [{ failure: 1 }, /failure, where it is given/],
    [{ issuedAt: 1 }, /issuedAt, where it is given/],
    [{ scope: "payouts" }, /scope must be a function/],
    [{ onError: "log" }, /onError must be a function/],
    [{ key: { required: false } }, /key, without which no operation is run, cannot have "required"/],
    [{ key: { lengthMax: 300 } }, /lengthMax/],
    [{ methods: ["post"] }, /in capitals/],
    [{ waitMs: -1 }, /waitMs/],
    [{ deadlineMs: 0 }, /deadlineMs/],
    [{ readFirst: 1 }, /readFirst must be/],
    [{ bodyBytesMax: -1 }, /bodyBytesMax/],
    [{ docs: "docs/keys" }, /docs must be the URL/],
    [{ operation: pay(() => 1, { keyTime: true }), issuedAt: () => 0 }, /leave issuedAt out/],
    [{ recovery: "rerun" }, /an operation's route cannot have "recovery"/],
    [{ storeAway: "run_unprotected" }, /cannot have "storeAway"/],
  ];
  for (const [options, message] of wrong) {
    it(`is refused with ${JSON.stringify(options)}, and it is said what to write`, () => {
      assert.throws(
        // What callers without types may give.
        () => operationHandler(Object.assign(good(), options)),
        (error) => InvalidArgumentError.is(error) && message.test(error.message),
      );
    });
  }

  it("gives its author's mistakes to its author, before anything is sent to the store", async () => {
    const mistakes: readonly (readonly [Partial<OperationHandlerOptions<Request, string, unknown>>, RegExp])[] = [
      [{ principal: () => "" }, /who asks/],
      [{ scope: () => "x".repeat(201) }, /the scope is 201 bytes long/],
      [{ issuedAt: () => Number.NaN }, /issuedAt\(request\) is NaN/],
      // @ts-expect-error -- for callers without types
      [{ issuedAt: () => undefined }, /issuedAt\(request\) is undefined/],
      [{ deadlineMs: () => Number.NaN }, /deadlineMs\(request\) is NaN/],
      [{ deadlineMs: () => assert.fail("no clock") }, /deadlineMs\(request\) threw/],
      [{ deadlineMs: () => 3_600_000 }, /less than an hour/],
      [{ input: () => assert.fail("a bug in input") }, /a bug in input/],
      [{ operation: pay(() => 1, { fingerprint: () => assert.fail("a bug in fingerprint") }) }, /a bug in fingerprint/],
      [{ operation: pay(() => 1, { fingerprint: () => Number.NaN }) }, /the fingerprint of the input/],
      [
        {
          // Also where a key's time is known, which a client is told to mend.
          issuedAt: () => Date.now(),
          operation: pay(() => 1, { fingerprint: () => 1, copyInput: () => assert.fail("a bug in copyInput") }),
          // @ts-expect-error -- an object, which is copied
          input: () => ({}),
        },
        /cannot be copied|copyInput/,
      ],
    ];
    for (const [options, message] of mistakes) {
      const store = new MemoryStore();
      store.inject("denied", { times: Infinity });
      const handle = operationHandler({ ...good(), idempotency: new Idempotency({ store }), ...options });
      await assert.rejects(handle(request()), message);
    }
  });

  it("is told who asks and by which key, and the hash by which its record is known", async () => {
    const options = good();
    let seen: unknown;
    const handle = operationHandler({
      ...options,
      input(_incoming, keyed) {
        seen = keyed;
        return "x";
      },
    });
    await handle(request());
    const record = await options.idempotency.inspect({ scope: "a1", key: "k1" });
    assert.deepEqual(seen, { principal: "a1", key: "k1", keyHash: record?.keyHash, body: Buffer.from("{}") });
  });

  it("does not take an error of another operation within it for its own engine's", async () => {
    // Frozen, so that nothing can be noted on it.
    const conflict = Object.freeze(
      new IdempotencyConflictError("another operation's key was used", { operationId: "x" }),
    );
    const told: unknown[] = [];
    const handle = operationHandler({
      ...good(),
      operation: pay(() => {
        throw conflict;
      }),
      onError: (error) => told.push(error),
    });
    const got = await handle(request());
    // Not key-reused: "use a new key" would pay beside what this one may have paid.
    assert.equal(got.status, 503);
    assert.equal(got.headers.get("idempotency-operation-id")?.length, 36);
    assert.equal(await typeOf(got), "outcome-unknown");
    assert.deepEqual(told, [conflict]);
  });

  it("tells what was thrown, also where nothing of it can be read", async () => {
    const trap = (): never => assert.fail("a trap");
    const thrown = new Proxy(new Error("no"), { has: trap, get: trap, defineProperty: trap, getPrototypeOf: trap });
    const told: unknown[] = [];
    const handle = operationHandler({
      ...good(),
      operation: pay(() => {
        throw thrown;
      }),
      onError: (error) => told.push(error),
    });
    assert.equal(await typeOf(await handle(request())), "outcome-unknown");
    assert.ok(told.length === 1 && told[0] === thrown);
  });

  it("tells apart what is known of two operations that throw one and the same error at once", async () => {
    const declined = Object.assign(new Error("declined"), { code: "DECLINED" });
    const { promise: both, resolve } = Promise.withResolvers<void>();
    const memory = new MemoryStore();
    let written = 0;
    const idempotency = new Idempotency({
      store: {
        traits: memory.traits,
        create: (...call) => memory.create(...call),
        read: (...call) => memory.read(...call),
        async replace(...call) {
          const answer = await memory.replace(...call);
          written += 1;
          if (written === 2) resolve();
          await both;
          return answer;
        },
      },
    });
    const seen: unknown[] = [];
    const handle = operationHandler({
      ...good(),
      idempotency,
      operation: pay(
        () => {
          throw declined;
        },
        { onError: (error: unknown) => (error === declined ? "replay" : "recover"), serializeError: () => ({ no: 1 }) },
      ),
      failure(error, { operationId }) {
        assert.equal(error, declined);
        seen.push(operationId);
        return new Response("declined", { status: 402 });
      },
    });
    const keys = ["k1", "k2"];
    const got = await Promise.all(keys.map((key) => handle(request(`"${key}"`))));
    const records = await Promise.all(keys.map((key) => idempotency.inspect({ scope: "a1", key })));
    const operations = records.map((record) => record?.operationId);
    assert.deepEqual(new Set(seen), new Set(operations));
    assert.deepEqual(
      got.map(({ headers }) => headers.get("idempotency-operation-id")),
      operations,
    );
    assert.deepEqual(records[0]?.result, {
      kind: "failure",
      encoding: "json",
      body: { name: "Error", message: "declined", code: "DECLINED", details: { no: 1 } },
    });
  });

  it("takes no scope and key for another two that look alike when put one after the other", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    let runs = 0;
    const handle = operationHandler({
      ...good(),
      principal: (incoming) => incoming.headers.get("x-who") ?? "",
      operation: pay(async () => {
        runs += 1;
        if (runs === 1) await promise;
        return runs;
      }),
    });
    const by = (who: string, key: string): Request => {
      const made = request(key);
      made.headers.set("x-who", who);
      return made;
    };
    const first = handle(by("a b", '"c"'));
    await until(() => runs === 1);
    assert.equal((await handle(by("a", '"b c"'))).status, 201);
    resolve();
    assert.equal((await first).status, 201);
  });

  it("tells what was thrown after everybody who waited had left, and by which operation", async () => {
    const clock = new VirtualClock();
    const late = new Error("the processor refused");
    const { promise, reject } = Promise.withResolvers<never>();
    let runs = 0;
    const told: unknown[] = [];
    const handle = operationHandler({
      ...good(),
      idempotency: new Idempotency({ store: new MemoryStore({ clock }), runtime: clock }),
      deadlineMs: 1_000,
      operation: pay(() => {
        runs += 1;
        return promise;
      }),
      onError: (error) => told.push(error),
    });
    const answering = handle(request());
    await until(() => runs === 1);
    await clock.advance(1_001);
    const got = await answering;
    assert.equal(await typeOf(got), "outcome-unknown");
    assert.deepEqual(told, []);
    reject(late);
    await until(() => told.length > 0);
    assert.deepEqual(told, [late]);
    assert.equal(executionOf(late)?.operationId, got.headers.get("idempotency-operation-id"));
  });

  it("leaves what is thrown, and is no object, to a retry: for whoever shared the run, too", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    let runs = 0;
    const handle = operationHandler({
      ...good(),
      waitMs: 5_000,
      operation: pay(async () => {
        runs += 1;
        await promise;
        // oxlint-disable-next-line typescript/only-throw-error -- what is tried
        throw "a text";
      }),
    });
    const first = handle(request());
    await until(() => runs === 1);
    const second = handle(request());
    await sleep(20);
    resolve();
    for (const got of await Promise.all([first, second])) assert.equal(await typeOf(got), "outcome-unknown");
  });

  it("says nothing final of a final failure that could not be recorded", async () => {
    const store = new MemoryStore();
    const asked: unknown[] = [];
    const handle = operationHandler({
      ...good(),
      idempotency: new Idempotency({ store, deadlineMs: 200 }),
      operation: pay(
        () => {
          store.inject("away", { on: "replace", times: Infinity });
          throw new Error("declined");
        },
        { onError: () => "replay" },
      ),
      failure(error) {
        asked.push(error);
        return new Response("declined: use another key", { status: 402 });
      },
    });
    const got = await handle(request());
    assert.equal(await typeOf(got), "outcome-unknown");
    assert.deepEqual(asked, []);
  });

  it("does not say that nothing happened where an attempt before may yet succeed", async () => {
    const errors = ["no answer", "insufficient funds"];
    const asked: unknown[] = [];
    const handle = operationHandler({
      ...good(),
      operation: pay(
        () => {
          const error = errors.shift();
          if (error !== undefined) throw new Error(error);
          return "paid";
        },
        { onError: (error: Error) => (error.message === "no answer" ? "recover" : "retry") },
      ),
      failure(error) {
        asked.push(error instanceof Error && error.message);
        return undefined;
      },
    });
    for (const _ of [1, 2]) assert.equal(await typeOf(await handle(request())), "outcome-unknown");
    assert.equal((await handle(request())).status, 201);
    assert.deepEqual(asked, ["no answer"]);
  });

  it("does not say that nothing happened where the effect's signal had aborted: the error may be about that alone", async () => {
    const clock = new VirtualClock();
    const store = new MemoryStore({ clock });
    const asked: unknown[] = [];
    let runs = 0;
    const handle = operationHandler({
      ...good(),
      idempotency: new Idempotency({ store, runtime: clock, deadlineMs: 60_000 }),
      operation: pay(
        async (_input, { signal }) => {
          runs += 1;
          if (runs > 1) return "paid";
          // The lease cannot be renewed any more.
          store.inject("away", { on: "replace", times: Infinity });
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          throw new Error("the request to the processor was aborted");
        },
        { leaseMs: 5_000, onError: () => "retry" },
      ),
      failure(error) {
        asked.push(error);
        return new Response("nothing was paid: use another key", { status: 422 });
      },
    });
    const answering = handle(request());
    await until(() => runs === 1);
    await clock.advance(70_000);
    assert.equal(await typeOf(await answering), "outcome-unknown");
    assert.deepEqual(asked, []);
    store.heal();
    assert.equal((await handle(request())).status, 201);
  });

  it("lets `failure` say that nothing happened, without calling that a replay", async () => {
    let runs = 0;
    const handle = operationHandler({
      ...good(),
      operation: pay(
        () => {
          runs += 1;
          if (runs === 1) throw new Error("busy");
          return "paid";
        },
        { onError: () => "retry" },
      ),
      failure: (_error, { recorded }) => (recorded ? undefined : new Response("slower", { status: 429 })),
    });
    const busy = await handle(request());
    assert.deepEqual([busy.status, busy.headers.get("idempotent-replayed")], [429, null]);
    assert.equal((await handle(request())).status, 201);
    assert.equal(runs, 2);
  });

  it("answers what it can where `answer` or `failure` fail, tells it, and runs nothing again", async () => {
    const told: unknown[] = [];
    let runs = 0;
    const base = { ...good(), onError: (error: unknown) => told.push(error) };
    const unable = operationHandler({
      ...base,
      operation: pay(() => (runs += 1)),
      answer() {
        throw new Error("a bug in answer");
      },
    });
    for (let times = 0; times < 2; times += 1) {
      const got = await unable(request());
      assert.equal(got.status, 500);
      assert.equal((await problem(got))["retry"], "never");
    }
    const streaming = operationHandler({
      ...base,
      operation: pay(() => (runs += 1)),
      answer: () => new Response("data: x", { headers: { "content-type": "text/event-stream" } }),
    });
    assert.equal(await typeOf(await streaming(request('"k2"'))), "answer-not-recordable");
    const failing = operationHandler({
      ...base,
      operation: pay(
        () => {
          runs += 1;
          throw new Error("declined");
        },
        { onError: () => "replay" },
      ),
      failure() {
        throw new Error("a bug in failure");
      },
    });
    assert.equal(await typeOf(await failing(request('"k3"'))), "operation-failed-for-good");
    assert.equal(runs, 3);
    assert.deepEqual(
      told.map((error) => (error instanceof Error ? error.message.replace(/:.*/, "") : error)),
      [
        "a bug in answer",
        "a bug in answer",
        "an idempotent route cannot answer with a stream of events",
        "a bug in failure",
        "declined",
      ],
    );
  });

  it("gives what a person settled, and asks the ledger with the input of the retry", async () => {
    const asked: string[] = [];
    const options = good();
    let isKnown = false;
    const handle = operationHandler({
      ...options,
      operation: pay(
        () => {
          throw new Error("away");
        },
        {
          recovery: {
            reconcile(input: string) {
              asked.push(input);
              return isKnown ? { found: "found" } : "unknown";
            },
          },
        },
      ),
    });
    assert.equal((await handle(request())).status, 503);
    const held = await handle(request());
    assert.deepEqual([held.status, held.headers.get("retry-after")], [409, "60"]);
    const operationId = held.headers.get("idempotency-operation-id") ?? "";
    await options.idempotency.settle(
      { scope: "a1", key: "k1" },
      { value: "settled" },
      { operationId, by: "ada", why: "looked it up" },
    );
    assert.equal(await (await handle(request())).text(), '"settled"');
    isKnown = true;
    assert.equal((await handle(request('"k2"'))).status, 503);
    assert.equal(await (await handle(request('"k2"'))).text(), '"found"');
    assert.deepEqual(asked, ["{}", "{}"]);
  });

  it("passes on what reconcile throws as a failure that is not recorded", async () => {
    const away = new Error("the ledger is away");
    const seen: unknown[] = [];
    const handle = operationHandler({
      ...good(),
      operation: pay(
        () => {
          throw away;
        },
        {
          recovery: {
            reconcile() {
              throw away;
            },
          },
        },
      ),
      failure(error, { recorded, operationId }) {
        seen.push(error, recorded, operationId);
        return problemResponse({
          type: "urn:example:ledger-away",
          status: 503,
          title: "The ledger is away",
          retry: "same_key",
          detail: "Send it again.",
        });
      },
    });
    const [run, reconcile] = [await handle(request()), await handle(request())];
    assert.deepEqual([run.status, reconcile.status], [503, 503]);
    const operationId = run.headers.get("idempotency-operation-id");
    assert.deepEqual(seen, [away, false, operationId, away, false, operationId]);
  });

  it("copies its input, so that nobody changes it under the effect", async () => {
    const shared = { amount: 1 };
    const { promise, resolve } = Promise.withResolvers<void>();
    const seen: number[] = [];
    const handle = operationHandler<{ amount: number }, string>({
      ...good(),
      operation: defineOperation<{ amount: number }, string>({
        name: "pay",
        recovery: "rerun",
        async run(input) {
          await promise;
          seen.push(input.amount);
          return "paid";
        },
      }),
      input: () => shared,
      answer: (value) => new Response(value),
    });
    const answering = handle(request());
    await sleep(10);
    shared.amount = 2;
    resolve();
    await answering;
    assert.deepEqual(seen, [1]);
  });

  it("reads the time in its keys, where the operation has keyTime", async () => {
    const clock = new VirtualClock();
    const handle = operationHandler({
      ...good(),
      idempotency: new Idempotency({ store: new MemoryStore({ clock }), runtime: clock }),
      operation: pay(() => "paid", { keyTime: true }),
    });
    const got = await handle(request('"order-1"'));
    assert.deepEqual([got.status, await typeOf(got)], [400, "key-invalid"]);
  });

  it("has a contract that says what its options say, and names no answer that is not given", () => {
    const options = { ...good(), docs: "https://example.com/keys", waitMs: 1_500, issuedAt: () => 0 };
    const operation = pay(() => 1, { retention: { ttlMs: days(10), retryWindowMs: days(7), brokerDelayMs: days(1) } });
    const contract = idempotencyContract({ ...options, operation });
    assert.deepEqual(
      [contract.operation, contract.route, contract.methods, contract.required, contract.scope],
      ["pay", undefined, ["POST"], true, ["principal"]],
    );
    assert.deepEqual(contract.key, { format: "sf-string", lengthMin: 1, lengthMax: 255, time: "custom" });
    assert.deepEqual([contract.expiresAfterSeconds, contract.retryWindowSeconds], [864_000, 691_200]);
    assert.equal(contract.answers.length, 13);
    assert.ok(contract.answers.every(({ type }) => !type.endsWith("#operation-failed")));
    assert.equal(
      idempotencyContract({ ...good(), operation: pay(() => 1, { keyTime: true }) }).key.time,
      "uuid-v7 or ulid",
    );
    assert.equal(idempotencyContract(good()).key.time, "none");
    assert.throws(() => idempotencyContract({ ...good(), waitMs: -1 }), InvalidArgumentError.is);
  });
});

describe("problemResponse", () => {
  const own = {
    type: "urn:example:declined",
    status: 402,
    title: "Declined",
    retry: "new_key",
    detail: "Nothing was paid.",
  } as const;

  it("gives one of this package's problems by its name", async () => {
    const docs = "https://example.com/keys#top";
    const got = problemResponse("store-unavailable", { docs });
    assert.equal(got.status, 503);
    assert.equal(got.headers.get("retry-after"), "1");
    assert.equal(got.headers.get("content-type"), "application/problem+json");
    assert.equal(got.headers.get("link"), `<${docs}>; rel="describedby"; type="text/html"`);
    const { type, retry }: Record<string, unknown> = JSON.parse(await got.text());
    assert.deepEqual([type, retry], ["https://example.com/keys#store-unavailable", "same_key"]);
  });

  it("gives one of the author's in the same form, whose members none can replace", async () => {
    const got = problemResponse(own, { detail: "No.", retryAfterMs: 1_500, members: { code: "poor", status: 200 } });
    assert.deepEqual(
      [got.status, got.headers.get("retry-after"), got.headers.get("cache-control")],
      [402, "2", "no-store"],
    );
    assert.equal(
      await got.text(),
      '{"type":"urn:example:declined","title":"Declined","status":402,"detail":"No.","retry":"new_key","code":"poor"}',
    );
  });

  const wrong: readonly (readonly [unknown, RegExp])[] = [
    ["declined", /one of key-missing, /],
    ["toString", /one of key-missing, /],
    [{ ...own, status: 200 }, /status is 200: give 400 to 599/],
    [{ ...own, type: "declined" }, /type must be a URI/],
    [{ ...own, retry: "later" }, /retry must be one of same_key, new_key, never/],
  ];
  for (const [problem, message] of wrong) {
    it(`refuses ${JSON.stringify(problem)}, and says what to write`, () => {
      assert.throws(
        // @ts-expect-error -- for callers without types
        () => problemResponse(problem),
        (error) => InvalidArgumentError.is(error) && message.test(error.message),
      );
    });
  }
});

describe("parseIdempotencyKey", () => {
  it("takes what a route of the same options takes", () => {
    assert.deepEqual(parseIdempotencyKey('"k1"'), { kind: "key", key: "k1" });
    assert.equal(parseIdempotencyKey("k1").kind, "invalid");
    assert.deepEqual(parseIdempotencyKey("k1", { format: "lenient" }), { kind: "key", key: "k1" });
    assert.equal(parseIdempotencyKey(undefined).kind, "missing");
    assert.throws(() => parseIdempotencyKey('"k1"', { lengthMax: 300 }), InvalidArgumentError.is);
  });
});
