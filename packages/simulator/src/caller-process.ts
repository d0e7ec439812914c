/** The process of one caller: the real code, which does something only when it is told something. */

import {
  StoreError,
  type CallOptions,
  type ConditionalStore,
  type Runtime,
  type StoredRecord,
  type Version,
  type WriteOutcome,
} from "@firstwrite/core";
import { settle } from "@firstwrite/memory";

import { bytesText, type Interners } from "./interner.ts";
import type { Answer, Channel, Request } from "./request.ts";
import {
  NoAnswerError,
  TRAITS,
  type Ending,
  type Scenario,
  type ServiceClient,
  type SharedDatabase,
} from "./scenario.ts";

/** What the code is told. Two processes of one caller that were told the same are in the same state. */
export type Told =
  | { readonly kind: "begin"; readonly at: number }
  | { readonly kind: "answer"; readonly channel: Channel; readonly answer: Answer; readonly at: number }
  /** Its timer that is due first fires. */
  | { readonly kind: "wake"; readonly at: number }
  /** Its wall clock is set by this much. */
  | { readonly kind: "clock"; readonly ms: number };

/** What the code did when it was told something. */
export interface Step<Result, Model> {
  readonly actions: readonly Action<Result, Model>[];
  /** What it waits for now. */
  readonly waits: Waits<Model>;
  /** It has drawn random bytes, and will not draw them again. */
  readonly drew: boolean;
}

export type Action<Result, Model> =
  | { readonly kind: "reports"; readonly report: unknown }
  | { readonly kind: "ends"; readonly ending: Ending<Result>; readonly text: string }
  /** Its own signal ended its wait for an answer. */
  | { readonly kind: "abandons"; readonly request: Request<Model> }
  /** It did what the model cannot play. */
  | { readonly kind: "misuses"; readonly why: string };

export interface Waits<Model> {
  readonly store: Request<Model> | undefined;
  readonly service: Request<Model> | undefined;
  /** In the order in which they fire. */
  readonly timers: readonly Timer[];
}

interface Timer {
  /** When it was set, and when it is due: by the world's time, in epoch milliseconds. */
  readonly setAt: number;
  readonly at: number;
}

interface SetTimer extends Timer {
  readonly fire: () => void;
}

interface Pending<Model> {
  readonly request: Request<Model>;
  readonly answer: (answer: Answer) => void;
}

export class CallerProcess<Result, Model> {
  readonly #scenario: Scenario<Result, Model>;
  readonly #index: number;
  readonly #startAt: number;
  readonly #interners: Interners;
  readonly #pending: Record<Channel, Pending<Model> | undefined> = { store: undefined, service: undefined };
  #timers: SetTimer[] = [];
  #actions: Action<Result, Model>[] = [];
  #draws = 0;
  #sent = 0;
  #now: number;
  #clockOffsetMs = 0;

  constructor(scenario: Scenario<Result, Model>, index: number, startAt: number, interners: Interners) {
    this.#scenario = scenario;
    this.#index = index;
    this.#startAt = startAt;
    this.#now = startAt;
    this.#interners = interners;
  }

  /** Tells the code something, and lets it do all that it does until it waits again. */
  async tell(told: Told): Promise<Step<Result, Model>> {
    const drawn = this.#draws;
    this.#actions = [];
    switch (told.kind) {
      case "clock":
        this.#clockOffsetMs += told.ms;
        break;
      case "begin":
        this.#now = told.at;
        this.#begin();
        break;
      case "wake":
        this.#now = told.at;
        this.#timers.shift()?.fire();
        break;
      case "answer": {
        this.#now = told.at;
        const pending = this.#pending[told.channel];
        this.#pending[told.channel] = undefined;
        pending?.answer(told.answer);
        break;
      }
    }
    // One macrotask, by which every promise callback has run that is ready: the code has no other source of events.
    await settle();
    return {
      actions: this.#actions,
      waits: {
        store: this.#pending.store?.request,
        service: this.#pending.service?.request,
        timers: this.#timers.map(({ setAt, at }) => ({ setAt, at })),
      },
      drew: this.#draws > drawn,
    };
  }

