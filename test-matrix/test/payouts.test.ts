/** What the payout service needs of PostgreSQL, on a real one. */

import assert from "node:assert/strict";
import { channel } from "node:diagnostics_channel";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { LedgerUnavailableError, openLedger } from "@firstwrite/payouts";
import { PostgresLedger } from "@firstwrite/payouts/postgres";
import { ledgerSuite, type LedgerPlace } from "@firstwrite/payouts/ledger-suite";
import { Client } from "pg";

import { allPoints, payoutStorm } from "../src/payouts-storm/storm.ts";
import { CannotRun, rowId, type Provisioned } from "../src/row.ts";
import { rows, selectRows } from "../src/rows.ts";
import { startPostgres, type PostgresServer } from "../src/servers/postgres.ts";

const couldNotRun = channel("firstwrite:matrix:could-not-run");
const LEDGER_ROW = "PostgreSQL";
const OPERATIONS = 60;
const asked = selectRows(process.env["FIRSTWRITE_ROWS"]).map(rowId);

/** What is started before a row's tests; said by name where this machine has not got what it takes. */
function provisions<Thing>(
  row: string,
  start: () => Promise<Thing>,
  end: (thing: Thing) => Promise<void>,
): () => Thing {
  let thing: { readonly started: Thing } | undefined;
  before(`starts ${row}`, async function () {
    this.timeout(15 * 60_000);
    try {
      thing = { started: await start() };
    } catch (error) {
      if (!(error instanceof CannotRun)) throw error;
      couldNotRun.publish({ row, reason: error.message });
      if (process.env["CI"] === "true") throw error;
      this.skip();
    }
  });
  after(`ends ${row}`, async () => {
    if (thing !== undefined) await end(thing.started);
  });
  return () => {
    assert.ok(thing !== undefined);
    return thing.started;
  };
}

const startServer = (): Promise<PostgresServer> => startPostgres("FIRSTWRITE_POSTGRES_URL");

describe("matrix", () => {
  describe(LEDGER_ROW, () => {
    const server = provisions(LEDGER_ROW, startServer, (started) => started.stop());
    const makeDatabase = (): Promise<string> => server().makeDatabase();

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

      it("gives up in time when every connection is taken, and gives back what comes late", async () => {
        const url = await makeDatabase();
        const ledger = await PostgresLedger.open({ url, connectionsMax: 1 });
        const other = new Client({ connectionString: url });
        await other.connect();
        await other.query("BEGIN");
        await other.query("LOCK TABLE payout_fences");
        const holding = ledger.shutOut("op", 1, { remainingMs: 2_000 });
        const startedAt = performance.now();
        await assert.rejects(ledger.findByOperation("op", { remainingMs: 200 }), /was free in time/);
        assert.ok(performance.now() - startedAt < 1_500, "within the time it had");
        await other.query("COMMIT");
        await other.end();
        assert.equal(await holding, undefined);
        assert.equal(await ledger.findByOperation("op", { remainingMs: 2_000 }), undefined, "and then goes on");
        await ledger.close();
      });

      it("tells of a server that is not there, without its password", async () => {
        await assert.rejects(
          openLedger("postgres://firstwrite:secret@127.0.0.1:1/none"),
          (error) => LedgerUnavailableError.is(error) && !/secret/.test(String(error.stack)),
        );
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

  const storms: readonly [store: string, ledger: "SQLite" | "the same file" | "PostgreSQL"][] = [
    ["sqlite", "SQLite"],
    ["sqlite", "the same file"],
    ["versitygw", "PostgreSQL"],
    ["fake-gcs-server-memory", "PostgreSQL"],
    ["azurite", "PostgreSQL"],
  ];
  for (const [id, ledgerName] of storms) {
    const row = rows.find((candidate) => rowId(candidate) === id);
    assert.ok(row !== undefined, id);
    if (!asked.includes(id)) continue;
    const name = `payouts: ${row.name} + ${ledgerName}`;
    describe(name, () => {
      describe("payout storm", () => {
        const place = provisions<Provisioned>(
          name,
          () => row.provision(),
          (provisioned) => provisioned.close(),
        );
        const ledgerUrl = {
          SQLite: sqliteUrl,
          "the same file": () => async () => storeUrlOf(place()),
          PostgreSQL: () => postgresUrl(provisions(name, startServer, (started) => started.stop())),
        }[ledgerName]();
        // There is no write to settle with where the ledger's transaction has done it.
        const points = allPoints.filter((point) => point !== "settling" || ledgerName !== "the same file");

        it(`${OPERATIONS} operations, processes killed at named points and at random: one payout each, and every answer the same`, async function () {
          this.timeout(400_000);
          const { env = {}, open } = place();
          const result = await payoutStorm({
            storeUrl: storeUrlOf(place()),
            env,
            ledgerUrl: await ledgerUrl(),
            openStore: open,
            operations: OPERATIONS,
            points,
            withinMs: 300_000,
          });
          console.log(`      ${JSON.stringify(result)}`);
        });
      });
    });
  }
});

function storeUrlOf({ url }: Provisioned): string {
  assert.ok(url !== undefined);
  return url;
}

function postgresUrl(server: () => PostgresServer): () => Promise<string> {
  return () => server().makeDatabase();
}

function sqliteUrl(): () => Promise<string> {
  let folder: string | undefined;
  after("removes the ledger", async () => {
    if (folder !== undefined) await rm(folder, { recursive: true, force: true });
  });
  return async () => {
    folder = await mkdtemp(join(tmpdir(), "firstwrite-payouts-storm-"));
    return `sqlite:${join(folder, "ledger.db")}`;
  };
}
