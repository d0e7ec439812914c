/** The same service once more, five times: what each handler does is an operation that was defined before. */

import type { IncomingMessage } from "node:http";

import { defineOperation, type EffectContext, type OperationDefinition, type Recovery } from "@firstwrite/core";
import { operationHandler, type OperationHandlerOptions } from "@firstwrite/http";
import { operationHandler as expressOperation } from "@firstwrite/http/express";
import { operationHandler as fastifyOperation } from "@firstwrite/http/fastify";
import { operationHandler as honoOperation } from "@firstwrite/http/hono";
import { operationListener } from "@firstwrite/http/node";
import express from "express";
import fastify, { type FastifyRequest } from "fastify";
import { Hono, type Context } from "hono";

import { contextOf } from "../src/context.ts";
import { identityOf } from "../src/request-body.ts";
import {
  collect,
  headerOf,
  listen,
  listenFetch,
  outer,
  responseFor,
  urlOf,
  type Header,
  type Integration,
  type TestAnswer,
  type TestHandler,
  type TestOptions,
} from "./integrations.ts";

/** A request as an operation's input: JSON. */
export interface TestInput {
  readonly method: string;
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  /** In base64. */
  readonly body: string;
}

/** An answer as an operation's value: JSON. */
export type TestValue = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  /** In base64; null where there is none. */
  readonly body: string | null;
};

/** What every integration can be given, of a request's headers alone. */
export interface OperationRoute extends Omit<
  OperationHandlerOptions<Header, TestInput, TestValue>,
  "principal" | "input" | "issuedAt"
> {
  readonly principal?: (header: Header) => string | Response;
  readonly issuedAt?: (header: Header, key: string) => number | Response;
  /** Of what the request was taken for. */
  readonly input?: (input: TestInput) => TestInput | Response | Promise<TestInput | Response>;
}

export const routes: Readonly<
  Record<
    Integration["name"],
    (options: OperationRoute) => Promise<{ readonly url: string; close: () => Promise<void> }>
  >
> = {
  fetch: (options) =>
    listenFetch(
      operationHandler(
        optionsFor(
          options,
          (request: Request) => (name) => request.headers.get(name) ?? undefined,
          async (request) => {
            const { pathname, search } = new URL(request.url);
            const { method, headers } = request;
            return inputOf(method, pathname + search, Object.fromEntries(headers), await request.arrayBuffer());
          },
        ),
      ),
    ),
  node(options) {
    const listener = operationListener(
      optionsFor(options, headerOf, async (request: IncomingMessage) =>
        inputOf(request.method, request.url, flat(request.headers), await collect(request)),
      ),
    );
    return listen((request, response) => {
      response.setHeader("X-Outer", outer());
      listener(request, response);
    });
  },
  express(options) {
    const app = express();
    app.set("env", "test");
    app.use((_request, response, next) => {
      response.setHeader("X-Outer", outer());
      next();
    });
    const handler = expressOperation(
      optionsFor(options, headerOf, (request: express.Request, body) =>
        inputOf(request.method, request.originalUrl, flat(request.headers), body),
      ),
    );
    app.all("/accounts/:account/:what", handler);
    return listen(app);
  },
  async fastify(options) {
    const app = fastify({ forceCloseConnections: true });
    app.removeAllContentTypeParsers();
    app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
    app.addHook("onRequest", (_request, reply, done) => {
      reply.header("X-Outer", outer());
      done();
    });
    app.route({
      method: ["GET", "POST", "PUT", "PATCH", "DELETE"],
      url: "/accounts/:account/:what",
      handler: fastifyOperation(
        optionsFor(options, headerOf, (request: FastifyRequest, body) =>
          inputOf(request.method, request.originalUrl, flat(request.headers), body),
        ),
      ),
    });
    await app.listen({ port: 0, host: "127.0.0.1" });
    return { url: urlOf(app.server.address()), close: () => app.close() };
  },
  hono(options) {
    const app = new Hono();
    app.use(async (c, next) => {
      c.header("X-Outer", outer());
      await next();
    });
    const handler = honoOperation(
      optionsFor(
        options,
        (c: Context) => (name) => c.req.header(name),
        async (c) => {
          const { pathname, search } = new URL(c.req.url);
          return inputOf(c.req.method, pathname + search, c.req.header(), await c.req.arrayBuffer());
        },
      ),
    );
    app.all("/accounts/:account/:what", handler);
    return listenFetch(async (request) => app.fetch(request));
  },
};

