/**
 * Bytes ⇄ record. A record is one JSON object in UTF-8 whose field names are those of the layout before this library
 * (the eight fields of an idempotent task queue), so that its readers can use our records, and we theirs.
 */

import type { StoredRecord } from "./conditional-store.ts";
import { isJsonObject, parseJsonObject, toJson, type Json, type JsonObject } from "./canonical-json.ts";
import { checkObject } from "./check-argument.ts";
import { InvalidArgumentError, UnsupportedRecordError } from "./errors.ts";
import type { RecordPlace } from "./object-name.ts";
import { formatTime, parseTime, type Runtime } from "./runtime.ts";
import { StoreError } from "./store-error.ts";

/** The format this version writes. A reader that meets a higher number refuses, and writes nothing. */
const FORMAT = 1;

/**
 * `creating`: claimed, its result not yet known. `ready`: settled. `released`: nothing happened, and the same input goes on; another
 * begins anew, unless the operation was taken over. `held`: nobody knows whether the effect happened, and a person decides.
 */
export type RecordStatus = "creating" | "ready" | "released" | "held";

/** How a result's body stands for what the operation returned. `none`: `undefined`, with the body `null`. */
export type ResultEncoding = "json" | "text" | "base64" | "none";

/** What a settled record holds. */
export type RecordResult = InlineResult | OffloadedResult;

export type InlineResult = { readonly kind: "value" | "failure" } & (
  | { readonly encoding: "json" | "none"; readonly body: Json }
  | { readonly encoding: "text" | "base64"; readonly body: string }
);

/** A result too large for the record, in an object of its own (rule E9). */
export interface OffloadedResult {
  readonly kind: "offloaded";
  readonly of: InlineResult["kind"];
  readonly encoding: ResultEncoding;
  /** The object's name. */
  readonly object: string;
  /** Of the object's bytes, which are the text in UTF-8, the JSON, or the bytes themselves. */
  readonly sha256: string;
  readonly bytes: number;
}

/** One key's record. `undefined` where a record of the older layout has no such field. */
export interface IdempotencyRecord {
  /** 0 for the older layout. */
  readonly format: number;
  readonly scope: string | undefined;
  readonly key: string | undefined;
  readonly keyHash: string;
  readonly inputHash: string;
  /** The older layout knew one kind of operation, a task, whose ID it is. */
  readonly operationId: string;
  readonly status: RecordStatus;
  readonly attempt: number;
  readonly takeover: boolean;
  /** Milliseconds from the last write; 0: no live owner. Present while `creating`. */
  readonly leaseMs: number | undefined;
  /** Milliseconds from the last write by the store's clock. */
  readonly ttlMs: number | undefined;
  /** RFC 3339, by the clock of whoever made the claim; kept through rewrites, as it was written. */
  readonly createdAt: string;
  /** RFC 3339, by the last writer's clock; for people and for older readers. */
  readonly expiresAt: string;
  /** New for every distinct write: by it a writer recognises its own. */
  readonly writeId: string | undefined;
  readonly result: RecordResult | undefined;
  /** Everything else in the object: an operation's own fields, and those of later versions. Kept through rewrites. */
  readonly fields: JsonObject;
}

const OWN_FIELDS: ReadonlySet<string> = new Set(
  (
    "format scope key key_hash input_hash operation_id status attempt takeover lease_ms ttl_ms created_at expires_at " +
    "write_id result"
  ).split(" "),
);
/** Not an operation's own to give. `history`, which persons write, is carried along like a field not known here. */
const RESERVED_FIELDS: ReadonlySet<string> = new Set([...OWN_FIELDS, "history"]);

/**
 * @throws {InvalidArgumentError} when one of `fields` has a name that the record itself uses, or is not JSON.
 */
export function checkFields(fields: Readonly<Record<string, unknown>>): JsonObject {
  checkObject(fields, "the record's fields");
  const taken = Object.keys(fields).find((name) => RESERVED_FIELDS.has(name));
  if (taken !== undefined) {
    throw new InvalidArgumentError(`the record has a field "${taken}" of its own: give yours another name`);
  }
  const copy = toJson(fields, "the record's fields");
  if (!isJsonObject(copy)) throw new InvalidArgumentError("the record's fields must be an object");
  return copy;
}

/** A record as a writer makes it: always of the present format. */
export function encodeRecord(record: WritableRecord): Uint8Array {
  const { format, scope, key, keyHash, inputHash, operationId, status, attempt, leaseMs, ttlMs, writeId, result } =
    record;
  return Buffer.from(
    JSON.stringify({
      format,
      scope,
      key,
      key_hash: keyHash,
      input_hash: inputHash,
      operation_id: operationId,
      status,
      attempt,
      takeover: record.takeover || undefined,
      lease_ms: leaseMs,
      ttl_ms: ttlMs,
      created_at: record.createdAt,
      expires_at: record.expiresAt,
      write_id: writeId,
      ...record.fields,
      result,
    }),
  );
}

/**
 * What every write sets anew. The write ID is 128 random bits: no two writes to a name carry equal bytes, even where
 * ETags are content hashes (rule P8).
 */
