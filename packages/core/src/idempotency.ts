import { canonicalJson } from "./canonical-json.ts";
import { checkFunction, checkNames, checkObject, checkSignal } from "./check-argument.ts";
import type { ConditionalStore } from "./conditional-store.ts";
import { copyOf } from "./copy-of.ts";
import { InvalidArgumentError } from "./errors.ts";
import { checkNotWithin } from "./attempt.ts";
import { executeIn } from "./execute.ts";
import { ExecutionFlight, type ExecutionLimits, type ExecutionOutcome } from "./execution-flight.ts";
import { publish } from "./events.ts";
import { sha256, type Digest } from "./fingerprint.ts";
import { checkIssuedAt, isTooOld, keyAge, keyTooOld, timeOfKey, type KeyAge } from "./key-age.ts";
import { encodeScope, recordAddress, recordPlace, type RecordAddress, type RecordPlace } from "./object-name.ts";
import type { OperationDefinition } from "./operation.ts";
import {
  inspectIn,
  inspectListed,
  releaseByPerson,
  settleByPerson,
  type Inspection,
  type OperatorAnswer,
  type OperatorNote,
  type UnreadableRecord,
} from "./operator.ts";
import type { RecordStatus } from "./record.ts";
import { replayOf } from "./replay.ts";
import { ReplayCache } from "./replay-cache.ts";
import type { ReservationDefinition } from "./reservation.ts";
import { reserveIn, type Choice, type Claim, type ReservationAttempt, type Reserved } from "./reserve.ts";
import type { ExecutionFacts } from "./result.ts";
import { nodeRuntime, type Runtime } from "./runtime.ts";
import { SingleFlight, type CallLimits } from "./single-flight.ts";
import { objectNameFault } from "./store-arguments.ts";
import { StoreError } from "./store-error.ts";
import { StoreClock } from "./store-clock.ts";
import { StoreSession, type FlightLife } from "./store-session.ts";

/** What an {@link Idempotency} is made of. */
export interface IdempotencyOptions {
  readonly store: ConditionalStore;
  /** What every record's name begins with. Default `idempotency/`. */
  readonly prefix?: string;
  /** The most a call takes when it does not say, in milliseconds; under an hour. Default 30,000. */
  readonly deadlineMs?: number;
  /** After this long one request to the store is given up, in milliseconds; under an hour. Default 10,000. */
  readonly requestTimeoutMs?: number;
  /**
   * Keeps the results of so many settled operations, to answer repeats of `execute` without a request (rule I2). By
   * default none.
   */
  readonly cache?: { readonly entriesMax: number };
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

/** Which record a person means: by its key, or by the key's hash as events and errors have it. */
export type RecordKey =
  | { readonly scope: string; readonly key: string; readonly keyHash?: undefined }
  | { readonly scope: string; readonly keyHash: string; readonly key?: undefined };

/** The limits of an operator's call. */
export interface OperatorLimits {
  /** The most this call takes, in milliseconds; under an hour. Of `list`, each of its reads. */
  readonly deadlineMs?: number;
  /** Ends this call, with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
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

/** {@link OperationKey} and the limits of one call. */
export interface ExecuteRequest extends ReserveRequest {
  /**
   * The most this call waits for another owner of the operation, in milliseconds; 0 or more. Default 0: it is told
   * `InProgressError` at once. A call never waits beyond its deadline.
   */
  readonly waitMs?: number;
}

/** What a call of `execute` got. */
export interface Executed<Value> extends ExecutionFacts {
  /** As it is recorded: JSON gives a `Date` back as text, for the first caller and for every later one alike. */
  readonly value: Value;
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
  readonly #executions = new WeakMap<object, Map<string, ExecutionFlight>>();
  readonly #cache: ReplayCache | undefined;
  readonly #clock: StoreClock;

