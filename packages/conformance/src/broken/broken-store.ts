import {
  checkNotAborted,
  checkObjectName,
  checkWrite,
  StoreError,
  type CallOptions,
  type ConditionalStore,
  type StoreTraits,
  type Version,
  type WriteOutcome,
} from "@firstwrite/core";

/** A store with one fault, and the test of the suite that is there to find it. */
export interface BrokenStore {
  /** What it does wrong. */
  readonly name: string;
  /** The title of the test that must fail on it, every time. Others may fail as well. */
  readonly caughtBy: string;
  /** Opens clients of one correct service, each with the fault in it. */
  readonly clientsOf: (service: FullStore) => () => ConditionalStore;
}

/** A store with everything a store can have. */
export type FullStore = Required<ConditionalStore>;

/** What a fault changes in a client that is correct without it. */
export type Fault = (sound: FullStore, service: FullStore) => Partial<FullStore>;

/** A store that is broken in each client alone. */
export function broken(name: string, caughtBy: string, fault: Fault): BrokenStore {
  return brokenTogether(name, caughtBy, () => fault);
}

/** A store whose clients share what `together` keeps, as they would if it were in the service. */
export function brokenTogether(name: string, caughtBy: string, together: () => Fault): BrokenStore {
  return {
    name,
    caughtBy,
    clientsOf: (service) => {
      const fault = together();
      return () => {
        const sound = soundClient(service);
        return { ...sound, ...fault(sound, service) };
      };
    },
  };
}

/** A correct adapter of `service`, with limits of its own: less than the service takes, so that a fault can pass them. */
export function soundClient(service: FullStore, limits: Partial<StoreTraits> = {}): FullStore {
  const traits: StoreTraits = { ...service.traits, nameBytesMax: 512, recordBytesMax: 1_100_000, ...limits };
  return {
    traits,
    async create(name, bytes, options) {
      checkWrite(traits, name, bytes);
      checkNotAborted(traits, options);
      return service.create(name, bytes, options);
    },
    async replace(name, expected, bytes, options) {
      checkWrite(traits, name, bytes);
      checkNotAborted(traits, options);
      return service.replace(name, expected, bytes, options);
    },
    async read(name, options) {
      checkObjectName(traits, name);
      checkNotAborted(traits, options);
      return service.read(name, options);
    },
    async remove(name, expected, options) {
      checkObjectName(traits, name);
      checkNotAborted(traits, options);
      return service.remove(name, expected, options);
    },
    list: (prefix, options) => service.list(prefix, options),
    close: async () => undefined,
  };
}

/** Both writes of a store, changed alike. `expected` is `undefined` for a `create`. */
export function bothWrites(
  write: (
    name: string,
    bytes: Uint8Array,
    expected: Version | undefined,
    options: CallOptions | undefined,
  ) => Promise<WriteOutcome>,
): Pick<FullStore, "create" | "replace"> {
  return {
    create: (name, bytes, options) => write(name, bytes, undefined, options),
    replace: (name, expected, bytes, options) => write(name, bytes, expected, options),
  };
}

/** Sends a write on as it is: to the sound client, or past its checks to the service. */
export function forward(
  store: ConditionalStore,
  name: string,
  bytes: Uint8Array,
  expected: Version | undefined,
  options?: CallOptions,
): Promise<WriteOutcome> {
  return expected === undefined ? store.create(name, bytes, options) : store.replace(name, expected, bytes, options);
}

/** Stores the bytes whatever is there, which no store of the port offers. */
export async function overwrite(
  store: ConditionalStore,
  name: string,
  bytes: Uint8Array,
  options?: CallOptions,
): Promise<WriteOutcome> {
  for (;;) {
    const record = await store.read(name, options);
    const outcome = await forward(store, name, bytes, record?.version, options);
    if (outcome.kind !== "refused") return outcome;
  }
}

export function unavailable(traits: StoreTraits, cause?: unknown): StoreError {
  return new StoreError("UNAVAILABLE", traits.name, "the service did not answer", { cause });
}

export const refused: WriteOutcome = { kind: "refused" };
