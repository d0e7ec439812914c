/** One route under the header: what every integration does, over whatever its framework has for requests and responses. */

import {
  defineOperation,
  executionOf,
  IdempotencyConflictError,
  InProgressError,
  InvalidArgumentError,
  KeyTooOldError,
  OperationHeldError,
  OutcomeUnknownError,
  ResultGoneError,
  StoreError,
  UnsupportedRecordError,
  type EffectContext,
  type Executed,
  type OperationDefinition,
  type Reconciled,
  type RecordedFailure,
} from "@firstwrite/core";

import { readResponse, toResponse, UnrecordableAnswerError, type Answer, type HandlerAnswer } from "./answer.ts";
import { contextOf, unprotectedContext, type IdempotencyContext } from "./context.ts";
import { parseIdempotencyKey } from "./key.ts";
import { checkOptions, idempotencyScope, type IdempotentOptions, type Settings } from "./options.ts";
import { fateOf, type Fate } from "./policy.ts";
import { problemAnswer, type ProblemFacts, type ProblemName } from "./problem.ts";
import { LocalRuns } from "./local-runs.ts";
import { answerOf, asRecordedResponse, isSameResponse, recordOf, type RecordedResponse } from "./recorded-response.ts";
import { identityOf, type RequestBody } from "./request-body.ts";

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
  /** The request anew, with a body that can be read, for one more who wants it. */
  readonly again: (context: IdempotencyContext) => Incoming;
  /**
   * Runs the handler, and takes its whole answer before anything is sent.
   *
   * @throws {UnrecordableAnswerError}
   */
  readonly run: (context: IdempotencyContext) => Promise<HandlerAnswer>;
}

/** `pass`: the header means nothing here, and the handler answers as if there were no such thing as this package. */
export type Decided =
  | { readonly kind: "pass" }
  /** What the principal answered, untouched. */
  | { readonly kind: "refused"; readonly response: Response }
  | { readonly kind: "answer"; readonly answer: Answer };

/** What the engine takes as an operation's input: one request. */
interface Call<Incoming> {
  readonly exchange: Exchange<Incoming>;
  readonly scope: string;
  readonly key: string;
  readonly identity: string;
  readonly body: Uint8Array | undefined;
  /** The handler, or the question to the ledger, was begun for this very request. */
  began: boolean;
  /** What its handler answered, with the headers that are not recorded. */
  own: { readonly answer: HandlerAnswer; readonly recorded: RecordedResponse } | undefined;
}

/** Thrown through the engine: an answer that is not the operation's, or a recorded one that is a failure (rule E7). */
class AnsweredWith extends Error {
  readonly recorded: RecordedResponse;
  readonly fate: Fate;

  constructor(recorded: RecordedResponse, fate: Fate) {
    super(`the handler answered ${recorded.status}`);
    this.name = "AnsweredWith";
    this.recorded = recorded;
    this.fate = fate;
  }
}

/** A record that holds something else than a response of ours. */
class UnusableRecordError extends Error {}

/** `reconcile` threw: whatever it was, it says nothing of the engine, nor of its store. */
class ReconcileFailedError extends Error {}

export class IdempotentRoute<Incoming> {
  readonly settings: Settings<Incoming>;
  readonly #operations: ReadonlyMap<string, OperationDefinition<Call<Incoming>, RecordedResponse>>;
  readonly #runs: LocalRuns;

  /** @throws {InvalidArgumentError} */
  constructor(options: IdempotentOptions<Incoming>) {
    this.settings = checkOptions(options);
    this.#runs = new LocalRuns(this.settings.idempotency.runtime);
    this.#operations = new Map(this.settings.methods.map((method) => [method, this.#operation(method)]));
  }