/** For the cases that handlers are tried with: what a handler answers is an operation's value. */
export const operationIntegrations: readonly Integration[] = Object.entries(routes).map(([name, serve]) => ({
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a key of an object whose type names them all
  name: name as Integration["name"],
  serve(options, handler) {
    const { idempotency, principal, key, methods, waitMs, deadlineMs, readFirst, bodyBytesMax, docs } = options;
    const { required: _, ...keyOptions } = key ?? {};
    return serve({
      idempotency,
      operation: operationOf(options, handler),
      answer,
      onError: options.onError ?? ((): void => {}),
      key: keyOptions,
      ...(principal && { principal }),
      ...(methods && { methods }),
      ...(waitMs !== undefined && { waitMs }),
      ...(deadlineMs !== undefined && { deadlineMs }),
      ...(readFirst !== undefined && { readFirst }),
      ...(bodyBytesMax !== undefined && { bodyBytesMax }),
      ...(docs !== undefined && { docs }),
    });
  },
}));

export function answer({ status, headers, body }: TestValue): Response {
  return responseFor({ status, headers, ...(body !== null && { body: Buffer.from(body, "base64") }) });
}

/** What is compared is the operation's to say, and here as a handler has it. */
function operationOf(options: TestOptions, handler: TestHandler): OperationDefinition<TestInput, TestValue> {
  const { recovery = "rerun", retention, keyTime, storeKey, leaseMs, recoverAfterMs } = options;
  return defineOperation<TestInput, TestValue>({
    name: "payout.create",
    fingerprint: ({ target, headers, body }) =>
      identityOf("body", target, headers["content-type"], { kind: "bytes", bytes: Buffer.from(body, "base64") }, null),
    async run({ method, target, headers, body }, effect) {
      const header: Header = (name) => headers[name];
      const bytes = Buffer.from(body, "base64");
      return valueOf(await handler({ method, target, header, body: bytes }, contextOf(effect, bytes)));
    },
    recovery: recoveryOf(recovery),
    ...(retention && { retention }),
    ...(keyTime !== undefined && { keyTime }),
    ...(storeKey !== undefined && { storeKey }),
    ...(leaseMs !== undefined && { leaseMs }),
    ...(recoverAfterMs !== undefined && { recoverAfterMs }),
  });
}

function recoveryOf(recovery: NonNullable<TestOptions["recovery"]>): Recovery<TestInput, TestValue> {
  if (typeof recovery === "string") return recovery;
  return {
    ...recovery,
    async reconcile(_input, effect: EffectContext) {
      const found = await recovery.reconcile(contextOf(effect, undefined));
      if (!(found instanceof Response)) return found;
      const { status, headers } = found;
      const body = Buffer.from(await found.arrayBuffer());
      return { found: valueOf({ status, headers: Object.fromEntries(headers), body }) };
    },
  };
}

function valueOf({ status, headers = {}, body }: TestAnswer): TestValue {
  return { status, headers, body: body === undefined ? null : Buffer.from(body).toString("base64") };
}

function inputOf(
  method: string | undefined,
  target: string | undefined,
  headers: Readonly<Record<string, string>>,
  body: ArrayBuffer | Uint8Array | undefined,
): TestInput {
  const bytes = body instanceof ArrayBuffer ? Buffer.from(body) : Buffer.from(body ?? []);
  return { method: method ?? "", target: target ?? "", headers, body: bytes.toString("base64") };
}

function flat(headers: IncomingMessage["headers"]): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]));
}

function optionsFor<Incoming>(
  options: OperationRoute,
  headers: (incoming: Incoming) => Header,
  read: (incoming: Incoming, body: Uint8Array | undefined) => TestInput | Promise<TestInput>,
): OperationHandlerOptions<Incoming, TestInput, TestValue> {
  const { principal = (header) => header("x-account") ?? "a1", issuedAt, deadlineMs, input, ...others } = options;
  return {
    onError: () => {},
    ...others,
    principal: (incoming) => principal(headers(incoming)),
    async input(incoming, { body }) {
      const made = await read(incoming, body);
      return input === undefined ? made : input(made);
    },
    ...(issuedAt && { issuedAt: (incoming, { key }) => issuedAt(headers(incoming), key) }),
    ...(deadlineMs !== undefined && {
      deadlineMs:
        typeof deadlineMs === "number" ? deadlineMs : (incoming: Incoming): number => deadlineMs(headers(incoming)),
    }),
  };
}
