/** A ledger, as small as one can be: what an operation's effect is had on. */

import { sha256, type Json, type SettlingWrite } from "@firstwrite/core";

import type { ServiceClient } from "./scenario.ts";

/** What the ledger does for those who use it. */
export interface LedgerOptions {
  /** A second row of one operation is refused ({@link DuplicateRowError}). */
  readonly unique?: boolean;
  /** Whoever comes with a lower attempt than the ledger has seen of the operation is refused ({@link FencedError}). */
  readonly fenced?: boolean;
  /**
   * An operation may have its effect twice: as with `recovery: "rerun"` on a ledger that refuses nothing. By default two
   * rows of one operation are a violation, whatever the ledger refuses.
   */
  readonly mayHaveTwoRows?: boolean;
}

/** One effect. */
export interface LedgerRow {
  readonly operationId: string;
  readonly attempt: number;
  readonly value: Json;
}

/** What the ledger holds. */
export interface LedgerState {
  readonly rows: LedgerRow[];
  /** The highest attempt seen, by operation. */
  readonly attempts: Record<string, number>;
}

/** The ledger as an operation uses it: each request is a choice of the schedule's. */
export interface LedgerClient {
  /**
   * Has the effect.
   *
   * @throws {DuplicateRowError} where the ledger is unique and has a row of this operation.
   * @throws {FencedError} where it is fenced and has seen a higher attempt.
   * @throws {RecordMovedError} with `settling`, where the record is at another version.
   * @throws {DeclinedError} by the fault `declined`: nothing was done.
   * @throws {NoAnswerError} when nobody knows.
   */
  insert(row: LedgerRow, options?: RequestOptions & { readonly settling?: Settling | undefined }): Promise<Json>;
  /** The first row of the operation. @throws {NoAnswerError} */
  find(operationId: string, options?: RequestOptions): Promise<LedgerRow | undefined>;
  /**
   * Makes a fenced ledger refuse every lower attempt from now on; does nothing to another.
   *
   * @throws {FencedError} when it has seen a higher one itself.
   * @throws {NoAnswerError}
   */
  fence(operationId: string, attempt: number, options?: RequestOptions): Promise<void>;
}

/** `signal`: gives the request up, with its reason; it may be under way. */
export interface RequestOptions {
  readonly signal?: AbortSignal | undefined;
}

/** A record in the ledger's own database, to be replaced in the transaction that inserts: an operation's `settlingWrite`. */
export interface Settling extends Pick<SettlingWrite, "name" | "expected"> {
  readonly bytes: Uint8Array;
}

/** The ledger has a row of this operation. */
export class DuplicateRowError extends Error {
  readonly row: LedgerRow;
  constructor(row: LedgerRow) {
    super(`there is a row of ${row.operationId}`);
    this.name = "DuplicateRowError";
    this.row = row;
  }
}

/** The ledger has seen a later attempt. */
export class FencedError extends Error {
  constructor(attempt: number, seen: number) {
    super(`attempt ${attempt} comes after attempt ${seen}`);
    this.name = "FencedError";
  }
}

/** The record that was to be settled with the row has another version: both were left alone. */
export class RecordMovedError extends Error {
  constructor() {
    super("another attempt has the record: the transaction was rolled back");
    this.name = "RecordMovedError";
  }
}

/** The ledger refused, and did nothing. */
export class DeclinedError extends Error {
  constructor() {
    super("the ledger declined");
    this.name = "DeclinedError";
  }
}

export function emptyLedger(): LedgerState {
  return { rows: [], attempts: {} };
}

/** A client whose requests go by `service`. */
export function ledgerClient<Model extends { readonly ledger: LedgerState }>(
  { unique = false, fenced = false }: LedgerOptions,
  service: ServiceClient<Model>,
): LedgerClient {
  const admit = ({ attempts }: LedgerState, operationId: string, attempt: number): void => {
    const seen = attempts[operationId] ?? 0;
    if (attempt < seen) throw new FencedError(attempt, seen);
    attempts[operationId] = attempt;
  };
  return {
    insert: ({ operationId, attempt, value }, { settling, ...options } = {}) =>
      service.request(
        `insert ${JSON.stringify(value)} for attempt ${attempt} of ${operationId}${settling === undefined ? "" : shown(settling)}`,
        ({ ledger }, database) => {
          // First, so that nothing is changed where it is refused. Of an insert that is refused for another reason it is undone.
          if (settling !== undefined && !database.replace(settling.name, settling.expected, settling.bytes)) {
            throw new RecordMovedError();
          }
          if (fenced) admit(ledger, operationId, attempt);
          const there = rowOf(ledger, operationId);
          if (unique && there !== undefined) throw new DuplicateRowError(there);
          ledger.rows.push({ operationId, attempt, value });
          return value;
        },
        options,
      ),
    find: (operationId, options) =>
      service.request(`find ${operationId}`, ({ ledger }) => rowOf(ledger, operationId), {
        ...options,
        readOnly: true,
      }),
    fence: (operationId, attempt, options) =>
      service.request(
        `fence ${operationId} below attempt ${attempt}`,
        ({ ledger }) => {
          if (fenced) admit(ledger, operationId, attempt);
        },
        options,
      ),
  };
}

function rowOf({ rows }: LedgerState, operationId: string): LedgerRow | undefined {
  return rows.find((row) => row.operationId === operationId);
}

/** Of no other write: the bytes are never written twice. */
function shown({ expected, bytes }: Settling): string {
  return ` and settle at ${expected} (${sha256(bytes).slice("sha256:".length, "sha256:".length + 8)})`;
}
