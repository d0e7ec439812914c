/** One route under the header: what every integration does, for a handler and for an operation of the author's own. */

import {
  canonicalJson,
  checkIssuedAt,
  executionOf,
  IdempotencyConflictError,
  InProgressError,
  InvalidArgumentError,
  KeyTooOldError,
  noteExecution,
  OperationHeldError,
  OutcomeUnknownError,
  recordAddress,
  ResultGoneError,
  StoreError,
  timeOfKey,
  UnsupportedRecordError,
  type EffectContext,
  type ErrorMeaning,
  type Executed,
  type ExecutionFacts,
  type OperationDefinition,
  type RecordedFailure,
  type RunContext,
} from "@firstwrite/core";

import { toResponse, UnrecordableAnswerError, type Answer } from "./answer.ts";
import { parseKey } from "./key.ts";
import { LocalRuns } from "./local-runs.ts";
import type { OperationOutcome } from "./operation-options.ts";
import type { RouteSettings } from "./options.ts";
import { problemAnswer, type ProblemFacts, type ProblemName } from "./problem.ts";
import type { RequestBody } from "./request-body.ts";

/** A request and its response, as a framework has them. */
export interface Exchange<Incoming> {
  readonly incoming: Incoming;
  readonly method: string;
  /** Path and query as they came, without the origin. */
  readonly target: string;
  /** A header's value; several lines joined by commas (RFC 9110 §5.3). `undefined`: there is none. */
  readonly header: (name: string) => string | undefined;
  /** The client has hung up. It ends this request's waiting, and nothing else. */
  readonly gone: AbortSignal;
  /** The body, read once. `"too large"`: more than `bytesMax`. */
  readonly readBody: (bytesMax: number) => Promise<RequestBody | "too large">;
  /** The request anew, with a body that can be read, for one more who wants it; never with its client's signal. */
  readonly again: (signal?: AbortSignal) => Incoming;
}

/** `pass`: the header means nothing here, and whoever is next answers as if there were no such thing as this package. */
export type Decided =
  | { readonly kind: "pass" }
  /** What the author's own code answered before anything was begun, untouched. */
  | { readonly kind: "refused"; readonly response: Response }
  | { readonly kind: "answer"; readonly answer: Answer };

/** A request whose key is good. */
export interface Keyed {
  readonly principal: string;
  readonly scope: string;
  readonly key: string;
  readonly keyHash: string;
  readonly body: RequestBody;
}

/** What becomes of a request whose key is good: all that a handler and an operation differ in. */
export interface Way<Incoming, Of extends Exchange<Incoming>, Input, Value> {
  readonly settings: RouteSettings<Incoming>;
  readonly operationOf: (method: string) => OperationDefinition<Input, Value>;
  readonly scope: (principal: string, method: string) => string;
  /** The operation's input, before the key is claimed; a `Response` refuses the request. */
  readonly prepare: (
    exchange: Of,
    keyed: Keyed,
  ) => Promise<{ readonly input: Input; readonly issuedAt?: number } | Response>;
  /** The answer of what was returned, or is recorded: it may be what a person settled with. `undefined`: it cannot be used. */
  readonly answer: (
    value: Value,
    outcome: OperationOutcome,
    input: Input,
  ) => Answer | undefined | Promise<Answer | undefined>;
  /** The answer of what the operation threw. `undefined`: it is told, and one of ours. */
  readonly failure: (
    error: unknown,
    facts: { readonly operationId: string; readonly recorded: boolean },
    input: Input,
  ) => Answer | ProblemName | undefined | Promise<Answer | ProblemName | undefined>;
  /** Is told what the operation threw after everybody who waited for it had left. */
  readonly unheard?: (error: unknown) => void;
  /** What is done while the store is away; by default the request is refused. */
  readonly storeAway?: ((input: Input) => Promise<Answer>) | undefined;
}

