/** A handler under the header: an operation is made of it, whose value is the whole answer. */

import {
  defineOperation,
  InvalidArgumentError,
  type EffectContext,
  type OperationDefinition,
  type Reconciled,
  type RecordedFailure,
} from "@firstwrite/core";

import { readResponse, UnrecordableAnswerError, type Answer, type HandlerAnswer } from "./answer.ts";
import { contextOf, unprotectedContext, type IdempotencyContext } from "./context.ts";
import { checkOptions, idempotencyScope, type IdempotentOptions, type Settings } from "./options.ts";
import { fateOf, type Fate } from "./policy.ts";
import { problemAnswer, type ProblemName } from "./problem.ts";
import { answerOf, asRecordedResponse, isSameResponse, recordOf, type RecordedResponse } from "./recorded-response.ts";
import { identityOf } from "./request-body.ts";
import { KeyedRoute, tell, type Decided, type Exchange, type Keyed } from "./route.ts";

/** {@link Exchange}, with a handler. */
export interface HandlerExchange<Incoming> extends Exchange<Incoming> {
  /**
   * Runs the handler, and takes its whole answer before anything is sent.
   *
   * @throws {UnrecordableAnswerError}
   */
  readonly run: (context: IdempotencyContext) => Promise<HandlerAnswer>;
}

/** The input of the operation that a handler is made to: one request. */
interface Handling<Incoming> {
  readonly exchange: HandlerExchange<Incoming>;
  readonly identity: string;
  readonly body: Uint8Array | undefined;
  /** What its own handler answered, with the headers that are not recorded. */
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
  readonly #route: KeyedRoute<Incoming, HandlerExchange<Incoming>, Handling<Incoming>, RecordedResponse>;

  /** @throws {InvalidArgumentError} */
  constructor(options: IdempotentOptions<Incoming>) {
    this.settings = checkOptions(options);
    const { route, storeAway } = this.settings;
    this.#route = new KeyedRoute({
      settings: this.settings,
      operationOf: (method) => this.#operation(method),
      scope: (principal, method) => idempotencyScope({ principal, method, route }),
      prepare: async (exchange, keyed) => ({ input: this.#handling(exchange, keyed) }),
      answer(value, _facts, handling) {
        const recorded = asRecordedResponse(value);
        return recorded && answerFor(handling, recorded);
      },
      failure: (error, _facts, handling) => failureAnswer(error, handling),
      storeAway: storeAway === "refuse" ? undefined : (handling) => this.#bare(handling),
    });
  }

  /** Rejects, for what the author has to mend, before the handler has begun; and never after. */
  decide(exchange: HandlerExchange<Incoming>): Promise<Decided> {
    return this.#route.decide(exchange);
  }

  /** For a handler that runs though nothing is recorded. */
  unprotected(body?: Uint8Array): IdempotencyContext {
    const { idempotency, deadlineMs } = this.settings;
    return unprotectedContext(idempotency.runtime, deadlineMs, body);
  }

