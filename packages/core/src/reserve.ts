/** Reservations on one store session: what `Idempotency.reserve` and the products stand on. */

import { toJson, type Json, type JsonObject } from "./canonical-json.ts";
import { classifyReservation, lifeLeftMs, type ReservationVerdict } from "./classify.ts";
import type { Version } from "./conditional-store.ts";
import { Backoff } from "./backoff.ts";
import { checkObject } from "./check-argument.ts";
import { IdempotencyConflictError, InvalidArgumentError } from "./errors.ts";
import { publish } from "./events.ts";
import type { Digest } from "./fingerprint.ts";
import { isTooOld, keyTooOld, type KeyAge } from "./key-age.ts";
import type { RecordAddress } from "./object-name.ts";
import { checkFields, decodeRecord, stamp, type IdempotencyRecord, type WritableRecord } from "./record.ts";
import { formatTime, uuidV4 } from "./runtime.ts";
import { settleRecord } from "./settled-record.ts";
import type { Mine } from "./settled-write.ts";
import type { StoreSession, TimedRead } from "./store-session.ts";

/** What the chooser of a reservation may use. */
export interface Claim {
  /** New for this claim, a UUID of version 4. */
  readonly operationId: string;
}

/** What a reservation puts in its record. */
export interface Choice<Value> {
  /** JSON. What every caller of the key gets. */
  readonly value: Value;
  /** Fields of the operation's own, beside the record's: JSON. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** Writes the record as not yet confirmed: {@link extendReservation} with `confirm` ends the first phase (rule T7). */
  readonly phases?: 1 | 2 | undefined;
}

/** One reservation, checked. */
export interface ReservationAttempt {
  /** The operation's name, for events. */
  readonly operation: string;
  readonly ttlMs: number;
  readonly address: RecordAddress;
  readonly inputHash: Digest;
  readonly choose: (claim: Claim) => Choice<unknown>;
  readonly readFirst?: boolean | undefined;
  /** Where it is known how old the key is: a claim of a key that is too old is not made, or given back (rule E8). */
  readonly keyAge?: KeyAge | undefined;
  /**
   * A second name under which an older layout may hold this key's record, tried before the record's own. Where a record
   * stands there it is the key's record, and a stale one is overwritten there.
   */
  readonly olderName?: string | undefined;
}

export interface Reserved {
  readonly value: Json;
  /** This session made the claim. */
  readonly created: boolean;
  readonly held: HeldRecord;
}

/** A record at the version a caller knows. */
export interface HeldRecord {
  readonly address: RecordAddress;
  readonly record: IdempotencyRecord;
  readonly version: Version;
  /** At least this much of its TTL was left by the store's clock, in milliseconds… */
  readonly lifeLeftMs: number;
  /** … at this time by this process's monotonic clock. */
  readonly asOfMs: number;
}

/**
 * First write wins, within one session: rules E1 and E2, as far as a reservation goes.
 *
 * @throws {IdempotencyConflictError}
 * @throws {KeyTooOldError}
 * @throws {UnsupportedRecordError}
 * @throws {StoreError}
 * @throws {SessionEnded}
 */
export async function reserveIn(session: StoreSession, attempt: ReservationAttempt): Promise<Reserved> {
  const backoff = new Backoff(session.runtime);
  let found = await lookBeforeWriting(session, attempt);
  let lostBefore = false;
  for (;;) {
    const answer = found && judge(session, attempt, found);
    if (answer !== undefined) return answer;
    // An overwrite was lost to a record that is stale again, or the record is gone: not in a tight loop.
    if (lostBefore) await session.pause(backoff);
    const address: RecordAddress = found?.address ?? attempt.address;
    const { record, value } = claim(session, attempt, found);
    const settled = await settleRecord(session, address, found?.stored.version, record);
    if (settled.kind === "mine") {
      await giveBackIfTooOld(session, attempt, address, record, settled);
      return { value, created: true, held: heldRecord(address, record, settled) };
    }
    lostBefore = found !== undefined || settled.kind === "absent";
    found = settled.kind === "other" ? { address, stored: settled.stored, record: settled.seen } : undefined;
  }
}

/**
 * Rewrites a reservation's record by compare-and-swap, so that it lives for its whole TTL from now, and with `confirm`
 * ends its first phase. `undefined`: another write came first, so that what is known of the record is out of date;
 * reserve again.
 *
 * @throws {StoreError} as `Idempotency.reserve`.
 */
export async function extendReservation(
  session: StoreSession,
  held: HeldRecord,
  options: { readonly ttlMs: number; readonly confirm?: boolean },
): Promise<HeldRecord | undefined> {
  const { address, record: old } = held;
  const record: WritableRecord = {
    ...old,
    ...stamp(session.runtime, options.ttlMs),
    scope: address.scope,
    status: options.confirm === true ? "ready" : old.status,
    leaseMs: options.confirm === true ? undefined : old.leaseMs,
  };
  const settled = await settleRecord(session, address, held.version, record);
  return settled.kind === "mine" ? heldRecord(address, record, settled) : undefined;
}

