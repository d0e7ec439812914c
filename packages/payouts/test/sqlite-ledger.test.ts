import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

import { InvalidArgumentError } from "@firstwrite/core";
import { LedgerUnavailableError, openLedger, SqliteLedger } from "@firstwrite/payouts";
import { ledgerSuite, type LedgerPlace } from "@firstwrite/payouts/ledger-suite";

async function newPlace(): Promise<LedgerPlace & { readonly path: string }> {
  const folder = await mkdtemp(join(tmpdir(), "firstwrite-ledger-"));
  const path = join(folder, "below", "ledger.db");
  return {
    path,
    open: (told) => openLedger(`sqlite:${path}`, told),
    close: () => rm(folder, { recursive: true, force: true }),
  };
}

describe("the ledger in SQLite", () => {
  ledgerSuite({ it }, newPlace);

  it("gives up in time when another process holds the file, and has paid nothing", async () => {
    const place = await newPlace();
    const ledger = await place.open();
    const other = new DatabaseSync(place.path);
    other.exec("BEGIN IMMEDIATE");
    const startedAt = performance.now();
    await assert.rejects(ledger.shutOut("op", 1, { remainingMs: 50 }), LedgerUnavailableError.is);
    assert.ok(performance.now() - startedAt < 2_000, "within the time it had");
    other.exec("COMMIT");
    assert.equal(await ledger.shutOut("op", 1, { remainingMs: 50 }), undefined, "and then goes on");
    other.close();
    await ledger.close();
    await place.close();
  });

  it("finds an entry that was changed by hand, and says so without an amount", async () => {
    const place = await newPlace();
    const ledger = await place.open();
    await ledger.fund("acme", "EUR", 123_45, "opening");
    const other = new DatabaseSync(place.path);
    other.exec("UPDATE payout_entries SET amount_minor = 99999 WHERE account = 'merchant:acme'");
    other.close();
    const { faults } = await ledger.audit();
    assert.deepEqual(faults, [
      "the entries of transaction fund:acme:opening do not sum to zero",
      "1 accounts have a balance that is not the sum of their entries",
    ]);
    await ledger.close();
    await place.close();
  });

  it("works on a connection of somebody else's, and leaves it open", async () => {
    const place = await newPlace();
    await (await place.open()).close();
    const database = new DatabaseSync(place.path, { timeout: 0, readBigInts: true, returnArrays: true });
    const ledger = await SqliteLedger.open({ database });
    await ledger.fund("acme", "EUR", 1, "opening");
    assert.equal((await ledger.audit()).balances.find(({ account }) => account === "merchant:acme")?.minor, 1n);
    await ledger.close();
    assert.ok(database.isOpen);
    database.close();
    await place.close();
  });
});

describe("openLedger", () => {
  for (const url of ["", "ledger.db", "mysql://secret@host/db", "sqlite:"]) {
    it(`refuses ${JSON.stringify(url)} with what to write, and does not repeat it`, async () => {
      await assert.rejects(
        openLedger(url),
        (error) =>
          InvalidArgumentError.is(error) &&
          /sqlite:PATH or postgres:/.test(error.message) &&
          !/secret/.test(error.message),
      );
    });
  }
});
