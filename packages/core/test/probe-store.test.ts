import assert from "node:assert/strict";

import {
  fingerprintOf,
  InvalidArgumentError,
  probeStore,
  recordAddress,
  removeRecord,
  StoreError,
  StoreSession,
  toVersion,
  verifyStore,
  type ConditionalStore,
  type ProbeCheck,
  type Version,
} from "@firstwrite/core";
import { MemoryStore, VirtualClock } from "@firstwrite/memory";

import { DAY_MS } from "./setup.ts";

/** A store whose methods are as given, and otherwise the inner one's. */
function broken(inner: MemoryStore, methods: Partial<ConditionalStore>): ConditionalStore {
  return {
    traits: inner.traits,
    create: (...call) => inner.create(...call),
    replace: (...call) => inner.replace(...call),
    read: (...call) => inner.read(...call),
    remove: (...call) => inner.remove(...call),
    ...methods,
  };
}

async function overwrite(store: MemoryStore, name: string, bytes: Uint8Array) {
  const record = await store.read(name);
  return record === undefined ? store.create(name, bytes) : store.replace(name, record.version, bytes);
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

const faults: [ProbeCheck, (inner: MemoryStore) => Partial<ConditionalStore>][] = [
  ["create existing", (inner) => ({ create: (name, bytes) => overwrite(inner, name, bytes) })],
  ["replace", () => ({ replace: async () => ({ kind: "refused" }) })],
  ["replace stale", (inner) => ({ replace: (name, _, bytes) => overwrite(inner, name, bytes) })],
  [
    "replace missing",
    (inner) => ({
      replace: async (name, at, bytes) =>
        (await inner.read(name)) === undefined ? inner.create(name, bytes) : inner.replace(name, at, bytes),
    }),
  ],
  [
    // s3s-fs answers every sequential condition right, and lets several writers win at once.
    "race of creators",
    (inner) => ({
      create: async (name, bytes) => {
        const exists = (await inner.read(name)) !== undefined;
        await turn();
        return exists ? { kind: "refused" } : overwrite(inner, name, bytes);
      },
    }),
  ],
  [
    "race of replacers",
    (inner) => ({
      replace: async (name, at, bytes) => {
        const matches = (await inner.read(name))?.version === at;
        await turn();
        return matches ? overwrite(inner, name, bytes) : { kind: "refused" };
      },
    }),
  ],
  [
    "reads",
    (inner) => ({
      read: async (name) => {
        if (name.includes("race")) throw new StoreError("CORRUPT", "test", "the body does not fit its checksum");
        return inner.read(name);
      },
    }),
  ],
  [
    "times",
    (inner) => ({
      read: async (name) => {
        const record = await inner.read(name);
        return record && { ...record, modifiedAt: record.modifiedAt / 1000 };
      },
    }),
  ],
];

describe("probeStore", () => {
  it("finds a good store usable, says so in a sentence each, and leaves nothing behind", async () => {
    const store = new MemoryStore();
    const { usable, removes, findings } = await probeStore(store);
    assert.deepEqual([usable, removes], [true, true]);
    assert.equal(findings.length, 10);
    assert.ok(findings.every(({ ok, sentence }) => ok && sentence.length > 20));
    for await (const { name } of store.list("")) assert.fail(`${name} was left`);
    await verifyStore(store);
  });

  it("finds a store on a bad network usable all the same", async () => {
    const clock = new VirtualClock();
    const store = new MemoryStore({ clock });
    for (const fault of ["lostReply", "lostRequest", "contended", "away", "lostReply"] as const) {
      store.inject(fault, { on: "write", times: 20 });
    }
    const probing = probeStore(store, { runtime: clock });
    await clock.advance(59_000);
    assert.equal((await probing).usable, true);
  });

  for (const [check, methods] of faults) {
    it(`cases 33, 35, 45: refuses, ten times of ten, a store that fails at: ${check}`, async () => {
      for (let time = 0; time < 10; time += 1) {
        const inner = new MemoryStore();
        const subject = broken(inner, methods(inner));
        const { usable, removes, findings } = await probeStore(subject);
        assert.deepEqual([usable, removes], [false, false]);
        assert.deepEqual(
          findings.filter(({ ok }) => !ok).map((finding) => finding.check),
          [check],
        );
      }
    });
  }

  it("refuses a store whose version does not change with a body of one size", async () => {
    const inner = new MemoryStore();
    const sized = (bytes: Uint8Array): Version => toVersion(`size-${bytes.byteLength}`);
    const subject = broken(inner, {
      create: async (name, bytes) => {
        const outcome = await inner.create(name, bytes);
        return outcome.kind === "written" ? { ...outcome, version: sized(bytes) } : outcome;
      },
      replace: async (name, at, bytes) => {
        const record = await inner.read(name);
        if (record === undefined || sized(record.bytes) !== at) return { kind: "refused" };
        const outcome = await inner.replace(name, record.version, bytes);
        return outcome.kind === "written" ? { ...outcome, version: sized(bytes) } : outcome;
      },
      read: async (name) => {
        const record = await inner.read(name);
        return record && { ...record, version: sized(record.bytes) };
      },
    });
    assert.equal((await probeStore(subject)).usable, false);
  });

  it("case 40: a service that ignores the condition of a delete can be used, and does not remove", async () => {
    const inner = new MemoryStore();
    const subject = broken(inner, {
      remove: async (name) => {
        inner.expire(name);
        return { kind: "removed" };
      },
    });
    const { usable, removes, findings } = await probeStore(subject);
    assert.deepEqual([usable, removes], [true, false]);
    assert.match(findings.at(-1)?.sentence ?? "", /deleted the record/);
    await verifyStore(subject);
  });

  it("a service without a conditional delete can be used", async () => {
    const store = new MemoryStore();
    const { create, replace, read } = broken(store, {});
    const { usable, removes } = await probeStore({ traits: store.traits, create, replace, read });
    assert.deepEqual([usable, removes], [true, false]);
  });

  it("verifyStore refuses with UNSUPPORTED, and says what is wrong", async () => {
    const inner = new MemoryStore();
    const subject = broken(inner, { create: (name, bytes) => overwrite(inner, name, bytes) });
    await assert.rejects(verifyStore(subject), (error) => {
      assert.ok(StoreError.is(error) && error.code === "UNSUPPORTED");
      assert.match(error.message, /cannot be used: a create overwrote a record/);
      return true;
    });
  });

  it("a store that denies access, or is away, is not said to be broken", async () => {
    const store = new MemoryStore();
    store.inject("denied", { times: Infinity });
    await assert.rejects(probeStore(store), (error) => StoreError.is(error) && error.code === "PERMISSION_DENIED");
    store.heal();
    const clock = new VirtualClock();
    store.inject("away", { times: Infinity });
    const probing = assert.rejects(
      probeStore(store, { deadlineMs: 1000, runtime: clock }),
      (error) => StoreError.is(error) && error.code === "UNAVAILABLE",
    );
    await clock.advance(1000);
    await probing;
  });

  it("takes no fewer rounds than show a race", async () => {
    for (const options of [{ rounds: 7 }, { rounds: 8.5 }, { racers: 1 }]) {
      await assert.rejects(probeStore(new MemoryStore(), options), InvalidArgumentError.is);
    }
  });
});

describe("P9: removeRecord", () => {
  const address = recordAddress("idempotency/", "acme", "k");
  let clock: VirtualClock;
  let store: MemoryStore;
  beforeEach(() => {
    clock = new VirtualClock();
    store = new MemoryStore({ clock });
  });
  const session = (of: ConditionalStore = store) =>
    new StoreSession(of, {
      runtime: clock,
      life: { signal: new AbortController().signal, endsAtMs: Infinity },
      requestTimeoutMs: 1000,
    });
  const put = (changes: Record<string, unknown>) =>
    store.create(
      address.name,
      Buffer.from(
        JSON.stringify({
          format: 1,
          scope: "acme",
          key_hash: address.keyHash,
          input_hash: fingerprintOf(1),
          operation_id: "o",
          status: "ready",
          attempt: 1,
          ttl_ms: 2 * DAY_MS,
          created_at: "2026-01-01T00:00:00Z",
          expires_at: "2026-01-03T00:00:00Z",
          write_id: "w",
          result: { kind: "value", encoding: "json", body: 1 },
          ...changes,
        }),
      ),
    );

  it("removes a stale record, and says when there was none", async () => {
    await put({});
    await clock.advance(2 * DAY_MS + 1);
    assert.equal(await removeRecord(session(), address), true);
    assert.equal(await store.read(address.name), undefined);
    assert.equal(await removeRecord(session(), address), false);
  });

  it("removes one whose TTL is not over only when forced", async () => {
    await put({});
    await clock.advance(DAY_MS);
    await assert.rejects(
      removeRecord(session(), address),
      (error) => InvalidArgumentError.is(error) && /TTL is not over/.test(error.message),
    );
    assert.equal(await removeRecord(session(), address, { force: true }), true);
  });

  const kept: [string, Record<string, unknown>, number, RegExp][] = [
    ["creating", { status: "creating", lease_ms: 1, result: undefined }, 9 * DAY_MS, /not settled/],
    ["held", { status: "held", result: undefined }, 9 * DAY_MS, /held for a person/],
    ["written within the last hour", {}, 3_600_000, /within the last hour/],
  ];
  for (const [title, changes, ageMs, message] of kept) {
    it(`never removes one that is ${title}, forced or not`, async () => {
      await put(changes);
      await clock.advance(ageMs);
      for (const force of [false, true]) {
        await assert.rejects(
          removeRecord(session(), address, { force }),
          (error) => InvalidArgumentError.is(error) && message.test(error.message),
        );
      }
      assert.ok(await store.read(address.name));
    });
  }

  it("an older hour-old record that another write overtakes is not removed", async () => {
    await put({});
    await clock.advance(3 * DAY_MS);
    const racing = broken(store, {
      remove: async (name, at) => {
        const record = await store.read(name);
        if (record !== undefined && name === address.name) await store.replace(name, record.version, Buffer.from("{}"));
        return store.remove(name, at);
      },
    });
    assert.equal(await removeRecord(session(racing), address), false);
    assert.ok(await store.read(address.name));
  });

  it("is UNSUPPORTED where the service ignores the condition, and deletes nothing of the user's", async () => {
    await put({});
    await clock.advance(3 * DAY_MS);
    const ignoring = broken(store, {
      remove: async (name) => {
        store.expire(name);
        return { kind: "removed" };
      },
    });
    for (let time = 0; time < 2; time += 1) {
      await assert.rejects(
        removeRecord(session(ignoring), address),
        (error) => StoreError.is(error) && error.code === "UNSUPPORTED",
      );
    }
    assert.ok(await store.read(address.name));
  });
});
