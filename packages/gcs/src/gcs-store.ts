/**
 * Records in Google Cloud Storage, by its JSON API.
 *
 * Each operation is one HTTP request on the user's own client. The version of a record is its object's generation, which
 * is new with every write, of equal bytes too (https://docs.cloud.google.com/storage/docs/generations-preconditions), and
 * the condition is `ifGenerationMatch`: If-Match and If-None-Match are ignored on writes.
 *
 * Versioned buckets need nothing more: conditions look at the live object alone. Each write of a record stays as a
 * noncurrent version there, and for a time in a bucket with soft delete, until a lifecycle rule or the policy removes it.
 */

import type { Storage } from "@google-cloud/storage";
import { randomUUID } from "node:crypto";
import {
  checkObjectName,
  checkWrite,
  rejectionError,
  StoreError,
  timeOfHeader,
  toVersion,
  type CallOptions,
  type ConditionalStore,
  type ListedObject,
  type RemoveOutcome,
  type StoredRecord,
  type StoreErrorCode,
  type StoreTraits,
  type Version,
  type WriteOutcome,
  type WriteVerdict,
} from "@firstwrite/core";
import { pageOf, reasonOf, storedOf } from "./answer-body.ts";
import { oneRequest, type Exchange, type WireAnswer, type WireRequest } from "./one-request.ts";
import {
  sortListRefusal,
  sortReadFailure,
  sortReadRefusal,
  sortWriteFailure,
  sortWriteRefusal,
  type Failure,
  type Refusal,
} from "./sort-failure.ts";

export interface GcsStoreOptions {
  /** Stays as it is. Of its options, those for retries are not used for the store's own requests. */
  readonly storage: Storage;
  readonly bucket: string;
  /** A folder of the bucket to keep to: with `"a/b"`, the record NAME is the object `a/b/NAME`. */
  readonly prefix?: string | undefined;
  /** For a service whose limits or clocks are not those of Cloud Storage. */
  readonly traits?: Partial<StoreTraits> | undefined;
}

const objectNameBytesMax = 1024; // https://docs.cloud.google.com/storage/docs/objects#naming

const defaults: StoreTraits = {
  name: "gcs",
  nameBytesMax: objectNameBytesMax,
  // Far below the 5 TiB of one object, since a record is held in memory, and some times over while it is sent.
  recordBytesMax: 16 * 1024 * 1024,
  // `readAt - modifiedAt` is the difference of two times cut to whole seconds: up to one second off either way. Another
  // second for the skew between the machines that stamp the two.
  clockGranularityMs: 2000,
};

// Also keeps a bucket called ".." from being a step up in a URL.
const bucketName = /^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$/; // https://docs.cloud.google.com/storage/docs/buckets#naming

export class GcsStore implements ConditionalStore {
  readonly traits: StoreTraits;
  readonly #storage: Storage;
  readonly #bucket: string;
  readonly #prefix: string;

