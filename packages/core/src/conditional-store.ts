/**
 * The port: one linearizable register per object name, with three operations. Everything above it (the engine, tasks,
 * HTTP, payouts) uses these and nothing of a vendor's; an adapter for one more service implements this interface and
 * nothing else.
 *
 * The rules cited as P1 to P9 are the contract of this page; `@firstwrite/conformance` checks those a store can show.
 */

declare const versionBrand: unique symbol;

/**
 * What a store calls the state of a record: an ETag, a generation, a row's token. Opaque: never parsed, compared or
 * ordered by anyone but the store that gave it. A version of one record fits no other record, and no other bytes of the
 * same name, one that was removed and made again included.
 */
export type Version = string & { readonly [versionBrand]: "Version" };

/**
 * For adapters only: marks a service's own token as a {@link Version}.
 *
 * @throws {TypeError} for an empty token, which no `replace` could rely on. An adapter answers that as `UNSUPPORTED`
 *   before it comes here (P5).
 */
export function toVersion(token: string): Version {
  if (!isVersion(token)) throw new TypeError("a store gave an empty version");
  return token;
}

function isVersion(token: string): token is Version {
  return token !== "";
}

/**
 * How a conditional write ended. The kinds are closed: a caller that handles the four has handled everything, and an
 * answer that fits none of them is a {@link StoreError}.
 */
export type WriteOutcome =
  /** These bytes are the record, at `version`. `at`: the answer's time by the store's clock, epoch milliseconds. */
  | { readonly kind: "written"; readonly version: Version; readonly at: number }
  /** The condition was false. This attempt changed nothing. */
  | { readonly kind: "refused" }
  /**
   * The service would not decide while another write was in flight (S3's 409 `ConditionalRequestConflict`, a 429 for
   * one name): nothing changed, and nothing was learnt about the condition.
   */
  | { readonly kind: "contended" }
  /**
   * Sent, perhaps, and no answer is known (a timeout, a reset, an abort after dispatch, a 5xx): the bytes may be stored
   * now, later or never. `cause` is for logs; it decides nothing.
   */
  | { readonly kind: "unknown"; readonly cause: unknown };

/** A record as one read found it: body, version and times all of the same answer. */
export interface StoredRecord {
  /** The caller's to keep and change (P4). */
  readonly bytes: Uint8Array;
  readonly version: Version;
  /** When the record was last written, by the store's clock, in epoch milliseconds. May be cut to whole seconds. */
  readonly modifiedAt: number;
  /** When this read was answered, by the store's clock, in epoch milliseconds. May be cut to whole seconds. */
  readonly readAt: number;
}

/** What a store is like, in numbers. */
export interface StoreTraits {
  /** A short name for messages: `"memory"`, `"s3"`. */
  readonly name: string;
  /** The longest object name {@link ConditionalStore.create} takes, in bytes of UTF-8. */
  readonly nameBytesMax: number;
  /** The longest record, in bytes. */
  readonly recordBytesMax: number;
  /**
   * How far `readAt - modifiedAt` may be from the truth, in milliseconds: it covers both the truncation of the two
   * times and the skew between the machines of the service that stamp them.
   */
  readonly clockGranularityMs: number;
}

/** Given to every call. */
export interface CallOptions {
  /**
   * Ends the call. An adapter whose write may have been sent answers `unknown`; one that has sent nothing, or only
   * reads, rejects with `UNAVAILABLE`.
   */
  readonly signal?: AbortSignal | undefined;
}

/** How a conditional delete ended; the kinds are those of a write. */
export type RemoveOutcome =
  | { readonly kind: "removed" }
  | { readonly kind: "refused" }
  | { readonly kind: "contended" }
  | { readonly kind: "unknown"; readonly cause: unknown };

/** One entry of {@link ConditionalStore.list}. */
export interface ListedObject {
  readonly name: string;
  /** By the store's clock, in epoch milliseconds. */
  readonly modifiedAt: number;
}

/**
 * A store of records written only on condition.
 *
 * An adapter **must**
 * - send at most one request for a write, whatever retry policy the user's own SDK client has (P1): a client that
 *   retries after a lost reply reports its own write as `refused`;
 * - reject a promise only when nothing was written (P2), and with a {@link StoreError} (P7);
 * - let a read begun after `written` see that write or a later one, and never pair an older body with a newer version
 *   (P3);
 * - copy bytes on the way in and on the way out, and decode nothing as text (P4);
 * - answer `refused` only for the service's own words for "the condition was false" (P5), and never emulate a condition
 *   by reading first (P6).
 *
 * It **may assume** that apart from repeating an `unknown` or `contended` write with the same bytes, no two writes to a
 * name carry equal bytes (P8). ETags that are content hashes are therefore good versions.
 */
export interface ConditionalStore {
  readonly traits: StoreTraits;

  /**
   * Stores `bytes` if there is no record of that name.
   *
   * @throws {StoreError} `INVALID_ARGUMENT` before anything is sent, for a name or a record the store cannot take;
   *   `PERMISSION_DENIED`, `UNAVAILABLE`, `UNSUPPORTED` when nothing was written.
   */
  create(name: string, bytes: Uint8Array, options?: CallOptions): Promise<WriteOutcome>;

  /**
   * Stores `bytes` if the record is at `expected`: compare-and-swap. A missing record is `refused`.
   *
   * @throws {StoreError} as {@link create}.
   */
  replace(name: string, expected: Version, bytes: Uint8Array, options?: CallOptions): Promise<WriteOutcome>;

  /**
   * The latest record, never from a cache; `undefined` where there is none.
   *
   * @throws {StoreError} as {@link create}; `CORRUPT` for a body that does not fit its checksum, `UNSUPPORTED` for a
   *   record without a version that a later `replace` could rely on.
   */
  read(name: string, options?: CallOptions): Promise<StoredRecord | undefined>;

  /**
   * Every object whose name begins with `prefix`, in any order. For operators' tools and checks, never for the engine:
   * a listing may be late where the three operations are not. Absent where the service has no listing.
   */
  list?(prefix: string, options?: CallOptions): AsyncIterable<ListedObject>;

  /**
   * Deletes the record if it is at `expected`; for a missing one the answer is `refused`, or `removed` where the service
   * does not tell. One request, as a write is. Some services
   * take the condition and ignore it, so that nobody calls this who has not found out by trying that this one does not.
   * Absent where the service has no conditional delete.
   *
   * @throws {StoreError} as {@link create}.
   */
  remove?(name: string, expected: Version, options?: CallOptions): Promise<RemoveOutcome>;

  /** Frees what the store opened itself (a file, a client it made); never what it was given. */
  close?(): Promise<void>;
}
