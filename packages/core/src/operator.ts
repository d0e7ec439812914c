/** What a person does about an operation that the engine will not decide (rule E10), and what is shown to one. */

import { isJsonObject, parseJsonObject, type Json, type JsonObject } from "./canonical-json.ts";
import { checkNames } from "./check-argument.ts";
import { classifyOperation, isStale, leaseOverInMs } from "./classify.ts";
import type { StoredRecord } from "./conditional-store.ts";
import { IdempotencyError, InProgressError, InvalidArgumentError } from "./errors.ts";
import { recordPlace, type RecordPlace } from "./object-name.ts";
import {
  decodeRecord,
  encodeRecord,
  stamp,
  type IdempotencyRecord,
  type InlineResult,
  type RecordResult,
  type RecordStatus,
  type WritableRecord,
} from "./record.ts";
import { encodeFailure, encodeValue } from "./result.ts";
import { formatTime } from "./runtime.ts";
import { settleRecord } from "./settled-record.ts";
import { StoreError } from "./store-error.ts";
import type { StoreSession } from "./store-session.ts";

/** A key's record, for a person to look at. */
export interface Inspection {
  /** The object's name. */
  readonly name: string;
  readonly scope: string;
  /** `undefined` where the operation does not store it. */
  readonly key: string | undefined;
  readonly keyHash: string;
  readonly operationId: string;
  readonly status: RecordStatus;
  readonly attempt: number;
  /**
   * An attempt came by takeover, or by a person: one before it may have had an effect. Of a reservation: it was given back, and
   * somebody may have been answered with it.
   */
  readonly takeover: boolean;
  /** RFC 3339, by the clock of whoever made the claim. */
  readonly createdAt: string;
  /** By the store's clock, in epoch milliseconds. */
  readonly modifiedAt: number;
  /** While `creating`, in milliseconds by the store's clock: 0 when the lease is over. */
  readonly leaseLeftMs: number | undefined;
  /** Its TTL is over: the key is as good as new. */
  readonly stale: boolean;
  /** Of a settled operation; it may be personal data. */
  readonly result: RecordResult | undefined;
  /** What persons did. */
  readonly history: readonly Json[];
}

/** An object among the records that cannot be read as one. */
export interface UnreadableRecord {
  readonly name: string;
  readonly status: "unreadable";
  readonly error: unknown;
}

/** Who acts on which operation, and why; kept in the record's `history`. */
export interface OperatorNote {
  /** The operation that was looked at: another one under the same key is left alone. */
  readonly operationId: string;
  /**
   * The attempt that was looked at, as `inspect` told it: a later one, which may have had an effect meanwhile, is left alone.
   * By default whichever is there.
   */
  readonly attempt?: number;
  readonly by: string;
  readonly why: string;
}

/** What a person found out that the operation came to. */
export type OperatorAnswer = { readonly value: unknown } | { readonly failure: unknown };

/** The record at `place`, and what it is to a person; `undefined` where there is none. */
export async function inspectIn(session: StoreSession, place: RecordPlace): Promise<Inspection | undefined> {
  const stored = await session.read(place.name);
  return stored && inspection(session, place, stored);
}

/**
 * The record that a listing named; `undefined` for one that is gone, and for other objects beside the records.
 */
export async function inspectListed(
  session: StoreSession,
  prefix: string,
  name: string,
): Promise<Inspection | UnreadableRecord | undefined> {
  if (!name.endsWith(".json")) return undefined;
  try {
    const stored = await session.read(name);
    if (stored === undefined) return undefined;
    const { scope, key_hash: keyHash } = parseJsonObject(stored.bytes) ?? {};
    if (typeof scope !== "string" || typeof keyHash !== "string") {
      throw new StoreError("CORRUPT", session.store.traits.name, `the object ${name} is not a record`);
    }
    const place = recordPlace(prefix, scope, keyHash);
    if (place.name !== name) {
      throw new StoreError("CORRUPT", session.store.traits.name, `the record ${name} is of another key or scope`);
    }
    return inspection(session, place, stored);
  } catch (error) {
    if (!IdempotencyError.is(error) && !(StoreError.is(error) && error.code === "CORRUPT")) throw error;
    return { name, status: "unreadable", error };
  }
}

/**
 * Settles an operation with what a person found out. Taken on trust.
 *
 * @throws {InvalidArgumentError} for an answer that cannot be recorded, and as {@link actIn}.
 */
export async function settleByPerson(
  session: StoreSession,
  place: RecordPlace,
  answer: OperatorAnswer,
  note: OperatorNote,
): Promise<Inspection> {
  checkNames(answer, ["value", "failure"], "the answer");
  if ("value" in answer === "failure" in answer) {
    throw new InvalidArgumentError(
      "the answer must be { value } or { failure }: what the operation returned, or threw",
    );
  }
  const result: InlineResult =
    "value" in answer ? encodeValue(answer.value) : encodeFailure(answer.failure, () => ({}));
  return actIn(session, place, note, "settled", { status: "ready", leaseMs: undefined, result });
}

/**
 * Gives an operation back: to its `recovery`, which the next call begins, or, with `nothingHappened`, to be run at once.
 *
 * @throws as {@link actIn}.
 */
