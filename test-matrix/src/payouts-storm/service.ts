/**
 * One process of the storm on the payout service: serves, and kills itself at the named points as often as it is told.
 *
 *     node service.ts '{"storeUrl": …, "ledgerUrl": …, "port": …, "dies": {"committed": 0.1}}'
 */

import { Merchants, openPlaces, startPayoutServer, type PayoutPoint } from "@firstwrite/payouts";

export interface ServiceOrder {
  readonly storeUrl: string;
  readonly ledgerUrl: string;
  readonly port: number;
  readonly apiKeySha256: string;
  /** By point, the part of the times that it is reached at which the process dies. */
  readonly dies: Partial<Readonly<Record<PayoutPoint, number>>>;
}

/** A line of its output: it listens, it took an operation over, or it dies now. */
export type ServiceLine = "up" | `dies ${PayoutPoint}`;

const order: ServiceOrder = JSON.parse(process.argv[2] ?? "");
const { store, openLedger } = await openPlaces(order.storeUrl, order.ledgerUrl);
await startPayoutServer({
  store,
  openLedger,
  merchants: new Merchants([{ id: "acme", apiKeySha256: order.apiKeySha256 }]),
  port: order.port,
  waitMs: 500,
  budgetMs: 5_000,
  sweepEveryMs: 0,
  atPoint(point) {
    if (Math.random() >= (order.dies[point] ?? 0)) return;
    print(`dies ${point}`);
    process.kill(process.pid, "SIGKILL");
  },
});
print("up");

/** Standard output is a pipe, which is written to at once; the service's log goes there, too. */
function print(line: ServiceLine): void {
  process.stdout.write(`${line}\n`);
}