  /** @throws {StoreError} `INVALID_ARGUMENT` for a bucket or a prefix that cannot be one. */
  constructor({ storage, bucket, prefix = "", traits }: GcsStoreOptions) {
    const name = traits?.name ?? defaults.name;
    if (!bucketName.test(bucket)) {
      throw new StoreError("INVALID_ARGUMENT", name, "the bucket has a name that no bucket can have");
    }
    if (prefix !== "") checkObjectName({ ...defaults, name, nameBytesMax: objectNameBytesMax - "/x".length }, prefix);
    this.#storage = storage;
    this.#bucket = bucket;
    this.#prefix = prefix === "" ? "" : `${prefix}/`;
    this.traits = { ...defaults, nameBytesMax: objectNameBytesMax - Buffer.byteLength(this.#prefix), ...traits };
  }

  async create(name: string, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    return this.#upload("create", name, "0", bytes, options);
  }

  async replace(name: string, expected: Version, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    return this.#upload("replace", name, this.#generation(expected), bytes, options);
  }

  async read(name: string, { signal }: CallOptions = {}): Promise<StoredRecord | undefined> {
    checkObjectName(this.traits, name);
    // By the path for downloads; the other one may answer with a redirect to it (303 mediaDownloadRedirect).
    const url = this.#url("/download/storage/v1", `/o/${encodeURIComponent(this.#objectName(name))}`, { alt: "media" });
    // Without it node-fetch asks for gzip, which some objects are then served in, and others by way of it.
    const headers = { "accept-encoding": "identity" };
    const exchange = await this.#once({ method: "GET", url, headers }, signal);
    if (exchange.kind === "failed")
      throw rejectionError(this.traits.name, sortReadFailure(failureOf(exchange)), exchange.error);
    const { answer, body } = exchange;
    if (answer.status !== 200) {
      const verdict = sortReadRefusal(refusalOf(exchange));
      if (verdict.kind === "missing") return undefined;
      throw rejectionError(this.traits.name, verdict);
    }
    this.#checkBody(answer, body);
    return {
      bytes: body,
      version: this.#version(answer.headers.get("x-goog-generation")),
      modifiedAt: timeOfHeader(this.traits.name, "last-modified", answer.headers.get("last-modified") ?? undefined),
      readAt: timeOfHeader(this.traits.name, "date", answer.headers.get("date") ?? undefined),
    };
  }

  async *list(prefix: string, { signal }: CallOptions = {}): AsyncGenerator<ListedObject, void, void> {
    let pageToken: string | undefined;
    do {
      const url = this.#url("/storage/v1", "/o", {
        prefix: this.#prefix + prefix,
        fields: "items(name,updated),nextPageToken",
        ...(pageToken !== undefined && { pageToken }),
      });
      const exchange = await this.#once({ method: "GET", url }, signal);
      if (exchange.kind === "failed")
        throw rejectionError(this.traits.name, sortReadFailure(failureOf(exchange)), exchange.error);
      if (exchange.answer.status !== 200) throw rejectionError(this.traits.name, sortListRefusal(refusalOf(exchange)));
      const page = pageOf(textOf(exchange.body));
      if (page === undefined) throw this.#error("UNSUPPORTED", "the service's listing cannot be read");
      for (const { name, updated } of page.items) {
        yield { name: name.slice(this.#prefix.length), modifiedAt: updated };
      }
      pageToken = page.nextPageToken;
    } while (pageToken !== undefined);
  }

  async remove(name: string, expected: Version, { signal }: CallOptions = {}): Promise<RemoveOutcome> {
    checkObjectName(this.traits, name);
    const url = this.#url("/storage/v1", `/o/${encodeURIComponent(this.#objectName(name))}`, {
      ifGenerationMatch: this.#generation(expected),
    });
    const exchange = await this.#once({ method: "DELETE", url }, signal);
    if (exchange.kind === "answered" && (exchange.answer.status === 204 || exchange.answer.status === 200)) {
      return { kind: "removed" };
    }
    return this.#notWritten("remove", exchange);
  }

