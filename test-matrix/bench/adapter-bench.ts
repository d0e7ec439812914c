import type { ConditionalStore } from "@firstwrite/core";

/** One store, and the SDK's own calls for what it does. */
export interface AdapterBench {
  readonly store: ConditionalStore;
  readonly bare: {
    /** Resolves with what a replace names the version by. */
    create(name: string, bytes: Uint8Array): Promise<string>;
    replace(name: string, version: string, bytes: Uint8Array): Promise<string>;
    read(name: string): Promise<Uint8Array>;
  };
  close(): Promise<void>;
}