export async function releaseByPerson(
  session: StoreSession,
  place: RecordPlace,
  { nothingHappened = false, ...note }: OperatorNote & { readonly nothingHappened?: boolean },
): Promise<Inspection> {
  if (typeof nothingHappened !== "boolean") throw new InvalidArgumentError("nothingHappened must be true or false");
  return nothingHappened
    ? actIn(session, place, note, "nothing happened", { status: "released", leaseMs: undefined })
    : actIn(session, place, note, "released to recovery", { status: "creating", leaseMs: 0 });
}

/**
 * One write by a person. It carries `takeover`, since a paused owner may be behind the record (rule E10).
 *
 * @throws {InvalidArgumentError} for a record that is missing, settled, released or another operation's, or that another
 *   write changed meanwhile. It says which.
 * @throws {InProgressError} while an owner may be alive.
 */
async function actIn(
  session: StoreSession,
  place: RecordPlace,
  note: OperatorNote,
  action: string,
  changes: Pick<WritableRecord, "status" | "leaseMs"> & { readonly result?: InlineResult },
): Promise<Inspection> {
  checkNote(note);
  const { runtime, store } = session;
  const stored = await session.read(place.name);
  if (stored === undefined) throw new InvalidArgumentError("there is no record of that key");
  const record = decodeRecord(store.traits.name, place, stored);
  checkUndecided(record, stored, note, store.traits.clockGranularityMs);
  const { operationId, by, why } = note;
  const attempt = record.attempt + 1;
  const entry: JsonObject = { at: formatTime(runtime.now()), by, why, action, attempt };
  const next: WritableRecord = {
    ...record,
    ...stamp(runtime, record.ttlMs ?? 0),
    scope: place.scope,
    result: undefined,
    ...changes,
    attempt,
    takeover: true,
    fields: { ...record.fields, history: [...historyOf(record), entry] },
  };
  const { byteLength } = encodeRecord(next);
  if (byteLength > store.traits.recordBytesMax) {
    throw new InvalidArgumentError(
      `the record would be ${byteLength} bytes long; the store takes ${store.traits.recordBytesMax}: settle with a shorter answer`,
    );
  }
  const settled = await settleRecord(session, place, stored.version, next);
  if (settled.kind !== "mine") {
    throw new InvalidArgumentError(
      `the record of ${operationId} was changed by another write meanwhile: inspect it again, and act on what is there now`,
    );
  }
  const inspected = await inspectIn(session, place);
  if (inspected === undefined) throw new InvalidArgumentError("the record was removed meanwhile");
  return inspected;
}

function checkUndecided(
  record: IdempotencyRecord,
  stored: StoredRecord,
  { operationId, attempt = record.attempt }: OperatorNote,
  clockGranularityMs: number,
): void {
  const facts = { operationId: record.operationId, keyHash: record.keyHash };
  if (record.operationId !== operationId) {
    throw new InvalidArgumentError(
      `the key's operation is ${record.operationId} now, not ${operationId}: inspect it again`,
    );
  }
  if (record.attempt !== attempt) {
    throw new InvalidArgumentError(
      `the operation is at attempt ${record.attempt} now, not ${String(attempt)}: inspect it again`,
    );
  }
  const verdict = classifyOperation(record, stored, record.inputHash, clockGranularityMs);
  if (verdict.kind === "held" || verdict.kind === "over") return;
  if (verdict.kind === "live") {
    throw new InProgressError(
      "its owner may be alive, and a person acts only when the lease is over: wait",
      Math.ceil(verdict.leaseLeftMs),
      facts,
    );
  }
  throw new InvalidArgumentError(`the operation is ${record.status}: there is nothing to decide`);
}

function checkNote(note: OperatorNote): void {
  checkNames(note, ["operationId", "attempt", "by", "why"], "the note of who acts and why");
  for (const [name, text] of Object.entries({ operationId: note.operationId, by: note.by, why: note.why })) {
    if (typeof text !== "string" || text === "") {
      throw new InvalidArgumentError(`${name} must be a string that is not empty: it is kept in the record's history`);
    }
  }
}

function inspection(session: StoreSession, place: RecordPlace, stored: StoredRecord): Inspection {
  const { traits } = session.store;
  const record = decodeRecord(traits.name, place, stored);
  const { key, operationId, status, attempt, takeover, createdAt, result } = record;
  const leaseLeftMs = leaseOverInMs(record, stored, traits.clockGranularityMs) ?? 0;
  return {
    name: place.name,
    scope: place.scope,
    key,
    keyHash: place.keyHash,
    operationId,
    status,
    attempt,
    takeover,
    createdAt,
    modifiedAt: stored.modifiedAt,
    leaseLeftMs: status === "creating" ? leaseLeftMs : undefined,
    stale: isStale(record, stored, traits.clockGranularityMs),
    result,
    history: historyOf(record),
  };
}

function historyOf({ fields }: IdempotencyRecord): readonly Json[] {
  const { history } = fields;
  return Array.isArray(history) ? history : isJsonObject(history) ? [history] : [];
}