  #begin(): void {
    const end = (ending: Ending<Result>): void => {
      const text =
        ending.kind === "returned" ? `returned ${JSON.stringify(ending.result)}` : `threw ${String(ending.error)}`;
      this.#actions.push({ kind: "ends", ending, text });
    };
    const caller = {
      index: this.#index,
      store: this.#store(),
      runtime: this.#runtime(),
      service: this.#service(),
      report: (report: unknown) => {
        this.#actions.push({ kind: "reports", report });
      },
    };
    void this.#scenario.start(caller).then(
      (result) => end({ kind: "returned", result }),
      (error: unknown) => end({ kind: "threw", error }),
    );
  }

  #store(): ConditionalStore {
    const traits = { ...TRAITS, ...this.#scenario.traits };
    const unavailable = (why: string): StoreError => new StoreError("UNAVAILABLE", traits.name, why);
    const write = (
      operation: "create" | "replace",
      name: string,
      expected: Version | undefined,
      given: Uint8Array,
      { signal }: CallOptions = {},
    ): Promise<WriteOutcome> => {
      if (signal?.aborted === true) return Promise.reject(unavailable("the call was cancelled before it was sent"));
      const { promise, resolve, reject } = Promise.withResolvers<WriteOutcome>();
      const bytes = Uint8Array.from(given);
      const content = { bytes, id: this.#interners.contents.id(bytesText(bytes)) };
      const id = this.#interners.requests.id(`${operation} ${name} ${expected} ${content.id}`);
      this.#send({
        request: {
          channel: "store",
          caller: this.#index,
          id,
          readOnly: false,
          ...this.#stamp(),
          operation,
          name,
          expected,
          content,
        },
        answer(answer) {
          if (answer.kind !== "outcome") reject(unavailable("the store is away"));
          else if (answer.outcome.kind === "unknown") resolve({ kind: "unknown", cause: new Error("no answer") });
          else resolve(answer.outcome);
        },
        signal,
        givenUp: (cause) => resolve({ kind: "unknown", cause }),
      });
      return promise;
    };
    const read = (name: string, { signal }: CallOptions = {}): Promise<StoredRecord | undefined> => {
      if (signal?.aborted === true) return Promise.reject(unavailable("the call was cancelled before it was sent"));
      const { promise, resolve, reject } = Promise.withResolvers<StoredRecord | undefined>();
      this.#send({
        request: {
          channel: "store",
          caller: this.#index,
          id: this.#interners.requests.id(`read ${name}`),
          readOnly: true,
          ...this.#stamp(),
          operation: "read",
          name,
          expected: undefined,
          content: undefined,
        },
        answer(answer) {
          if (answer.kind !== "record") reject(unavailable(answer.kind === "unavailable" ? answer.why : answer.kind));
          else resolve(answer.record && { ...answer.record, bytes: Uint8Array.from(answer.record.bytes) });
        },
        signal,
        givenUp: () => reject(unavailable("given up")),
      });
      return promise;
    };
    return {
      traits,
      create: (name, bytes, options) => write("create", name, undefined, bytes, options),
      replace: (name, expected, bytes, options) => write("replace", name, expected, bytes, options),
      read,
    };
  }

  #service(): ServiceClient<Model> {
    return {
      request: <Asked>(
        label: string,
        apply: (model: Model, database: SharedDatabase) => Asked,
        { readOnly = false, signal }: { readonly readOnly?: boolean; readonly signal?: AbortSignal | undefined } = {},
      ): Promise<Asked> => {
        if (signal?.aborted === true) return Promise.reject(signal.reason);
        const { promise, resolve, reject } = Promise.withResolvers<Asked>();
        this.#send({
          request: {
            channel: "service",
            caller: this.#index,
            id: this.#interners.requests.id(`service ${label}`),
            readOnly,
            ...this.#stamp(),
            label,
            apply,
          },
          answer(answer) {
            // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what this request's own `apply` returned, copied
            if (answer.kind === "value") resolve(structuredClone(answer.value) as Asked);
            else reject(answer.kind === "error" ? freshError(answer.error) : new NoAnswerError("no answer"));
          },
          signal,
          givenUp: reject,
        });
        return promise;
      },
    };
  }

  #stamp(): Pick<Request<Model>, "nth" | "sentAt"> {
    this.#sent += 1;
    return { nth: this.#sent, sentAt: this.#now };
  }

  #send({
    request,
    answer,
    signal,
    givenUp,
  }: Pending<Model> & {
    readonly signal: AbortSignal | undefined;
    readonly givenUp: (reason: unknown) => void;
  }): void {
    const { channel } = request;
    if (this.#pending[channel] !== undefined) {
      this.#actions.push({ kind: "misuses", why: `caller ${this.#index} sent two requests to the ${channel} at once` });
      return;
    }
    const pending = { request, answer };
    this.#pending[channel] = pending;
    signal?.addEventListener(
      "abort",
      () => {
        // Answered long since, maybe: a signal may outlive what it was given to.
        if (this.#pending[channel] !== pending) return;
        this.#pending[channel] = undefined;
        this.#actions.push({ kind: "abandons", request });
        givenUp(signal.reason);
      },
      { once: true },
    );
  }

  /** The bytes it draws depend on nothing but how many were drawn before. */
  #runtime(): Runtime {
    return {
      now: () => this.#now + this.#clockOffsetMs,
      monotonicMs: () => this.#now - this.#startAt,
      random: () => 0,
      randomBytes: (length) => {
        this.#draws += 1;
        const bytes = new Uint8Array(length);
        bytes[0] = this.#index;
        bytes[length - 2] = this.#draws >> 8;
        bytes[length - 1] = this.#draws & 0xff;
        return bytes;
      },
      setTimer: (ms, fire) => {
        const timer = { setAt: this.#now, at: this.#now + Math.max(0, ms), fire };
        const later = this.#timers.findIndex((other) => other.at > timer.at);
        this.#timers.splice(later === -1 ? this.#timers.length : later, 0, timer);
        return () => {
          this.#timers = this.#timers.filter((other) => other !== timer);
        };
      },
    };
  }
}

/** Another for each process that is told of it: whoever catches an error may leave something with it. */
function freshError(error: unknown): unknown {
  if (typeof error !== "object" || error === null) return error;
  const fresh: unknown = Object.create(Object.getPrototypeOf(error), Object.getOwnPropertyDescriptors(error));
  return fresh;
}