  /** Rejects, for what the author has to mend, before the handler has begun; and never after. */
  async decide(exchange: Exchange<Incoming>): Promise<Decided> {
    const operation = this.#operations.get(exchange.method);
    if (operation === undefined) return { kind: "pass" };
    const field = exchange.header("idempotency-key");
    const { key: keyOptions, fingerprint, bodyBytesMax } = this.settings;
    if (field === undefined && !keyOptions.required) return { kind: "pass" };

    const principal = await this.#principal(exchange.incoming);
    if (typeof principal !== "string") return { kind: "refused", response: principal };
    const parsed = parseIdempotencyKey(field, keyOptions);
    if (parsed.kind === "missing") return this.#refuse("key-missing");
    if (parsed.kind === "invalid") return this.#refuse("key-invalid", { detail: `Invalid: ${parsed.why}.` });
    const body = await this.#readBody(exchange);
    if (body === "too large") {
      return this.#refuse("body-too-large", { detail: `The most that this resource takes is ${bodyBytesMax} bytes.` });
    }
    const { route } = this.settings;
    const call: Call<Incoming> = {
      exchange,
      scope: idempotencyScope({ principal, method: exchange.method, route }),
      key: parsed.key,
      identity: identityOf(fingerprint, exchange.target, exchange.header("content-type"), body, exchange.incoming),
      body: body.kind === "bytes" ? body.bytes : undefined,
      began: false,
      own: undefined,
    };
    return { kind: "answer", answer: await this.#answer(operation, call) };
  }

  /** For a handler that runs though nothing is recorded. */
  unprotected(body?: Uint8Array): IdempotencyContext {
    const { idempotency, deadlineMs } = this.settings;
    return unprotectedContext(idempotency.runtime, deadlineMs, body);
  }

  async #principal(incoming: Incoming): Promise<string | Response> {
    let principal: unknown;
    try {
      principal = await this.settings.principal(incoming);
    } catch (thrown) {
      if (!(thrown instanceof Response)) throw thrown;
      principal = thrown;
    }
    if (principal instanceof Response || (typeof principal === "string" && principal !== "")) return principal;
    throw new InvalidArgumentError(
      "principal must return who asks, a string that is not empty, or a Response that refuses: without it, keys of " +
        "different callers would meet",
    );
  }