export function stamp(
  runtime: Runtime,
  ttlMs: number,
): Pick<WritableRecord, "format" | "ttlMs" | "expiresAt" | "writeId"> {
  return {
    format: FORMAT,
    ttlMs,
    expiresAt: formatTime(runtime.now() + ttlMs),
    writeId: Buffer.from(runtime.randomBytes(16)).toString("hex"),
  };
}

/** What {@link encodeRecord} needs: a record with every field of the present format. */
export type WritableRecord = IdempotencyRecord & {
  readonly format: typeof FORMAT;
  readonly scope: string;
  readonly ttlMs: number;
  readonly writeId: string;
};

/**
 * The record of `address` that `stored` holds.
 *
 * @throws {UnsupportedRecordError} for a record of a later format.
 * @throws {StoreError} `CORRUPT` for bytes that are no record, or another key's.
 */
export function decodeRecord(store: string, address: RecordPlace, stored: StoredRecord): IdempotencyRecord {
  const corrupt = (why: string): StoreError => new StoreError("CORRUPT", store, `the record ${address.name} ${why}`);
  const json = parseJsonObject(stored.bytes);
  if (json === undefined) throw corrupt("is not a JSON object");

  const olderLayout = json["format"] === undefined && json["write_id"] === undefined && json["status"] === undefined;
  const format = olderLayout ? 0 : json["format"];
  if (typeof format !== "number" || !Number.isSafeInteger(format) || (format < 1 && !olderLayout))
    throw corrupt('has no valid "format"');
  if (format > FORMAT) {
    throw new UnsupportedRecordError(
      `the record ${address.name} is of format ${format}; this version reads up to ${FORMAT}: upgrade it`,
      { keyHash: address.keyHash },
    );
  }

  const text = (name: string): string => {
    const value = json[name];
    if (typeof value !== "string" || value === "") throw corrupt(`has no "${name}"`);
    return value;
  };
  const count = (name: string, min: number): number => {
    const value = json[name];
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < min)
      throw corrupt(`has no valid "${name}"`);
    return value;
  };

  const common = {
    format,
    key: json["key"] === undefined ? undefined : text("key"),
    keyHash: text("key_hash"),
    inputHash: text("input_hash"),
    createdAt: text("created_at"),
    expiresAt: text("expires_at"),
    fields: ownFields(json),
  };
  if (common.keyHash !== address.keyHash) throw corrupt("is of another key");
  if (parseTime(common.expiresAt) === undefined) throw corrupt('has no valid "expires_at"');
  if (parseTime(common.createdAt) === undefined) throw corrupt('has no valid "created_at"');

  if (olderLayout) {
    const operationId = text("task_id");
    return {
      ...common,
      scope: undefined,
      operationId,
      status: "ready",
      attempt: 1,
      takeover: false,
      leaseMs: undefined,
      ttlMs: undefined,
      writeId: undefined,
      result: { kind: "value", encoding: "json", body: operationId },
    };
  }

  const scope = text("scope");
  if (scope !== address.scope) throw corrupt("is of another scope");
  const status = text("status");
  if (!isStatus(status)) throw corrupt(`has the unknown status "${status}"`);
  const { takeover = false } = json;
  // Read as false it would be dropped at the next write, and with it what is known of an owner before.
  if (typeof takeover !== "boolean") throw corrupt('has no valid "takeover"');
  const result = json["result"] === undefined ? undefined : decodeResult(json["result"]);
  if (result === undefined && (status === "ready" || json["result"] !== undefined))
    throw corrupt('has no valid "result"');
  return {
    ...common,
    scope,
    operationId: text("operation_id"),
    status,
    attempt: count("attempt", 1),
    takeover,
    leaseMs: status === "creating" ? count("lease_ms", 0) : undefined,
    ttlMs: count("ttl_ms", 1),
    writeId: text("write_id"),
    result,
  };
}

function ownFields(json: JsonObject): JsonObject {
  const names = Object.keys(json).filter((name) => !OWN_FIELDS.has(name));
  return names.length === 0 ? NO_FIELDS : Object.fromEntries(names.map((name) => [name, json[name] ?? null]));
}

const NO_FIELDS: JsonObject = Object.freeze({});

function decodeResult(result: Json): RecordResult | undefined {
  if (!isJsonObject(result)) return undefined;
  const { kind, encoding, body, of, object, sha256, bytes } = result;
  if (!isEncoding(encoding)) return undefined;
  if (kind === "offloaded") {
    const complete = typeof object === "string" && typeof sha256 === "string" && typeof bytes === "number";
    return complete && (of === "value" || of === "failure") ? { kind, of, encoding, object, sha256, bytes } : undefined;
  }
  if ((kind !== "value" && kind !== "failure") || body === undefined) return undefined;
  if (encoding === "json" || encoding === "none") return { kind, encoding, body };
  return typeof body === "string" ? { kind, encoding, body } : undefined;
}

function isEncoding(encoding: Json | undefined): encoding is ResultEncoding {
  return encoding === "json" || encoding === "text" || encoding === "base64" || encoding === "none";
}

function isStatus(text: string): text is RecordStatus {
  return text === "creating" || text === "ready" || text === "released" || text === "held";
}
