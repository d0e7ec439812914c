// An application's class with decorators. Node does not run decorators as they are: `tsc` builds this, and
// decorators.test.ts runs what it built.
import "reflect-metadata";

import { defineReservation, type Idempotency } from "@firstwrite/core";
import { firstwrite, firstwriteModule } from "@firstwrite/inversify";
import { MemoryStore } from "@firstwrite/memory";
import { Container, inject, injectable } from "inversify";

const number = defineReservation<string>({ name: "invoice.number" });

@injectable()
class Invoices {
  constructor(@inject(firstwrite.idempotency) private readonly idempotency: Idempotency) {}

  async numberOf(order: string): Promise<string> {
    const choose = ({ operationId }: { operationId: string }) => ({ value: `INV-${operationId}` });
    return (await this.idempotency.reserve(number, { scope: "invoices", key: order }, order, choose)).value;
  }
}

const container = new Container();
await container.loadAsync(firstwriteModule({ store: new MemoryStore() }));
container.bind(Invoices).toSelf();
const invoices = await container.getAsync(Invoices);
console.log((await invoices.numberOf("1001")) === (await invoices.numberOf("1001")));
