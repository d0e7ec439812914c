import assert from "node:assert/strict";
import { InvalidArgumentError, StoreError, toVersion, type StoredRecord, type WriteOutcome } from "@firstwrite/core";
import { MemoryStore, settle, type Fault, type Operation } from "@firstwrite/memory";

const old = Buffer.from("old");
const bytes = Buffer.from("new");

type Answer = WriteOutcome["kind"] | "found" | StoreError["code"] | "no answer";

/** For each fault: what a write answers, whether it is stored, and what a read answers. */
const faults: readonly [fault: Fault, write: Answer, stored: boolean, read: Answer | undefined][] = [
  ["lostRequest", "unknown", false, "UNAVAILABLE"],
  ["lostReply", "unknown", true, "UNAVAILABLE"],
  ["landsLate", "unknown", false, undefined],
  ["contended", "contended", false, undefined],
  ["hangs", "no answer", false, "no answer"],
  ["denied", "PERMISSION_DENIED", false, "PERMISSION_DENIED"],
  ["away", "UNAVAILABLE", false, "UNAVAILABLE"],
];

/** What the call answered once everything else was done. */
async function answered(call: Promise<WriteOutcome | StoredRecord | undefined>): Promise<Answer> {
  const answer = call.then(
    (value): Answer => (value !== undefined && "kind" in value ? value.kind : "found"),
    (error: unknown): Answer => {
      assert.ok(StoreError.is(error));
      return error.code;
    },
  );
  return Promise.race([answer, settle().then((): Answer => "no answer")]);
}

async function withRecord() {
  const store = new MemoryStore();
  const first = await store.create("there", old);
  assert.ok(first.kind === "written");
  const send = (operation: Operation, signal?: AbortSignal): Promise<WriteOutcome | StoredRecord | undefined> => {
    if (operation === "create") return store.create("fresh", bytes, { signal });
    if (operation === "replace") return store.replace("there", first.version, bytes, { signal });
    return store.read("there", { signal });
  };
  const isStored = async (operation: Operation): Promise<boolean> => {
    const found = await store.read(operation === "create" ? "fresh" : "there");
    return found !== undefined && Buffer.from(found.bytes).equals(bytes);
  };
  return { store, send, isStored };
}