  async #readBody({ header, readBody }: Exchange<Incoming>): Promise<RequestBody | "too large"> {
    const { bodyBytesMax } = this.settings;
    // Before a byte of it is read; a request that says nothing, or too little, is counted.
    if (Number(header("content-length") ?? 0) > bodyBytesMax) return "too large";
    return readBody(bodyBytesMax);
  }

  async #answer(
    operation: OperationDefinition<Call<Incoming>, RecordedResponse>,
    call: Call<Incoming>,
  ): Promise<Answer> {
    try {
      const { value, operationId, replayed, recorded: isRecorded } = await this.#execute(operation, call);
      const recorded = asRecordedResponse(value);
      if (recorded === undefined) return this.#problem("record-unusable", {}, operationId);
      return this.#deliver(call, recorded, operationId, replayed && isRecorded);
    } catch (error) {
      return this.#answerOfError(call, error);
    }
  }

  /**
   * Waits as `waitMs` says: here for a run of this process, and between two looks for another's. The engine's own waiting is
   * not used, for a client that hangs up ends the waiting, and must not end a claim that is being made meanwhile.
   */
  async #execute(
    operation: OperationDefinition<Call<Incoming>, RecordedResponse>,
    call: Call<Incoming>,
  ): Promise<Executed<RecordedResponse>> {
    const { idempotency, waitMs, deadlineMs, readFirst } = this.settings;
    const { scope, key } = call;
    const wait = this.#runs.wait(waitMs, call.exchange.gone);
    try {
      for (let looks = 0; ; looks += 1) {
        try {
          return await this.#runs.unlessAnother(call, `${scope} ${key} ${call.identity}`, wait, () =>
            idempotency.execute(operation, { scope, key, deadlineMs, readFirst: readFirst || looks > 0 }, call),
          );
        } catch (error) {
          if (!InProgressError.is(error) || !(await wait.pause(looks))) throw error;
        }
      }
    } finally {
      wait.end();
    }
  }

  #operation(method: string): OperationDefinition<Call<Incoming>, RecordedResponse> {
    const { route, recovery, operation } = this.settings;
    return defineOperation<Call<Incoming>, RecordedResponse>({
      ...operation,
      name: `${method} ${route}`,
      fingerprint: ({ identity }) => identity,
      // Made for this call alone, and nobody else's to change.
      copyInput: (call) => call,
      run: (call, effect) => this.#during(call, effect, () => this.#run(call, effect)),
      recovery:
        typeof recovery !== "object" || recovery === null
          ? recovery
          : {
              ...recovery,
              reconcile: (call, effect) =>
                this.#during(call, effect, () => this.#reconcile(recovery.reconcile, call, effect)),
            },
      onError: (error) => (error instanceof AnsweredWith ? meanings[error.fate] : "recover"),
      serializeError: (error) => (error instanceof AnsweredWith ? { response: error.recorded } : {}),
      deserializeError: failureOf,
    });
  }

  async #during<Result>(call: Call<Incoming>, effect: EffectContext, act: () => Promise<Result>): Promise<Result> {
    call.began = true;
    const { scope, key, identity } = call;
    const ends = this.#runs.begins(call, `${scope} ${key} ${identity}`, effect);
    try {
      return await act();
    } finally {
      ends();
    }
  }

  async #run(call: Call<Incoming>, effect: EffectContext): Promise<RecordedResponse> {
    const { record, isReplayed } = this.settings;
    let answer: HandlerAnswer;
    try {
      answer = await call.exchange.run(contextOf(effect, call.body));
    } catch (error) {
      this.#tell(error);
      if (UnrecordableAnswerError.is(error)) throw error;
      answer = this.#failed(error);
    }
    const fate = fateOf(record, answer);
    const recorded = recordOf(answer, isReplayed);
    call.own = { answer, recorded };
    // A failure goes the engine's way for failures: after a takeover it is not final, because the owner before may yet succeed.
    if (fate === "record" && answer.status < 400) return recorded;
    throw new AnsweredWith(recorded, fate);
  }

  /** What is answered where nobody made a response of what the handler threw. */
  #failed(error: unknown): HandlerAnswer {
    const { record, docs } = this.settings;
    const thrown = { error };
    const inherited = new Set<string>();
    const answer = { ...problemAnswer("handler-failed-for-good", { docs }), inherited, thrown };
    return fateOf(record, answer) === "record"
      ? answer
      : { ...problemAnswer("handler-failed", { docs, retryAfterMs: RETRY_AFTER_MS }), inherited, thrown };
  }

  async #reconcile(
    reconcile: Exclude<Settings<Incoming>["recovery"], string>["reconcile"],
    { exchange, body }: Call<Incoming>,
    effect: EffectContext,
  ): Promise<Reconciled<RecordedResponse>> {
    const { answerBytesMax, isReplayed } = this.settings;
    const context = contextOf(effect, body);
    try {
      const found = await reconcile(exchange.again(context), context);
      if (found === "absent" || found === "unknown") return found;
      if (!(found instanceof Response)) throw new InvalidArgumentError(RECONCILE_ANSWERS);
      return { found: recordOf(await readResponse(found, answerBytesMax), isReplayed) };
    } catch (cause) {
      this.#tell(cause);
      throw new ReconcileFailedError("reconcile failed", { cause });
    }
  }

  /** The operation's answer. Whoever's handler made it gets it with the headers that nobody else gets. */
  #deliver({ own }: Call<Incoming>, recorded: RecordedResponse, operationId: string, replayed: boolean): Answer {
    const isOwn = own !== undefined && isSameResponse(own.recorded, recorded);
    return withHeaders(isOwn ? own.answer : answerOf(recorded), operationId, replayed);
  }

  async #answerOfError(call: Call<Incoming>, error: unknown): Promise<Answer> {
    const { storeAway, operation } = this.settings;
    // What we threw ourselves, through the engine.
    const { operationId = "", recorded = false } = executionOf(error) ?? {};
    if (error instanceof AnsweredWith) {
      // A failure that was to be final and is not recorded is not final: an owner before may still succeed (rule E7), or the next
      // request may find out otherwise. "Declined, use a new key" would be paid twice.
      if (error.fate === "record" && !recorded) {
        return this.#problem("outcome-unknown", { retryAfterMs: RETRY_AFTER_MS }, operationId);
      }
      // What is given back may be another answer for the next request: whoever shared its run is not told that it is a replay.
      return this.#deliver(call, error.recorded, operationId, recorded && !call.began);
    }
    if (UnrecordableAnswerError.is(error)) return this.#problem("answer-not-recordable", {}, operationId);
    if (error instanceof UnusableRecordError) return this.#problem("record-unusable", {}, operationId);
    if (error instanceof ReconcileFailedError) {
      return this.#problem("outcome-unknown", { retryAfterMs: RETRY_AFTER_MS }, operationId);
    }
    // What the engine says.
    if (InProgressError.is(error)) {
      return this.#problem("in-progress", { retryAfterMs: error.retryAfterMs }, error.operationId);
    }
    if (IdempotencyConflictError.is(error)) return this.#problem("key-reused", {}, error.operationId);
    if (OutcomeUnknownError.is(error)) {
      return this.#problem("outcome-unknown", { retryAfterMs: RETRY_AFTER_MS }, error.operationId);
    }
    if (OperationHeldError.is(error)) return this.#problem("held", { retryAfterMs: HELD_MS }, error.operationId);
    if (KeyTooOldError.is(error)) return this.#problem("key-too-old", {}, error.operationId);
    if (ResultGoneError.is(error)) return this.#problem("answer-gone", {}, error.operationId);
    // Another process, which is newer, can read it.
    if (UnsupportedRecordError.is(error)) return this.#problem("store-unavailable", { retryAfterMs: RETRY_AFTER_MS });
    if (StoreError.is(error)) {
      this.#tell(error);
      // The engine's word for "nothing was started"; should it ever say so after that, nothing is run again.
      if (call.began) return this.#problem("outcome-unknown", { retryAfterMs: RETRY_AFTER_MS });
      if (error.code === "UNAVAILABLE" && storeAway === "run_unprotected") return this.#bare(call);
      if (error.code === "CORRUPT") return this.#problem("record-unusable", {});
      return this.#problem("store-unavailable", { retryAfterMs: RETRY_AFTER_MS });
    }
    // With `keyTime` the engine reads the time in the key.
    if (operation.keyTime === true && InvalidArgumentError.is(error)) {
      return this.#problem("key-invalid", {
        detail: "The key must be a UUID of version 7 or a ULID, made by a right clock.",
      });
    }
    if (!call.began) throw error;
    this.#tell(error);
    return this.#problem("outcome-unknown", { retryAfterMs: RETRY_AFTER_MS }, operationId);
  }

  /** Asked for by name: as if there were no key. */
  async #bare({ exchange, body }: Call<Incoming>): Promise<Answer> {
    try {
      return await exchange.run(this.unprotected(body));
    } catch (error) {
      this.#tell(error);
      const { docs } = this.settings;
      return problemAnswer(UnrecordableAnswerError.is(error) ? "answer-not-recordable" : "handler-failed", { docs });
    }
  }

  #refuse(name: ProblemName, facts: Omit<ProblemFacts, "docs"> = {}): Decided {
    return { kind: "answer", answer: this.#problem(name, facts) };
  }

  #problem(name: ProblemName, facts: Omit<ProblemFacts, "docs">, operationId?: string): Answer {
    const answer = problemAnswer(name, { ...facts, docs: this.settings.docs });
    return operationId === undefined ? answer : withHeaders(answer, operationId, false);
  }

  /** A listener that fails must not change what becomes of the operation. */
  #tell(error: unknown): void {
    try {
      this.settings.onHandlerError(error);
    } catch (failure) {
      console.error(failure);
    }
  }
}

