/** The same service, five times: as a fetch handler, and on each framework. Over real sockets. */

import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { idempotencyOf, idempotentHandler, type IdempotencyContext, type IdempotentOptions } from "@firstwrite/http";
import { idempotent as expressIdempotent } from "@firstwrite/http/express";
import { idempotent as fastifyIdempotent } from "@firstwrite/http/fastify";
import { idempotent as honoIdempotent } from "@firstwrite/http/hono";
import { idempotentListener } from "@firstwrite/http/node";
import { serve } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono, type Context } from "hono";

/** What a handler of a test answers with. */
export interface TestAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: string | Uint8Array;
}

interface TestRequest {
  readonly method: string;
  readonly target: string;
  readonly header: (name: string) => string | undefined;
  /** Read the framework's own way, after idempotent() had it. */
  readonly body: Buffer;
}

export type TestHandler = (request: TestRequest, context: IdempotencyContext) => TestAnswer | Promise<TestAnswer>;

export type Header = (name: string) => string | undefined;

/** Options in a form that every integration can be given. */
export interface TestOptions extends Omit<
  IdempotentOptions<never>,
  "principal" | "recovery" | "fingerprint" | "route"
> {
  readonly route?: string;
  readonly principal?: (header: Header) => string | Response;
  readonly recovery?:
    | "hold"
    | "rerun"
    | {
        readonly reconcile: (context: IdempotencyContext) => Promise<Response | "absent" | "unknown">;
        readonly absentIsFinal?: boolean;
      };
  readonly fingerprint?: "body" | "none" | { readonly fields: readonly (string | readonly string[])[] };
}

export interface TestServer {
  readonly url: string;
  readonly close: () => Promise<void>;
}

export interface Integration {
  readonly name: "fetch" | "node" | "express" | "fastify" | "hono";
  readonly serve: (options: TestOptions, handler: TestHandler) => Promise<TestServer>;
}

const ROUTE = "/accounts/:account/payouts";
/** Set by middleware outside, anew for each request. */
let requests = 0;
export const outer = (): string => `r${(requests += 1)}`;

export const integrations: readonly Integration[] = [
  {
    name: "fetch",
    serve(options, handler) {
      const handle = idempotentHandler(
        optionsFor<Request>(options, (request) => (name) => request.headers.get(name) ?? undefined),
        async (request, context) => {
          const { pathname, search } = new URL(request.url);
          return responseFor(
            await handler(
              {
                method: request.method,
                target: pathname + search,
                header: (name) => request.headers.get(name) ?? undefined,
                body: Buffer.from(await request.arrayBuffer()),
              },
              context,
            ),
          );
        },
      );
      return listenFetch(handle);
    },
  },
  {
    name: "node",
    serve(options, handler) {
      const listener = idempotentListener(
        optionsFor<IncomingMessage>(options, headerOf),
        async (request, response, context) => {
          const body = await collect(request);
          writeFor(
            response,
            await handler(
              { method: request.method ?? "", target: request.url ?? "", header: headerOf(request), body },
              context,
            ),
          );
        },
      );
      return listen((request, response) => {
        response.setHeader("X-Outer", outer());
        listener(request, response);
      });
    },
  },
  {
    name: "express",
    serve(options, handler) {
      const app = express();
      app.set("env", "test");
      app.use((_request, response, next) => {
        response.setHeader("X-Outer", outer());
        next();
      });
      const idempotent = expressIdempotent(optionsFor<express.Request>(options, headerOf));
      app.all(
        "/accounts/:account/:what",
        idempotent,
        express.raw({ type: () => true, limit: "5mb" }),
        async (request, response) => {
          const context = known(idempotencyOf(request));
          const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
          const { method, originalUrl: target } = request;
          const answer = await handler({ method, target, header: headerOf(request), body }, context);
          response.status(answer.status);
          for (const [name, value] of Object.entries(answer.headers ?? {})) response.setHeader(name, value);
          // `send` gives a Content-Type of its own; `end` is what a handler that knows its bytes uses.
          response.end(answer.body);
        },
      );
      return listen(app);
    },
  },
  {
    name: "fastify",
    async serve(options, handler) {
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
        preHandler: fastifyIdempotent(
          optionsFor<Parameters<typeof idempotencyOf>[0] & { headers: IncomingMessage["headers"] }>(options, headerOf),
        ),
        async handler(request, reply) {
          const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
          const { method, originalUrl: target } = request;
          const answer = await handler(
            { method, target, header: headerOf(request), body },
            known(idempotencyOf(request)),
          );
          reply.code(answer.status);
          for (const [name, value] of Object.entries(answer.headers ?? {})) reply.header(name, value);
          return reply.send(typeof answer.body === "string" ? answer.body : answer.body && Buffer.from(answer.body));
        },
      });
      await app.listen({ port: 0, host: "127.0.0.1" });
      return { url: urlOf(app.server.address()), close: () => app.close() };
    },
  },
  {
    name: "hono",
    async serve(options, handler) {
      const app = new Hono();
      app.use(async (c, next) => {
        c.header("X-Outer", outer());
        await next();
      });
      app.onError((_error, c) => c.text("failed", 500));
      const idempotent = honoIdempotent(optionsFor<Context>(options, (c) => (name) => c.req.header(name)));
      app.all("/accounts/:account/:what", idempotent, async (c) => {
        const { pathname, search } = new URL(c.req.url);
        return responseFor(
          await handler(
            {
              method: c.req.method,
              target: pathname + search,
              header: (name) => c.req.header(name),
              body: Buffer.from(await c.req.arrayBuffer()),
            },
            known(idempotencyOf(c)),
          ),
        );
      });
      return listenFetch(async (request) => app.fetch(request));
    },
  },
];

