import type { NextFunction, Request, RequestHandler, Response } from "express";

import type { Answer } from "./answer.ts";
import { tellContext } from "./context.ts";
import { answerOfDecided, nodeExchange, send } from "./node.ts";
import { peekBody } from "./node-request.ts";
import { NodeResponse } from "./node-response.ts";
import { IdempotentRoute, type HandlerExchange } from "./handler-route.ts";
import type { OperationHandlerOptions } from "./operation-options.ts";
import { OperationRoute } from "./operation-route.ts";
import type { IdempotentOptions } from "./options.ts";
import { parsedBody, type RequestBody } from "./request-body.ts";
import type { Exchange } from "./route.ts";

/**
 * Middleware for one route of Express 5: `app.post("/payouts", express.json(), idempotent({ … }), handler)`. What comes after it
 * runs at most once per principal and key, error handlers included, and every retry gets the answer.
 *
 * A body is compared by its bytes where nobody has read it yet, or where `request.rawBody` has them; else by what a body parser
 * left in `request.body`. `idempotencyOf(request)` is what the handler is told.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function idempotent(options: IdempotentOptions<Request>): RequestHandler {
  const route = new IdempotentRoute(options);
  return (request, response, next) => {
    void handle(route, request, response, next);
  };
}

/**
 * The last handler of one route of Express 5: `app.post("/payouts", express.json(), operationHandler({ operation, … }))`. The
 * operation, which was defined before, runs at most once per principal and key, from here or from anywhere else, and every retry
 * gets its answer.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function operationHandler<Input, Value>(
  options: OperationHandlerOptions<Request, Input, Value>,
): RequestHandler {
  const route = new OperationRoute(options);
  const handleOperation = async (request: Request, response: Response, next: NextFunction): Promise<void> => {
    try {
      const decided = await route.decide(expressExchange(request, response));
      send(await answerOfDecided(decided), response, undefined, route.onError);
    } catch (error) {
      if (!response.destroyed) next(error);
    }
  };
  return (request, response, next) => {
    void handleOperation(request, response, next);
  };
}

async function handle(
  route: IdempotentRoute<Request>,
  request: Request,
  response: Response,
  next: NextFunction,
): Promise<void> {
  let place: NodeResponse | undefined;
  const exchange: HandlerExchange<Request> = {
    ...expressExchange(request, response),
    run(context) {
      tellContext(request, context);
      place = new NodeResponse(response, route.settings.answerBytesMax);
      place.run(next);
      return place.answered;
    },
  };
  let answer: Answer | "pass";
  try {
    answer = await answerOfDecided(await route.decide(exchange));
  } catch (error) {
    if (!response.destroyed) next(error);
    return;
  }
  if (answer === "pass") {
    tellContext(request, route.unprotected());
    next();
  } else send(answer, response, place, route.settings.onError);
}

function expressExchange(request: Request, response: Response): Exchange<Request> {
  return {
    ...nodeExchange(request, response, request),
    // `url` is without what the router is mounted at.
    target: request.originalUrl,
    readBody: (bytesMax) => bodyOf(request, bytesMax),
  };
}

async function bodyOf(request: Request, bytesMax: number): Promise<RequestBody | "too large"> {
  const raw: unknown = Reflect.get(request, "rawBody");
  const known: unknown = raw instanceof Uint8Array || typeof raw === "string" ? raw : request.body;
  return known === undefined ? peekBody(request, bytesMax) : parsedBody(known, bytesMax);
}
