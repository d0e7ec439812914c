import assert from "node:assert/strict";
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync, StatementSync } from "node:sqlite";

import { StoreError, toVersion, type StoreErrorCode, type WriteOutcome } from "@firstwrite/core";
import { SqliteStore } from "@firstwrite/sqlite";

describe("SqliteStore", () => {
  let folder: string;
  let path: string;
  const opened: SqliteStore[] = [];

  const open = async (options: { busyTimeoutMs?: number } = {}): Promise<SqliteStore> => {
    const store = await SqliteStore.open({ path, ...options });
    opened.push(store);
    return store;
  };

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "firstwrite-sqlite-"));
    path = join(folder, "deep", "store.db");
  });
  afterEach(async () => {
    for (const store of opened.splice(0)) await store.close();
    rmSync(folder, { recursive: true, force: true });
  });

  it("keeps records in the file, for the next process that opens it", async () => {
    const first = await open();
    const written = await first.create("a", Buffer.from("one"));
    assert.equal(written.kind, "written");
    await first.close();
    const record = await (await open()).read("a");
    assert.deepEqual(record && Buffer.from(record.bytes).toString(), "one");
    assert.equal(record?.version, written.kind === "written" && written.version);
  });

  it("uses WAL and synchronous=FULL: what is answered is on the disk", async () => {
    const executed: string[] = [];
    const original = DatabaseSync.prototype.exec;
    DatabaseSync.prototype.exec = function exec(sql) {
      executed.push(sql);
      original.call(this, sql);
    };
    try {
      await open();
    } finally {
      DatabaseSync.prototype.exec = original;
    }
    // A connection's own setting, which no other connection can see.
    assert.ok(executed.includes("PRAGMA synchronous = FULL"), executed.join("; "));
    const other = new DatabaseSync(path);
    assert.equal(other.prepare("PRAGMA journal_mode").get()?.["journal_mode"], "wal");
    other.close();
  });

  it("lets the event loop turn between calls: timers, signals and sockets do not starve", async () => {
    const store = await open();
    let turns = 0;
    const turning = setInterval(() => (turns += 1), 0);
    const calls = 200;
    for (let index = 0; index < calls; index += 1) await store.create(`n${index}`, Buffer.from("x"));
    clearInterval(turning);
    assert.ok(turns > calls / 20, `${turns} turns in ${calls} calls`);
  });

  it("never gives a version twice, though the bytes come back", async () => {
    const store = await open();
    const versions = new Set<string>();
    let outcome = await store.create("a", Buffer.from("0"));
    for (let round = 1; round <= 50; round += 1) {
      assert.ok(outcome.kind === "written");
      versions.add(outcome.version);
      outcome = await store.replace("a", outcome.version, Buffer.from(String(round % 2)));
    }
    assert.equal(versions.size, 50);
  });

  describe("another connection holds the lock", () => {
    let holder: DatabaseSync;
    beforeEach(async () => {
      await open();
      holder = new DatabaseSync(path);
      holder.exec("BEGIN IMMEDIATE");
    });
    afterEach(() => holder.close());

    it("a write waits busyTimeoutMs, then is contended, and nothing is written", async () => {
      const store = await open({ busyTimeoutMs: 30 });
      assert.deepEqual(await store.create("a", Buffer.from("x")), { kind: "contended" });
      assert.deepEqual(await store.replace("a", toVersion("v"), Buffer.from("x")), { kind: "contended" });
      holder.exec("ROLLBACK");
      assert.equal(await store.read("a"), undefined);
    });

    it("a write goes through as soon as the lock is free, and the event loop turns meanwhile", async () => {
      const store = await open();
      let turns = 0;
      const turning = setInterval(() => (turns += 1), 1);
      const write = store.create("a", Buffer.from("x"));
      await new Promise((resolve) => setTimeout(resolve, 40));
      holder.exec("ROLLBACK");
      assert.equal((await write).kind, "written");
      clearInterval(turning);
      assert.ok(turns > 2, `${turns} turns of the event loop`);
    });

    it("a read does not wait for a writer", async () => {
      const store = await open({ busyTimeoutMs: 0 });
      assert.equal(await store.read("a"), undefined);
    });

    it("an abort ends the waiting", async () => {
      const store = await open({ busyTimeoutMs: 60_000 });
      const abort = new AbortController();
      const write = store.create("a", Buffer.from("x"), { signal: abort.signal });
      setTimeout(() => abort.abort(), 20);
      assert.deepEqual(await write, { kind: "contended" });
    });
  });

  describe("on a connection of somebody else's", () => {
    it("keeps its records there, and leaves it open", async () => {
      await (await open()).close();
      const database = new DatabaseSync(path, { timeout: 0 });
      const store = await SqliteStore.open({ database });
      assert.equal((await store.create("a", Buffer.from("one"))).kind, "written");
      await store.close();
      assert.ok(database.isOpen);
      database.close();
      assert.ok((await (await open()).read("a")) !== undefined);
    });

    it("replaces a record within its transaction, or says that it is another's, and is rolled back with it", async () => {
      await (await open()).close();
      const database = new DatabaseSync(path, { timeout: 0 });
      const store = await SqliteStore.open({ database });
      const written = await store.create("a", Buffer.from("one"));
      assert.ok(written.kind === "written");
      assert.throws(
        () => store.replaceWithin("a", written.version, Buffer.from("two")),
        (error) => StoreError.is(error) && /is for an open transaction/.test(error.message),
      );
      database.exec("BEGIN IMMEDIATE");
      assert.ok(!store.replaceWithin("a", toVersion("another"), Buffer.from("two")));
      assert.ok(store.replaceWithin("a", written.version, Buffer.from("two")));
      database.exec("ROLLBACK");
      assert.equal((await store.read("a"))?.version, written.version);
      database.exec("BEGIN IMMEDIATE");
      assert.ok(store.replaceWithin("a", written.version, Buffer.from("two")));
      database.exec("COMMIT");
      const record = await store.read("a");
      assert.equal(record && Buffer.from(record.bytes).toString(), "two");
      assert.notEqual(record?.version, written.version);
      database.close();
    });

    it("waits for its transaction: what was written in it would be rolled back with it", async () => {
      await (await open()).close();
      const database = new DatabaseSync(path, { timeout: 0 });
      const store = await SqliteStore.open({ database, busyTimeoutMs: 50 });
      database.exec("BEGIN IMMEDIATE");
      assert.deepEqual(await store.create("a", Buffer.from("one")), { kind: "contended" });
      await assert.rejects(store.read("a"), (error) => StoreError.is(error) && error.code === "UNAVAILABLE");
      const waiting = store.create("a", Buffer.from("two"));
      setTimeout(() => database.exec("ROLLBACK"), 20);
      assert.equal((await waiting).kind, "written");
      assert.ok((await store.read("a")) !== undefined);
      database.close();
    });

    it("is opened when its transaction is over, too: what was prepared in it would be rolled back with it", async () => {
      const database = new DatabaseSync(join(folder, "own.db"), { timeout: 0 });
      database.exec("PRAGMA journal_mode = WAL; BEGIN IMMEDIATE");
      await assert.rejects(
        SqliteStore.open({ database, busyTimeoutMs: 50 }),
        (error) => StoreError.is(error) && error.code === "UNAVAILABLE" && /own transaction/.test(error.message),
      );
      const opening = SqliteStore.open({ database });
      setTimeout(() => database.exec("ROLLBACK"), 20);
      assert.equal((await (await opening).create("a", Buffer.from("one"))).kind, "written");
      database.close();
    });

    it("tells what was written, where the connection reads numbers as bigints and rows as arrays", async () => {
      await (await open()).close();
      const database = new DatabaseSync(path, { timeout: 0, readBigInts: true, returnArrays: true });
      const store = await SqliteStore.open({ database });
      const written = await store.create("a", Buffer.from("one"));
      assert.ok(written.kind === "written");
      assert.equal((await store.read("a"))?.version, written.version);
      database.exec("BEGIN IMMEDIATE");
      assert.ok(store.replaceWithin("a", written.version, Buffer.from("two")));
      database.exec("COMMIT");
      const names: string[] = [];
      for await (const { name } of store.list("")) names.push(name);
      assert.deepEqual(names, ["a"]);
      database.close();
    });
  });

  describe("what it refuses, and says", () => {
    const refusals: [string, () => Promise<unknown>, StoreErrorCode, RegExp][] = [
      ["neither a path nor a connection", () => SqliteStore.open({}), "INVALID_ARGUMENT", /must name a file/],
      [
        "both a path and a connection",
        () => SqliteStore.open({ path, database: new DatabaseSync(":memory:") }),
        "INVALID_ARGUMENT",
        /give path or database/,
      ],
      ["no path", () => SqliteStore.open({ path: "" }), "INVALID_ARGUMENT", /must name a file/],
      ["memory alone", () => SqliteStore.open({ path: ":memory:" }), "INVALID_ARGUMENT", /MemoryStore/],
      ["a negative timeout", () => SqliteStore.open({ path, busyTimeoutMs: -1 }), "INVALID_ARGUMENT", /busyTimeoutMs/],
      ["a folder as file", () => SqliteStore.open({ path: folder }), "PERMISSION_DENIED", /cannot be opened/],
      // mkdir's own recursion would go on for ever here.
      [
        "a folder that cannot be made",
        () => SqliteStore.open({ path: "/proc/none/x.db" }),
        "UNAVAILABLE",
        /cannot be opened/,
      ],
      ["a bad name", async () => (await open()).create("a//b", Buffer.from("x")), "INVALID_ARGUMENT", /empty segment/],
    ];
    for (const [title, act, code, message] of refusals) {
      it(`${title}: ${code}`, async () => {
        await assert.rejects(
          act,
          (error) => StoreError.is(error) && error.code === code && message.test(error.message),
        );
      });
    }

    it("a file that is no database: CORRUPT", async () => {
      path = join(folder, "text.db");
      writeFileSync(path, "this is not a database, and long enough to have a header".repeat(20));
      await assert.rejects(open(), (error) => StoreError.is(error) && error.code === "CORRUPT");
    });

    it("a closed store: UNAVAILABLE; closing twice is nothing", async () => {
      const store = await open();
      await store.close();
      await store.close();
      await assert.rejects(store.create("a", Buffer.from("x")), isUnavailable);
      await assert.rejects(store.read("a"), isUnavailable);
    });

    // https://www.sqlite.org/rescode.html; the second is an extended code.
    const failures: [string, number, StoreErrorCode | "unknown"][] = [
      ["READONLY", 8, "PERMISSION_DENIED"],
      ["READONLY_DBMOVED", 1032, "PERMISSION_DENIED"],
      ["FULL", 13, "UNAVAILABLE"],
      ["NOMEM", 7, "UNAVAILABLE"],
      ["TOOBIG", 18, "INVALID_ARGUMENT"],
      ["CORRUPT", 11, "CORRUPT"],
      ["IOERR", 10, "unknown"],
      ["IOERR_FSYNC", 1034, "unknown"],
      ["a code it does not know", 99, "unknown"],
    ];
    for (const [name, errcode, expected] of failures) {
      it(`${name} at a write: ${expected}`, async () => {
        const store = await open();
        const original = StatementSync.prototype.run;
        StatementSync.prototype.run = () => {
          throw Object.assign(new Error(name), { code: "ERR_SQLITE_ERROR", errcode });
        };
        try {
          const write = store.create("a", Buffer.from("x"));
          if (expected === "unknown") assert.equal((await write).kind, "unknown");
          else await assert.rejects(write, (error) => StoreError.is(error) && error.code === expected);
        } finally {
          StatementSync.prototype.run = original;
        }
      });
    }
  });

  it("lists more than one page in order, and only what begins with the prefix", async () => {
    const store = await open();
    for (let index = 0; index < 1_203; index += 1) await store.create(`p/${index}`, Buffer.from("x"));
    await store.create("o/1", Buffer.from("x"));
    await store.create("q/1", Buffer.from("x"));
    const names: string[] = [];
    for await (const { name } of store.list("p/")) names.push(name);
    assert.equal(names.length, 1_203);
    assert.equal(new Set(names).size, 1_203);
    assert.deepEqual(names, names.toSorted());
  });

  describe("several processes on one file", () => {
    const children: ChildProcess[] = [];
    const start = (): ChildProcess => {
      const child = fork(new URL("writer.ts", import.meta.url), [path, "counter"], { execArgv: process.execArgv });
      children.push(child);
      return child;
    };
    afterEach(() => {
      for (const child of children.splice(0)) child.kill("SIGKILL");
    });

    it("one is killed by SIGKILL while it writes, again and again: no answered write is lost, none is done twice", async function () {
      this.timeout(60_000);
      await (await open()).close();
      const answered: number[] = [];
      const watch = (child: ChildProcess): void => {
        child.on("message", (count) => answered.push(Number(count)));
      };
      const steady = start();
      watch(steady);
      for (let kills = 0; kills < 5; kills += 1) {
        const victim = start();
        watch(victim);
        // In the middle of its writes: after a few of its own answers.
        for (let seen = 0; seen < 3; seen += 1) await once(victim, "message");
        victim.kill("SIGKILL");
        await Promise.all([once(victim, "exit"), once(victim, "disconnect")]);
      }
      await once(steady, "message");
      steady.kill("SIGKILL");
      await Promise.all([once(steady, "exit"), once(steady, "disconnect")]);

      assert.equal(new Set(answered).size, answered.length, "no two processes were told the same count");
      const record = await (await open()).read("counter");
      const count = Number(JSON.parse(Buffer.from(record?.bytes ?? []).toString()).count);
      const last = Math.max(...answered);
      assert.ok(count >= last, `the counter is ${count}, and ${last} was answered`);
      // Each of the six kills may have cut off at most the answer to one write that was done.
      assert.ok(count - answered.length <= 6, `${count} counted, ${answered.length} answered`);
      const check = new DatabaseSync(path);
      assert.equal(check.prepare("PRAGMA integrity_check").get()?.["integrity_check"], "ok");
      check.close();
    });

    it("creators in two connections: exactly one is told written", async () => {
      const stores = [await open(), await open()];
      for (let round = 0; round < 20; round += 1) {
        const outcomes: WriteOutcome[] = await Promise.all(
          Array.from({ length: 16 }, (_, index) => {
            const store = stores[index % stores.length];
            assert.ok(store);
            return store.create(`race/${round}`, Buffer.from(String(index)));
          }),
        );
        assert.equal(outcomes.filter(({ kind }) => kind === "written").length, 1);
        assert.equal(outcomes.filter(({ kind }) => kind === "refused").length, 15);
      }
    });
  });
});

function isUnavailable(error: unknown): boolean {
  return StoreError.is(error) && error.code === "UNAVAILABLE";
}