interface FoundRecord {
  readonly address: RecordAddress;
  readonly stored: TimedRead;
  readonly record: IdempotencyRecord;
}

async function lookBeforeWriting(
  session: StoreSession,
  { address, olderName, readFirst }: ReservationAttempt,
): Promise<FoundRecord | undefined> {
  const older = olderName === undefined ? [] : [{ ...address, name: olderName }];
  for (const place of readFirst === true ? [...older, address] : older) {
    const stored = await session.read(place.name);
    if (stored !== undefined) {
      return { address: place, stored, record: decodeRecord(session.store.traits.name, place, stored) };
    }
  }
  return undefined;
}

/**
 * A caller whose clock is behind finds out only by the answer to its claim that its key is too old; where the record of
 * the key was pruned, nothing else can tell it.
 */
async function giveBackIfTooOld(
  session: StoreSession,
  { keyAge, ttlMs }: ReservationAttempt,
  address: RecordAddress,
  record: WritableRecord,
  mine: Mine<unknown>,
): Promise<void> {
  if (keyAge === undefined || !isTooOld(keyAge, mine.at)) return;
  const released: WritableRecord = {
    ...record,
    ...stamp(session.runtime, ttlMs),
    status: "released",
    // Somebody may have been answered with it meanwhile: the key stays its input's, as after a takeover.
    takeover: true,
    leaseMs: undefined,
    result: undefined,
  };
  await settleRecord(session, address, mine.version, released);
  throw keyTooOld(keyAge, { operationId: record.operationId, keyHash: address.keyHash });
}

/** The answer that a found record gives; `undefined` when a claim may overwrite it. */
function judge(session: StoreSession, attempt: ReservationAttempt, found: FoundRecord): Reserved | undefined {
  const { record, stored, address } = found;
  const verdict = verdictOn(session, attempt, found);
  if (verdict === "stale" || verdict === "free" || verdict === "released") {
    if (attempt.keyAge === undefined || !isTooOld(attempt.keyAge, stored.readAt)) return undefined;
    throw keyTooOld(attempt.keyAge, { keyHash: address.keyHash });
  }
  if (verdict === "conflict" || record.result?.kind !== "value") {
    const facts = { operationId: record.operationId, keyHash: address.keyHash };
    publish("firstwrite:conflict", () => ({ operation: attempt.operation, ...facts }));
    throw new IdempotencyConflictError(
      "the idempotency key was used with another input: send the same input again, or use a new key for a new request",
      facts,
    );
  }
  // Claimed past the window by a caller whose clock is behind: it is giving the claim back, or died before it could.
  if (attempt.keyAge !== undefined && isTooOld(attempt.keyAge, stored.modifiedAt)) {
    throw keyTooOld(attempt.keyAge, { operationId: record.operationId, keyHash: address.keyHash });
  }
  return {
    value: record.result.body,
    created: false,
    held: {
      address,
      record,
      version: stored.version,
      lifeLeftMs: lifeLeftMs(record, stored),
      asOfMs: stored.sentAtMs,
    },
  };
}

function verdictOn(session: StoreSession, attempt: ReservationAttempt, found: FoundRecord): ReservationVerdict {
  const { clockGranularityMs } = session.store.traits;
  return classifyReservation(found.record, found.stored, attempt.inputHash, clockGranularityMs);
}

/** A fresh claim, or the next attempt of an operation that was given back. */
function claim(
  session: StoreSession,
  attempt: ReservationAttempt,
  found: FoundRecord | undefined,
): { record: WritableRecord; value: Json } {
  const { runtime } = session;
  const goneOnWith =
    found !== undefined && verdictOn(session, attempt, found) === "released" ? found.record : undefined;
  const operationId = goneOnWith?.operationId ?? uuidV4(runtime);
  const choice = attempt.choose({ operationId });
  checkObject(choice, "what the chooser returns");
  const { value: chosen, fields = {}, phases = 1 } = choice;
  if (phases !== 1 && phases !== 2) throw new InvalidArgumentError("phases must be 1 or 2; leave it out for 1");
  const value = toJson(chosen, "the reserved value");
  const own: JsonObject = checkFields(fields);
  const { scope, key, keyHash } = attempt.address;
  const record: WritableRecord = {
    ...stamp(runtime, attempt.ttlMs),
    scope,
    key,
    keyHash,
    inputHash: attempt.inputHash,
    operationId,
    status: phases === 2 ? "creating" : "ready",
    attempt: (goneOnWith?.attempt ?? 0) + 1,
    takeover: goneOnWith?.takeover ?? false,
    leaseMs: phases === 2 ? 0 : undefined,
    createdAt: formatTime(runtime.now()),
    result: { kind: "value", encoding: "json", body: value },
    // What a person or a later version added stays, as in every rewrite.
    fields: { ...goneOnWith?.fields, ...own },
  };
  return { record, value };
}

function heldRecord(address: RecordAddress, record: WritableRecord, mine: Mine<unknown>): HeldRecord {
  return {
    address,
    record,
    version: mine.version,
    lifeLeftMs: record.ttlMs - mine.ageMs,
    asOfMs: mine.asOfMs,
  };
}
