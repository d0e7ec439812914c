import assert from "node:assert/strict";
import { executionOf, OperationHeldError, ResultGoneError, sha256, type OperationOptions } from "@firstwrite/core";
import { settle, type Fault } from "@firstwrite/memory";
import {
  bench,
  Effect,
  isStoreError,
  leavesNothing,
  operationOf,
  processOf,
  recordName,
  returned,
  rewrite,
  sleep,
  threw,
  type Bench,
} from "./setup.ts";

type Options = Partial<OperationOptions<unknown, unknown>>;

const allBytes = Uint8Array.from({ length: 256 }, (_, byte) => byte);
const page = new Uint8Array(8);
page.set([1, 2, 3], 4);

/** What is returned → how it is recorded, and what every caller gets. */
const values: readonly [title: string, value: unknown, encoding: string, body: unknown, given?: unknown][] = [
  ["nothing", undefined, "none", null],
  ["null", null, "json", null],
  ["a string", "paid", "text", "paid"],
  ["an empty string", "", "text", ""],
  ["a string that looks like JSON", "{}", "text", "{}"],
  ["Unicode, with a byte order mark", "\u{feff}grün \u{1f984}\0", "text", "\u{feff}grün \u{1f984}\0"],
  ["bytes", allBytes, "base64", Buffer.from(allBytes).toString("base64"), Buffer.from(allBytes)],
  ["a Buffer", Buffer.from("\xff\0"), "base64", Buffer.from("\xff\0").toString("base64")],
  ["a part of a larger buffer", page.subarray(4, 7), "base64", "AQID", Buffer.from([1, 2, 3])],
  ["no bytes", new Uint8Array(), "base64", "", Buffer.alloc(0)],
  ["an empty object", {}, "json", {}],
  ["an empty list", [], "json", []],
  ["zero", 0, "json", 0],
  ["minus zero, which JSON does not have", -0, "json", 0, 0],
  ["false", false, "json", false],
  ["a Date, which JSON gives back as text", { at: new Date(0) }, "json", { at: "1970-01-01T00:00:00.000Z" }],
  ["a member that is undefined", { a: 1, b: undefined }, "json", { a: 1 }],
  [
    "members of every name",
    JSON.parse('{"__proto__":{"x":1},"constructor":2,"":3}'),
    "json",
    JSON.parse('{"__proto__":{"x":1},"constructor":2,"":3}'),
  ],
];

const cycle: Record<string, unknown> = {};
cycle["self"] = cycle;
const unencodable: readonly [title: string, value: unknown][] = [
  ["a Map", new Map([[1, 2]])],
  ["a Set in a list", [new Set([1])]],
  ["NaN", Number.NaN],
  ["Infinity", { amount: Infinity }],
  ["a BigInt", 5n],
  ["a cycle", cycle],
  ["a function", () => 1],
  ["a symbol", Symbol("s")],
  ["half a surrogate pair", "\ud800"],
  ["an ArrayBuffer", new ArrayBuffer(1)],
  ["an Error", new Error("returned, not thrown")],
];

async function resultObjects({ memory }: Bench): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of memory.list("idempotency/")) if (name.endsWith(".result")) names.push(name);
  return names;
}

