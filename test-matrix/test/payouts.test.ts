/** What the payout service needs of PostgreSQL, on a real one. */

import assert from "node:assert/strict";
import { channel } from "node:diagnostics_channel";

import { LedgerUnavailableError, openLedger } from "@firstwrite/payouts";
import { ledgerSuite, type LedgerPlace } from "@firstwrite/payouts/ledger-suite";
import { Client } from "pg";

import { CannotRun } from "../src/row.ts";
import { startPostgres, type PostgresServer } from "../src/servers/postgres.ts";

const couldNotRun = channel("firstwrite:matrix:could-not-run");
const ROW = "PostgreSQL";

describe("matrix", () => {
  describe(ROW, () => {
    let server: PostgresServer | undefined;

    before(`starts ${ROW}`, async function () {
      this.timeout(5 * 60_000);
      try {
        server = await startPostgres("FIRSTWRITE_POSTGRES_URL");
      } catch (error) {
        if (!(error instanceof CannotRun)) throw error;
        couldNotRun.publish({ row: ROW, reason: error.message });
        if (process.env["CI"] === "true") throw error;
        this.skip();
      }
    });
    after(`ends ${ROW}`, async () => server?.stop());

    const makeDatabase = (): Promise<string> => {
      assert.ok(server !== undefined);
      return server.makeDatabase();
    };

    describe("payout ledger", () => {
      ledgerSuite({ it }, async (): Promise<LedgerPlace> => {
        const url = await makeDatabase();
        return { open: (told) => openLedger(url, told), close: async () => {} };
      });

      it("gives up in time when somebody holds the rows, and has paid nothing", async () => {
        const url = await makeDatabase();
        const ledger = await openLedger(url);
        const other = new Client({ connectionString: url });
        await other.connect();
        await other.query("BEGIN");
        await other.query("LOCK TABLE payout_fences");
        const startedAt = performance.now();
        await assert.rejects(ledger.shutOut("op", 1, { remainingMs: 200 }), LedgerUnavailableError.is);
        assert.ok(performance.now() - startedAt < 5_000, "within the time it had");
        await other.query("COMMIT");
        await other.end();
        assert.equal(await ledger.shutOut("op", 1, { remainingMs: 5_000 }), undefined, "and then goes on");
        await ledger.close();
      });

      it("says nothing of a row in the error for one that the server refuses", async () => {
        const url = await makeDatabase();
        const ledger = await openLedger(url);
        const other = new Client({ connectionString: url });
        await other.connect();
        await other.query("ALTER TABLE payouts ADD CHECK (amount_minor <> 4711)");
        await ledger.fund("acme", "EUR", 1_000_00, "opening");
        await ledger.putDestination("acct_secret", "EUR", "open");
        const order = {
          operationId: "op",
          attempt: 1,
          merchantId: "acme",
          keyHash: "sha256:0",
          amountMinor: 4711,
          currency: "EUR",
          destination: "acct_secret",
          createdAt: 0,
        } as const;
        await assert.rejects(ledger.commit(order, { remainingMs: 5_000 }), (error) => {
          assert.ok(LedgerUnavailableError.is(error));
          const told = JSON.stringify([error.message, error, error.cause, Object.entries(error)]);
          assert.ok(told.includes("23514"), told);
          assert.ok(!/4711|acct_secret/.test(told), told);
          return true;
        });
        await other.end();
        await ledger.close();
      });

      it("is made by several processes at once", async () => {
        const url = await makeDatabase();
        const ledgers = await Promise.all(Array.from({ length: 5 }, () => openLedger(url)));
        for (const ledger of ledgers) await ledger.close();
      });
    });
  });
});
