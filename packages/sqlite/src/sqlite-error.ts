/** What a SQLite result code says of a statement: https://www.sqlite.org/rescode.html */

import { StoreError, type StoreErrorCode } from "@firstwrite/core";

const BUSY = 5;

/** Codes after which nothing was written, and what to do about each. */
const CERTAIN: ReadonlyMap<number, readonly [StoreErrorCode, string]> = new Map([
  [3, ["PERMISSION_DENIED", "the file may not be accessed"]], // PERM
  [7, ["UNAVAILABLE", "out of memory"]], // NOMEM
  [8, ["PERMISSION_DENIED", "the file may only be read"]], // READONLY
  [11, ["CORRUPT", "the database file is damaged"]], // CORRUPT
  [13, ["UNAVAILABLE", "the disk is full"]], // FULL: the statement was rolled back
  [14, ["PERMISSION_DENIED", "the file cannot be opened"]], // CANTOPEN
  [18, ["INVALID_ARGUMENT", "the record is longer than SQLite takes"]], // TOOBIG
  [23, ["PERMISSION_DENIED", "the file may not be accessed"]], // AUTH
  [26, ["CORRUPT", "the file is not a database"]], // NOTADB
]);

/** Whether another connection held the lock, in any of BUSY's extended codes. */
export function isBusy(error: unknown): boolean {
  return primaryCode(error) === BUSY;
}

/**
 * The failure as the port says it, where it is certain that nothing was written; `undefined` where it is not, as after
 * IOERR: a failed sync leaves it open whether the transaction is there after the next recovery.
 */
export function certainError(error: unknown): StoreError | undefined {
  if (StoreError.is(error)) return error;
  const [code, message] = CERTAIN.get(primaryCode(error) ?? -1) ?? [];
  if (code !== undefined && message !== undefined) return new StoreError(code, "sqlite", message, { cause: error });
  if (isNodeError(error, "ERR_INVALID_STATE")) {
    return new StoreError("UNAVAILABLE", "sqlite", "the store was closed", { cause: error });
  }
  if (isNodeError(error, "EACCES") || isNodeError(error, "EPERM") || isNodeError(error, "EROFS")) {
    return new StoreError("PERMISSION_DENIED", "sqlite", "the folder may not be written", { cause: error });
  }
  return undefined;
}

/** An extended code carries its primary code in the low byte. */
function primaryCode(error: unknown): number | undefined {
  if (!isNodeError(error, "ERR_SQLITE_ERROR")) return undefined;
  return "errcode" in error && typeof error.errcode === "number" ? error.errcode & 0xff : undefined;
}

function isNodeError(error: unknown, code: string): error is Error & { code: string } {
  return error instanceof Error && "code" in error && error.code === code;
}