describe("MemoryStore's faults", () => {
  for (const [fault, write, stored, read] of faults) {
    for (const operation of ["create", "replace"] as const) {
      it(`${fault} on ${operation}: ${write}, ${stored ? "stored" : "not stored"}`, async () => {
        const { store, send, isStored } = await withRecord();
        store.inject(fault, { on: operation });
        assert.equal(await answered(send(operation)), write);
        assert.equal(await isStored(operation), stored);
        if (!stored) assert.equal(await answered(send(operation)), "written", "the next one is answered");
      });
    }

    it(`${fault} on read: ${read ?? "not possible"}`, async () => {
      const { store, send } = await withRecord();
      if (read === undefined) {
        assert.throws(() => store.inject(fault, { on: "read" }), /a read cannot be/);
        store.inject(fault);
        assert.equal(await answered(send("read")), "found", "a fault for any call waits for a write");
        assert.equal(await answered(send("create")), faults.find(([of]) => of === fault)?.[1]);
        return;
      }
      store.inject(fault, { on: "read" });
      assert.equal(await answered(send("read")), read);
      assert.equal(await answered(send("read")), "found");
    });
  }

  it("hangs ends with the call's signal: unknown for a write, UNAVAILABLE for a read", async () => {
    for (const [operation, answer] of [
      ["create", "unknown"],
      ["replace", "unknown"],
      ["read", "UNAVAILABLE"],
    ] as const) {
      const { store, send, isStored } = await withRecord();
      store.inject("hangs");
      const abort = new AbortController();
      const call = send(operation, abort.signal);
      await settle();
      abort.abort();
      assert.equal(await answered(call), answer);
      assert.equal(await isStored(operation), false);
    }
  });

  it("P2: a call whose signal has aborted sends nothing", async () => {
    const { send, isStored } = await withRecord();
    for (const operation of ["create", "replace", "read"] as const) {
      assert.equal(await answered(send(operation, AbortSignal.abort())), "UNAVAILABLE");
      assert.equal(await isStored(operation), false);
    }
  });

  it("a write that lands late is decided when it lands, in the order they were sent", async () => {
    const { store, send, isStored } = await withRecord();
    store.inject("landsLate", { times: 2 });
    await send("create");
    await store.create("fresh", Buffer.from("second"));
    assert.equal(store.lateWrites, 2);
    store.land();
    assert.equal(await isStored("create"), true);
    store.land();
    assert.equal(await isStored("create"), true, "the second finds the first");
    assert.throws(() => store.land(), /no write is held: inject "landsLate" first/);
  });

  it("a late replace is refused when the record has moved on", async () => {
    const { store, send, isStored } = await withRecord();
    store.inject("landsLate");
    await send("replace");
    const found = await store.read("there");
    await store.replace("there", found?.version ?? toVersion("none"), Buffer.from("third"));
    store.land();
    assert.equal(await isStored("replace"), false);
  });

  it("are for the operation, the name and the number of calls they were injected for", async () => {
    const { store, send } = await withRecord();
    store.inject("away", { on: "write", name: "fresh", times: 2 });
    assert.equal(await answered(send("replace")), "written");
    assert.equal(await answered(send("read")), "found");
    assert.deepEqual([await answered(send("create")), await answered(send("create"))], ["UNAVAILABLE", "UNAVAILABLE"]);
    assert.equal(await answered(send("create")), "written");
  });

  it("match a pattern each time, whatever its flags", async () => {
    for (const name of [/fresh/, /FRESH/i, /fresh/g, /fresh/y]) {
      const { store, send } = await withRecord();
      store.inject("away", { name, times: 3 });
      for (let call = 0; call < 3; call += 1) assert.equal(await answered(send("create")), "UNAVAILABLE");
      assert.equal(await answered(send("create")), "written");
    }
  });

  it("are used up in order, and forgotten by heal", async () => {
    const { store, send } = await withRecord();
    store.inject("contended");
    store.inject("denied", { times: Infinity });
    assert.deepEqual(
      [await answered(send("create")), await answered(send("create"))],
      ["contended", "PERMISSION_DENIED"],
    );
    store.heal();
    assert.equal(await answered(send("create")), "written");
  });

  const wrong: readonly (readonly [title: string, call: readonly unknown[], message: RegExp])[] = [
    ["a fault there is not", ["lostreply"], /a fault cannot be "lostreply": it is lostRequest, lostReply, landsLate/],
    ["no fault", [], /a fault cannot be undefined/],
    ["a fault by the name of an object's own member", ["toString"], /a fault cannot be "toString"/],
    ["an operation there is not", ["away", { on: "list" }], /on cannot be "list": it is create, replace, remove, read/],
    ["a member there is not", ["away", { op: "create" }], /cannot be "op": it is on, name, times/],
    ["a target that is no object", ["away", "create"], /must be an object: \{ on, name, times \}/],
    ["a target that is null", ["away", null], /must be an object/],
    ["a name that is neither text nor pattern", ["away", { name: 7 }], /a string or a pattern/],
    ...[0, -1, 1.5, Number.NaN, -Infinity, "2", null].map((times): readonly [string, readonly unknown[], RegExp] => [
      `${JSON.stringify(times)} (${typeof times}) times`,
      ["away", { times }],
      /times: give 1 or more, or Infinity/,
    ]),
  ];
  for (const [title, call, message] of wrong) {
    it(`are refused where no call could ever have them, and none is injected: ${title}`, async () => {
      const { store, send } = await withRecord();
      assert.throws(
        () => Reflect.apply(store.inject.bind(store), undefined, call),
        (error) => InvalidArgumentError.is(error) && message.test(error.message),
      );
      assert.equal(await answered(send("create")), "written");
    });
  }
});