/** What the engine takes as an operation's input: that of one request. */
interface Call<Input> {
  readonly input: Input;
  readonly scope: string;
  readonly key: string;
  readonly issuedAt: number | undefined;
  /** As the operation says what identifies its input. */
  readonly fingerprint: unknown;
  /** Calls of one name have one answer. */
  readonly name: string;
  /** The same for all copies of this call. */
  readonly state: {
    /** The effect, or the question to the ledger, was begun for this very request. */
    began: boolean;
  };
}

/** An operation, and the same as it is run here: told which request it runs for. */
interface Runnable<Input, Value> {
  readonly own: OperationDefinition<Input, Value>;
  readonly run: OperationDefinition<Call<Input>, Value>;
}

export class KeyedRoute<Incoming, Of extends Exchange<Incoming>, Input, Value> {
  readonly #way: Way<Incoming, Of, Input, Value>;
  readonly #operations: ReadonlyMap<string, Runnable<Input, Value>>;
  readonly #runs: LocalRuns;

  constructor(way: Way<Incoming, Of, Input, Value>) {
    this.#way = way;
    const { idempotency, methods } = way.settings;
    this.#runs = new LocalRuns(idempotency.runtime);
    const runnables = new Map<OperationDefinition<Input, Value>, Runnable<Input, Value>>();
    this.#operations = new Map(
      methods.map((method) => {
        const own = way.operationOf(method);
        const runnable = runnables.get(own) ?? { own, run: this.#runnable(own) };
        runnables.set(own, runnable);
        return [method, runnable];
      }),
    );
  }

  /** Rejects, for what the author has to mend, before the effect has begun; and never after. */
  async decide(exchange: Of): Promise<Decided> {
    const operation = this.#operations.get(exchange.method);
    if (operation === undefined) return { kind: "pass" };
    const { scope, prepare, settings } = this.#way;
    const field = exchange.header("idempotency-key");
    if (field === undefined && !settings.key.required) return { kind: "pass" };

    const principal = await orThrownResponse(() => settings.principal(exchange.incoming));
    if (principal instanceof Response) return refused(principal);
    checkPrincipal(principal);
    const parsed = parseKey(field, settings.key);
    if (parsed.kind === "missing") return this.#refuse("key-missing");
    if (parsed.kind === "invalid") return this.#refuse("key-invalid", { detail: `Invalid: ${parsed.why}.` });
    const { key } = parsed;
    const where = scope(principal, exchange.method);
    const { keyHash } = recordAddress("idempotency/", where, key);
    const body = await this.#readBody(exchange);
    if (body === "too large") {
      const { bodyBytesMax } = settings;
      return this.#refuse("body-too-large", { detail: `The most that this resource takes is ${bodyBytesMax} bytes.` });
    }
    const prepared = await orThrownResponse(() => prepare(exchange, { principal, scope: where, key, keyHash, body }));
    if (prepared instanceof Response) return refused(prepared);
    const { input, issuedAt } = prepared;
    const fingerprint = operation.own.fingerprint(input);
    // No scope and key can be taken for another two.
    const name = JSON.stringify([where, key, canonicalJson(fingerprint, "the fingerprint of the input")]);
    const state = { began: false };
    const call = { input, scope: where, key, issuedAt, fingerprint, name, state };
    return { kind: "answer", answer: await this.#answer(operation, exchange, call) };
  }

  async #readBody({ header, readBody }: Of): Promise<RequestBody | "too large"> {
    const { bodyBytesMax } = this.#way.settings;
    // Before a byte of it is read; a request that says nothing, or too little, is counted.
    if (Number(header("content-length") ?? 0) > bodyBytesMax) return "too large";
    return readBody(bodyBytesMax);
  }