  /**
   * In one request, of two parts: what the object is to be, and its bytes. The service checks the bytes against the
   * CRC32C before it stores them (https://docs.cloud.google.com/storage/docs/data-validation). Never an upload in
   * several requests: the last of them may be without the condition
   * (https://github.com/googleapis/nodejs-storage/issues/217).
   */
  async #upload(
    operation: "create" | "replace",
    name: string,
    generation: string,
    bytes: Uint8Array,
    { signal }: CallOptions,
  ): Promise<WriteOutcome> {
    const crc32c = this.#crc32c(bytes);
    const url = this.#url("/upload/storage/v1", "/o", {
      uploadType: "multipart",
      name: this.#objectName(name),
      ifGenerationMatch: generation,
    });
    // No cache between here and there is to keep it, whoever may read the bucket: an object that everybody may read is
    // cached for an hour by default. And not application/json, which proxies compress on the way out.
    const metadata = { contentType: "application/octet-stream", cacheControl: "no-store", crc32c };
    const boundary = randomUUID();
    const exchange = await this.#once(
      {
        method: "POST",
        url,
        headers: { "content-type": `multipart/related; boundary=${boundary}` },
        body: multipart(boundary, JSON.stringify(metadata), bytes),
      },
      signal,
    );
    if (exchange.kind === "answered" && exchange.answer.status === 200) return this.#written(exchange, crc32c);
    return this.#notWritten(operation, exchange);
  }

  /**
   * The bytes are stored. Where the answer lacks what the outcome needs, that is no error, which would say that nothing
   * was written, but `unknown`: a read settles it, and says what is wrong with the service if it does the same.
   */
  #written({ answer, body }: Extract<Exchange, { kind: "answered" }>, sent: string): WriteOutcome {
    try {
      const stored = storedOf(textOf(body));
      if (stored.crc32c !== undefined && stored.crc32c !== sent) {
        throw this.#error("CORRUPT", `${sent} was sent and ${stored.crc32c} is stored, by their CRC32C`);
      }
      return {
        kind: "written",
        version: this.#version(stored.generation),
        at: timeOfHeader(this.traits.name, "date", answer.headers.get("date") ?? undefined),
      };
    } catch (cause) {
      return { kind: "unknown", cause };
    }
  }

  #notWritten(
    operation: "create" | "replace" | "remove",
    exchange: Exchange,
  ): Exclude<WriteOutcome, { kind: "written" }> {
    const [verdict, cause]: [WriteVerdict, unknown] =
      exchange.kind === "failed"
        ? [sortWriteFailure(failureOf(exchange)), exchange.error]
        : [sortWriteRefusal(operation, refusalOf(exchange)), undefined];
    if (verdict.kind === "error") throw rejectionError(this.traits.name, verdict, cause);
    if (verdict.kind !== "unknown") return { kind: verdict.kind };
    return {
      kind: "unknown",
      cause: exchange.kind === "failed" ? cause : this.#error("UNAVAILABLE", answerOf(refusalOf(exchange))),
    };
  }

  /** @throws {StoreError} `UNAVAILABLE` for a body that is not whole, `CORRUPT` for one that does not fit its checksum. */
  #checkBody({ headers }: WireAnswer, body: Uint8Array): void {
    const length = headers.get("content-length");
    // With an encoding, which a proxy may add, it is the length of something else.
    if (length !== null && !headers.has("content-encoding") && Number(length) !== body.byteLength) {
      throw this.#error("UNAVAILABLE", "the body did not arrive whole");
    }
    // Of the bytes as they are stored: those of an object that was compressed by its writer, who was not this store, do
    // not fit.
    const hash = /(?:^|,)\s*crc32c=([^,\s]+)/.exec(headers.get("x-goog-hash") ?? "")?.[1];
    if (hash !== undefined && hash !== this.#crc32c(body)) {
      throw this.#error("CORRUPT", "the body does not fit its checksum");
    }
  }

  /** By the client's own implementation, which may be a fast one (`new Storage({ crc32cGenerator })`). */
  #crc32c(bytes: Uint8Array): string {
    const checksum = this.#storage.crc32cGenerator();
    checksum.update(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    return checksum.toString();
  }

  /** @throws {StoreError} `INVALID_ARGUMENT` for one of the few names the rules of all stores leave to Cloud Storage to refuse. */
  #objectName(name: string): string {
    const objectName = this.#prefix + name;
    // https://docs.cloud.google.com/storage/docs/objects#naming
    if (objectName.startsWith(".well-known/acme-challenge/")) {
      throw this.#error("INVALID_ARGUMENT", "no object's name may begin with .well-known/acme-challenge/");
    }
    return objectName;
  }

  /** @throws {StoreError} `INVALID_ARGUMENT` above all for 0, which would make a replace or a remove a create. */
  #generation(version: Version): string {
    if (!isGeneration(version)) throw this.#error("INVALID_ARGUMENT", `${version} is not a version this store gave`);
    return version;
  }

  /** @throws {StoreError} `UNSUPPORTED` where there is none that a later write could rely on. */
  #version(generation: string | null | undefined): Version {
    if (generation === null || generation === undefined || !isGeneration(generation)) {
      throw this.#error("UNSUPPORTED", `the service gave ${generation ?? "no generation"}, which is no version`);
    }
    return toVersion(generation);
  }

  #url(api: string, path: string, query: Readonly<Record<string, string>>): URL {
    const url = new URL(`${this.#storage.apiEndpoint}${api}/b/${this.#bucket}${path}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    return url;
  }

  #once(request: WireRequest, signal: AbortSignal | undefined): Promise<Exchange> {
    return oneRequest(this.#storage, request, signal);
  }

  #error(code: StoreErrorCode, why: string, cause?: unknown): StoreError {
    return new StoreError(code, this.traits.name, why, cause === undefined ? {} : { cause });
  }
}

/**
 * A positive 64-bit integer, in the one way the service writes it. It is compared as text only: today's are about 2^50,
 * and an emulator's pass 2^53, beyond which numbers of JavaScript are not exact.
 */
function isGeneration(text: string): boolean {
  return /^[1-9][0-9]{0,18}$/.test(text);
}

function multipart(boundary: string, metadata: string, bytes: Uint8Array): Uint8Array {
  return Buffer.concat([
    Buffer.from(`--${boundary}\r\ncontent-type: application/json; charset=utf-8\r\n\r\n${metadata}\r\n`),
    Buffer.from(`--${boundary}\r\ncontent-type: application/octet-stream\r\n\r\n`),
    bytes,
    Buffer.from(`\r\n--${boundary}--\r\n`),
  ]);
}

function refusalOf({ answer, body }: Extract<Exchange, { kind: "answered" }>): Refusal {
  return { status: answer.status, reason: reasonOf(textOf(body)) };
}

function failureOf({ error, stage, answer }: Extract<Exchange, { kind: "failed" }>): Failure {
  return { error, stage, status: answer?.status };
}

function answerOf({ status, reason }: Refusal): string {
  return `the answer was ${reason === undefined ? status : `${status} ${reason}`}`;
}

function textOf(body: Uint8Array): string {
  return new TextDecoder().decode(body);
}
