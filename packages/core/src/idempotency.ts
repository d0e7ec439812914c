import { toJson, type Json, type JsonObject } from "./canonical-json.ts";
import { classifyReservation, lifeLeftMs } from "./classify.ts";
import type { ConditionalStore, Version } from "./conditional-store.ts";
import { Backoff } from "./backoff.ts";
import { IdempotencyConflictError, InvalidArgumentError } from "./errors.ts";
import { publish } from "./events.ts";
import { fingerprintOf, type Digest } from "./fingerprint.ts";
import { recordAddress, type RecordAddress } from "./object-name.ts";
import {
  checkFields,
  decodeRecord,
  encodeRecord,
  FORMAT,
  type IdempotencyRecord,
  type WritableRecord,
} from "./record.ts";
import type { ReservationDefinition } from "./reservation.ts";
import { formatTime, nodeRuntime, uuidV4, type Runtime } from "./runtime.ts";
import { settleWrite, type Mine, type SettledWrite } from "./settled-write.ts";
import { SingleFlight, type CallLimits } from "./single-flight.ts";
import { StoreSession, type TimedRead } from "./store-session.ts";

/** What an {@link Idempotency} is made of. */
export interface IdempotencyOptions {
  readonly store: ConditionalStore;
  /** What every record's name begins with. Default `idempotency/`. */
  readonly prefix?: string;
  /** The most a call takes when it does not say, in milliseconds; under an hour. Default 30,000. */
  readonly deadlineMs?: number;
  /** After this long one request to the store is given up, in milliseconds. Default 10,000. */
  readonly requestTimeoutMs?: number;
  /** Clock, timers and randomness; a test gives its own. */
  readonly runtime?: Runtime;
}

/** Which operation a call is about. */
export interface OperationKey {
  /** Whose key it is: an account, a tenant, a task type. Keys of two scopes never meet. */
  readonly scope: string;
  /** The idempotency key: 1 to 255 characters, the same for every sending of one request. */
  readonly key: string;
}

/** {@link OperationKey} and the limits of one call. */
export interface ReserveRequest extends OperationKey {
  /** The most this call takes, in milliseconds; under an hour. */
  readonly deadlineMs?: number;
  /** Ends this call, with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Reads before it writes: one request instead of two where most calls are repeats. */
  readonly readFirst?: boolean;
  /**
   * A second name under which an older layout may hold this key's record, tried before the record's own. Where a record
   * stands there it is the key's record, and a stale one is overwritten there.
   */
  readonly olderName?: string | undefined;
}

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

/** What a call of `reserve` got. */
export interface Reservation<Value> {
  /** As JSON gives it back: a `Date` put in comes out as text, for the first caller and for every later one alike. */
  readonly value: Value;
  /** This call made the claim. One call of a key is told so; none, when that caller died or ran out of time. */
  readonly created: boolean;
  readonly operationId: string;
  /** The record as it stands, for {@link extendReservation}. */
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

/** A call's deadline is under an hour: what a call sent may be in flight no longer than records are kept (rule P9). */
const DEADLINE_MS_BELOW = 3_600_000;

/** Runs operations at most once per idempotency key, on the records of one store. */
export class Idempotency {
  readonly store: ConditionalStore;
  readonly runtime: Runtime;
  readonly #prefix: string;
  readonly #deadlineMs: number;
  readonly #requestTimeoutMs: number;
  readonly #flights = new WeakMap<object, SingleFlight<Reserved>>();

  /** @throws {InvalidArgumentError} */
  constructor(options: IdempotencyOptions) {
    const { store, prefix = "idempotency/", deadlineMs = 30_000, requestTimeoutMs = 10_000 } = options;
    if (
      typeof store?.create !== "function" ||
      typeof store.replace !== "function" ||
      typeof store.read !== "function"
    ) {
      throw new InvalidArgumentError("store must be a ConditionalStore: open one with openStore(url) or construct one");
    }
    if (!prefix.endsWith("/")) throw new InvalidArgumentError(`the prefix ${JSON.stringify(prefix)} must end with "/"`);
    this.store = store;
    this.runtime = options.runtime ?? nodeRuntime;
    this.#prefix = prefix;
    this.#deadlineMs = checkDeadline(deadlineMs);
    this.#requestTimeoutMs = checkPositive("requestTimeoutMs", requestTimeoutMs);
  }