for (const [where, options] of Object.entries<Options>({
  inline: {},
  "in an object of its own (E9)": { inlineBytesMax: 0 },
})) {
  describe(`execute: a result, ${where}`, () => {
    leavesNothing();

    for (const [
      title,
      value,
      encoding,
      body,
      given = body === null && encoding === "none" ? undefined : value,
    ] of values) {
      it(`${title}: the first caller and every later one get the same`, async () => {
        const on = bench();
        const operation = operationOf({ ...options, run: () => value });
        const expected = encoding === "json" ? body : given;
        const first = returned(await on.execute(operation));
        const { result } = await on.stored();
        if (options.inlineBytesMax === undefined) assert.deepEqual(result, { kind: "value", encoding, body });
        assert.deepEqual(first.value, expected);
        const again = returned(await on.execute(operation));
        assert.deepEqual(again.value, expected);
        assert.deepEqual(returned(await processOf(on, 3).execute(operation)).value, expected);
        assert.deepEqual([first.recorded, first.replayed, again.replayed], [true, false, true]);
        assert.deepEqual(Object.keys(Object(again.value)), Object.keys(Object(expected)));
      });
    }

    it("a failure: name, message, code and details, and never its stack", async () => {
      class Declined extends Error {
        override name = "Declined";
        code = "insufficient_funds";
        secret = "SECRET";
      }
      const on = bench();
      const thrown = new Declined("no funds");
      const operation = operationOf({
        ...options,
        onError: () => "replay",
        serializeError: () => ({ balance: 3, __proto__: null }),
        run() {
          throw thrown;
        },
      });
      assert.equal(threw(await on.execute(operation)), thrown, "the first caller gets the error itself");
      const error = threw(await on.execute(operation));
      assert.ok(error instanceof Error);
      const { name, message } = error;
      assert.deepEqual(Object.assign({}, error, { name, message }), {
        name: "Declined",
        message: "no funds",
        code: "insufficient_funds",
        balance: 3,
      });
      assert.ok(!Object.keys(error).includes("name"));
      const { operation_id: operationId } = await on.stored();
      assert.deepEqual(executionOf(error), { operationId, replayed: true, recorded: true });
      for await (const { name: object } of on.memory.list("")) {
        const text = Buffer.from((await on.memory.read(object))?.bytes ?? []).toString();
        assert.ok(!/SECRET|result\.test/.test(text), text);
      }
    });

    it("a failure: deserializeError makes what a retry is thrown", async () => {
      const on = bench();
      class Declined extends Error {}
      const operation = operationOf({
        ...options,
        onError: () => "replay",
        serializeError: (error) => ({ of: String(error) }),
        deserializeError: ({ name, message, code, details }) =>
          Object.assign(new Declined(message), { from: [name, code, details] }),
        run() {
          throw Object.assign(new TypeError("no funds"), { code: 7 });
        },
      });
      threw(await on.execute(operation));
      const error = threw(await on.execute(operation));
      assert.ok(error instanceof Declined && "from" in error);
      assert.equal(error.message, "no funds");
      assert.deepEqual(error.from, ["TypeError", 7, { of: "TypeError: no funds" }]);
      assert.equal(executionOf(error)?.replayed, true);
    });
  });
}

describe("execute: what is no value or failure to be recorded (E7)", () => {
  leavesNothing();

  for (const [title, value] of unencodable) {
    it(`E7: ${title} is returned with recorded: false, and the record is held`, async () => {
      const on = bench();
      let runs = 0;
      const operation = operationOf({
        run() {
          runs += 1;
          return value;
        },
      });
      const executed = returned(await on.execute(operation));
      assert.equal(executed.value, value);
      assert.equal(executed.recorded, false);
      assert.equal((await on.stored())["status"], "held");
      assert.ok(OperationHeldError.is(threw(await on.execute(operation))));
      assert.equal(runs, 1);
    });
  }

  const thrown = new Error("no funds");
  const broken: Readonly<Record<string, Options>> = {
    "a serializeError that throws": {
      serializeError() {
        throw new Error("broken");
      },
    },
    "a serializeError that answers no object": { serializeError: () => JSON.parse("5") },
    "details that are not JSON": { serializeError: () => ({ at: 5n }) },
  };
  for (const [title, options] of Object.entries(broken)) {
    it(`E7: ${title}: the error is thrown with recorded: false, and the record is held`, async () => {
      const on = bench();
      const operation = operationOf({
        ...options,
        onError: () => "replay",
        run() {
          throw thrown;
        },
      });
      assert.equal(threw(await on.execute(operation)), thrown);
      assert.equal(executionOf(thrown)?.recorded, false);
      assert.equal((await on.stored())["status"], "held");
    });
  }

  const oddities: readonly [title: string, error: unknown, body: unknown][] = [
    ["a string", "no funds", { name: "Error", message: "no funds" }],
    ["nothing", undefined, { name: "Error", message: "undefined" }],
    ["a number", 7, { name: "Error", message: "7" }],
    ["a plain object", { code: "E1", message: "no" }, { name: "Error", message: "no", code: "E1" }],
    [
      "an error whose code is no code",
      Object.assign(new Error("no"), { code: { a: 1 } }),
      { name: "Error", message: "no" },
    ],
    [
      "an error whose code is no number",
      Object.assign(new Error("no"), { code: NaN }),
      { name: "Error", message: "no" },
    ],
    ["half a surrogate pair", new Error("\ud800"), { name: "Error", message: "\ufffd" }],
    ["a frozen error", Object.freeze(new Error("no")), { name: "Error", message: "no" }],
    [
      "a proxy that lets nothing be noted",
      new Proxy(new Error("no"), {
        defineProperty() {
          throw new Error("a trap");
        },
      }),
      { name: "Error", message: "no" },
    ],
  ];
  for (const [title, error, body] of oddities) {
    it(`E7: throws ${title}: recorded as far as it goes`, async () => {
      const on = bench();
      const operation = operationOf({ onError: () => "replay", run: () => Promise.reject(error) });
      assert.equal(threw(await on.execute(operation)), error);
      assert.deepEqual((await on.stored())["result"], { kind: "failure", encoding: "json", body });
      assert.equal(String(threw(await on.execute(operation))), `Error: ${Reflect.get(Object(body), "message")}`);
    });
  }
});

