import { randomUUID } from "node:crypto";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { setImmediate } from "node:timers/promises";

import {
  checkNotAborted,
  checkObjectName,
  checkWrite,
  StoreError,
  toVersion,
  type CallOptions,
  type ConditionalStore,
  type ListedObject,
  type RemoveOutcome,
  type StoredRecord,
  type StoreTraits,
  type Version,
  type WriteOutcome,
} from "@firstwrite/core";

import { openDatabase } from "./open-database.ts";
import { busy, whileBusy } from "./while-busy.ts";
import { certainError } from "./sqlite-error.ts";

export interface SqliteStoreOptions {
  /** The database file; it and its folder are made if they are not there. On a local disk: WAL needs shared memory. */
  readonly path?: string;
  /**
   * In place of `path`: a connection of the caller's, opened with `timeout: 0`, who closes it. While it has a transaction open the
   * store's calls wait, as they do for another process's: what they wrote would be rolled back with it.
   */
  readonly database?: DatabaseSync;
  /**
   * How long a call waits for another process's write, or for the transaction of the caller's connection, before it answers
   * `contended`, in milliseconds. Default 5,000.
   */
  readonly busyTimeoutMs?: number;
}

const STORE = "sqlite";
const PAGE = 500;

/**
 * Records in one SQLite file: durable (`synchronous=FULL`), and safe for several processes of one machine (WAL).
 *
 * The store's clock is the machine's, so a jump of it moves leases and expiry. Each statement blocks the event loop for
 * as long as the disk takes to sync; waiting for another process's lock does not.
 */
export class SqliteStore implements ConditionalStore {
  readonly traits: StoreTraits = {
    name: STORE,
    nameBytesMax: 1024,
    // SQLite's own limit is 1 GB (https://www.sqlite.org/limits.html); a record near that would stop the process.
    recordBytesMax: 64 * 1024 * 1024,
    // One clock stamps both times, in whole milliseconds.
    clockGranularityMs: 1,
  };
  readonly #database: DatabaseSync;
  readonly #owned: boolean;
  readonly #busyTimeoutMs: number;
  readonly #insert: StatementSync;
  readonly #update: StatementSync;
  readonly #select: StatementSync;
  readonly #page: StatementSync;
  readonly #delete: StatementSync;

  /**
   * @throws {StoreError} `PERMISSION_DENIED` for a file that cannot be opened, `CORRUPT` for one that is no database,
   *   `UNSUPPORTED` where WAL cannot be had, `UNAVAILABLE` when other processes hold it for longer than `busyTimeoutMs`.
   */
  static async open(options: SqliteStoreOptions): Promise<SqliteStore> {
    const { path, database: given, busyTimeoutMs = 5_000 } = options;
    if (given !== undefined && path !== undefined) {
      throw new StoreError("INVALID_ARGUMENT", STORE, "give path or database: one of them says where the records are");
    }
    if (given === undefined && (typeof path !== "string" || path === "" || path === ":memory:")) {
      throw new StoreError("INVALID_ARGUMENT", STORE, "path must name a file; for memory alone there is MemoryStore");
    }
    if (!Number.isFinite(busyTimeoutMs) || busyTimeoutMs < 0) {
      throw new StoreError(
        "INVALID_ARGUMENT",
        STORE,
        `busyTimeoutMs is ${busyTimeoutMs}: give milliseconds, 0 or more`,
      );
    }
    const what = path ?? "the database";
    let database: DatabaseSync | undefined;
    try {
      const opened = given ?? openDatabase(path ?? "");
      if (given === undefined) database = opened;
      const prepared = await whileBusy(busyTimeoutMs, undefined, () => (opened.isTransaction ? busy : prepare(opened)));
      if (prepared === busy) throw lockedError(what);
      return new SqliteStore(opened, given === undefined, busyTimeoutMs);
    } catch (error) {
      database?.close();
      throw certainError(error) ?? new StoreError("UNAVAILABLE", STORE, `${what} cannot be opened`, { cause: error });
    }
  }

