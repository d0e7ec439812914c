/**
 * Records in Azure Blob Storage, which honours If-None-Match and If-Match on Put Blob
 * (https://learn.microsoft.com/en-us/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations).
 *
 * Each operation is one HTTP request with the user's own client. A write is one Put Blob, never staged blocks, whose
 * commit would be a second request, and with which conditions were lost
 * (https://github.com/Azure/azure-sdk-for-go/issues/17152). The version of a record is its ETag, as given.
 */

import { hash } from "node:crypto";

import type { ContainerClient } from "@azure/storage-blob";
import {
  checkObjectName,
  checkWrite,
  isStrongETag,
  outcomeOf,
  rejectionError,
  StoreError,
  timeOfHeader,
  versionOfETag,
  type CallOptions,
  type ConditionalStore,
  type ListedObject,
  type RemoveOutcome,
  type StoredRecord,
  type StoreErrorCode,
  type StoreTraits,
  type Version,
  type WriteOutcome,
} from "@firstwrite/core";

import { collectBytes } from "./collect-bytes.ts";
import { blobNameFault, charsLeft, fromBlobName, toBlobName, toBlobNamePrefix } from "./blob-name.ts";
import { OneRequestClient, UnknownClientError, type Condition, type Exchange, type WireAnswer } from "./one-request.ts";
import { sortReadFailure, sortWriteFailure } from "./sort-failure.ts";

export interface AzureStoreOptions {
  /** Stays as it is. Its retries are not used for the store's own requests. */
  readonly container: ContainerClient;
  /** A folder of the container to keep to: with `"a/b"`, the record NAME is the blob `a/b/NAME`. */
  readonly prefix?: string | undefined;
  /**
   * `"md5"`, the default: an MD5 of each record goes with it, is checked by the service at a write and by the store at a
   * read. `"none"`: neither, for machines whose OpenSSL has no MD5 (FIPS).
   */
  readonly checksums?: "md5" | "none" | undefined;
  /** For a service whose limits or clocks are not Azure's. */
  readonly traits?: Partial<StoreTraits> | undefined;
}

const defaults: StoreTraits = {
  name: "azure",
  nameBytesMax: charsLeft(""),
  // Far below the 5,000 MiB of one Put Blob, since a record is held in memory, and some times over while it is sent.
  // https://learn.microsoft.com/en-us/rest/api/storageservices/put-blob
  recordBytesMax: 16 * 1024 * 1024,
  // `readAt - modifiedAt` is the difference of two times cut to whole seconds: up to one second off either way. Another
  // second for the skew between the machines that stamp the two, of which Microsoft says nothing.
  clockGranularityMs: 2000,
};

export class AzureStore implements ConditionalStore {
  readonly traits: StoreTraits;
  readonly #client: OneRequestClient;
  readonly #prefix: string;
  readonly #withChecksums: boolean;

