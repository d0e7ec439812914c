import assert from "node:assert/strict";
import { channel } from "node:diagnostics_channel";
import { inspect } from "node:util";
import { InvalidArgumentError, onEvent, sha256, type EventName } from "@firstwrite/core";
import {
  assign,
  bench,
  bytesOf,
  byOperationId,
  ending,
  eventNames,
  heardDuring,
  input,
  listen,
  request,
  returned,
  threw,
  type Bench,
} from "./setup.ts";

function storeRequest(message: object): [EventName, object] {
  return ["firstwrite:store-request", { store: "memory", ...message }];
}

const keyHash = sha256("acme:k1");

describe("events", () => {
  it("tell of each request, of a lost answer and of the claim", async () => {
    const { memory, reserve } = bench();
    memory.inject("lostReply", { on: "create" });
    memory.inject("hangs", { on: "read" });
    let operationId = "";
    const heard = await heardDuring(async () => ({ operationId } = returned(await reserve())));
    assert.ok(heard.length === 5, inspect(heard));
    const [create, read, again, resolved, reserved] = heard;
    assert.deepEqual(create, storeRequest({ operation: "create", outcome: "unknown", durationMs: 0 }));
    assert.deepEqual(read, storeRequest({ operation: "read", outcome: "failed", durationMs: 10_000 }));
    assert.deepEqual(again, storeRequest({ operation: "read", outcome: "found", durationMs: 0 }));
    assert.deepEqual(resolved, ["firstwrite:unknown-resolved", { store: "memory", mine: true }]);
    assert.deepEqual(reserved, ["firstwrite:reserved", { operation: "assign", operationId, keyHash, created: true }]);
  });

  it("name each outcome of a request", async () => {
    const { memory, reserve } = bench();
    const outcomes = async (): Promise<string[]> =>
      (await heardDuring(async () => reserve({ readFirst: true }))).flatMap(([, message]) =>
        "outcome" in message ? [`${message.operation} ${message.outcome}`] : [],
      );
    memory.inject("contended");
    memory.inject("away", { on: "create" });
    assert.deepEqual(await outcomes(), [
      "read absent",
      "create contended",
      "read absent",
      "create failed",
      "create written",
    ]);
    assert.deepEqual(await outcomes(), ["read found"]);
  });

  it("tell of a conflict, with the operation that has the key", async () => {
    const { reserve } = bench();
    const { operationId } = returned(await reserve());
    const heard = await heardDuring(async () => threw(await reserve({}, "another")));
    assert.deepEqual(heard.at(-1), ["firstwrite:conflict", { operation: "assign", operationId, keyHash }]);
    assert.ok(heard.every(([name]) => name !== "firstwrite:reserved"));
  });

  it("tell each call of a flight, one of them as created", async () => {
    const { idempotency } = bench();
    const call = () => idempotency.reserve(assign, request, input, byOperationId);
    const heard = await heardDuring(() => Promise.all([call(), call(), call()]));
    const created = heard.flatMap(([, message]) => ("created" in message ? [message.created] : []));
    assert.deepEqual(
      created.map(Number).toSorted((a, b) => a - b),
      [0, 0, 1],
    );
  });

  it("cost nothing and go nowhere once nobody listens", async () => {
    const { heard, stop } = listen();
    stop();
    returned(await bench().reserve());
    assert.deepEqual(heard, []);
    assert.ok(eventNames.every((name) => !channel(name).hasSubscribers));
  });

  for (const name of ["firstwrite:reserve", "reserved", "", "toString", undefined, Symbol("firstwrite:reserved")]) {
    it(`a name that is none of ours is refused, and the names there are listed: ${String(name)}`, () => {
      assert.throws(
        () => Reflect.apply(onEvent, undefined, [name, () => {}]),
        (error) => InvalidArgumentError.is(error) && eventNames.every((known) => error.message.includes(known)),
      );
    });
  }

  it("a listener that is no function is refused when it is given, not when the first event comes", () => {
    for (const name of eventNames) {
      assert.throws(() => Reflect.apply(onEvent, undefined, [name, "listener"]), InvalidArgumentError.is);
      assert.equal(channel(name).hasSubscribers, false);
    }
  });
});