  /** @throws {InvalidArgumentError} */
  constructor(options: IdempotencyOptions) {
    checkNames(
      options,
      ["store", "prefix", "deadlineMs", "requestTimeoutMs", "cache", "runtime"],
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
    if (options.cache !== undefined) this.#cache = new ReplayCache(this.runtime, store.traits, options.cache);
  }

  /**
   * At most one effect: the first call of a key runs the operation, every other gets its result. Two writes for the first
   * call, two requests for every other.
   *
   * An error that the operation threw is thrown on; `executionOf(error)` tells what is known of it.
   *
   * @throws {IdempotencyConflictError} when the key was used with another input or operation, and something may have happened
   *   under it. Nothing is written.
   * @throws {InProgressError} when another owner is at it, or died a moment ago.
   * @throws {OperationHeldError} when a person has to decide.
   * @throws {OutcomeUnknownError} when the call ends after the effect began and before anything was recorded.
   * @throws {KeyTooOldError} when the key's time is known and older than the retry window.
   * @throws {ResultGoneError} when the operation is done and the object of its large result is gone.
   * @throws {InvalidArgumentError} before any request, saying what to change.
   * @throws {UnsupportedRecordError} for a record of a later version of this library.
   * @throws {StoreError} `UNAVAILABLE` when the deadline passes before any effect was started; others as the store.
   */
  async execute<Input, Value>(
    definition: OperationDefinition<Input, Value>,
    request: ExecuteRequest,
    input: Input,
  ): Promise<Executed<Value>> {
    checkObject(definition, "the operation");
    checkFunction(definition.run, "the operation must come from defineOperation: its run");
    checkNames(request, EXECUTE_NAMES, "the request, which has scope and key,");
    const startedAtMs = this.runtime.monotonicMs();
    const address = recordAddress(this.#prefix, request.scope, request.key);
    const inputHash = inputHashOf(definition, input, "operation");
    const deadlineMs = this.deadline(request.deadlineMs);
    const limits: ExecutionLimits = {
      deadlineMs,
      // No longer than a timer can wait.
      waitMs: Math.min(checkWaitMs(request.waitMs), deadlineMs),
      signal: request.signal,
    };
    const keyAge = this.#keyAge(definition, request, address.keyHash);
    checkNotWithin(this.store, address, inputHash);
    // Before there is a flight, which would wait for ever for somebody to begin it.
    checkSignal(limits.signal);
    limits.signal?.throwIfAborted();
    const cached = this.#cache?.find(address.name, inputHash);
    const { outcome, first } =
      cached === undefined
        ? await this.#fly(definition, address, inputHash, limits, keyAge, request.readFirst === true, input)
        : { outcome: replayOf(cached, definition), first: false };
    const { operationId, recorded } = outcome;
    const replayed = outcome.replayed || !first;
    const told = (kind: "value" | "failure"): void =>
      publish("firstwrite:executed", () => ({
        operation: definition.name,
        operationId,
        keyHash: address.keyHash,
        replayed,
        recorded,
        kind,
        durationMs: this.runtime.monotonicMs() - startedAtMs,
      }));
    let given: unknown;
    try {
      given = outcome.give();
    } catch (error) {
      told("failure");
      throw error;
    }
    told("value");
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what this operation's `run` returned, or a record whose `input_hash` says it was this operation's
    return { value: given as Value, operationId, replayed, recorded };
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
    const inputHash = inputHashOf(definition, input, "reservation");
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
    const value = copyOf(result.value) as Value;
    return { value, created, operationId };
  }

  /** The record of a key, for a person to look at; `undefined` where there is none. @throws as {@link reserve} */
  async inspect(where: RecordKey, limits: OperatorLimits = {}): Promise<Inspection | undefined> {
    return this.#operate(where, limits, inspectIn);
  }

  /**
   * Settles an operation that is `held`, or whose owner's lease is over, with what a person found out (rule E10). Taken on
   * trust: nothing checks that it is true.
   *
   * @throws {InvalidArgumentError} for a record with nothing to decide, or that is another operation's by now.
   * @throws {InProgressError} while its owner may be alive.
   * @throws {StoreError} as {@link reserve}.
   */
  async settle(
    where: RecordKey,
    answer: OperatorAnswer,
    note: OperatorNote,
    limits: OperatorLimits = {},
  ): Promise<Inspection> {
    return this.#operate(where, limits, (session, place) => settleByPerson(session, place, answer, note));
  }

  /**
   * Gives such an operation back to its `recovery`, which the next call begins; under `recovery: "hold"` that is a person
   * again. With `nothingHappened` the next call runs it: if something did happen, it happens twice. The key stays its input's.
   *
   * @throws as {@link settle}.
   */
  async release(
    where: RecordKey,
    note: OperatorNote & { readonly nothingHappened?: boolean },
    limits: OperatorLimits = {},
  ): Promise<Inspection> {
    return this.#operate(where, limits, (session, place) => releaseByPerson(session, place, note));
  }

  /**
   * The records with one of `statuses`, by default those that are not decided; of one scope, or of all. Each is one read, and
   * what cannot be read as a record is told, too. A listing may be late.
   *
   * @throws {StoreError} `UNSUPPORTED` where the store has no listing.
   */
  async *list(
    options: OperatorLimits & { readonly scope?: string; readonly statuses?: readonly RecordStatus[] } = {},
  ): AsyncGenerator<Inspection | UnreadableRecord> {
    checkNames(options, ["scope", "statuses", "deadlineMs", "signal"], "what list takes");
    const { scope, statuses = ["creating", "held"], signal } = options;
    const { store } = this;
    if (store.list === undefined) throw new StoreError("UNSUPPORTED", store.traits.name, "the store has no listing");
    const folder = scope === undefined ? this.#prefix : `${this.#prefix}${encodeScope(scope)}/`;
    for await (const { name } of store.list(folder, { signal })) {
      const found = await this.#call(options, (session) => inspectListed(session, this.#prefix, name));
      if (found === undefined) continue;
      if (found.status === "unreadable" || statuses.includes(found.status)) yield found;
    }
  }

  #operate<Result>(
    where: RecordKey,
    limits: OperatorLimits,
    act: (session: StoreSession, place: RecordPlace) => Promise<Result>,
  ): Promise<Result> {
    checkNames(where, ["scope", "key", "keyHash"], "where the record stands");
    checkNames(limits, ["deadlineMs", "signal"], "the limits of the call");
    const place =
      where.key === undefined
        ? recordPlace(this.#prefix, where.scope, where.keyHash)
        : recordAddress(this.#prefix, where.scope, where.key);
    return this.#call(limits, (session) => act(session, place));
  }

  async #call<Result>(
    { deadlineMs, signal }: OperatorLimits,
    act: (session: StoreSession) => Promise<Result>,
  ): Promise<Result> {
    const limits: CallLimits = { deadlineMs: this.deadline(deadlineMs), signal, advice: "inspect the record again" };
    const flight = new SingleFlight<Result>(this.runtime, this.store.traits.name);
    return (await flight.run("", limits, (life) => act(this.session(life)))).result;
  }

  /** For products: the store as the engine calls it, for as long as a flight lives. */
  session(life: FlightLife): StoreSession {
    return new StoreSession(this.store, {
      life,
      runtime: this.runtime,
      requestTimeoutMs: this.#requestTimeoutMs,
      clock: this.#clock,
    });
  }

  /** For products: a deadline as {@link reserve} would take it. @throws {InvalidArgumentError} */
  deadline(deadlineMs: number | undefined): number {
    return checkMs("deadlineMs", deadlineMs ?? this.#deadlineMs);
  }

  /** Joins the flight of the key, or starts one. */
  #fly<Input, Value>(
    definition: OperationDefinition<Input, Value>,
    address: RecordAddress,
    inputHash: Digest,
    limits: ExecutionLimits,
    keyAge: KeyAge | undefined,
    readFirst: boolean,
    input: Input,
  ): Promise<{ readonly outcome: ExecutionOutcome; readonly first: boolean }> {
    const flights = this.#executionsOf(definition);
    const flightKey = `${address.name} ${inputHash} ${keyAge?.issuedAt}`;
    const going = flights.get(flightKey);
    if (going?.isOpen === true) return going.join(limits);
    // Now, before the caller can change it.
    const copy = copyOfInput(definition, input);
    const flight: ExecutionFlight = new ExecutionFlight(this.runtime, this.store.traits.name, address.keyHash, () =>
      executeIn({
        store: this.store,
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- one flight is of one definition, and its input is a copy of that definition's
        operation: definition as OperationDefinition<unknown, unknown>,
        address,
        inputHash,
        input: copy,
        readFirst,
        keyAge,
        flight,
        openSession: (requestMsMax = this.#requestTimeoutMs) =>
          new StoreSession(this.store, {
            life: flight.life,
            runtime: this.runtime,
            requestTimeoutMs: Math.min(requestMsMax, this.#requestTimeoutMs),
            clock: this.#clock,
          }),
        remember: (record, ageMs, asOfMs) => this.#cache?.keep(address.name, record, ageMs, asOfMs),
      }).finally(() => {
        if (flights.get(flightKey) === flight) flights.delete(flightKey);
      }),
    );
    flights.set(flightKey, flight);
    return flight.join(limits);
  }

  #executionsOf(definition: object): Map<string, ExecutionFlight> {
    const known = this.#executions.get(definition);
    if (known !== undefined) return known;
    const flights = new Map<string, ExecutionFlight>();
    this.#executions.set(definition, flights);
    return flights;
  }

  #keyAge(
    { keyTime, retention }: Pick<ReservationDefinition<never>, "keyTime" | "retention">,
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

/**
 * With the name, so that two operations that share scope, key and input never replay each other; and of a reservation with
 * its kind, so that none is taken for an operation of the same name, whose effect it never had.
 */
function inputHashOf<Input>(
  { name, fingerprint }: Pick<OperationDefinition<Input, unknown>, "name" | "fingerprint">,
  input: Input,
  kind: "operation" | "reservation",
): Digest {
  const identity = canonicalJson(fingerprint(input), "the fingerprint of the input");
  const of = `${canonicalJson(name, "the operation's name")},${identity}`;
  return sha256(kind === "operation" ? `[${of}]` : `["reserve",${of}]`);
}

const EXECUTE_NAMES = ["scope", "key", "deadlineMs", "waitMs", "signal", "issuedAt", "readFirst"];

function checkWaitMs(waitMs = 0): number {
  if (typeof waitMs === "number" && waitMs >= 0) return waitMs;
  throw new InvalidArgumentError(`waitMs is ${String(waitMs)}: give milliseconds, 0 or more`);
}

/** @throws {InvalidArgumentError} for an input that `structuredClone` cannot copy. */
function copyOfInput<Input>({ copyInput, name }: OperationDefinition<Input, unknown>, input: Input): Input {
  if (typeof input !== "object" && typeof input !== "function") return input;
  try {
    return copyInput(input);
  } catch (cause) {
    throw new InvalidArgumentError(
      `the input of ${JSON.stringify(name)} cannot be copied: give plain data, or a copyInput of your own to defineOperation`,
      { cause },
    );
  }
}

function checkMs(name: string, ms: number): number {
  if (!Number.isFinite(ms) || ms <= 0) {
    throw new InvalidArgumentError(`${name} is ${String(ms)}: give milliseconds above 0`);
  }
  if (ms >= MS_BELOW) throw new InvalidArgumentError(`${name} is ${ms}: give less than an hour (${MS_BELOW})`);
  return ms;
}
