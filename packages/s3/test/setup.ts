import assert from "node:assert/strict";
import { S3Client, type S3ClientConfig } from "@aws-sdk/client-s3";
import { StoreError, toVersion, type StoreErrorCode, type Version } from "@firstwrite/core";
import { S3Store, type S3StoreOptions } from "@firstwrite/s3";
import { ScriptedServer, type Answer, type Reply, type ReceivedRequest } from "@firstwrite/conformance/wire";

export const bytes: Uint8Array = new TextEncoder().encode('{"status":"creating"}');
export const v1: Version = toVersion('"11111111111111111111111111111111"');
export const date = "Thu, 01 Jan 2026 00:00:05 GMT";
export const modified = "Thu, 01 Jan 2026 00:00:01 GMT";

/** S3's answer to a write that was done. */
export const stored: Answer = { status: 200, headers: { etag: v1, date } };

/** S3's answer to a read of `body`. */
export function found(body: string | Uint8Array, headers: Record<string, string> = {}): Answer {
  return { status: 200, headers: { etag: v1, date, "last-modified": modified, ...headers }, body };
}

/** An error in S3's own words. */
export function s3Error(status: number, code: string): Answer {
  return {
    status,
    headers: { "content-type": "application/xml" },
    body: `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>words for people</Message><RequestId>R1</RequestId></Error>`,
  };
}

export interface Bench extends AsyncDisposable {
  readonly server: ScriptedServer;
  readonly client: S3Client;
  readonly store: S3Store;
}

/** A scripted server, a client of the SDK's own defaults on it, and a store on that. */
export async function bench(
  replies: Reply | Reply[] | ((request: ReceivedRequest, nth: number) => Reply),
  options: { client?: S3ClientConfig; store?: Partial<S3StoreOptions> } = {},
): Promise<Bench> {
  const server = await (typeof replies === "function"
    ? ScriptedServer.start(replies)
    : ScriptedServer.start(...(Array.isArray(replies) ? replies : [replies])));
  const client = clientOf(server.url, options.client);
  const store = new S3Store({ client, bucket: "bucket", ...options.store });
  return {
    server,
    client,
    store,
    async [Symbol.asyncDispose]() {
      client.destroy();
      await server[Symbol.asyncDispose]();
    },
  };
}

export function clientOf(endpoint: string, config: S3ClientConfig = {}): S3Client {
  return new S3Client({
    endpoint,
    region: "us-east-1",
    forcePathStyle: true,
    credentials: { accessKeyId: "key", secretAccessKey: "secret" },
    ...config,
  });
}

export function rejectsWith(code: StoreErrorCode): (error: unknown) => true {
  return (error) => {
    assert.ok(StoreError.is(error), `not a StoreError: ${String(error)}`);
    assert.equal(error.code, code, error.message);
    return true;
  };
}
