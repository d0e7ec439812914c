import type { ConditionalStore, Idempotency } from "@firstwrite/core";
import type { ServiceIdentifier } from "inversify";

/** What a container knows one store and its engine by. */
export interface FirstwriteIdentifiers {
  readonly store: ServiceIdentifier<ConditionalStore>;
  readonly idempotency: ServiceIdentifier<Idempotency>;
}

/**
 * The identifiers of the store of that name: of one more store in the same container. The same name gives the same
 * identifiers, in every copy of this package.
 */
export function firstwriteIdentifiers(name: string): FirstwriteIdentifiers {
  return {
    store: Symbol.for(`firstwrite.store.${name}`),
    idempotency: Symbol.for(`firstwrite.idempotency.${name}`),
  };
}

/** The identifiers of a container's one store, where it has no name. */
export const firstwrite: FirstwriteIdentifiers = firstwriteIdentifiers("default");
