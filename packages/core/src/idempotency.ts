import { toJson } from "./canonical-json.ts";
import { checkFunction, checkNames, checkObject } from "./check-argument.ts";
import type { ConditionalStore } from "./conditional-store.ts";
import { InvalidArgumentError } from "./errors.ts";
import { publish } from "./events.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { checkIssuedAt, isTooOld, keyAge, keyTooOld, timeOfKey, type KeyAge } from "./key-age.ts";
import { recordAddress } from "./object-name.ts";
import type { ReservationDefinition } from "./reservation.ts";
import { reserveIn, type Choice, type Claim, type ReservationAttempt, type Reserved } from "./reserve.ts";
import { nodeRuntime, type Runtime } from "./runtime.ts";
import { SingleFlight, type CallLimits, type FlightLife } from "./single-flight.ts";
import { objectNameFault } from "./store-arguments.ts";
import { StoreClock } from "./store-clock.ts";
import { StoreSession } from "./store-session.ts";

/** What an {@link Idempotency} is made of. */
export interface IdempotencyOptions {
  readonly store: ConditionalStore;
  /** What every record's name begins with. Default `idempotency/`. */
  readonly prefix?: string;
  /** The most a call takes when it does not say, in milliseconds; under an hour. Default 30,000. */
  readonly deadlineMs?: number;
  /** After this long one request to the store is given up, in milliseconds; under an hour. Default 10,000. */
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
  /**
   * When the key was made, in epoch milliseconds. A key that is older than the operation's retry window is refused instead
   * of beginning a second operation after the first was forgotten (rule E8).
   */
  readonly issuedAt?: number | undefined;
  /** Reads before it writes: one request instead of two where most calls are repeats. */
  readonly readFirst?: boolean;
}

/** What a call of `reserve` got. */
export interface Reservation<Value> {
  /** As JSON gives it back: a `Date` put in comes out as text, for the first caller and for every later one alike. */
  readonly value: Value;
  /** This call made the claim. One call of a key is told so; none, when that caller died or ran out of time. */
  readonly created: boolean;
  readonly operationId: string;
}

/**
 * A call's deadline is under an hour: what a call sent may be in flight no longer than records are kept (rule P9). No
 * request outlasts its call; and a timer of more than 24 days would fire at once.
 */
const MS_BELOW = 3_600_000;

/** Runs operations at most once per idempotency key, on the records of one store. */
export class Idempotency {
  readonly store: ConditionalStore;
  readonly runtime: Runtime;
  readonly #prefix: string;
  readonly #deadlineMs: number;
  readonly #requestTimeoutMs: number;
  readonly #flights = new WeakMap<object, SingleFlight<Reserved>>();
  readonly #clock: StoreClock;

  /** @throws {InvalidArgumentError} */
  constructor(options: IdempotencyOptions) {
    checkNames(
      options,
      ["store", "prefix", "deadlineMs", "requestTimeoutMs", "runtime"],
      "what an Idempotency is made of",
    );
    const { store, prefix = "idempotency/", deadlineMs = 30_000, requestTimeoutMs = 10_000 } = options;
    if (
      typeof store?.create !== "function" ||
      typeof store.replace !== "function" ||
      typeof store.read !== "function" ||
      typeof store.traits?.name !== "string"
    ) {
      throw new InvalidArgumentError("store must be a ConditionalStore: open one with openStore(url) or construct one");
    }
    if (typeof prefix !== "string" || !prefix.endsWith("/")) {
      throw new InvalidArgumentError(`the prefix ${JSON.stringify(prefix)} must end with "/"`);
    }
    const prefixFault = objectNameFault(store.traits, `${prefix}x`);
    if (prefixFault !== undefined) throw new InvalidArgumentError(`an object name with the prefix ${prefixFault}`);
    this.store = store;
    this.runtime = options.runtime ?? nodeRuntime;
    this.#clock = new StoreClock(this.runtime);
    this.#prefix = prefix;
    this.#deadlineMs = checkMs("deadlineMs", deadlineMs);
    this.#requestTimeoutMs = checkMs("requestTimeoutMs", requestTimeoutMs);
  }

  /**
   * First write wins: the value is chosen at the claim, and every call of the key gets the value of the first. One
   * request for the first call, two for every other.
   *
   * @param choose called for each claim that is sent; what it returned for a claim that lost is forgotten.
   * @throws {IdempotencyConflictError} when the key was used with another input. Nothing is written.
   * @throws {KeyTooOldError} when the key's time is known and older than the retry window.
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
    checkObject(definition, "the operation");
    checkFunction(definition.fingerprint, "the operation must come from defineReservation: its fingerprint");
    const requestNames = ["scope", "key", "deadlineMs", "signal", "issuedAt", "readFirst"];
    checkNames(request, requestNames, "the request, which has scope and key,");
    checkFunction(choose, "the chooser of the value");
    const address = recordAddress(this.#prefix, request.scope, request.key);
    // With the name, so that two operations that share scope, key and input never replay each other.
    const identity = toJson(definition.fingerprint(input), "the fingerprint of the input");
    const inputHash = fingerprintOf([definition.name, identity]);
    const limits: CallLimits = {
      deadlineMs: this.deadline(request.deadlineMs),
      signal: request.signal,
    };
    const attempt: ReservationAttempt = {
      operation: definition.name,
      ttlMs: definition.retention.ttlMs,
      address,
      inputHash,
      choose,
      readFirst: request.readFirst,
      keyAge: this.#keyAge(definition, request, address.keyHash),
    };
    const flight = `${address.name} ${inputHash} ${attempt.keyAge?.issuedAt}`;
    const { result, first } = await this.#flightsOf(definition).run(flight, limits, (life) =>
      reserveIn(this.session(life), attempt),
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
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the record holds what some call's `choose` returned, and its `input_hash` says it was this operation's
    const value = structuredClone(result.value) as Value;
    return { value, created, operationId };
  }

  /** For products: the store as the engine calls it, for as long as a flight lives. */
  session(life: FlightLife): StoreSession {
    return new StoreSession(this.store, {
      ...life,
      runtime: this.runtime,
      requestTimeoutMs: this.#requestTimeoutMs,
      clock: this.#clock,
    });
  }

  /** For products: a deadline as {@link reserve} would take it. @throws {InvalidArgumentError} */
  deadline(deadlineMs: number | undefined): number {
    return checkMs("deadlineMs", deadlineMs ?? this.#deadlineMs);
  }

  #keyAge(
    { keyTime, retention }: ReservationDefinition<never>,
    { issuedAt, key }: ReserveRequest,
    keyHash: string,
  ): KeyAge | undefined {
    const known = issuedAt ?? (keyTime ? timeOfKey(key) : undefined);
    if (known === undefined) return undefined;
    const nowMs = this.#clock.now();
    checkIssuedAt(known, nowMs);
    const age = keyAge(known, retention);
    if (isTooOld(age, nowMs)) throw keyTooOld(age, { keyHash });
    return age;
  }

  #flightsOf(definition: object): SingleFlight<Reserved> {
    const known = this.#flights.get(definition);
    if (known !== undefined) return known;
    const flights = new SingleFlight<Reserved>(this.runtime, this.store.traits.name);
    this.#flights.set(definition, flights);
    return flights;
  }
}

function checkMs(name: string, ms: number): number {
  if (!Number.isFinite(ms) || ms <= 0) {
    throw new InvalidArgumentError(`${name} is ${String(ms)}: give milliseconds above 0`);
  }
  if (ms >= MS_BELOW) throw new InvalidArgumentError(`${name} is ${ms}: give less than an hour (${MS_BELOW})`);
  return ms;
}