/** A client that is told nothing better tries again after this long, in milliseconds. */
const RETRY_AFTER_MS = 1_000;
/** A person is slower. */
const HELD_MS = 60_000;

const RECONCILE_ANSWERS =
  'reconcile must answer with the Response that the operation had, "absent" or "unknown": nothing else says what to do';

const meanings = { record: "replay", release: "retry", recover: "recover" } as const;

function failureOf({ details }: RecordedFailure): Error {
  const recorded = asRecordedResponse(details?.["response"]);
  return recorded === undefined ? new UnusableRecordError() : new AnsweredWith(recorded, "record");
}

/** What our headers say is ours to say. */
function withHeaders({ status, headers, body }: Answer, operationId: string, replayed: boolean): Answer {
  const others = headers.filter(([name]) => !/^idempot(ent-replayed|ency-operation-id)$/i.test(name));
  const replay: readonly (readonly [string, string])[] = replayed ? [["Idempotent-Replayed", "true"]] : [];
  return { status, headers: [...others, ["Idempotency-Operation-Id", operationId], ...replay], body };
}

/** A `Response` of an answer of {@link IdempotentRoute.decide}. */
export function responseOf(decided: Exclude<Decided, { kind: "pass" }>): Response {
  return decided.kind === "refused" ? decided.response : toResponse(decided.answer);
}