  /** @throws {StoreError} `INVALID_ARGUMENT` for options that can never work. */
  constructor(options: AzureStoreOptions) {
    const { container, prefix = "", checksums = "md5", traits } = options;
    const name = traits?.name ?? defaults.name;
    const refuse = (why: string): StoreError => new StoreError("INVALID_ARGUMENT", name, why);
    if (prefix !== "") checkObjectName({ ...defaults, name }, prefix);
    this.#prefix = prefix === "" ? "" : `${toBlobName(prefix)}/`;
    this.traits = { ...defaults, nameBytesMax: charsLeft(this.#prefix), ...traits };
    const fault = blobNameFault(`${this.#prefix}x`);
    if (fault !== undefined) throw refuse(`a name below the prefix ${fault}`);
    this.#withChecksums = checksums === "md5";
    if (this.#withChecksums && !hasMd5()) throw refuse('this Node has no MD5 (FIPS): set checksums to "none"');
    if ("getToken" in container.credential && !/^https:/i.test(container.url)) {
      throw refuse("a token is sent by https only, and the container's URL is not https");
    }
    try {
      this.#client = new OneRequestClient(container);
    } catch (error) {
      if (error instanceof UnknownClientError) throw refuse(error.message);
      throw error;
    }
  }

  async create(name: string, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    return this.#put("create", this.#blobName(name), bytes, { header: "if-none-match", value: "*" }, options);
  }

  async replace(name: string, expected: Version, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    return this.#put("replace", this.#blobName(name), bytes, this.#ifMatch(expected), options);
  }

  async read(name: string, { signal }: CallOptions = {}): Promise<StoredRecord | undefined> {
    checkObjectName(this.traits, name);
    const blob = this.#client.container.getBlobClient(this.#blobName(name));
    const exchange = await this.#client.send({ signal }, async (abortSignal) => {
      const { readableStreamBody } = await blob.download(0, undefined, { abortSignal, maxRetryRequests: 0 });
      return readableStreamBody && collectBytes(readableStreamBody);
    });
    if (exchange.kind === "failed") {
      // The SDK gives up a whole answer for an ETag that is not there.
      if (exchange.answer?.status === 200) versionOfETag(this.traits.name, exchange.answer.headers["etag"]);
      const verdict = sortReadFailure(exchange);
      if (verdict.kind === "missing") return undefined;
      throw rejectionError(this.traits.name, verdict, exchange.error);
    }
    const { answer, result: bytes } = exchange;
    // A body shorter than it was announced the SDK has given up before.
    if (answer?.status !== 200 || bytes === undefined) {
      throw this.#error("UNAVAILABLE", "the body did not arrive whole");
    }
    const md5 = answer.headers["content-md5"];
    if (this.#withChecksums && md5 !== undefined && md5 !== hash("md5", bytes, "base64")) {
      throw this.#error("CORRUPT", "the body does not fit its checksum");
    }
    const modifiedAt = timeOfHeader(this.traits.name, "last-modified", answer.headers["last-modified"]);
    return {
      bytes,
      version: versionOfETag(this.traits.name, answer.headers["etag"]),
      modifiedAt,
      readAt: timeOfHeader(this.traits.name, "date", answer.headers["date"]),
    };
  }

  async *list(prefix: string, { signal }: CallOptions = {}): AsyncGenerator<ListedObject, void, void> {
    const start = this.#prefix + toBlobNamePrefix(prefix);
    let continuationToken: string | undefined;
    do {
      const exchange = await this.#client.send({ signal }, async (abortSignal) => {
        const pages = this.#client.container
          .listBlobsFlat({ prefix: start, abortSignal })
          .byPage(continuationToken === undefined ? {} : { continuationToken });
        return pages.next();
      });
      if (exchange.kind === "failed") {
        const verdict = sortReadFailure(exchange);
        throw verdict.kind === "missing"
          ? this.#error("UNAVAILABLE", "a listing was answered like the read of one blob", exchange.error)
          : rejectionError(this.traits.name, verdict, exchange.error);
      }
      const page = exchange.result.done === true ? undefined : exchange.result.value;
      for (const { name: blobName, properties } of page?.segment.blobItems ?? []) {
        const name = fromBlobName(blobName.slice(this.#prefix.length));
        if (name.startsWith(prefix)) yield { name, modifiedAt: properties.lastModified.getTime() };
      }
      continuationToken = page?.continuationToken === "" ? undefined : page?.continuationToken;
    } while (continuationToken !== undefined);
  }

  async remove(name: string, expected: Version, { signal }: CallOptions = {}): Promise<RemoveOutcome> {
    checkObjectName(this.traits, name);
    const condition = this.#ifMatch(expected);
    const blob = this.#client.container.getBlobClient(this.#blobName(name));
    const exchange = await this.#client.send({ signal, condition }, (abortSignal) =>
      blob.delete({ abortSignal, conditions: { ifMatch: condition.value } }),
    );
    if (exchange.kind === "failed") return this.#notWritten("replace", exchange);
    if (exchange.answer?.status === 202) return { kind: "removed" };
    return { kind: "unknown", cause: this.#error("UNSUPPORTED", `a removal was answered ${exchange.answer?.status}`) };
  }

  async #put(
    operation: "create" | "replace",
    blobName: string,
    bytes: Uint8Array,
    condition: Condition,
    { signal }: CallOptions,
  ): Promise<WriteOutcome> {
    const body = Buffer.from(bytes);
    const blob = this.#client.container.getBlockBlobClient(blobName);
    const exchange = await this.#client.send({ signal, condition }, (abortSignal) =>
      blob.upload(body, body.byteLength, {
        abortSignal,
        conditions: condition.header === "if-match" ? { ifMatch: condition.value } : { ifNoneMatch: condition.value },
        blobHTTPHeaders: {
          // Not application/json, though the engine's records are: proxies compress that on the way out, and make the
          // ETag weak in doing so (nginx since 1.7.3: https://nginx.org/en/CHANGES).
          blobContentType: "application/octet-stream",
          // Of a Put Blob the service checks it, stores it, and gives it with each read:
          // https://learn.microsoft.com/en-us/archive/blogs/windowsazurestorage/windows-azure-blob-md5-overview
          ...(this.#withChecksums ? { blobContentMD5: hash("md5", body, "buffer") } : {}),
        },
      }),
    );
    return exchange.kind === "failed" ? this.#notWritten(operation, exchange) : this.#written(exchange.answer);
  }

  /**
   * The bytes are stored. Where the answer lacks what the outcome needs, that is no error, which would say that nothing
   * was written, but `unknown`: a read settles it, and says what is wrong with the service if it does the same.
   */
  #written(answer: WireAnswer | undefined): WriteOutcome {
    try {
      if (answer?.status !== 201) throw this.#error("UNSUPPORTED", `a write was answered ${answer?.status}`);
      return {
        kind: "written",
        version: versionOfETag(this.traits.name, answer.headers["etag"]),
        at: timeOfHeader(this.traits.name, "date", answer.headers["date"]),
      };
    } catch (cause) {
      return { kind: "unknown", cause };
    }
  }

  /** @throws {StoreError} where the service turned the write away. */
  #notWritten(
    operation: "create" | "replace",
    exchange: Extract<Exchange<unknown>, { kind: "failed" }>,
  ): ReturnType<typeof outcomeOf> {
    return outcomeOf(this.traits.name, sortWriteFailure(operation, exchange), exchange.error);
  }

  #blobName(name: string): string {
    const blobName = this.#prefix + toBlobName(name);
    const fault = blobNameFault(blobName);
    if (fault === undefined) return blobName;
    throw this.#error("INVALID_ARGUMENT", `the object name ${JSON.stringify(name)} ${fault}`);
  }

  #ifMatch(expected: Version): Condition {
    // `*` would overwrite any record, and a list would match any of several.
    if (!isStrongETag(expected)) throw this.#error("INVALID_ARGUMENT", `${expected} is not a version this store gave`);
    return { header: "if-match", value: expected };
  }

  #error(code: StoreErrorCode, why: string, cause?: unknown): StoreError {
    return new StoreError(code, this.traits.name, why, cause === undefined ? {} : { cause });
  }
}

function hasMd5(): boolean {
  try {
    hash("md5", "");
    return true;
  } catch {
    return false;
  }
}
