import { randomBytes, randomInt } from "node:crypto";

import type { ConditionalStore } from "@firstwrite/core";

import type { HarnessFault, StoreHarness } from "./harness.ts";

const encoder = new TextEncoder();
const nonceLength = 32;

/** What a test works on: the stores, names and bodies nobody else uses, and what the harness can do to the wire. */
export interface Bench {
  readonly store: ConditionalStore;
  /** The second client; the first again where the harness has no second. */
  readonly second: ConditionalStore;
  readonly patienceMs: number;
  readonly seed: number;
  readonly offers: readonly HarnessFault[];
  /** A name that was never used. `tail` is put at its end, as it is. */
  readonly name: (tail?: string) => string;
  /** How many requests the first store has sent. Only in tests that were registered as needing it. */
  requests(): Promise<number>;
  inject(fault: HarnessFault, on: "write" | "read"): Promise<void>;
  heal(): Promise<void>;
  land(): Promise<void>;
  /** A store for one test alone. `release` gives it back to the harness. */
  openAnother(): Promise<{ readonly store: ConditionalStore; release(): Promise<void> }>;
  /** Records that the rest of a test could not run on this store. */
  notRun(why: string): void;
}

/** Opens the stores when the first test needs them, and closes them when the last is done. */
export class BenchKeeper<S extends ConditionalStore> {
  readonly #harness: StoreHarness<S>;
  readonly #run = randomBytes(4).toString("hex");
  readonly seed: number;
  #opened: Promise<{ first: S; second: ConditionalStore }> | undefined;
  #names = 0;

  constructor(harness: StoreHarness<S>) {
    this.#harness = harness;
    this.seed = harness.seed ?? seedFromEnvironment() ?? randomInt(2 ** 31);
  }

  async bench(notRun: (why: string) => void): Promise<Bench> {
    const harness = this.#harness;
    this.#opened ??= this.#open();
    const { first, second } = await this.#opened;
    const faults = (): NonNullable<typeof harness.faults> => {
      if (harness.faults === undefined) throw new Error("the harness has no `faults`");
      return harness.faults;
    };
    return {
      store: first,
      second,
      patienceMs: harness.patienceMs ?? 15_000,
      seed: this.seed,
      offers: harness.faults?.offers ?? [],
      name: (tail = "") => {
        this.#names += 1;
        return `fw-${this.#run}/${this.#names}${tail}`;
      },
      requests: async () => {
        if (harness.requests === undefined) throw new Error("the harness has no `requests`");
        return harness.requests(first);
      },
      inject: async (fault, on) => faults().inject(first, fault, on),
      heal: async () => harness.faults?.heal(first),
      land: async () => faults().land?.(first),
      openAnother: async () => {
        const store = checkedStore("open", await named("open", () => harness.open()));
        return { store, release: () => this.#close(store) };
      },
      notRun,
    };
  }

  async close(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    // What could not be opened was reported by every test, and needs no closing.
    const stores = await opened?.catch(() => undefined);
    if (stores === undefined) return;
    await this.#close(stores.first);
    if (this.#harness.openSecond !== undefined) await this.#close(stores.second);
  }

  async #open(): Promise<{ first: S; second: ConditionalStore }> {
    const first = checkedStore("open", await named("open", () => this.#harness.open()));
    const second = await named("openSecond", async () =>
      this.#harness.openSecond === undefined ? first : this.#harness.openSecond(first),
    );
    checkedStore("openSecond", second);
    return { first, second };
  }

  #close(store: ConditionalStore): Promise<void> {
    return named("close", async () => {
      if (this.#harness.close === undefined) await store.close?.();
      else await this.#harness.close(store);
    });
  }
}

/** A body that nobody wrote before (P8), `length` bytes long where that leaves room for its nonce. */
export function newBody(length: number = nonceLength): Uint8Array {
  const nonce = encoder.encode(randomBytes(nonceLength / 2).toString("hex"));
  const body = new Uint8Array(Math.max(length, nonceLength));
  body.set(nonce);
  return body;
}

/** A body that begins with a nonce and goes on with `bytes`. */
export function newBodyWith(bytes: Uint8Array): Uint8Array {
  const body = newBody(nonceLength + bytes.byteLength);
  body.set(bytes, nonceLength);
  return body;
}

/** What follows the nonce of a body. */
export function afterNonce(body: Uint8Array): Uint8Array {
  return body.subarray(nonceLength);
}

/** Which of the bodies of {@link newBody} this is. */
export function nonceOf(body: Uint8Array): string {
  return Buffer.from(body.subarray(0, nonceLength)).toString("latin1");
}

/** A fault of the harness must not read like a fault of the store. */
async function named<T>(step: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (cause) {
    throw new Error(`the harness failed in ${step}(): ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
}

function checkedStore<S extends ConditionalStore>(step: string, store: S): S {
  const missing = (["traits", "create", "replace", "read"] as const).filter((member) => store?.[member] === undefined);
  if (missing.length > 0) {
    throw new Error(`what the harness's ${step}() gave is not a ConditionalStore: it has no ${missing.join(", ")}`);
  }
  return store;
}

function seedFromEnvironment(): number | undefined {
  const given = process.env["FIRSTWRITE_CONFORMANCE_SEED"];
  if (given === undefined || given === "") return undefined;
  const seed = Number(given);
  if (!Number.isSafeInteger(seed)) throw new Error(`FIRSTWRITE_CONFORMANCE_SEED is ${given}: give an integer`);
  return seed;
}
