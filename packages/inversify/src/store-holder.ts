import { Idempotency, type ConditionalStore, type IdempotencyOptions } from "@firstwrite/core";

/**
 * Opens a store once for everybody who asks, and closes what it opened. A failed open is forgotten, so that the next
 * resolution tries again: inversify keeps the rejected promise of a singleton for ever.
 */
export class StoreHolder {
  readonly #open: () => Promise<ConditionalStore>;
  readonly #owned: boolean;
  readonly #options: Omit<IdempotencyOptions, "store">;
  #opening: Promise<ConditionalStore> | undefined;
  readonly #engines = new WeakMap<ConditionalStore, Idempotency>();

  /** `owned`: what `open` gives is closed by {@link close}. */
  constructor(open: () => Promise<ConditionalStore>, owned: boolean, options: Omit<IdempotencyOptions, "store">) {
    this.#open = open;
    this.#owned = owned;
    this.#options = options;
  }

  store(): Promise<ConditionalStore> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  /** One engine a store, whichever store is bound in the end: calls share their requests only within one engine. */
  idempotencyOf(store: ConditionalStore): Idempotency {
    const known = this.#engines.get(store);
    if (known !== undefined) return known;
    const engine = new Idempotency({ ...this.#options, store });
    this.#engines.set(store, engine);
    return engine;
  }

  async close(): Promise<void> {
    const opening = this.#opening;
    this.#opening = undefined;
    if (opening === undefined || !this.#owned) return;
    const store = await opening.catch(() => undefined);
    await store?.close?.();
  }
}
