import { InvalidArgumentError } from "@firstwrite/core";

import type { HandlerAnswer } from "./answer.ts";

/**
 * What becomes of an answer.
 *
 * - `"record"`: it is the operation's, and every retry gets it.
 * - `"release"`: nothing happened. The key is not consumed, and the next request with it runs the handler, whatever its body. After a
 *   takeover it stays its body's, and the answer is `outcome-unknown`, since the process before may yet succeed; as it is once the
 *   handler's signal has aborted.
 * - `"recover"`: nobody knows what happened. The next request goes by the route's `recovery`.
 */
export type Fate = "record" | "release" | "recover";

/** What a policy of one's own decides by. */
export interface AnswerFacts {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
  /** What the handler threw, where that is why the status is 500. */
  readonly thrown?: { readonly error: unknown };
}

export type RecordPolicy = "stripe" | "success" | ((answer: AnswerFacts) => Fate);

/** Of both presets: who asks and how is refused before anything is done (failed validation, authentication, rates). */
const RELEASED: readonly number[] = [400, 401, 403, 413, 415, 422, 429];

const presets: Readonly<Record<"stripe" | "success", (status: number) => Fate>> = {
  // Whatever came of it once it began, 500s included.
  stripe: (status) => (RELEASED.includes(status) ? "release" : "record"),
  success(status) {
    if (status >= 200 && status <= 299) return "record";
    // A client's error says that nothing was done; anything else leaves it open.
    return status >= 400 && status <= 499 ? "release" : "recover";
  },
};

/** @throws {InvalidArgumentError} */
export function checkPolicy(policy: RecordPolicy): RecordPolicy {
  if (policy === "stripe" || policy === "success" || typeof policy === "function") return policy;
  throw new InvalidArgumentError(
    'record must be "stripe" (every answer but refusals), "success" (2xx alone), or a function of the answer that ' +
      'returns "record", "release" or "recover"',
  );
}

/** A policy that fails, or says something else, is none: nobody knows. */
export function fateOf(policy: RecordPolicy, { status, headers, body, thrown }: HandlerAnswer): Fate {
  if (typeof policy !== "function") return presets[policy](status);
  try {
    const fate = policy({
      status,
      headers: new Headers(headers.map(([name, value]): [string, string] => [name, value])),
      body: new Uint8Array(body),
      ...(thrown && { thrown }),
    });
    return fate === "record" || fate === "release" ? fate : "recover";
  } catch {
    return "recover";
  }
}

/** For the contract that a service publishes: what becomes of each status. */
export function describePolicy(policy: RecordPolicy): string | Readonly<Record<Fate, readonly string[]>> {
  switch (policy) {
    case "stripe":
      return { record: ["any other"], release: RELEASED.map(String), recover: [] };
    case "success":
      return { record: ["2xx"], release: ["4xx"], recover: ["3xx", "5xx"] };
    default:
      return "custom";
  }
}