  async #answer(operation: Runnable<Input, Value>, exchange: Of, call: Call<Input>): Promise<Answer> {
    let executed: Executed<Value> | undefined;
    try {
      executed = await this.#execute(operation.run, exchange, call);
    } catch (error) {
      return this.#answerOfError(operation.own, call, error);
    }
    if (executed === undefined) return this.#problem("store-unavailable");
    const { value, operationId, recorded } = executed;
    const replayed = executed.replayed && recorded;
    if (!recorded) {
      this.#tell(
        new Error(
          `operation ${operationId} was done, and what it came to could not be recorded: the store was away, or it is no JSON`,
        ),
      );
    }
    try {
      const answer = await this.#way.answer(value, { operationId, replayed }, call.input);
      if (answer !== undefined) return withHeaders(answer, operationId, replayed);
    } catch (error) {
      this.#tell(error);
      if (UnrecordableAnswerError.is(error)) return this.#problem("answer-not-recordable", { operationId });
    }
    return this.#problem("record-unusable", { operationId });
  }

  /**
   * Waits as `waitMs` says: here for a run of this process, and between two looks for another's. The engine's own waiting is
   * not used, for a client that hangs up ends the waiting, and must not end a claim that is being made meanwhile.
   *
   * `undefined`: the request had no time left for anything to be begun.
   */
  async #execute(
    operation: OperationDefinition<Call<Input>, Value>,
    { incoming, gone }: Of,
    call: Call<Input>,
  ): Promise<Executed<Value> | undefined> {
    const { idempotency, waitMs, deadlineMs, readFirst } = this.#way.settings;
    const { scope, key, issuedAt } = call;
    const leftMs = (): number =>
      typeof deadlineMs === "number" ? deadlineMs : checkLeftMs(() => deadlineMs(incoming));
    let left = leftMs();
    if (left <= 0) return undefined;
    const wait = this.#runs.wait(typeof deadlineMs === "number" ? waitMs : Math.min(waitMs, left), gone);
    try {
      for (let looks = 0; ; looks += 1) {
        try {
          const request = { scope, key, issuedAt, deadlineMs: left, readFirst: readFirst || looks > 0 };
          return await this.#runs.unlessAnother(call.state, call.name, wait, () =>
            idempotency.execute(operation, request, call),
          );
        } catch (error) {
          if (!InProgressError.is(error) || isThrown(error) || !(await wait.pause(looks))) throw error;
          left = leftMs();
          if (left <= 0) throw error;
        }
      }
    } finally {
      wait.end();
    }
  }

  #runnable(own: OperationDefinition<Input, Value>): OperationDefinition<Call<Input>, Value> {
    const { recovery, deserializeError } = own;
    return Object.freeze({
      ...own,
      onError: (error: unknown) => own.onError(errorOf(error)),
      serializeError: (error: unknown) => own.serializeError(errorOf(error)),
      deserializeError: deserializeError && ((failure: RecordedFailure) => new Thrown(deserializeError(failure))),
      fingerprint: ({ fingerprint }: Call<Input>) => fingerprint,
      copyInput: (call: Call<Input>) => ({ ...call, input: own.copyInput(call.input) }),
      run: (call: Call<Input>, effect: RunContext) => this.#during(call, effect, () => own.run(call.input, effect)),
      recovery:
        typeof recovery === "string"
          ? recovery
          : {
              ...recovery,
              reconcile: (call: Call<Input>, effect: EffectContext) =>
                this.#during(call, effect, () => recovery.reconcile(call.input, effect)),
            },
    });
  }

  async #during<Result>(
    { name, state }: Call<Input>,
    effect: EffectContext,
    act: () => Result | PromiseLike<Result>,
  ): Promise<Result> {
    state.began = true;
    const ends = this.#runs.begins(state, name, effect);
    try {
      return await act();
    } catch (error) {
      if (effect.remainingMs === 0) {
        noteExecution(error, { operationId: effect.operationId, replayed: false, recorded: false });
        this.#way.unheard?.(error);
      }
      // oxlint-disable-next-line typescript/only-throw-error -- it goes no further than this file
      throw new Thrown(error, effect.signal);
    } finally {
      ends();
    }
  }

  async #answerOfError(own: OperationDefinition<Input, Value>, call: Call<Input>, error: unknown): Promise<Answer> {
    const facts = executionOf(error);
    if (facts !== undefined) {
      // For whoever is told it. Nothing here is decided by it.
      noteExecution(errorOf(error), facts);
      const isOver = error instanceof Thrown && error.signal?.aborted === true;
      return this.#answerOfFailure(own, call, errorOf(error), facts, isOver);
    }
    // What the engine says.
    if (InProgressError.is(error)) {
      const { operationId, retryAfterMs } = error;
      return this.#problem("in-progress", { operationId, retryAfterMs });
    }
    if (IdempotencyConflictError.is(error)) return this.#problem("key-reused", error);
    if (OutcomeUnknownError.is(error)) return this.#problem("outcome-unknown", error);
    if (OperationHeldError.is(error)) return this.#problem("held", error);
    if (KeyTooOldError.is(error)) return this.#problem("key-too-old", error);
    if (ResultGoneError.is(error)) return this.#problem("answer-gone", error);
    // Another process, which is newer, can read it.
    if (UnsupportedRecordError.is(error)) return this.#problem("store-unavailable");
    if (StoreError.is(error)) {
      this.#tell(error);
      // The engine's word for "nothing was started"; should it ever say so after that, nothing is run again.
      if (call.state.began) return this.#problem("outcome-unknown");
      const { storeAway } = this.#way;
      if (error.code === "UNAVAILABLE" && storeAway !== undefined) return storeAway(call.input);
      return this.#problem(error.code === "CORRUPT" ? "record-unusable" : "store-unavailable");
    }
    if (InvalidArgumentError.is(error) && !call.state.began) {
      const detail = this.#faultOfTime(own, call);
      if (detail === undefined) throw error;
      return this.#problem("key-invalid", { detail });
    }
    // What is neither, such as what `deserializeError` threw.
    this.#tell(error);
    return this.#problem("outcome-unknown");
  }

  async #answerOfFailure(
    own: OperationDefinition<Input, Value>,
    call: Call<Input>,
    error: unknown,
    { operationId, recorded, earlierMaySucceed = false }: ExecutionFacts,
    isOver: boolean,
  ): Promise<Answer> {
    const meaning = meaningOf(own, error);
    // A failure that was to be final and is not recorded is not final: an owner before may still succeed (rule E7), or the next
    // request may find out otherwise. Nor did nothing happen where only the last attempt says so, or says it once its signal has
    // aborted, when the error may be about that alone. "Declined, use a new key" would be paid twice.
    const isUnsure = meaning === "replay" || (meaning === "retry" && (earlierMaySucceed || isOver));
    if (!recorded && isUnsure) {
      if (call.state.began) this.#tell(error);
      return this.#problem("outcome-unknown", { operationId });
    }
    try {
      const answer = await this.#way.failure(error, { operationId, recorded }, call.input);
      if (typeof answer === "string") return this.#problem(answer, { operationId });
      // What is given back may be another answer for the next request: whoever shared its run is not told that it is a replay.
      if (answer !== undefined) return withHeaders(answer, operationId, recorded && !call.state.began);
    } catch (failure) {
      this.#tell(failure);
    }
    if (call.state.began) this.#tell(error);
    return this.#problem(recorded ? "operation-failed-for-good" : "outcome-unknown", { operationId });
  }

  /** What is wrong with a key's time, for the client; `undefined`: nothing that a client could mend. */
  #faultOfTime({ keyTime }: OperationDefinition<Input, Value>, { key, issuedAt }: Call<Input>): string | undefined {
    if (!keyTime && issuedAt === undefined) return undefined;
    try {
      checkIssuedAt(issuedAt ?? timeOfKey(key), this.#way.settings.idempotency.runtime.now());
      return undefined;
    } catch {
      return keyTime
        ? "The key must be a UUID of version 7 or a ULID, made by a right clock."
        : "The key was made more than a day in the future.";
    }
  }

  #refuse(name: ProblemName, facts: Omit<ProblemFacts, "docs"> = {}): Decided {
    return { kind: "answer", answer: this.#problem(name, facts) };
  }

  #problem(name: ProblemName, { operationId, retryAfterMs, detail }: Omit<ProblemFacts, "docs"> = {}): Answer {
    const answer = problemAnswer(name, { operationId, retryAfterMs, detail, docs: this.#way.settings.docs });
    return operationId === undefined ? answer : withHeaders(answer, operationId, false);
  }

  #tell(error: unknown): void {
    tell(this.#way.settings.onError, error);
  }
}

