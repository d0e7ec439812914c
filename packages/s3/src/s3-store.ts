/**
 * Records in Amazon S3, and in services that speak its protocol and honour If-None-Match and If-Match on PutObject
 * (https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
 *
 * Each operation is one HTTP request on the user's own client. The version of a record is its ETag, as given: quoted, and
 * never computed here, for it is an MD5 in some buckets only
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html).
 *
 * Versioned buckets need nothing more: conditions look at the current version alone, and a delete marker is no record,
 * so a create over it succeeds, a replace is refused and a read finds none. Each write of a record stays as an old
 * version there until a lifecycle rule removes it.
 */

import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type S3Client,
} from "@aws-sdk/client-s3";
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
import { oneRequest, type CommandStack, type Condition, type Exchange, type WireAnswer } from "./one-request.ts";
import { sortReadFailure, sortWriteFailure, type Failure } from "./sort-failure.ts";

export interface S3StoreOptions {
  /** Stays as it is. Its retries are not used for the store's own requests. */
  readonly client: S3Client;
  /** Whether {@link S3Store.close} destroys the client. By default it stays the caller's to destroy. */
  readonly ownsClient?: boolean | undefined;
  readonly bucket: string;
  /** A folder of the bucket to keep to: with `"a/b"`, the record NAME is the object `a/b/NAME`. */
  readonly prefix?: string | undefined;
  /**
   * Sends an ETag in If-Match without its quotes, for services that never match a quoted one: DigitalOcean Spaces
   * (https://github.com/slatedb/slatedb/issues/1818), Hetzner (https://github.com/benbjohnson/litestream/pull/1509).
   */
  readonly unquotedIfMatch?: boolean | undefined;
  /**
   * `"client"`, the default: as the client is configured, which is a CRC32 of each record, checked by the service at a
   * write and by the SDK at a read. `"none"`: no checksum headers, for services that reject them; the record is still
   * covered by the signature and by TLS.
   */
  readonly checksums?: "client" | "none" | undefined;
  /** For a service whose limits or clocks are not S3's. */
  readonly traits?: Partial<StoreTraits> | undefined;
}

const keyBytesMax = 1024; // https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html

const defaults: StoreTraits = {
  name: "s3",
  nameBytesMax: keyBytesMax,
  // Far below the 5 GB of one PUT, since a record is held in memory, and some times over while it is sent.
  recordBytesMax: 16 * 1024 * 1024,
  // `readAt - modifiedAt` is the difference of two times cut to whole seconds: up to one second off either way. Another
  // second for the skew between the machines that stamp the two; versitygw's Date was seen a second behind the
  // Last-Modified of the same answer.
  clockGranularityMs: 2000,
};

export class S3Store implements ConditionalStore {
  readonly traits: StoreTraits;
  readonly #client: S3Client;
  readonly #ownsClient: boolean;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #unquotedIfMatch: boolean;
  readonly #withoutChecksums: boolean;

