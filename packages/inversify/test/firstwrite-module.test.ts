import "reflect-metadata";

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import {
  defineReservation,
  Idempotency,
  InvalidArgumentError,
  StoreError,
  type ConditionalStore,
} from "@firstwrite/core";
import { firstwrite, firstwriteIdentifiers, firstwriteModule } from "@firstwrite/inversify";
import { MemoryStore } from "@firstwrite/memory";
import { Container, decorate, inject, injectable } from "inversify";

const number = defineReservation<string>({ name: "invoice.number" });

/** A store that counts what happens to it. */
class WatchedStore extends MemoryStore {
  closed = 0;
  async close(): Promise<void> {
    this.closed += 1;
  }
}

describe("firstwriteModule", () => {
  let container: Container;
  beforeEach(() => {
    container = new Container();
  });

  it("binds the store and its engine from a URL, each once", async () => {
    await container.loadAsync(firstwriteModule({ store: "memory:" }));
    const [one, two] = await Promise.all([
      container.getAsync(firstwrite.idempotency),
      container.getAsync(firstwrite.idempotency),
    ]);
    assert.ok(one instanceof Idempotency);
    assert.equal(one, two);
    assert.equal(one.store, await container.getAsync(firstwrite.store));
  });

  it("opens once for all who ask at once, and not before anybody asks", async () => {
    let opened = 0;
    const store = async () => {
      opened += 1;
      await new Promise((resolve) => setTimeout(resolve, 5));
      return new MemoryStore();
    };
    await container.loadAsync(firstwriteModule({ store }));
    assert.equal(opened, 0);
    await Promise.all(Array.from({ length: 20 }, () => container.getAsync(firstwrite.store)));
    await container.getAsync(firstwrite.idempotency);
    assert.equal(opened, 1);
  });

  it("closes what it opened with the container, once", async () => {
    const store = new WatchedStore();
    await container.loadAsync(firstwriteModule({ store: () => store }));
    await container.getAsync(firstwrite.idempotency);
    await container.getAsync(firstwrite.idempotency);
    assert.equal(store.closed, 0);
    await container.unbindAllAsync();
    assert.equal(store.closed, 1);
  });

  it("closes it when the module is unloaded, too", async () => {
    const store = new WatchedStore();
    const module = firstwriteModule({ store: async () => store });
    await container.loadAsync(module);
    await container.getAsync(firstwrite.store);
    await container.unloadAsync(module);
    assert.equal(store.closed, 1);
    assert.equal(container.isBound(firstwrite.store), false);
  });

  it("opens nothing in order to close it", async () => {
    let opened = 0;
    const store = () => {
      opened += 1;
      return new MemoryStore();
    };
    await container.loadAsync(firstwriteModule({ store }));
    await container.unbindAllAsync();
    assert.equal(opened, 0);
  });

  it("without Async, unloading and unbinding throw once a store was opened, and not before", async () => {
    const module = firstwriteModule({ store: "memory:" });
    container.load(module);
    container.unload(module);
    container.load(module);
    await container.getAsync(firstwrite.store);
    assert.throws(() => container.unload(module), /unloadAsync/);
    assert.throws(() => container.unbindAll(), /unbindAllAsync/);
  });

  it("a module that was unloaded can be loaded again, and opens anew", async () => {
    const opened: WatchedStore[] = [];
    const module = firstwriteModule({
      store() {
        const store = new WatchedStore();
        opened.push(store);
        return store;
      },
    });
    for (let load = 0; load < 2; load += 1) {
      await container.loadAsync(module);
      assert.equal(await container.getAsync(firstwrite.store), opened[load]);
      await container.unloadAsync(module);
    }
    assert.deepEqual(
      opened.map(({ closed }) => closed),
      [1, 1],
    );
  });

  it("one module in two containers opens a store for each, and closes each with its container", async () => {
    const opened: WatchedStore[] = [];
    const module = firstwriteModule({
      store() {
        const store = new WatchedStore();
        opened.push(store);
        return store;
      },
    });
    const other = new Container();
    for (const each of [container, other]) {
      await each.loadAsync(module);
      await each.getAsync(firstwrite.idempotency);
    }
    await container.unloadAsync(module);
    assert.deepEqual(
      opened.map(({ closed }) => closed),
      [1, 0],
    );
    await other.unloadAsync(module);
    assert.equal(opened[1]?.closed, 1);
  });

  it("a store that is rebound later is for what is resolved then; the first stays open until the module is unloaded", async () => {
    const [first, second] = [new WatchedStore(), new WatchedStore()];
    const module = firstwriteModule({ store: () => first });
    await container.loadAsync(module);
    const before = await container.getAsync(firstwrite.idempotency);
    (await container.rebindAsync(firstwrite.store)).toConstantValue(second);
    const after = await container.getAsync(firstwrite.idempotency);
    assert.equal(before.store, first);
    assert.equal(after.store, second);
    assert.equal(after, await container.getAsync(firstwrite.idempotency));
    assert.equal(first.closed, 0);
    await container.unloadAsync(module);
    assert.deepEqual([first.closed, second.closed], [1, 0]);
  });

  it("unloading leaves a store that was rebound; it is to be unbound before the module is loaded again", async () => {
    const rebound = new WatchedStore();
    const module = firstwriteModule({ store: "memory:" });
    await container.loadAsync(module);
    (await container.rebindAsync(firstwrite.store)).toConstantValue(rebound);
    await container.unloadAsync(module);
    assert.equal(await container.getAsync(firstwrite.store), rebound);
    assert.equal(container.isBound(firstwrite.idempotency), false);

    await container.loadAsync(module);
    await assert.rejects(container.getAsync(firstwrite.idempotency), /Ambiguous bindings found/);
    await container.unloadAsync(module);
    await container.unbindAsync(firstwrite.store);
    await container.loadAsync(module);
    assert.notEqual(await container.getAsync(firstwrite.store), rebound);
    assert.equal(rebound.closed, 0);
  });

  it("does not close a store that it was given", async () => {
    const store = new WatchedStore();
    await container.loadAsync(firstwriteModule({ store }));
    assert.equal(await container.getAsync(firstwrite.store), store);
    await container.unbindAllAsync();
    assert.equal(store.closed, 0);
  });

  it("closes a file that it opened by its URL", async () => {
    const folder = mkdtempSync(join(tmpdir(), "firstwrite-inversify-"));
    try {
      await container.loadAsync(firstwriteModule({ store: `sqlite:${join(folder, "x.db")}` }));
      const store = await container.getAsync(firstwrite.store);
      await store.create("a", Buffer.from("x"));
      await container.unbindAllAsync();
      await assert.rejects(store.read("a"), (error) => StoreError.is(error) && error.code === "UNAVAILABLE");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("a failed open can be tried again", async () => {
    let attempts = 0;
    const store = async (): Promise<ConditionalStore> => {
      attempts += 1;
      if (attempts < 3) throw new StoreError("UNAVAILABLE", "test", "not yet");
      return new MemoryStore();
    };
    await container.loadAsync(firstwriteModule({ store }));
    await assert.rejects(container.getAsync(firstwrite.idempotency), /not yet/);
    await assert.rejects(container.getAsync(firstwrite.store), /not yet/);
    assert.ok((await container.getAsync(firstwrite.idempotency)) instanceof Idempotency);
    assert.equal(attempts, 3);
    await container.unbindAllAsync();
  });

  it("a store that could not be opened is nothing to close", async () => {
    await container.loadAsync(firstwriteModule({ store: "ftp://nowhere" }));
    await assert.rejects(container.getAsync(firstwrite.store), (error) => StoreError.is(error));
    await container.unbindAllAsync();
  });

  it("holds several stores by name", async () => {
    const payouts = firstwriteIdentifiers("payouts");
    const [first, second] = [new MemoryStore(), new MemoryStore()];
    await container.loadAsync(firstwriteModule({ store: first }), firstwriteModule({ store: second, name: "payouts" }));
    assert.equal((await container.getAsync(firstwrite.idempotency)).store, first);
    assert.equal((await container.getAsync(payouts.idempotency)).store, second);
  });

  it("passes the engine's options on", async () => {
    const store = new MemoryStore();
    await container.loadAsync(firstwriteModule({ store, prefix: "keys/" }));
    const idempotency = await container.getAsync(firstwrite.idempotency);
    await idempotency.reserve(number, { scope: "acme", key: "k" }, "x", ({ operationId }) => ({ value: operationId }));
    const names: string[] = [];
    for await (const { name } of store.list("")) names.push(name);
    assert.match(names.join(), /^keys\/acme\//);
  });

  for (const store of [undefined, 7, {}, null]) {
    it(`refuses ${JSON.stringify(store)} as a store when it is written, not when it is resolved`, () => {
      const options: unknown = { store };
      assert.throws(() => Reflect.apply(firstwriteModule, undefined, [options]), InvalidArgumentError.is);
    });
  }

  describe("verify", () => {
    /** Takes every condition and ignores it. */
    class IgnoringStore extends WatchedStore {
      override async create(name: string, bytes: Uint8Array) {
        this.expire(name);
        return super.create(name, bytes);
      }
    }

    it("refuses a store that ignores conditions, and closes it", async () => {
      const store = new IgnoringStore();
      await container.loadAsync(firstwriteModule({ store: () => store, verify: true }));
      await assert.rejects(
        container.getAsync(firstwrite.idempotency),
        (error) => StoreError.is(error) && error.code === "UNSUPPORTED",
      );
      assert.equal(store.closed, 1);
    });

    it("probes a good one once, with as many rounds as asked", async () => {
      const store = new WatchedStore();
      let creates = 0;
      const create = store.create.bind(store);
      store.create = (...call) => {
        creates += 1;
        return create(...call);
      };
      await container.loadAsync(firstwriteModule({ store, verify: { rounds: 9, racers: 4 } }));
      await container.getAsync(firstwrite.store);
      const probed = creates;
      assert.ok(probed > 9 * 4);
      await container.getAsync(firstwrite.idempotency);
      assert.equal(creates, probed);
    });
  });
});

/** An application's class, without decorators. */
class Invoices {
  readonly idempotency: Idempotency;
  constructor(idempotency: Idempotency) {
    this.idempotency = idempotency;
  }

  async numberOf(order: string): Promise<string> {
    const request = { scope: "invoices", key: order };
    const choose = ({ operationId }: { operationId: string }) => ({ value: `INV-${operationId.slice(0, 8)}` });
    return (await this.idempotency.reserve(number, request, order, choose)).value;
  }
}

describe("example: a class that is given its Idempotency", () => {
  // The two ways to say so without decorator syntax; test/decorators.test.ts has the third.
  const bindings: Record<string, (container: Container) => void> = {
    "toResolvedValue: the class knows nothing of inversify": (container) => {
      container
        .bind(Invoices)
        .toResolvedValue((idempotency: Idempotency) => new Invoices(idempotency), [firstwrite.idempotency]);
    },
    "decorate()": (container) => {
      class Decorated extends Invoices {}
      decorate(injectable(), Decorated);
      decorate(inject(firstwrite.idempotency), Decorated, 0);
      container.bind<Invoices>(Invoices).to(Decorated);
    },
  };
  for (const [way, bindInvoices] of Object.entries(bindings)) {
    it(`in a test, its store is memory in two lines (${way})`, async () => {
      const container = new Container();
      await container.loadAsync(firstwriteModule({ store: "s3://acme-idempotency/prod?region=eu-west-1" }));
      bindInvoices(container);

      const store = new MemoryStore();
      (await container.rebindAsync(firstwrite.store)).toConstantValue(store);

      const invoices = await container.getAsync(Invoices);
      store.inject("lostReply");
      assert.equal(await invoices.numberOf("1001"), await invoices.numberOf("1001"));
      await container.unbindAllAsync();
    });
  }
});