/**
 * What an operation threw, as it goes through the engine: a new one each time. What is known of an execution is noted with its
 * error, and an operation may throw one and the same for all of its executions; nor is any taken for the engine's own.
 */
class Thrown {
  readonly error: unknown;
  /** Of the effect that threw it; `undefined`: it was recorded. */
  readonly signal: AbortSignal | undefined;

  constructor(error: unknown, signal?: AbortSignal) {
    this.error = error;
    this.signal = signal;
  }

  // What of it the engine records.
  get name(): unknown {
    return memberOf(this.error, "name");
  }

  get message(): unknown {
    return memberOf(this.error, "message");
  }

  get code(): unknown {
    return memberOf(this.error, "code");
  }

  toString(): string {
    return String(this.error);
  }
}

function memberOf(error: unknown, name: string): unknown {
  return typeof error === "object" && error !== null ? Reflect.get(error, name) : undefined;
}

function errorOf(thrown: unknown): unknown {
  return thrown instanceof Thrown ? thrown.error : thrown;
}

/** What the operation threw, now or when it was recorded. */
function isThrown(error: unknown): boolean {
  return error instanceof Thrown || executionOf(error) !== undefined;
}

/** A listener that fails must not change what becomes of the operation. */
export function tell(onError: (error: unknown) => void, error: unknown): void {
  try {
    onError(error);
  } catch (failure) {
    console.error(failure);
  }
}