  /**
   * First write wins: the value is chosen at the claim, and every call of the key gets the value of the first. One
   * request for the first call, two for every other.
   *
   * @param choose called for each claim that is sent; what it returned for a claim that lost is forgotten.
   * @throws {IdempotencyConflictError} when the key was used with another input. Nothing is written.
   * @throws {InvalidArgumentError} before any request, saying what to change.
   * @throws {UnsupportedRecordError} for a record of a later version of this library.
   * @throws {StoreError} `UNAVAILABLE` when the deadline passes first: safe to send again with the same key.
   */
  async reserve<Input, Value>(
    definition: ReservationDefinition<Input>,
    request: ReserveRequest,
    input: Input,
    choose: (claim: Claim) => Choice<Value>,
  ): Promise<Reservation<Value>> {
    const address = recordAddress(this.#prefix, request.scope, request.key);
    const inputHash = fingerprintOf(definition.fingerprint(input), "the fingerprint of the input");
    const limits: CallLimits = {
      deadlineMs: checkDeadline(request.deadlineMs ?? this.#deadlineMs),
      signal: request.signal,
    };
    const attempt: ReserveAttempt = { definition, request, address, inputHash, choose };
    const { result, first } = await this.#flightsOf(definition).run(
      `${address.name} ${inputHash}`,
      limits,
      async (signal) => reserve(this.session(signal), attempt),
    );
    const { operationId } = result.held.record;
    const created = result.created && first;
    publish("firstwrite:reserved", () => ({
      operation: definition.name,
      operationId,
      keyHash: address.keyHash,
      created,
    }));
    // Each caller gets a copy of its own.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the record holds what some call's `choose` returned, and the fingerprint says it was this operation's
    const value = structuredClone(result.value) as Value;
    return { value, created, operationId, held: result.held };
  }

  /** For products: the store as the engine calls it, until `signal` aborts. */
  session(signal: AbortSignal): StoreSession {
    return new StoreSession(this.store, { runtime: this.runtime, signal, requestTimeoutMs: this.#requestTimeoutMs });
  }

  /** For products: a deadline as {@link reserve} would take it. @throws {InvalidArgumentError} */
  deadline(deadlineMs: number | undefined): number {
    return checkDeadline(deadlineMs ?? this.#deadlineMs);
  }

  #flightsOf(definition: object): SingleFlight<Reserved> {
    const known = this.#flights.get(definition);
    if (known !== undefined) return known;
    const flights = new SingleFlight<Reserved>(this.runtime, this.store.traits.name);
    this.#flights.set(definition, flights);
    return flights;
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

interface ReserveAttempt {
  readonly definition: { readonly name: string; readonly retention: { readonly ttlMs: number } };
  readonly request: ReserveRequest;
  readonly address: RecordAddress;
  readonly inputHash: Digest;
  readonly choose: (claim: Claim) => Choice<unknown>;
}

interface Reserved {
  readonly value: Json;
  readonly created: boolean;
  readonly held: HeldRecord;
}

interface FoundRecord {
  readonly address: RecordAddress;
  readonly stored: TimedRead;
  readonly record: IdempotencyRecord;
}

/** The flight: rules E1 and E2, as far as a reservation goes. */
async function reserve(session: StoreSession, attempt: ReserveAttempt): Promise<Reserved> {
  const backoff = new Backoff(session.runtime);
  let found = await lookBeforeWriting(session, attempt);
  for (;;) {
    if (found !== undefined) {
      const answer = judge(session, attempt, found);
      if (answer !== undefined) return answer;
    }
    const address: RecordAddress = found?.address ?? attempt.address;
    const { record, value } = claim(session.runtime, attempt);
    const settled: SettledWrite<IdempotencyRecord> = await settleRecord(
      session,
      address,
      found?.stored.version,
      record,
    );
    if (settled.kind === "mine") return { value, created: true, held: heldRecord(address, record, settled) };
    if (settled.kind === "other" && found !== undefined) await backoff.wait(session.signal);
    found = settled.kind === "other" ? { address, stored: settled.stored, record: settled.seen } : undefined;
    // A record removed under our eyes: begin at the create, and not in a tight loop.
    if (settled.kind === "absent") await backoff.wait(session.signal);
  }
}

async function lookBeforeWriting(
  session: StoreSession,
  { address, request }: ReserveAttempt,
): Promise<FoundRecord | undefined> {
  const older = request.olderName === undefined ? [] : [{ ...address, name: request.olderName }];
  for (const place of request.readFirst === true ? [...older, address] : older) {
    const stored = await session.read(place.name);
    if (stored !== undefined) {
      return { address: place, stored, record: decodeRecord(session.store.traits.name, place, stored) };
    }
  }
  return undefined;
}

/** The answer that a found record gives; `undefined` when a fresh claim may overwrite it. */
function judge(session: StoreSession, attempt: ReserveAttempt, found: FoundRecord): Reserved | undefined {
  const { record, stored, address } = found;
  const { clockGranularityMs } = session.store.traits;
  const verdict = classifyReservation(record, stored, attempt.inputHash, clockGranularityMs);
  if (verdict === "stale") return undefined;
  if (verdict === "conflict" || record.result === undefined) {
    const facts = { operationId: record.operationId, keyHash: address.keyHash };
    publish("firstwrite:conflict", () => ({ operation: attempt.definition.name, ...facts }));
    throw new IdempotencyConflictError(
      "the idempotency key was used with another input: send the same input again, or use a new key for a new request",
      facts,
    );
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

function claim(runtime: Runtime, attempt: ReserveAttempt): { record: WritableRecord; value: Json } {
  const operationId = uuidV4(runtime);
  const { value: chosen, fields = {}, phases = 1 } = attempt.choose({ operationId });
  const value = toJson(chosen, "the reserved value");
  const own: JsonObject = checkFields(fields);
  const { scope, key, keyHash } = attempt.address;
  const record: WritableRecord = {
    ...stamp(runtime, attempt.definition.retention.ttlMs),
    scope,
    key,
    keyHash,
    inputHash: attempt.inputHash,
    operationId,
    status: phases === 2 ? "creating" : "ready",
    attempt: 1,
    takeover: false,
    leaseMs: phases === 2 ? 0 : undefined,
    createdAt: formatTime(runtime.now()),
    result: { kind: "value", encoding: "json", body: value },
    fields: own,
  };
  return { record, value };
}

async function settleRecord(
  session: StoreSession,
  address: RecordAddress,
  expected: Version | undefined,
  record: WritableRecord,
): Promise<SettledWrite<IdempotencyRecord>> {
  return settleWrite(session, {
    name: address.name,
    expected,
    bytes: encodeRecord(record),
    inspect(stored) {
      const seen = decodeRecord(session.store.traits.name, address, stored);
      return { ours: seen.writeId === record.writeId, seen };
    },
  });
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

/**
 * What every write sets anew. The write ID is 128 random bits: no two writes to a name carry equal bytes, even where
 * ETags are content hashes (rule P8).
 */
function stamp(runtime: Runtime, ttlMs: number): Pick<WritableRecord, "format" | "ttlMs" | "expiresAt" | "writeId"> {
  return {
    format: FORMAT,
    ttlMs,
    expiresAt: formatTime(runtime.now() + ttlMs),
    writeId: Buffer.from(runtime.randomBytes(16)).toString("hex"),
  };
}

function checkDeadline(deadlineMs: number): number {
  checkPositive("deadlineMs", deadlineMs);
  if (deadlineMs >= DEADLINE_MS_BELOW) {
    throw new InvalidArgumentError(`deadlineMs is ${deadlineMs}: give less than an hour (${DEADLINE_MS_BELOW})`);
  }
  return deadlineMs;
}

function checkPositive(name: string, ms: number): number {
  if (!Number.isFinite(ms) || ms <= 0) throw new InvalidArgumentError(`${name} is ${ms}: give milliseconds above 0`);
  return ms;
}
