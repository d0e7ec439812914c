import { randomBytes } from "node:crypto";
import { join } from "node:path";

import { pino } from "pino";

import { Merchants, sha256Hex } from "./merchants.ts";
import { openOneDatabase } from "./one-database.ts";
import { startPayoutServer } from "./server.ts";
import { untilStopped } from "./until-stopped.ts";

const API_KEY = "sk_demo_acme";

/** A service with a merchant that has money, for trying out. Its log goes to standard error. */
export async function demo({ folder, port }: { readonly folder: string; readonly port: number }): Promise<void> {
  const { store, openLedger, close } = await openOneDatabase(join(folder, "payouts.db"));
  try {
    const server = await startPayoutServer({
      store,
      openLedger,
      merchants: new Merchants([{ id: "acme", apiKeySha256: sha256Hex(API_KEY) }]),
      port,
      logger: pino({ base: null }, pino.destination(2)),
    });
    try {
      // Once, however often it is started.
      await server.ledger.fund("acme", "EUR", 1_000_000_00, "demo");
      await server.ledger.putDestination("acct_1", "EUR", "open");
      console.log(whatToTry(server.url));
      await untilStopped();
    } finally {
      await server.close();
    }
  } finally {
    close();
  }
}

function whatToTry(url: string): string {
  const key = uuidV7(Date.now());
  const curl = (amount: string): string =>
    `curl -iw '\\n' ${url}/v1/payouts -H 'Authorization: Bearer ${API_KEY}' -H 'Idempotency-Key: "${key}"' -H 'Content-Type: application/json' -d '{"amount":"${amount}","currency":"EUR","destination":"acct_1"}'`;
  return [
    `payouts: ${url}, in the account of acme 1000000.00 EUR; Ctrl-C ends it`,
    "",
    "# pay",
    curl("12.50"),
    "# retry: the same answer, and nothing is paid",
    curl("12.50"),
    "# retry with another amount: refused",
    curl("99.00"),
    "",
  ].join("\n");
}

/** RFC 9562 §5.7. */
function uuidV7(ms: number): string {
  const time = ms.toString(16).padStart(12, "0");
  const random = randomBytes(10).toString("hex");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(0, 3)}-8${random.slice(3, 6)}-${random.slice(6, 18)}`;
}