/** A `Response` that is thrown is an answer, as many routers have it. */
async function orThrownResponse<Result>(
  work: () => Result | Response | PromiseLike<Result | Response>,
): Promise<Result | Response> {
  try {
    return await work();
  } catch (thrown) {
    if (thrown instanceof Response) return thrown;
    throw thrown;
  }
}

/** @throws {InvalidArgumentError} for a `Response` that has answered another request. */
function refused(response: Response): Decided {
  if (!response.bodyUsed) return { kind: "refused", response };
  throw new InvalidArgumentError(
    "the Response that refuses the request was sent before: make a new one for each request",
  );
}

function checkPrincipal(principal: unknown): void {
  if (typeof principal === "string" && principal !== "") return;
  throw new InvalidArgumentError(
    "principal must return who asks, a string that is not empty, or a Response that refuses: without it, keys of " +
      "different callers would meet",
  );
}

function checkLeftMs(ask: () => number): number {
  let leftMs: number;
  try {
    leftMs = ask();
  } catch (cause) {
    throw new InvalidArgumentError("deadlineMs(request) threw: it is to say what is left of the request's time", {
      cause,
    });
  }
  if (typeof leftMs === "number" && !Number.isNaN(leftMs)) return leftMs;
  throw new InvalidArgumentError(
    `deadlineMs(request) is ${String(leftMs)}: give what is left of the request's time, in milliseconds`,
  );
}

/** Asked anew, for the engine does not ask when the effect's signal has aborted. */
function meaningOf({ onError }: Pick<OperationDefinition<never, never>, "onError">, error: unknown): ErrorMeaning {
  try {
    return onError(error);
  } catch {
    return "recover";
  }
}

/** What our headers say is ours to say. */
function withHeaders({ status, headers, body }: Answer, operationId: string, replayed: boolean): Answer {
  const others = headers.filter(([name]) => !/^idempot(ent-replayed|ency-operation-id)$/i.test(name));
  const replay: readonly (readonly [string, string])[] = replayed ? [["Idempotent-Replayed", "true"]] : [];
  return { status, headers: [...others, ["Idempotency-Operation-Id", operationId], ...replay], body };
}

/** A `Response` of what was decided. */
export function responseOf(decided: Exclude<Decided, { kind: "pass" }>): Response {
  return decided.kind === "refused" ? decided.response : toResponse(decided.answer);
}