  private constructor(database: DatabaseSync, owned: boolean, busyTimeoutMs: number) {
    this.#database = database;
    this.#owned = owned;
    this.#busyTimeoutMs = busyTimeoutMs;
    const statement = (sql: string): StatementSync => statementOf(database, sql);
    this.#insert = statement(
      "INSERT INTO firstwrite_records (name, version, modified_at, bytes) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
    );
    this.#update = statement(
      "UPDATE firstwrite_records SET version = ?, modified_at = ?, bytes = ? WHERE name = ? AND version = ?",
    );
    this.#select = statement("SELECT version, modified_at, bytes FROM firstwrite_records WHERE name = ?");
    this.#delete = statement("DELETE FROM firstwrite_records WHERE name = ? AND version = ?");
    this.#page = statement(
      "SELECT name, modified_at FROM firstwrite_records WHERE name > ? OR (? AND name = ?) ORDER BY name LIMIT ?",
    );
  }

  async create(name: string, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    const copy = Uint8Array.from(bytes);
    return this.#put(options, (version, at) => this.#insert.run(name, version, at, copy).changes);
  }

  async replace(name: string, expected: Version, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    const copy = Uint8Array.from(bytes);
    return this.#put(options, (version, at) => this.#update.run(version, at, copy, name, expected).changes);
  }

  async read(name: string, options: CallOptions = {}): Promise<StoredRecord | undefined> {
    checkObjectName(this.traits, name);
    const row = await this.#read(options, () => this.#select.get(name));
    if (row === undefined) return undefined;
    const { version, modified_at: modifiedAt, bytes } = row;
    if (typeof version !== "string" || typeof modifiedAt !== "number" || !(bytes instanceof Uint8Array)) {
      throw new StoreError("CORRUPT", STORE, `the row of ${JSON.stringify(name)} was not written by this store`);
    }
    return { bytes, version: toVersion(version), modifiedAt, readAt: Date.now() };
  }

  async remove(name: string, expected: Version, options: CallOptions = {}): Promise<RemoveOutcome> {
    checkObjectName(this.traits, name);
    return this.#write<RemoveOutcome>(options, () =>
      this.#delete.run(name, expected).changes === 1 ? { kind: "removed" } : { kind: "refused" },
    );
  }

  /** In the order of the names' bytes; each page is a read of its own, so that no iteration holds back a checkpoint. */
  async *list(prefix: string, options: CallOptions = {}): AsyncGenerator<ListedObject, void, void> {
    for (let after = prefix, inclusive = 1; ; inclusive = 0) {
      const rows = await this.#read(options, () => this.#page.all(after, inclusive, after, PAGE));
      for (const { name, modified_at: modifiedAt } of rows) {
        if (typeof name !== "string" || typeof modifiedAt !== "number" || !name.startsWith(prefix)) return;
        yield { name, modifiedAt };
        after = name;
      }
      if (rows.length < PAGE) return;
    }
  }

  /**
   * {@link replace}, at once and within a transaction that the caller has open on this store's own connection: the record and
   * whatever else the transaction has are there together, or not at all. False: the record is not at `expected`, and the caller
   * rolls back.
   *
   * @throws what SQLite throws; the caller's transaction is then to be rolled back, too.
   */
  replaceWithin(name: string, expected: Version, bytes: Uint8Array): boolean {
    checkWrite(this.traits, name, bytes);
    if (!this.#database.isTransaction) {
      throw new StoreError(
        "INVALID_ARGUMENT",
        STORE,
        "replaceWithin is for an open transaction; without one, use replace",
      );
    }
    return this.#update.run(toVersion(randomUUID()), Date.now(), bytes, name, expected).changes === 1;
  }

  async close(): Promise<void> {
    if (this.#owned && this.#database.isOpen) this.#database.close();
  }

  #put(options: CallOptions, statement: (version: Version, at: number) => number | bigint): Promise<WriteOutcome> {
    return this.#write<WriteOutcome>(options, () => {
      const version = toVersion(randomUUID());
      const at = Date.now();
      return statement(version, at) === 1 ? { kind: "written", version, at } : { kind: "refused" };
    });
  }

  /** One statement is one transaction: it is on the disk when it returns, or it has not happened. */
  async #write<Outcome>(options: CallOptions, statement: () => Outcome): Promise<Outcome | Undecided> {
    await turn(this.traits, options);
    try {
      const outcome = await whileBusy(this.#busyTimeoutMs, options.signal, this.#alone(statement));
      return outcome === busy ? { kind: "contended" } : outcome;
    } catch (error) {
      const certain = certainError(error);
      if (certain !== undefined) throw certain;
      return { kind: "unknown", cause: error };
    }
  }

  async #read<Answer>(options: CallOptions, statement: () => Answer): Promise<Answer> {
    await turn(this.traits, options);
    try {
      const answer = await whileBusy(this.#busyTimeoutMs, options.signal, this.#alone(statement));
      if (answer !== busy) return answer;
    } catch (error) {
      throw certainError(error) ?? new StoreError("UNAVAILABLE", STORE, "the file could not be read", { cause: error });
    }
    throw lockedError("the file");
  }

  /** A transaction that its owner has open is not for others to write in, nor is what it has written for others to read. */
  #alone<Answer>(statement: () => Answer): () => Answer | typeof busy {
    return () => (this.#database.isTransaction ? busy : statement());
  }
}

function lockedError(what: string): StoreError {
  return new StoreError(
    "UNAVAILABLE",
    STORE,
    `${what} is locked by another process, or by the connection's own transaction`,
  );
}

/** What a lock or a failed sync makes of a write's outcome, or of a remove's. */
type Undecided = Extract<WriteOutcome, { kind: "contended" | "unknown" }>;

/** Whatever the caller's connection has: 1n is not 1, and what was written would be told as refused. */
function statementOf(database: DatabaseSync, sql: string): StatementSync {
  const statement = database.prepare(sql);
  statement.setReadBigInts(false);
  statement.setReturnArrays(false);
  return statement;
}

/** WAL, so that readers and one writer do not wait for each other; FULL, so that what is answered is on the disk. */
function prepare(database: DatabaseSync): void {
  const mode = statementOf(database, "PRAGMA journal_mode = WAL").get()?.["journal_mode"];
  if (mode !== "wal") {
    throw new StoreError(
      "UNSUPPORTED",
      STORE,
      `the file cannot use WAL (it is "${String(mode)}"): put it on a local disk`,
    );
  }
  database.exec("PRAGMA synchronous = FULL");
  database.exec(
    `CREATE TABLE IF NOT EXISTS firstwrite_records (
       name TEXT PRIMARY KEY NOT NULL,
       version TEXT NOT NULL,
       modified_at INTEGER NOT NULL,
       bytes BLOB NOT NULL
     )`,
  );
}

/**
 * Lets the event loop turn. A statement is done when its promise is made, so that a caller who awaits one after another
 * would otherwise keep timers, signals and sockets waiting for as long as it goes on.
 */
async function turn(traits: StoreTraits, options: CallOptions): Promise<void> {
  checkNotAborted(traits, options);
  await setImmediate();
  checkNotAborted(traits, options);
}
