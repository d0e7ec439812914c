import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";

/**
 * Runs `body` while no other process of this machine runs one under the same `file`. The lock is SQLite's on an empty
 * database, which is the kernel's on the file: it is gone with the process that holds it, however that ends, so there is
 * no stale lock to tell from a held one.
 */
export async function withLock<T>(file: string, body: () => Promise<T>): Promise<T> {
  const database = new DatabaseSync(file, { timeout: 0 });
  try {
    while (!tryLock(database)) await delay(100);
    return await body();
  } finally {
    database.close();
  }
}

function tryLock(database: DatabaseSync): boolean {
  try {
    database.exec("BEGIN EXCLUSIVE");
    return true;
  } catch (error) {
    const SQLITE_BUSY = 5;
    if (error instanceof Error && "errcode" in error && error.errcode === SQLITE_BUSY) return false;
    throw error;
  }
}
