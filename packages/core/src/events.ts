/**
 * What the engine tells whoever listens, on `node:diagnostics_channel`: no telemetry dependency, and no cost while nobody
 * does. No event carries an input, a result, a scope or a raw key; the key's hash and the operation ID identify all.
 */

import { channel, subscribe, unsubscribe } from "node:diagnostics_channel";

import { checkFunction } from "./check-argument.ts";
import { InvalidArgumentError } from "./errors.ts";

/** Channel name → message. Times are in milliseconds. */
export interface FirstwriteEvents {
  /** One request to the store was answered, or given up. */
  "firstwrite:store-request": {
    readonly store: string;
    readonly operation: "create" | "replace" | "read" | "remove";
    readonly outcome: "written" | "removed" | "refused" | "contended" | "unknown" | "found" | "absent" | "failed";
    readonly durationMs: number;
  };
  /** A write whose answer was lost was brought to "mine" or "not mine" (rules U1 to U3). */
  "firstwrite:unknown-resolved": { readonly store: string; readonly mine: boolean };
  /** A call of `reserve` was answered. `created`: this call made the claim. */
  "firstwrite:reserved": {
    readonly operation: string;
    readonly operationId: string;
    readonly keyHash: string;
    readonly created: boolean;
  };
  /** A call of `execute` was answered. */
  "firstwrite:executed": {
    readonly operation: string;
    readonly operationId: string;
    readonly keyHash: string;
    /** No effect was run for this call. */
    readonly replayed: boolean;
    readonly recorded: boolean;
    /** Whether the operation returned or threw. */
    readonly kind: "value" | "failure";
    readonly durationMs: number;
  };
  /** An attempt whose owner's lease was over was taken over; its `recovery` comes next. */
  "firstwrite:taken-over": {
    readonly operation: string;
    readonly operationId: string;
    readonly keyHash: string;
    /** The attempt that took over. */
    readonly attempt: number;
  };
  /** An owner found another's record where its own had been: it writes nothing more. */
  "firstwrite:ownership-lost": {
    readonly operation: string;
    readonly operationId: string;
    readonly keyHash: string;
    /** The attempt that lost. */
    readonly attempt: number;
  };
  /**
   * An effect ended and its result is not in the record. `store`: it could not be written in time. `not recordable`: it
   * cannot be encoded or is too large, and the operation is held. `cause` is for logs.
   */
  "firstwrite:not-recorded": {
    readonly operation: string;
    readonly operationId: string;
    readonly keyHash: string;
    readonly reason: "store" | "not recordable";
    readonly cause: unknown;
  };
  /** A call met an operation that a person has to decide. */
  "firstwrite:held": { readonly operation: string; readonly operationId: string; readonly keyHash: string };
  /** A key was used again for something else; nothing was written. */
  "firstwrite:conflict": { readonly operation: string; readonly operationId: string; readonly keyHash: string };
}

export type EventName = keyof FirstwriteEvents;

/** The names at run time. A name of {@link FirstwriteEvents} that is missing here does not compile, nor does one too many. */
const eventNames: Readonly<Record<EventName, true>> = {
  "firstwrite:store-request": true,
  "firstwrite:unknown-resolved": true,
  "firstwrite:reserved": true,
  "firstwrite:executed": true,
  "firstwrite:taken-over": true,
  "firstwrite:ownership-lost": true,
  "firstwrite:not-recorded": true,
  "firstwrite:held": true,
  "firstwrite:conflict": true,
};

/**
 * Calls `listener` for every event of that name until the function it returns is called.
 *
 * @throws {InvalidArgumentError} for a name that is none of ours: `node:diagnostics_channel` takes any, and a listener on
 *   a misspelt one would never be called.
 */
export function onEvent<Name extends EventName>(
  name: Name,
  listener: (message: FirstwriteEvents[Name]) => void,
): () => void {
  if (!Object.hasOwn(eventNames, name)) {
    const known = Object.keys(eventNames).join(", ");
    throw new InvalidArgumentError(`there is no event ${JSON.stringify(name)}: there are ${known}`);
  }
  checkFunction(listener, "the listener");
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a channel's messages are `unknown`; only `publish` sends on ours, typed by its name
  const untyped = (message: unknown): void => listener(message as FirstwriteEvents[Name]);
  subscribe(name, untyped);
  return () => unsubscribe(name, untyped);
}

/** `message` is made only when somebody listens. */
export function publish<Name extends EventName>(name: Name, message: () => FirstwriteEvents[Name]): void {
  const target = channel(name);
  if (target.hasSubscribers) target.publish(message());
}
