import type { ConditionalStore } from "@firstwrite/core";

/** One line of the matrix: a store, and the server behind it. */
export interface Row {
  /** What is printed; {@link rowId} of it is what one types. */
  readonly name: string;
  /** The store under test, as `@firstwrite/stores` calls it. */
  readonly store: "memory" | "sqlite" | "s3" | "gcs" | "azure";
  /**
   * Whether others than the first client reach its records, so that {@link Provisioned.openSecond} and
   * {@link Provisioned.url} are there. Suites ask before anything is provisioned.
   */
  readonly second: boolean;
  /** Whether {@link Provisioned.via} is there: the store speaks HTTP to an address that a proxy can stand before. */
  readonly proxied: boolean;
  /** Tests of the conformance suite that this server is known not to pass, by title, with the reason. */
  readonly gaps?: Readonly<Record<string, string>>;
  /**
   * Makes a place for records that nothing else uses.
   *
   * @throws {CannotRun} when this machine has not got what it takes. Any other failure is a fault.
   */
  provision(): Promise<Provisioned>;
}

/** A place for records. All that it opens, first or second, sees the same ones. */
export interface Provisioned {
  open(): Promise<ConditionalStore>;
  /** A client of its own, where that is something else than the first again: another connection, another endpoint. */
  openSecond?(): Promise<ConditionalStore>;
  /** The same place by another address: a proxy's, which forwards to `endpoint`. */
  readonly via?: { readonly endpoint: string; open(address: string): Promise<ConditionalStore> };
  /** The place as `openStore` of `@firstwrite/stores` takes it. */
  readonly url?: string;
  /** Environment variables with which `url` works. */
  readonly env?: Readonly<Record<string, string>>;
  /** Ends what was started and removes what was written. Stores are closed by who opened them. */
  close(): Promise<void>;
}

/** The row's name for a command line: `versitygw, two gateways` is `versitygw-two-gateways`. */
export function rowId(row: Row): string {
  return row.name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
}

/** Something this machine has not got, so that a row cannot run; the message tells a person what. */
export class CannotRun extends Error {
  override readonly name = "CannotRun";
}