  /** @throws {StoreError} `INVALID_ARGUMENT` for a bucket or a prefix that cannot be one. */
  constructor(options: S3StoreOptions) {
    const { client, bucket, prefix = "", unquotedIfMatch = false, checksums = "client", traits } = options;
    const name = traits?.name ?? defaults.name;
    if (bucket === "") throw new StoreError("INVALID_ARGUMENT", name, "the bucket has no name");
    if (prefix !== "") checkObjectName({ ...defaults, name, nameBytesMax: keyBytesMax - "/x".length }, prefix);
    this.#client = client;
    this.#ownsClient = options.ownsClient ?? false;
    this.#bucket = bucket;
    this.#prefix = prefix === "" ? "" : `${prefix}/`;
    this.#unquotedIfMatch = unquotedIfMatch;
    this.#withoutChecksums = checksums === "none";
    this.traits = { ...defaults, nameBytesMax: keyBytesMax - Buffer.byteLength(this.#prefix), ...traits };
  }

  async create(name: string, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    return this.#put("create", name, bytes, { header: "if-none-match", value: "*" }, options);
  }

  async replace(name: string, expected: Version, bytes: Uint8Array, options: CallOptions = {}): Promise<WriteOutcome> {
    checkWrite(this.traits, name, bytes);
    return this.#put("replace", name, bytes, this.#ifMatch(expected), options);
  }

  async read(name: string, options: CallOptions = {}): Promise<StoredRecord | undefined> {
    checkObjectName(this.traits, name);
    const command = new GetObjectCommand({ Bucket: this.#bucket, Key: this.#prefix + name });
    const exchange = await this.#once(command, options, async (sendOptions) => {
      const { Body } = await this.#client.send(command, sendOptions);
      return Body?.transformToByteArray();
    });
    if (exchange.kind === "failed") {
      // The SDK gives up a whole answer for a Last-Modified it cannot read.
      if (exchange.answer?.status === 200)
        timeOfHeader(this.traits.name, "last-modified", exchange.answer.headers["last-modified"]);
      const verdict = sortReadFailure(failureOf(exchange));
      if (verdict.kind === "missing") return undefined;
      throw rejectionError(this.traits.name, verdict, exchange.error);
    }
    const { answer } = exchange;
    const bytes = exchange.result === undefined ? new Uint8Array() : new Uint8Array(exchange.result);
    const length = answer?.headers["content-length"];
    if (answer?.status !== 200 || (length !== undefined && Number(length) !== bytes.byteLength)) {
      throw this.#error("UNAVAILABLE", "the body did not arrive whole");
    }
    const modifiedAt = timeOfHeader(this.traits.name, "last-modified", answer.headers["last-modified"]);
    return {
      bytes,
      version: versionOfETag(this.traits.name, answer.headers["etag"]),
      modifiedAt,
      readAt: timeOfHeader(this.traits.name, "date", answer.headers["date"]),
    };
  }

  /**
   * In a versioned bucket this puts a delete marker over the record. Some services take the condition and ignore it, and
   * delete: `removeRecord` of the core finds out first.
   * https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-deletes.html
   */
  async remove(name: string, expected: Version, options: CallOptions = {}): Promise<RemoveOutcome> {
    checkObjectName(this.traits, name);
    const condition = this.#ifMatch(expected);
    const command = new DeleteObjectCommand({
      Bucket: this.#bucket,
      Key: this.#prefix + name,
      IfMatch: condition.value,
    });
    const exchange = await this.#once(
      command,
      options,
      (sendOptions) => this.#client.send(command, sendOptions),
      condition,
    );
    if (exchange.kind === "failed") return this.#undone("replace", exchange);
    const { status } = exchange.answer ?? {};
    if (status === 200 || status === 204) return { kind: "removed" };
    return { kind: "unknown", cause: this.#error("UNSUPPORTED", `a delete was answered ${status}`) };
  }

  async *list(prefix: string, options: CallOptions = {}): AsyncGenerator<ListedObject, void, void> {
    let token: string | undefined;
    do {
      const command = new ListObjectsV2Command({
        Bucket: this.#bucket,
        Prefix: this.#prefix + prefix,
        ContinuationToken: token,
      });
      const exchange = await this.#once(command, options, (sendOptions) => this.#client.send(command, sendOptions));
      if (exchange.kind === "failed") {
        const verdict = sortReadFailure(failureOf(exchange));
        throw verdict.kind === "missing"
          ? this.#error("UNAVAILABLE", "a listing was answered like the read of one object", exchange.error)
          : rejectionError(this.traits.name, verdict, exchange.error);
      }
      const { Contents = [], IsTruncated, NextContinuationToken } = exchange.result;
      for (const { Key, LastModified } of Contents) {
        if (Key === undefined || LastModified === undefined) {
          throw this.#error("UNSUPPORTED", "the service lists an object without its name or its time");
        }
        yield { name: Key.slice(this.#prefix.length), modifiedAt: LastModified.getTime() };
      }
      if (IsTruncated === true && NextContinuationToken === undefined) {
        throw this.#error("UNSUPPORTED", "the service lists a part of the objects and no way to the rest");
      }
      token = IsTruncated === true ? NextContinuationToken : undefined;
    } while (token !== undefined);
  }

  async close(): Promise<void> {
    if (this.#ownsClient) this.#client.destroy();
  }

  async #put(
    operation: "create" | "replace",
    name: string,
    bytes: Uint8Array,
    condition: Condition,
    options: CallOptions,
  ): Promise<WriteOutcome> {
    const command = new PutObjectCommand({
      Bucket: this.#bucket,
      Key: this.#prefix + name,
      Body: new Uint8Array(bytes),
      // Not application/json, though the engine's records are: proxies compress that on the way out, and make the ETag
      // weak in doing so (nginx since 1.7.3: https://nginx.org/en/CHANGES).
      ContentType: "application/octet-stream",
      ...(condition.header === "if-match" ? { IfMatch: condition.value } : { IfNoneMatch: condition.value }),
    });
    const exchange = await this.#once(
      command,
      options,
      (sendOptions) => this.#client.send(command, sendOptions),
      condition,
    );
    return exchange.kind === "answered" ? this.#written(exchange.answer) : this.#undone(operation, exchange);
  }

  /** What a failed write, or a failed delete, comes to. A delete's condition is that of a replace. */
  #undone(operation: "create" | "replace", exchange: FailedExchange): ReturnType<typeof outcomeOf> {
    return outcomeOf(this.traits.name, sortWriteFailure(operation, failureOf(exchange)), exchange.error);
  }

  /** @throws {StoreError} `INVALID_ARGUMENT`: `*` would match any record, and a list any of several. */
  #ifMatch(expected: Version): Condition {
    if (!isStrongETag(expected)) throw this.#error("INVALID_ARGUMENT", `${expected} is not a version this store gave`);
    return { header: "if-match", value: this.#unquotedIfMatch ? expected.replaceAll('"', "") : expected };
  }

  /**
   * The bytes are stored. Where the answer lacks what the outcome needs, that is no error, which would say that nothing
   * was written, but `unknown`: a read settles it, and says what is wrong with the service if it does the same.
   */
  #written(answer: WireAnswer | undefined): WriteOutcome {
    try {
      if (answer?.status !== 200) throw this.#error("UNSUPPORTED", `a write was answered ${answer?.status}`);
      return {
        kind: "written",
        version: versionOfETag(this.traits.name, answer.headers["etag"]),
        at: timeOfHeader(this.traits.name, "date", answer.headers["date"]),
      };
    } catch (cause) {
      return { kind: "unknown", cause };
    }
  }

  #once<Result>(
    command: { readonly middlewareStack: CommandStack },
    { signal }: CallOptions,
    send: (options: { abortSignal?: AbortSignal }) => Promise<Result>,
    condition?: Condition,
  ): Promise<Exchange<Result>> {
    // Always an object: without one, a client with `cacheMiddleware` would use, or keep for the user's own calls, a
    // handler that was put together for another command.
    const sendOptions = signal === undefined ? {} : { abortSignal: signal };
    const options = { signal, condition, withoutChecksums: this.#withoutChecksums };
    return oneRequest(command.middlewareStack, options, async () => send(sendOptions));
  }

  #error(code: StoreErrorCode, why: string, cause?: unknown): StoreError {
    return new StoreError(code, this.traits.name, why, cause === undefined ? {} : { cause });
  }
}

type FailedExchange = Extract<Exchange<unknown>, { kind: "failed" }>;

function failureOf({ error, sent, answer }: FailedExchange): Failure {
  return { error, sent, status: answer?.status };
}
