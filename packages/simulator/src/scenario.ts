/** What a user of the explorer writes, and what it gives to their code. */

import type { ConditionalStore, Runtime, StoreTraits, Version } from "@firstwrite/core";

/**
 * What is explored. `Model` is what is known of the world beside the store, as JSON data: the service that callers have
 * effects on, and whatever the checks remember.
 */
export interface Scenario<Result, Model = undefined> {
  /** How many callers there are; states grow with it exponentially. */
  readonly callers: number;
  /**
   * The callers do the same, so that of those that nothing has happened to yet it does not matter which one goes first:
   * only the first of them is tried. Cuts the number of states by nearly the factorial of `callers`.
   */
  readonly interchangeable?: boolean;
  /** Calls begin when the schedule says so, after any jump: by default all begin before anything else happens. */
  readonly beginLate?: boolean;
  /** What is stored when the schedule begins. */
  readonly records?: readonly StartingRecord[];
  /** From this age on a lifecycle rule may remove a record at any moment, in milliseconds; by default none does. */
  readonly removedAfterMs?: number;
  /** The model of a new schedule. It must be what `JSON.parse` gives, for it is copied by its text. */
  readonly model?: () => Model;
  /** How requests to the service fail; by default as those to the store, and they are in flight for up to an hour. */
  readonly service?: ServiceOptions;
  /**
   * Begins the call of one caller, as a process of its own would. It may depend on nothing but what it is given: what the
   * code does when it is told one thing after another is found out once, and taken for every schedule in which it is told
   * the same.
   */
  readonly start: (caller: CallerSetup<Model>) => Promise<Result>;
  readonly faults: readonly Fault[];
  /** How many faults a schedule may have. */
  readonly faultsMax: number;
  /** Jumps of time for all, in milliseconds, each of which may happen at any moment, in this order. */
  readonly jumpsMs?: readonly number[];
  /** Steps of one caller's wall clock alone, in milliseconds, each of which may happen at any moment, as a fault. */
  readonly clockJumpsMs?: readonly number[];
  /** How many requests a caller is without the store for by the fault `away`; by default 1. */
  readonly awayFor?: number;
  /** How long a write to the store may be in flight, in milliseconds; by default an hour. */
  readonly inFlightMsMax?: number;
  readonly traits?: Partial<StoreTraits>;
  readonly checks: Checks<Result, Model>;
  /** Shows a record in the trace of a violation; by default its length alone. */
  readonly show?: (bytes: Uint8Array) => string;
}

/** A record that is there before the first call. */
export interface StartingRecord {
  readonly name: string;
  readonly bytes: Uint8Array;
  /** How long ago it was written, in milliseconds. */
  readonly ageMs: number;
}

export interface ServiceOptions {
  /** How long a request may be in flight, in milliseconds: what an operation's `recoverAfterMs` assumes. */
  readonly inFlightMsMax?: number;
  readonly faults?: readonly Fault[];
  /** The error a caller is told by the fault `declined`. */
  readonly decline?: (label: string) => Error;
}

/**
 * What may go wrong with one request. Each counts against the scenario's number of faults. A write to the store whose
 * answer is lost is `unknown`; a read, and any request to the service, rejects.
 *
 * | fault           | what becomes of the request                                                                    |
 * | --------------- | ---------------------------------------------------------------------------------------------- |
 * | `lostRequest`   | never arrives; the caller gets no answer                                                       |
 * | `lostReply`     | is done; the caller gets no answer                                                             |
 * | `landsLate`     | arrives at any later moment while it can be in flight; the caller gets no answer               |
 * | `repeatedLater` | is done and answered; a copy of it arrives at any later moment while it can be in flight       |
 * | `heldReply`     | is done; the answer reaches the caller at any later moment                                     |
 * | `crashBefore`   | never arrives, for its caller's process ends; what else that process has sent is in flight     |
 * | `crashAfter`    | is done, and its caller's process ends                                                         |
 * | `contended`     | store writes: the store does not decide                                                        |
 * | `away`          | store: is not sent, nor are the next few (the scenario's `awayFor`): they reject `UNAVAILABLE` |
 * | `declined`      | service writes: is refused for good; the caller is told so, with the service's error           |
 */
export type Fault =
  | "lostRequest"
  | "lostReply"
  | "landsLate"
  | "repeatedLater"
  | "heldReply"
  | "crashBefore"
  | "crashAfter"
  | "contended"
  | "away"
  | "declined";

