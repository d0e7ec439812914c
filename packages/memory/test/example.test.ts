import assert from "node:assert/strict";
import { days, defineReservation, Idempotency, StoreError, type IdempotencyOptions } from "@firstwrite/core";
import { MemoryStore, settle, VirtualClock } from "@firstwrite/memory";

interface Order {
  readonly article: string;
  readonly count: number;
}

const placeOrder = defineReservation<Order>({ name: "order.place" });

/** The code under test: takes an order once, however often it is sent. */
class Orders {
  readonly #idempotency: Idempotency;

  constructor(options: IdempotencyOptions) {
    this.#idempotency = new Idempotency(options);
  }

  /** The order's number, the same for every sending of the request. */
  async place(requestId: string, order: Order): Promise<string> {
    const { value } = await this.#idempotency.reserve(
      placeOrder,
      { scope: "shop", key: requestId },
      order,
      ({ operationId }) => ({ value: operationId, fields: { order: { ...order } } }),
    );
    return value;
  }
}

const tea: Order = { article: "tea", count: 2 };

describe("example: unit tests of code that must be idempotent", () => {
  it("a lost reply, then a retry: one order", async () => {
    const store = new MemoryStore();
    const orders = new Orders({ store });

    store.inject("lostReply", { on: "create" });
    const number = await orders.place("request-1", tea);
    const again = await orders.place("request-1", tea);

    assert.equal(again, number);
    assert.equal((await names(store)).length, 1);
  });

  it("the store is away until the deadline, and the request arrives after all: the retry gets that order", async () => {
    const clock = new VirtualClock();
    const store = new MemoryStore({ clock });
    const orders = new Orders({ store, runtime: clock });

    store.inject("landsLate", { on: "create" });
    store.inject("away", { times: Infinity });
    const failed = assert.rejects(orders.place("request-1", tea), (error) => StoreError.is(error));
    await clock.advance(30_000);
    await failed;

    store.heal();
    store.land();
    const [record] = await names(store);
    await orders.place("request-1", tea);
    assert.deepEqual(await names(store), [record]);
  });

  it("a hanging request is given up after ten seconds, and sent again", async () => {
    const clock = new VirtualClock();
    const store = new MemoryStore({ clock });
    const orders = new Orders({ store, runtime: clock });

    store.inject("hangs", { on: "create" });
    const call = orders.place("request-1", tea);
    await settle();
    assert.equal((await names(store)).length, 0);
    await clock.advance(11_000);
    await call;
    assert.equal((await names(store)).length, 1);
  });

  it("after thirty days the same request is a new order", async () => {
    const clock = new VirtualClock();
    const orders = new Orders({ store: new MemoryStore({ clock }), runtime: clock });

    const number = await orders.place("request-1", tea);
    await clock.advance(days(30));
    assert.equal(await orders.place("request-1", tea), number);
    await clock.advance(1);
    assert.notEqual(await orders.place("request-1", tea), number);
  });
});

async function names(store: MemoryStore): Promise<string[]> {
  const found: string[] = [];
  for await (const { name } of store.list("")) found.push(name);
  return found;
}
