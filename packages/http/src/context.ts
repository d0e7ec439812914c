import { uuidV4, type EffectContext, type Runtime } from "@firstwrite/core";

/** What a handler is told of its operation. */
export interface IdempotencyContext extends EffectContext {
  /** False: the request has no key, or its method ignores it, and nothing is recorded. The operation ID is its own. */
  readonly protected: boolean;
  /** The request's body as it came; `undefined` where a body parser had read it before, or where nothing is protected. */
  readonly body: Uint8Array | undefined;
}

/** Of requests in a framework's own form, which has no place for it. */
const contexts = new WeakMap<object, IdempotencyContext>();

/** What the handler of `request` is told: of a request of `node:http`, Express or Fastify, or a context of Hono. */
export function idempotencyOf(request: object): IdempotencyContext | undefined {
  return contexts.get(request);
}

export function tellContext(request: object, context: IdempotencyContext): void {
  contexts.set(request, context);
}

export function contextOf(effect: EffectContext, body: Uint8Array | undefined): IdempotencyContext {
  const { operationId, attempt, signal } = effect;
  return {
    operationId,
    attempt,
    signal,
    protected: true,
    body,
    get remainingMs() {
      return effect.remainingMs;
    },
  };
}

/** So that a handler need not ask whether it has one. */
export function unprotectedContext(runtime: Runtime, deadlineMs: number, body?: Uint8Array): IdempotencyContext {
  const endsAtMs = runtime.monotonicMs() + deadlineMs;
  return {
    operationId: uuidV4(runtime),
    attempt: 1,
    signal: new AbortController().signal,
    protected: false,
    body,
    get remainingMs() {
      return Math.max(0, endsAtMs - runtime.monotonicMs());
    },
  };
}
