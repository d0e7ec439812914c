import { DatabaseSync } from "node:sqlite";

/** A row of the ledger: one payment that was made. */
export interface Payment {
  readonly operationId: string;
  readonly key: string;
  readonly amount: number;
  /** The attempt that made it. */
  readonly attempt: number;
}

/** An attempt came to the ledger after a later one had asked whether it had. */
class FencedError extends Error {}

/**
 * A ledger in one SQLite file that several processes share: one row per operation ID, and, for those who ask for it, fenced
 * by the attempt.
 */
export class Ledger {
  readonly #database: DatabaseSync;

  constructor(path: string) {
    this.#database = new DatabaseSync(path, { timeout: 10_000 });
    this.#database.exec(`
      PRAGMA journal_mode = WAL;
      CREATE TABLE IF NOT EXISTS payments (operation_id TEXT PRIMARY KEY, key TEXT NOT NULL, amount INTEGER NOT NULL,
        attempt INTEGER NOT NULL) STRICT;
      CREATE TABLE IF NOT EXISTS fences (operation_id TEXT PRIMARY KEY, attempt INTEGER NOT NULL) STRICT;
    `);
  }

  /** Commits the payment, or returns the one that this operation made before. @throws {FencedError} */
  commit({ operationId, key, amount, attempt }: Payment): Payment {
    return this.#immediately(() => {
      const known = this.find(operationId);
      if (known !== undefined) return known;
      if (this.#fenceOf(operationId) > attempt) throw new FencedError("a later attempt has asked for it");
      this.#database.prepare("INSERT INTO payments VALUES (?, ?, ?, ?)").run(operationId, key, amount, attempt);
      return { operationId, key, amount, attempt };
    });
  }

  find(operationId: string): Payment | undefined {
    const row = this.#database
      .prepare("SELECT key, amount, attempt FROM payments WHERE operation_id = ?")
      .get(operationId);
    if (row === undefined) return undefined;
    return { operationId, key: String(row["key"]), amount: Number(row["amount"]), attempt: Number(row["attempt"]) };
  }

  /** As {@link find}, after it has shut out every attempt below `attempt`. */
  findFenced(operationId: string, attempt: number): Payment | undefined {
    return this.#immediately(() => {
      if (this.#fenceOf(operationId) < attempt) {
        this.#database.prepare("INSERT OR REPLACE INTO fences VALUES (?, ?)").run(operationId, attempt);
      }
      return this.find(operationId);
    });
  }

  /** Every payment. */
  all(): Payment[] {
    const rows = this.#database.prepare("SELECT operation_id FROM payments").all();
    return rows.flatMap((row) => this.find(String(row["operation_id"])) ?? []);
  }

  close(): void {
    this.#database.close();
  }

  #fenceOf(operationId: string): number {
    const row = this.#database.prepare("SELECT attempt FROM fences WHERE operation_id = ?").get(operationId);
    return Number(row?.["attempt"] ?? 0);
  }

  /** With the write lock from the start: two that read first and then write would refuse each other. */
  #immediately<Result>(work: () => Result): Result {
    this.#database.exec("BEGIN IMMEDIATE");
    try {
      const result = work();
      this.#database.exec("COMMIT");
      return result;
    } catch (error) {
      this.#database.exec("ROLLBACK");
      throw error;
    }
  }
}