/** A service of one's own on a listener. */
export async function listen(listener: RequestListener): Promise<TestServer> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: urlOf(server.address()),
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

export async function listenFetch(handle: (request: Request) => Promise<Response>): Promise<TestServer> {
  const { promise: listening, resolve } = Promise.withResolvers<AddressInfo>();
  const server = serve({ fetch: handle, port: 0, hostname: "127.0.0.1", overrideGlobalObjects: false }, resolve);
  const url = urlOf(await listening);
  return {
    url,
    async close() {
      if ("closeAllConnections" in server) server.closeAllConnections();
      await new Promise<void>((done) => server.close(() => done()));
    },
  };
}

export function urlOf(address: string | AddressInfo | null): string {
  if (address === null || typeof address === "string") throw new Error("the server has no port");
  return `http://127.0.0.1:${address.port}`;
}

function optionsFor<Incoming>(
  options: TestOptions,
  headers: (incoming: Incoming) => Header,
): IdempotentOptions<Incoming> {
  const { principal = (header) => header("x-account") ?? "a1", recovery = "rerun", ...others } = options;
  return {
    route: ROUTE,
    onError: () => {},
    ...others,
    principal: (incoming) => principal(headers(incoming)),
    recovery:
      typeof recovery === "string"
        ? recovery
        : { ...recovery, reconcile: (_request, context) => recovery.reconcile(context) },
  };
}

export function headerOf({ headers }: { readonly headers: IncomingMessage["headers"] }): Header {
  return (name) => {
    const value = headers[name];
    return Array.isArray(value) ? value.join(", ") : value;
  };
}

function known(context: IdempotencyContext | undefined): IdempotencyContext {
  if (context === undefined) throw new Error("the handler was told no context");
  return context;
}

export function responseFor({ status, headers = {}, body }: TestAnswer): Response {
  const response = new Response(body === undefined ? null : typeof body === "string" ? body : new Uint8Array(body), {
    status,
  });
  for (const [name, value] of Object.entries(headers)) {
    response.headers.delete(name);
    for (const one of typeof value === "string" ? [value] : value) response.headers.append(name, one);
  }
  return response;
}

function writeFor(response: ServerResponse, { status, headers = {}, body }: TestAnswer): void {
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.writeHead(status);
  response.end(body);
}

export async function collect(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}
