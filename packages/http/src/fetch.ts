import { InvalidArgumentError } from "@firstwrite/core";

import { readBounded, readResponse } from "./answer.ts";
import type { IdempotencyContext } from "./context.ts";
import { IdempotentRoute, type HandlerExchange } from "./handler-route.ts";
import type { OperationHandlerOptions } from "./operation-options.ts";
import { OperationRoute } from "./operation-route.ts";
import { checkHandler, type IdempotentOptions } from "./options.ts";
import { responseOf, type Exchange } from "./route.ts";

/** A handler that is told which operation it runs. */
export type IdempotentHandler = (request: Request, context: IdempotencyContext) => Response | PromiseLike<Response>;

/**
 * Puts one route under the `Idempotency-Key` header: the handler runs at most once per principal and key, and every retry gets
 * its answer. For anything that takes `(request: Request) => Promise<Response>`.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function idempotentHandler(
  options: IdempotentOptions<Request>,
  handler: IdempotentHandler,
): (request: Request) => Promise<Response> {
  const route = new IdempotentRoute(options);
  checkHandler(handler, "idempotentHandler(options, (request, context) => new Response())");
  const { answerBytesMax } = route.settings;
  return async (request) => {
    const common = fetchExchange(request);
    const exchange: HandlerExchange<Request> = {
      ...common,
      run: async (context) =>
        readResponse(await respond(handler, common.again(context.signal), context), answerBytesMax),
    };
    const decided = await route.decide(exchange);
    return decided.kind === "pass" ? handler(request, route.unprotected()) : responseOf(decided);
  };
}

/**
 * The answer to requests for an operation that was defined before, by their `Idempotency-Key`: it runs at most once per principal
 * and key, from here or from anywhere else, and every retry gets its answer.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function operationHandler<Input, Value>(
  options: OperationHandlerOptions<Request, Input, Value>,
): (request: Request) => Promise<Response> {
  const route = new OperationRoute(options);
  return async (request) => responseOf(await route.decide(fetchExchange(request)));
}

function fetchExchange(request: Request): Exchange<Request> {
  const { url, method, headers } = request;
  const { pathname, search } = new URL(url);
  let bytes: Uint8Array = new Uint8Array();
  return {
    incoming: request,
    method,
    target: pathname + search,
    header: (name) => headers.get(name) ?? undefined,
    gone: request.signal,
    async readBody(bytesMax) {
      if (request.bodyUsed) {
        throw new InvalidArgumentError("the request's body was read before: let the principal read request.clone()");
      }
      const read = await readBounded(request.body, bytesMax);
      if (read === undefined) return "too large";
      bytes = read;
      return { kind: "bytes", bytes };
    },
    again(signal) {
      const body = bytes.byteLength === 0 ? null : new Uint8Array(bytes);
      // Without the client's signal: a client that hangs up does not undo an effect. The engine's says when to stop.
      return new Request(url, { method, headers, body, ...(signal && { signal }) });
    },
  };
}

/** A `Response` that is thrown is an answer, as many routers have it. */
async function respond(handler: IdempotentHandler, request: Request, context: IdempotencyContext): Promise<Response> {
  try {
    return await handler(request, context);
  } catch (thrown) {
    if (thrown instanceof Response) return thrown;
    throw thrown;
  }
}