describe("execute: large results (E9)", () => {
  leavesNothing();

  const large = "x".repeat(300_000);

  it("E9: is written first to an object of its own beside the record, which points to it with its digest", async () => {
    const on = bench();
    const { operationId, value } = returned(await on.execute(operationOf({ run: () => large })));
    assert.equal(value, large);
    assert.deepEqual(on.store.take(), ["create", "create", "replace"]);
    const [object] = await resultObjects(on);
    assert.ok(object);
    const pattern = new RegExp(`^${recordName.replace(".json", "")}\\.${operationId}\\.1\\.[0-9a-f]{16}\\.result$`);
    assert.match(object, pattern);
    const { result } = await on.stored();
    assert.deepEqual(result, {
      kind: "offloaded",
      of: "value",
      encoding: "text",
      object,
      sha256: sha256(large),
      bytes: 300_000,
    });
    assert.equal(returned(await on.execute(operationOf())).value, large);
    assert.deepEqual(on.store.take(), ["create", "read", "read"]);
  });

  it("E9: what fits is in the record: the limit is of the record's bytes", async () => {
    const on = bench();
    returned(await on.execute(operationOf({ run: () => "x" })));
    const { byteLength } = (await on.memory.read(recordName))?.bytes ?? Buffer.alloc(0);
    for (const [inlineBytesMax, objects] of [
      [byteLength, 0],
      [byteLength - 1, 1],
    ] as const) {
      const other = bench();
      returned(await other.execute(operationOf({ run: () => "x", inlineBytesMax })));
      assert.equal((await resultObjects(other)).length, objects);
    }
  });

  it("E9: the store's own limit of a record counts, too", async () => {
    const on = bench({ traits: { recordBytesMax: 600 } });
    returned(await on.execute(operationOf({ run: () => "x".repeat(400) })));
    assert.equal((await resultObjects(on)).length, 1);
  });

  it("E9: larger than the store takes: returned with recorded: false, and held", async () => {
    const on = bench({ traits: { recordBytesMax: 600 } });
    const { value, recorded } = returned(await on.execute(operationOf({ run: () => "x".repeat(601) })));
    assert.deepEqual([value, recorded], ["x".repeat(601), false]);
    assert.equal((await on.stored())["status"], "held");
    assert.deepEqual(await resultObjects(on), []);
  });

  const gone: Readonly<Record<string, (on: Bench, object: string) => Promise<unknown>>> = {
    missing: async ({ memory }, object) => memory.expire(object),
    "of another length": async ({ memory }, object) => change(memory, object, `${large}y`),
    "of the same length, and changed": async ({ memory }, object) => change(memory, object, `y${large.slice(1)}`),
  };
  async function change(memory: Bench["memory"], object: string, text: string): Promise<void> {
    const found = await memory.read(object);
    assert.ok(found);
    await memory.replace(object, found.version, Buffer.from(text));
  }
  for (const [title, spoil] of Object.entries(gone)) {
    it(`E9: an object that is ${title} is a ResultGoneError, and nothing is run again or written`, async () => {
      const on = bench();
      const { operationId } = returned(await on.execute(operationOf({ run: () => large })));
      const [object] = await resultObjects(on);
      assert.ok(object);
      await spoil(on, object);
      const before = await on.memory.read(recordName);
      const error = threw(await on.execute(operationOf({ run: () => assert.fail("ran") })));
      assert.ok(ResultGoneError.is(error));
      assert.deepEqual([error.code, error.operationId, error.keyHash], ["RESULT_GONE", operationId, sha256("acme:k1")]);
      assert.equal((await on.memory.read(recordName))?.version, before?.version);
    });
  }

  const faults: readonly Fault[] = ["lostRequest", "lostReply", "landsLate", "contended", "hangs", "away"];
  for (const fault of faults) {
    it(`E9: an upload that meets ${fault} is confirmed before the record points to it`, async () => {
      const on = bench();
      on.memory.inject(fault, { on: "write", name: /\.result$/ });
      on.store.before = (operation) => {
        // What lands late has landed by the time the record points to it: the repeat is refused by it.
        if (operation === "create" && on.memory.lateWrites > 0) on.memory.land();
      };
      const operation = operationOf({ run: () => large });
      const { recorded } = returned(await on.execute(operation));
      assert.equal(recorded, true);
      assert.equal((await resultObjects(on)).length, 1);
      assert.equal(returned(await on.execute(operation)).value, large);
    });
  }

  it("E9: an upload that is denied: returned with recorded: false, and the next call recovers", async () => {
    const on = bench();
    on.memory.inject("denied", { name: /\.result$/ });
    const { value, recorded } = returned(await on.execute(operationOf({ run: () => large })));
    assert.deepEqual([value, recorded], [large, false]);
    const { status, lease_ms: leaseMs } = await on.stored();
    assert.deepEqual([status, leaseMs], ["creating", 60_000]);
  });

  it("E9: the lease is renewed during the upload, and the settling write goes by the renewal's version", async () => {
    const on = bench({ requestTimeoutMs: 100_000 });
    on.store.travel = async (_, name) => (name.endsWith(".result") ? sleep(on.clock, 75_000) : undefined);
    const end = await on.execute(operationOf({ run: () => large }), { deadlineMs: 200_000 });
    assert.equal(returned(end).recorded, true);
    assert.deepEqual(on.store.take(), ["create", "create", ...Array(7).fill("replace"), "replace"]);
    assert.equal((await on.stored())["status"], "ready");
  });

  it("E5: ownership that is lost during the upload: the call gets what is recorded, never its own value", async () => {
    for (const fault of [undefined, "away", "denied"] as const) {
      const on = bench({ requestTimeoutMs: 100_000 });
      const effect = new Effect();
      on.store.travel = async (_, name) => (name.endsWith(".result") ? sleep(on.clock, 20_000) : undefined);
      if (fault !== undefined) on.memory.inject(fault, { name: /\.result$/, times: Infinity });
      const call = on.start(operationOf({ run: effect.run }), { deadlineMs: 40_000 });
      await settle();
      effect.last.finish(large);
      await on.clock.advance(5_000);
      await rewrite(on, { attempt: 2, takeover: true, write_id: "theirs" });
      const end = await call.ends();
      assert.equal(end.kind, "threw", "not its own value");
      on.memory.heal();
      await on.clock.advance(60_000);
      const { status, attempt } = await on.stored();
      assert.deepEqual([status, attempt], ["creating", 2]);
    }
  });

  it("E9: a replay whose object cannot be read by the deadline is UNAVAILABLE, and not gone", async () => {
    const on = bench();
    returned(await on.execute(operationOf({ run: () => large })));
    on.memory.inject("away", { name: /\.result$/, times: Infinity });
    isStoreError(threw(await on.execute(operationOf())), "UNAVAILABLE");
    on.memory.heal();
    assert.equal(returned(await on.execute(operationOf())).value, large);
  });

  it("E9: each attempt's object has a name of its own, so that a late upload is nobody's result", async () => {
    const on = bench();
    on.memory.inject("away", { on: "replace", times: Infinity });
    const first = await on.execute(operationOf({ run: () => large }), { deadlineMs: 5_000 });
    assert.equal(returned(first).recorded, false);
    on.memory.heal();
    await on.clock.advance(120_000);
    const other = "y".repeat(300_000);
    assert.equal(returned(await on.execute(operationOf({ run: () => other }))).value, other);
    const objects = await resultObjects(on);
    assert.equal(new Set(objects).size, 2);
    assert.equal(returned(await on.execute(operationOf())).value, other);
  });
});