  #handling(exchange: HandlerExchange<Incoming>, { body }: Keyed): Handling<Incoming> {
    const { fingerprint } = this.settings;
    return {
      exchange,
      identity: identityOf(fingerprint, exchange.target, exchange.header("content-type"), body, exchange.incoming),
      body: body.kind === "bytes" ? body.bytes : undefined,
      own: undefined,
    };
  }

  #operation(method: string): OperationDefinition<Handling<Incoming>, RecordedResponse> {
    const { route, recovery, operation } = this.settings;
    return defineOperation<Handling<Incoming>, RecordedResponse>({
      ...operation,
      name: `${method} ${route}`,
      fingerprint: ({ identity }) => identity,
      // Made for this request alone, and nobody else's to change.
      copyInput: (handling) => handling,
      run: (handling, effect) => this.#run(handling, effect),
      recovery:
        typeof recovery !== "object" || recovery === null
          ? recovery
          : {
              ...recovery,
              reconcile: (handling, effect) => this.#reconcile(recovery.reconcile, handling, effect),
            },
      onError: (error) => (error instanceof AnsweredWith ? meanings[error.fate] : "recover"),
      serializeError: (error) => (error instanceof AnsweredWith ? { response: error.recorded } : {}),
      deserializeError: failureOf,
    });
  }

  async #run(handling: Handling<Incoming>, effect: EffectContext): Promise<RecordedResponse> {
    const { record, isReplayed } = this.settings;
    let answer: HandlerAnswer;
    try {
      answer = await handling.exchange.run(contextOf(effect, handling.body));
    } catch (error) {
      this.#tell(error);
      if (UnrecordableAnswerError.is(error)) throw error;
      answer = this.#failed(error);
    }
    const fate = fateOf(record, answer);
    const recorded = recordOf(answer, isReplayed);
    handling.own = { answer, recorded };
    // A failure goes the engine's way for failures: after a takeover it is not final, because the owner before may yet succeed.
    if (fate === "record" && answer.status < 400) return recorded;
    throw new AnsweredWith(recorded, fate);
  }

  /** What is answered where nobody made a response of what the handler threw. */
  #failed(error: unknown): HandlerAnswer {
    const { record, docs } = this.settings;
    const thrown = { error };
    const inherited = new Set<string>();
    const answer = { ...problemAnswer("operation-failed-for-good", { docs }), inherited, thrown };
    return fateOf(record, answer) === "record"
      ? answer
      : { ...problemAnswer("operation-failed", { docs }), inherited, thrown };
  }

  async #reconcile(
    reconcile: Exclude<Settings<Incoming>["recovery"], string>["reconcile"],
    { exchange, body }: Handling<Incoming>,
    effect: EffectContext,
  ): Promise<Reconciled<RecordedResponse>> {
    const { answerBytesMax, isReplayed } = this.settings;
    const context = contextOf(effect, body);
    try {
      const found = await reconcile(exchange.again(context.signal), context);
      if (found === "absent" || found === "unknown") return found;
      if (!(found instanceof Response)) throw new InvalidArgumentError(RECONCILE_ANSWERS);
      return { found: recordOf(await readResponse(found, answerBytesMax), isReplayed) };
    } catch (cause) {
      this.#tell(cause);
      throw new ReconcileFailedError("reconcile failed", { cause });
    }
  }

  /** Asked for by name: as if there were no key. */
  async #bare({ exchange, body }: Handling<Incoming>): Promise<Answer> {
    try {
      return await exchange.run(this.unprotected(body));
    } catch (error) {
      this.#tell(error);
      const { docs } = this.settings;
      return problemAnswer(UnrecordableAnswerError.is(error) ? "answer-not-recordable" : "operation-failed", { docs });
    }
  }

  #tell(error: unknown): void {
    tell(this.settings.onError, error);
  }
}

const RECONCILE_ANSWERS =
  'reconcile must answer with the Response that the operation had, "absent" or "unknown": nothing else says what to do';

const meanings = { record: "replay", release: "retry", recover: "recover" } as const;

function failureOf({ details }: RecordedFailure): Error {
  const recorded = asRecordedResponse(details?.["response"]);
  return recorded === undefined ? new UnusableRecordError() : new AnsweredWith(recorded, "record");
}

/** The operation's answer. Whoever's handler made it gets it with the headers that nobody else gets. */
function answerFor({ own }: Handling<unknown>, recorded: RecordedResponse): Answer {
  return own !== undefined && isSameResponse(own.recorded, recorded) ? own.answer : answerOf(recorded);
}

function failureAnswer(error: unknown, handling: Handling<unknown>): Answer | ProblemName | undefined {
  if (error instanceof AnsweredWith) return answerFor(handling, error.recorded);
  if (UnrecordableAnswerError.is(error)) return "answer-not-recordable";
  if (error instanceof UnusableRecordError) return "record-unusable";
  // It was told when it was thrown.
  if (error instanceof ReconcileFailedError) return "outcome-unknown";
  return undefined;
}