/** One caller of the code under test: a process of its own. */
export interface CallerSetup<Model = undefined> {
  /** 0, 1, …; the retry at the end is one more. */
  readonly index: number;
  readonly store: ConditionalStore;
  /** Time stands still while the code runs, jitter is zero, and random bytes are the caller's number and a count. */
  readonly runtime: Runtime;
  readonly service: ServiceClient<Model>;
  /** Tells the checks of something that happens inside the code: `onReported`. What is told must not be changed later. */
  readonly report: (report: unknown) => void;
}

/** A caller's way to the service. */
export interface ServiceClient<Model> {
  /**
   * Sends a request, which is a choice point of the schedule. One at a time.
   *
   * @param label what is asked: two requests of equal labels must do the same.
   * @param apply does it, by changing the model. It may use nothing else that changes. Its answer is JSON, or what it
   *   throws, of which the caller is told as a rejection. `database`: the store's records, for a service that has them in
   *   its own database.
   * @param options `readOnly`: `apply` changes nothing. `signal`: rejects with its reason; the request may be under way.
   * @throws {NoAnswerError} for a lost or late request or a lost reply.
   */
  request<Answer>(
    label: string,
    apply: (model: Model, database: SharedDatabase) => Answer,
    options?: { readonly readOnly?: boolean; readonly signal?: AbortSignal | undefined },
  ): Promise<Answer>;
}

/** A database that the service shares with the store. */
export interface SharedDatabase {
  /**
   * As the store's `replace`: done with the rest of the request when `apply` returns, and not at all when it throws, which is to undo what
   * it changed of the model. False: the record is at another version. Once in a request.
   */
  replace(name: string, expected: Version, bytes: Uint8Array): boolean;
}

/** The service did not answer: what was asked may have been done, may be done later, or never. */
export class NoAnswerError extends Error {}

/** How a caller's call ended. */
export type Ending<Result> =
  | { readonly kind: "returned"; readonly result: Result }
  | { readonly kind: "threw"; readonly error: unknown };

/**
 * What must hold. Each check throws when it does not. What a check wants to remember it keeps in the model: it is called
 * in the schedules' own order, which is not one after the other, and must keep nothing anywhere else.
 */
export interface Checks<Result, Model = undefined> {
  /** After each write that changed the store. */
  readonly onWritten?: (change: Change, world: World<Model>) => void;
  /** After each request that the service did, reads left out. */
  readonly onServed?: (served: Served, world: World<Model>) => void;
  /** When the code of a caller reports something. */
  readonly onReported?: (report: unknown, caller: number, world: World<Model>) => void;
  /** When a call has ended. */
  readonly onEnded?: (ending: Ending<Result>, caller: number, world: World<Model>) => void;
  /**
   * When nothing more can happen. `retry` lets `afterMs` milliseconds pass (by default none), begins one more call,
   * without faults, and plays it to its end.
   */
  readonly atRest?: (retry: (afterMs?: number) => Promise<Ending<Result>>, world: World<Model>) => Promise<void>;
}

/** The world as checks see it. */
export interface World<Model = undefined> {
  /** The world's time, which is the store's, in epoch milliseconds. */
  readonly now: number;
  /** What is stored, by name. */
  readonly records: ReadonlyMap<string, ModelRecord>;
  /** The scenario's model, as this schedule left it. A check may change it. */
  readonly model: Model;
  /** Whether the process of a caller has ended before its time. */
  isCrashed(caller: number): boolean;
  /** Whether the call of a caller has returned or thrown. */
  hasEnded(caller: number): boolean;
}

export interface ModelRecord {
  readonly bytes: Uint8Array;
  /** When it was written, in epoch milliseconds of the world's time. */
  readonly modifiedAt: number;
}

/** One write that changed the store. */
export interface Change {
  readonly name: string;
  readonly before: ModelRecord | undefined;
  readonly after: ModelRecord;
  /** Who sent it. */
  readonly caller: number;
  /** The event of the schedule by which it arrived: `apply 0`, `land 0`. */
  readonly event: string;
}

/** One request that the service did. */
export interface Served {
  readonly label: string;
  readonly caller: number;
  readonly event: string;
}

export const TRAITS: StoreTraits = {
  name: "model",
  nameBytesMax: 1024,
  recordBytesMax: 1024 * 1024,
  clockGranularityMs: 0,
};
