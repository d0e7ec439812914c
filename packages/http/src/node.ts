import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";

import { InvalidArgumentError } from "@firstwrite/core";

import { readResponse, UnrecordableAnswerError, type Answer, type HandlerAnswer } from "./answer.ts";
import { tellContext, type IdempotencyContext } from "./context.ts";
import { peekBody } from "./node-request.ts";
import { goneSignal, NodeResponse, sendAnswer } from "./node-response.ts";
import { IdempotentRoute, type HandlerExchange } from "./handler-route.ts";
import type { OperationHandlerOptions } from "./operation-options.ts";
import { OperationRoute } from "./operation-route.ts";
import { checkHandler, type IdempotentOptions } from "./options.ts";
import { tell, type Decided, type Exchange } from "./route.ts";

/** A listener that is told which operation it runs. */
export type IdempotentListener = (
  request: IncomingMessage,
  response: ServerResponse,
  context: IdempotencyContext,
) => void | PromiseLike<void>;

/**
 * Puts a listener of `node:http` under the `Idempotency-Key` header. The request's body is still there to be read, and in the
 * context; the response goes out when it is recorded.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function idempotentListener(
  options: IdempotentOptions<IncomingMessage>,
  listener: IdempotentListener,
): RequestListener {
  const route = new IdempotentRoute(options);
  checkHandler(listener, "idempotentListener(options, (request, response, context) => response.end())");
  const { answerBytesMax, onError } = route.settings;
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let place: NodeResponse | undefined;
    const exchange: HandlerExchange<IncomingMessage> = {
      ...nodeExchange(request, response, request),
      readBody: (bytesMax) => peekBody(request, bytesMax),
      async run(context) {
        tellContext(request, context);
        place = new NodeResponse(response, answerBytesMax);
        const { answered } = place;
        const ran = place.run(async (): Promise<HandlerAnswer> => {
          await listener(request, response, context);
          return answered;
        });
        // An answer that was given counts, whatever is thrown after it.
        ran.catch((error: unknown) => {
          if (response.writableEnded && !UnrecordableAnswerError.is(error)) tell(onError, error);
        });
        return Promise.race([answered, ran]);
      },
    };
    let answer: Answer | "pass";
    try {
      answer = await answerOfDecided(await route.decide(exchange));
    } catch (error) {
      answer = undecided(error, response, onError);
    }
    if (answer === "pass") await listener(request, response, route.unprotected());
    else send(answer, response, place, onError);
  };
  return (request, response) => {
    handle(request, response).catch((error: unknown) => failed(error, response, onError));
  };
}

/**
 * The answer to requests for an operation that was defined before, by their `Idempotency-Key`: it runs at most once per principal
 * and key, from here or from anywhere else, and every retry gets its answer.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function operationListener<Input, Value>(
  options: OperationHandlerOptions<IncomingMessage, Input, Value>,
): RequestListener {
  const route = new OperationRoute(options);
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const exchange: Exchange<IncomingMessage> = {
      ...nodeExchange(request, response, request),
      readBody: (bytesMax) => peekBody(request, bytesMax),
    };
    let answer: Answer;
    try {
      answer = await answerOfDecided(await route.decide(exchange));
    } catch (error) {
      answer = undecided(error, response, route.onError);
    }
    send(answer, response, undefined, route.onError);
  };
  return (request, response) => {
    void handle(request, response);
  };
}

/** What a listener threw on a request that is none of the header's: nobody else is there to catch it, and the process would end. */
function failed(error: unknown, response: ServerResponse, onError: (error: unknown) => void): void {
  tell(onError, error);
  if (response.headersSent && !response.writableEnded) response.destroy();
  else sendAnswer(response, { status: 500, headers: [], body: new Uint8Array() });
}

/** A client that hung up in the middle of its request is no news; anything else is the author's to mend. */
function undecided(error: unknown, response: ServerResponse, onError: (error: unknown) => void): Answer {
  if (!response.destroyed) tell(onError, error);
  return { status: 500, headers: [], body: new Uint8Array() };
}

/** What all that stand on `node:http` have in common. */
export function nodeExchange<Incoming>(
  request: IncomingMessage,
  response: ServerResponse,
  incoming: Incoming,
): Pick<Exchange<Incoming>, "incoming" | "method" | "target" | "header" | "gone" | "again"> {
  return {
    incoming,
    method: request.method ?? "",
    target: request.url ?? "",
    header(name) {
      const value = request.headers[name];
      // Before anything is begun. A request without a key may be passed on.
      if (name === "idempotency-key" && value !== undefined) checkVersion(request);
      return Array.isArray(value) ? value.join(", ") : value;
    },
    gone: goneSignal(response),
    again: () => incoming,
  };
}

/** @throws {InvalidArgumentError} for HTTP/2, whose responses are not those of `node:http`: a handler's answer could not be taken. */
function checkVersion({ httpVersionMajor }: IncomingMessage): void {
  if (httpVersionMajor === 1) return;
  throw new InvalidArgumentError(
    "HTTP/2 is not supported here: let a proxy in front of this server speak HTTP/1.1 to it",
  );
}

/**
 * What was decided, to be sent.
 *
 * @throws {UnrecordableAnswerError} for a refusal of the author's that cannot be.
 */
export function answerOfDecided(decided: Exclude<Decided, { kind: "pass" }>): Promise<Answer>;
export function answerOfDecided(decided: Decided): Promise<Answer | "pass">;
export async function answerOfDecided(decided: Decided): Promise<Answer | "pass"> {
  if (decided.kind === "pass") return "pass";
  return decided.kind === "answer" ? decided.answer : readResponse(decided.response, Infinity);
}

/** An answer that cannot be sent is told, and is no answer: every retry gets the same. */
export function send(
  answer: Answer,
  response: ServerResponse,
  place: NodeResponse | undefined,
  onError: (error: unknown) => void,
): void {
  try {
    if (place === undefined) sendAnswer(response, answer);
    else place.send(answer);
  } catch (error) {
    sendAnswer(response, undecided(error, response, onError));
  }
}
