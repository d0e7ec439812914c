import {
  InvalidArgumentError,
  verifyStore,
  type ConditionalStore,
  type IdempotencyOptions,
  type ProbeOptions,
} from "@firstwrite/core";
import { openStore } from "@firstwrite/stores";
import { ContainerModule, type ServiceIdentifier } from "inversify";

import { firstwrite, firstwriteIdentifiers } from "./identifiers.ts";
import { StoreHolder } from "./store-holder.ts";

export interface FirstwriteModuleOptions extends Omit<IdempotencyOptions, "store"> {
  /**
   * Where the records are: a URL that `openStore` takes, a function that opens a store, or a store. What is opened here is
   * closed with the container; a store that was given is not.
   */
  readonly store: string | (() => ConditionalStore | Promise<ConditionalStore>) | ConditionalStore;
  /** Of one of several stores in the container: `firstwriteIdentifiers(name)` are its identifiers. */
  readonly name?: string;
  /**
   * Probes the store once before anybody gets it, and refuses one that does not honour conditions (`UNSUPPORTED`). Costs
   * about 600 small requests, fewer with fewer `racers`.
   */
  readonly verify?: boolean | ProbeOptions;
}

/**
 * Binds a store and its engine, each once for the container. Resolve them with `getAsync`; close what was opened with
 * `await container.unbindAllAsync()` or `unloadAsync(module)`.
 *
 * ```ts
 * await container.loadAsync(firstwriteModule({ store: "s3://acme-idempotency/prod" }));
 * const idempotency = await container.getAsync(firstwrite.idempotency);
 * ```
 *
 * @throws {InvalidArgumentError} for a store that is none of the three.
 */
export function firstwriteModule(options: FirstwriteModuleOptions): ContainerModule {
  const { store, name, verify = false, ...engine } = options;
  const { store: storeId, idempotency: idempotencyId } = name === undefined ? firstwrite : firstwriteIdentifiers(name);
  const open = opener(store);
  const openVerified = async (): Promise<ConditionalStore> => {
    const opened = await open();
    if (verify === false) return opened;
    try {
      await verifyStore(opened, verify === true ? {} : verify);
      return opened;
    } catch (error) {
      if (!isStore(store)) await opened.close?.();
      throw error;
    }
  };

  return new ContainerModule(({ bind }) => {
    const holder = new StoreHolder(openVerified, !isStore(store), engine);
    // The one binding that is deactivated, once it has been resolved. The store's own would be deactivated for a store
    // that was given, too, and by a test that rebinds it.
    const holderId: ServiceIdentifier<StoreHolder> = Symbol(`firstwrite.holder.${name ?? "default"}`);
    bind(holderId)
      .toConstantValue(holder)
      .onDeactivation(() => holder.close());
    // Not in singleton scope: the holder is what makes it one, and lets a failed open be tried again.
    bind(storeId).toResolvedValue((resolved: StoreHolder) => resolved.store(), [holderId]);
    bind(idempotencyId).toResolvedValue((bound: ConditionalStore) => holder.idempotencyOf(bound), [storeId]);
  });
}

function opener(store: FirstwriteModuleOptions["store"]): () => Promise<ConditionalStore> {
  if (typeof store === "string") return () => openStore(store);
  if (typeof store === "function") return async () => store();
  if (isStore(store)) return async () => store;
  throw new InvalidArgumentError("store must be a URL, a function that opens a store, or a store");
}

function isStore(store: unknown): store is ConditionalStore {
  return typeof store === "object" && store !== null && "create" in store && "replace" in store && "read" in store;
}