describe("what must not leak", () => {
  const secrets = { key: "SECRETKEY", scope: "SECRETSCOPE", input: "SECRETINPUT", value: "SECRETVALUE" };
  const secretName = `idempotency/${secrets.scope}/${sha256(`${secrets.scope}:${secrets.key}`).slice(7)}.json`;

  async function call(
    on: Bench,
    options: { input?: unknown; key?: string; value?: unknown; deadlineMs?: number } = {},
  ) {
    return ending(
      on.clock,
      on.idempotency.reserve(
        assign,
        { scope: secrets.scope, key: options.key ?? secrets.key, deadlineMs: options.deadlineMs ?? 5_000 },
        options.input ?? { of: secrets.input },
        () => ({ value: "value" in options ? options.value : secrets.value, fields: { own: secrets.value } }),
      ),
    );
  }

  const runs: Readonly<Record<string, (on: Bench) => Promise<unknown>>> = {
    "a claim and a repeat": async (on) => [await call(on), await call(on)],
    "a conflict": async (on) => [await call(on), await call(on, { input: `${secrets.input}2` })],
    "lost replies and refusals": async (on) => {
      on.memory.inject("lostReply", { times: 2 });
      on.memory.inject("contended", { times: 2 });
      return call(on);
    },
    "a store that is away": async (on) => {
      on.memory.inject("away", { times: Infinity });
      return call(on);
    },
    "a store that hangs": async (on) => {
      on.memory.inject("hangs", { times: Infinity });
      return call(on);
    },
    "a denial": async (on) => {
      on.memory.inject("denied");
      return call(on);
    },
    "a key with a control character": async (on) => call(on, { key: `${secrets.key}\n` }),
    "a key that is too long": async (on) => call(on, { key: secrets.key.repeat(99) }),
    "a scope that is too long": async (on) =>
      ending(on.clock, on.idempotency.reserve(assign, { scope: secrets.scope.repeat(99), key: "k" }, 1, byOperationId)),
    "an input that is not JSON": async (on) => call(on, { input: [secrets.input, 1n] }),
    "an input with a lone surrogate": async (on) => call(on, { input: [`${secrets.input}\ud800`] }),
    "a value that is not JSON": async (on) => call(on, { value: new Map([[1, secrets.value]]) }),
    "a deadline that is wrong": async (on) => call(on, { deadlineMs: -1 }),
  };
  for (const [title, run] of Object.entries(runs)) {
    it(`no event and no error has the key, the scope, the input or the value in it: ${title}`, async () => {
      const on = bench();
      let ends: unknown;
      const heard = await heardDuring(async () => (ends = await run(on)));
      const errors = [ends].flat().filter((end) => typeof end === "object" && end !== null && "error" in end);
      // Every property, own or hidden, and every cause.
      const seen = inspect([heard, errors], {
        depth: Infinity,
        showHidden: true,
        maxStringLength: null,
        maxArrayLength: null,
      });
      for (const [what, secret] of Object.entries(secrets))
        assert.ok(!seen.includes(secret), `the ${what} is in ${seen}`);
    });
  }

  it("an error that a person must look into names the object, and with it the scope, but never the key or content", async () => {
    for (const content of ["{", '{"format":2}', JSON.stringify({ format: 1, status: secrets.value })]) {
      const on = bench();
      await on.memory.create(secretName, bytesOf(content));
      const seen = inspect(threw(await call(on)), { depth: Infinity, showHidden: true });
      assert.ok(seen.includes(secretName));
      for (const secret of [secrets.key, secrets.input, secrets.value]) assert.ok(!seen.includes(secret), seen);
    }
  });
});
