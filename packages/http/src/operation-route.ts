import { InvalidArgumentError } from "@firstwrite/core";

import { readResponse } from "./answer.ts";
import { checkOperationOptions, type OperationHandlerOptions } from "./operation-options.ts";
import { KeyedRoute, tell, type Decided, type Exchange } from "./route.ts";

/** An operation of the author's own under the header, over whatever its framework has for requests and responses. */
export class OperationRoute<Incoming, Input, Value> {
  readonly #route: KeyedRoute<Incoming, Exchange<Incoming>, Input, Value>;
  readonly #allow: string;
  readonly onError: (error: unknown) => void;

  /** @throws {InvalidArgumentError} */
  constructor(options: OperationHandlerOptions<Incoming, Input, Value>) {
    const settings = checkOperationOptions(options);
    const { operation, input, answer, failure, issuedAt, scope } = settings;
    this.#allow = settings.methods.join(", ");
    this.onError = settings.onError;
    this.#route = new KeyedRoute({
      settings,
      operationOf: () => operation,
      scope,
      async prepare({ incoming, again }, { principal, key, keyHash, body }) {
        const keyed = { principal, key, keyHash, body: body.kind === "bytes" ? body.bytes : undefined };
        const at = issuedAt === undefined ? undefined : checkTime(await issuedAt(incoming, keyed));
        if (at instanceof Response) return at;
        const made = await input(again(), keyed);
        if (made instanceof Response) return made;
        return { input: made, ...(at !== undefined && { issuedAt: at }) };
      },
      answer: async (value, outcome) => readResponse(asResponse(await answer(value, outcome), "answer"), Infinity),
      async failure(error, facts) {
        const response = await failure?.(error, facts);
        return response === undefined ? undefined : readResponse(asResponse(response, "failure"), Infinity);
      },
      unheard: (error) => tell(this.onError, error),
    });
  }

  /** Rejects, for what the author has to mend, before the effect has begun; and never after. */
  async decide(exchange: Exchange<Incoming>): Promise<Exclude<Decided, { kind: "pass" }>> {
    const decided = await this.#route.decide(exchange);
    if (decided.kind !== "pass") return decided;
    // RFC 9110 §15.5.6
    return { kind: "answer", answer: { status: 405, headers: [["Allow", this.#allow]], body: new Uint8Array() } };
  }
}

/** A time that is none would be taken for a key whose age nobody knows, and a late retry be run again. */
function checkTime(issuedAt: number | Response): number | Response {
  if (issuedAt instanceof Response) return issuedAt;
  if (typeof issuedAt === "number" && Number.isFinite(issuedAt) && issuedAt >= 0) return issuedAt;
  throw new InvalidArgumentError(
    `issuedAt(request) is ${String(issuedAt)}: give the key's time in epoch milliseconds, or a Response that refuses it`,
  );
}

function asResponse(response: unknown, name: string): Response {
  if (response instanceof Response) return response;
  throw new InvalidArgumentError(`${name} must make a Response`);
}
