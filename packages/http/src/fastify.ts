import { InvalidArgumentError } from "@firstwrite/core";
import type { FastifyReply, FastifyRequest, preHandlerHookHandler } from "fastify";

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
 * A `preHandler` hook for one route of Fastify 5: `app.post("/payouts", { preHandler: idempotent({ … }) }, handler)`. The last of
 * the route's hooks: the handler, `onSend` and error handlers run at most once per principal and key, and every retry gets what
 * they came to. What fails a schema never comes here, and consumes no key.
 *
 * A body is compared by what Fastify parsed it to, or by `request.rawBody` where a plugin has left the bytes there.
 * `idempotencyOf(request)` is what the handler is told.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function idempotent(options: IdempotentOptions<FastifyRequest>): preHandlerHookHandler {
  const route = new IdempotentRoute(options);
  return (request, reply, done) => {
    void handle(route, request, reply, done);
  };
}

/**
 * The handler of one route of Fastify 5: `app.post("/payouts", operationHandler({ operation, … }))`. The operation, which was
 * defined before, runs at most once per principal and key, from here or from anywhere else, and every retry gets its answer. It
 * is sent past `onSend`, byte for byte.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function operationHandler<Input, Value>(
  options: OperationHandlerOptions<FastifyRequest, Input, Value>,
): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  const route = new OperationRoute(options);
  return async (request, reply) => {
    const answer = await answerOfDecided(await route.decide(fastifyExchange(request, reply)));
    leave(reply);
    send(answer, reply.raw, undefined, route.onError);
  };
}

async function handle(
  route: IdempotentRoute<FastifyRequest>,
  request: FastifyRequest,
  reply: FastifyReply,
  done: (error?: Error) => void,
): Promise<void> {
  let place: NodeResponse | undefined;
  const exchange: HandlerExchange<FastifyRequest> = {
    ...fastifyExchange(request, reply),
    async run(context) {
      tellContext(request, context);
      passHeaders(reply);
      const taken = new NodeResponse(reply.raw, route.settings.answerBytesMax);
      place = taken;
      const hijack = reply.hijack.bind(reply);
      reply.hijack = () => {
        taken.refuse("a reply that is hijacked");
        return hijack();
      };
      taken.run(done);
      return taken.answered;
    },
  };
  let answer: Answer | "pass";
  try {
    answer = await answerOfDecided(await route.decide(exchange));
  } catch (error) {
    done(error instanceof Error ? error : new Error("what was thrown is no error", { cause: error }));
    return;
  }
  if (answer === "pass") {
    tellContext(request, route.unprotected());
    done();
    return;
  }
  // Sent past Fastify, byte for byte: `onSend` had its turn when the answer was made.
  if (place === undefined) leave(reply);
  send(answer, reply.raw, place, route.settings.onError);
}

function fastifyExchange(request: FastifyRequest, reply: FastifyReply): Exchange<FastifyRequest> {
  return {
    ...nodeExchange(request.raw, reply.raw, request),
    target: request.originalUrl,
    readBody: (bytesMax) => bodyOf(request, bytesMax),
  };
}

function leave(reply: FastifyReply): void {
  reply.hijack();
  passHeaders(reply);
}

/** What earlier hooks have set, such as CORS, is otherwise kept by Fastify until it writes a head itself. */
function passHeaders(reply: FastifyReply): void {
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) reply.raw.setHeader(name, value);
}

async function bodyOf(request: FastifyRequest, bytesMax: number): Promise<RequestBody | "too large"> {
  const raw: unknown = Reflect.get(request, "rawBody");
  const known: unknown = raw instanceof Uint8Array || typeof raw === "string" ? raw : request.body;
  // No body, or one that a plugin reads later, such as a multipart one.
  if (known === undefined) return peekBody(request.raw, bytesMax);
  if (typeof known === "object" && known !== null && "pipe" in known) {
    throw new InvalidArgumentError(
      'the body is a stream: let the content type parser collect it, addContentTypeParser(type, { parseAs: "buffer" }, …)',
    );
  }
  return parsedBody(known, bytesMax);
}
