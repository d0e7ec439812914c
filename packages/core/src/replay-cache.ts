import { checkNames } from "./check-argument.ts";
import type { StoreTraits } from "./conditional-store.ts";
import { InvalidArgumentError } from "./errors.ts";
import type { IdempotencyRecord, InlineResult } from "./record.ts";
import type { Runtime } from "./runtime.ts";

interface Entry {
  readonly inputHash: string;
  readonly operationId: string;
  readonly result: InlineResult;
  /** By the monotonic clock. */
  readonly untilMs: number;
}

/** Results of settled operations, the last used ones, to answer repeats with no request (rule I2). */
export class ReplayCache {
  readonly #runtime: Runtime;
  readonly #clockGranularityMs: number;
  readonly #entriesMax: number;
  /** The last used one last: a `Map` keeps the order in which its entries were set. */
  readonly #entries = new Map<string, Entry>();

  /** @throws {InvalidArgumentError} */
  constructor(runtime: Runtime, traits: StoreTraits, options: { readonly entriesMax: number }) {
    checkNames(options, ["entriesMax"], "cache");
    const { entriesMax } = options;
    if (!Number.isSafeInteger(entriesMax) || entriesMax < 1) {
      throw new InvalidArgumentError(`cache.entriesMax is ${String(entriesMax)}: give a whole number above 0`);
    }
    this.#runtime = runtime;
    this.#clockGranularityMs = traits.clockGranularityMs;
    this.#entriesMax = entriesMax;
  }

  find(name: string, inputHash: string): Pick<Entry, "operationId" | "result"> | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    this.#entries.delete(name);
    if (this.#runtime.monotonicMs() >= entry.untilMs) return undefined;
    this.#entries.set(name, entry);
    return entry.inputHash === inputHash ? entry : undefined;
  }

  /**
   * `ageMs`: at most so old, by the store's clock, at `asOfMs` by the monotonic clock, which is from before its request was
   * sent. The true age may be `clockGranularityMs` more, and a reader elsewhere may take the record for stale so much
   * before its time again.
   */
  keep(
    name: string,
    { status, inputHash, operationId, result, ttlMs = 0 }: IdempotencyRecord,
    ageMs: number,
    asOfMs: number,
  ): void {
    if (status !== "ready" || result === undefined || result.kind === "offloaded") return;
    const untilMs = asOfMs + ttlMs - ageMs - this.#clockGranularityMs;
    this.#entries.delete(name);
    this.#entries.set(name, { inputHash, operationId, result, untilMs });
    if (this.#entries.size <= this.#entriesMax) return;
    const [oldest] = this.#entries.keys();
    if (oldest !== undefined) this.#entries.delete(oldest);
  }
}
