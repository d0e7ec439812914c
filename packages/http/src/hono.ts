import { AsyncLocalStorage } from "node:async_hooks";

import type { Context, Env, MiddlewareHandler } from "hono";

import { readBounded, readResponse, UnrecordableAnswerError, type HandlerAnswer } from "./answer.ts";
import { tellContext } from "./context.ts";
import { IdempotentRoute, type HandlerExchange } from "./handler-route.ts";
import type { OperationHandlerOptions } from "./operation-options.ts";
import { OperationRoute } from "./operation-route.ts";
import type { IdempotentOptions } from "./options.ts";
import type { RequestBody } from "./request-body.ts";
import { responseOf, type Exchange } from "./route.ts";

/**
 * Middleware for one route of Hono 4: `app.post("/payouts", idempotent({ … }), handler)`. What comes after it runs at most once per
 * principal and key, `onError` included, and every retry gets the answer. `idempotencyOf(c)` is what the handler is told.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function idempotent(options: IdempotentOptions<Context>): MiddlewareHandler {
  const route = new IdempotentRoute(options);
  return async (c, next) => {
    const view = new ContextView(c);
    const common = honoExchange(c);
    const exchange: HandlerExchange<Context> = {
      ...common,
      async run(context) {
        tellContext(common.again(context.signal), context);
        return view.answerOf(next, route.settings.answerBytesMax);
      },
    };
    const decided = await route.decide(exchange);
    if (decided.kind === "pass") {
      tellContext(c, route.unprotected());
      await next();
    } else view.give(responseOf(decided));
  };
}

/**
 * The handler of one route of Hono 4: `app.post("/payouts", operationHandler({ operation, … }))`. The operation, which was defined
 * before, runs at most once per principal and key, from here or from anywhere else, and every retry gets its answer.
 *
 * @throws {InvalidArgumentError} for options that are incomplete or contradict themselves, saying what to write.
 */
export function operationHandler<E extends Env, Input, Value>(
  options: OperationHandlerOptions<Context<E>, Input, Value>,
): (c: Context<E>) => Promise<Response> {
  const route = new OperationRoute(options);
  return async (c) => {
    const view = new ContextView(c);
    view.give(responseOf(await route.decide(honoExchange(c))));
    return c.res;
  };
}

function honoExchange<E extends Env>(c: Context<E>): Exchange<Context<E>> {
  const { raw } = c.req;
  const { pathname, search } = new URL(raw.url);
  let bytes: Uint8Array | undefined;
  return {
    incoming: c,
    method: raw.method,
    target: pathname + search,
    header: (name) => raw.headers.get(name) ?? undefined,
    gone: raw.signal,
    async readBody(bytesMax): Promise<RequestBody | "too large"> {
      if (raw.bodyUsed) return readByOthers(c, bytesMax);
      bytes = await readBounded(raw.body, bytesMax);
      return bytes === undefined ? "too large" : { kind: "bytes", bytes };
    },
    again(signal) {
      if (bytes === undefined) return c;
      const body = bytes.byteLength === 0 ? null : new Uint8Array(bytes);
      // Without the client's signal: a client that hangs up does not undo an effect. The engine's says when to stop.
      c.req.raw = new Request(raw.url, { method: raw.method, headers: raw.headers, body, ...(signal && { signal }) });
      return c;
    },
  };
}

/** A validator was here before us, and Hono has kept what it read. */
async function readByOthers<E extends Env>(c: Context<E>, bytesMax: number): Promise<RequestBody | "too large"> {
  // Made anew, it would have another boundary each time.
  if (/^\s*multipart\//i.test(c.req.header("content-type") ?? "")) return { kind: "parsed", value: undefined };
  const bytes = new Uint8Array(await c.req.arrayBuffer());
  return bytes.byteLength > bytesMax ? "too large" : { kind: "bytes", bytes };
}

/** What runs inside of which middleware. */
const inside = new AsyncLocalStorage<ContextView>();

/**
 * A context as those before and those after the middleware see it. They are the same object, which has one response: once that of
 * a request whose handler is still running was given, Hono would drop the handler's own.
 */
class ContextView {
  readonly #context: Context;
  /** Set by those before us, such as CORS. */
  readonly #outer: readonly (readonly [name: string, value: string])[];
  /** Of what was given while the handler was running. */
  #given: readonly (readonly [name: string, value: string])[] = [];
  #running = false;
  #late: Response | undefined;
  #left = false;

  constructor(context: Context) {
    this.#context = context;
    this.#outer = Array.from(context.res.headers);
  }

  /** Runs what comes after, and takes the whole answer. */
  async answerOf(next: () => Promise<void>, bytesMax: number): Promise<HandlerAnswer> {
    this.#running = true;
    try {
      await inside.run(this, next);
    } finally {
      this.#running = false;
    }
    const response = this.#left ? this.#late : this.#context.res;
    if (response === undefined) throw new UnrecordableAnswerError("nothing, or with what comes after its own end");
    const others = [...this.#outer, ...this.#given];
    const inherited = Array.from(response.headers).filter(([name, value]) =>
      others.some((other) => other[0] === name && other[1] === value),
    );
    return readResponse(response, bytesMax, new Set(inherited.map(([name]) => name)));
  }

  /** Makes `response` the answer, with the headers of those before us where it has none of its own. */
  give(answer: Response): void {
    // The headers of one that came from elsewhere may not be changed.
    const response = new Response(answer.body, answer);
    for (const [name, value] of this.#outer) if (!answer.headers.has(name)) response.headers.append(name, value);
    // Hono adds the headers of the response before to the next one.
    this.#context.res = undefined;
    this.#context.res = response;
    if (this.#running) this.#part(response);
  }

  /** From here on the handler, which is still running, sets a response of its own. */
  #part(given: Response): void {
    const context = this.#context;
    this.#left = true;
    this.#given = Array.from(given.headers);
    const isInside = (): boolean => inside.getStore() === this;
    let outer = given;
    Object.defineProperty(context, "res", {
      get: () => (isInside() ? (this.#late ?? new Response(null)) : outer),
      set: (response: Response) => {
        if (isInside()) this.#late = response;
        else outer = response;
      },
    });
    Object.defineProperty(context, "finalized", {
      get: () => !isInside() || this.#late !== undefined,
      set() {},
    });
  }
}
