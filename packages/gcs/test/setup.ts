import assert from "node:assert/strict";
import { CRC32C, Storage, type StorageOptions } from "@google-cloud/storage";
import { StoreError, toVersion, type StoreErrorCode, type Version } from "@firstwrite/core";
import { GcsStore, type GcsStoreOptions } from "@firstwrite/gcs";
import { ScriptedServer, type Answer, type ReceivedRequest, type Reply } from "@firstwrite/conformance/wire";

export const bytes: Uint8Array = new TextEncoder().encode('{"status":"creating"}');
/** Of an emulator: today's real ones are about 2^50. */
export const v1: Version = toVersion("9007199254740993");
export const date = "Thu, 01 Jan 2026 00:00:05 GMT";
export const modified = "Thu, 01 Jan 2026 00:00:01 GMT";

/** The service's answer to a write that was done, without a checksum, as it is the same for all bytes. */
export const stored: Answer = {
  status: 200,
  headers: { date, "content-type": "application/json; charset=UTF-8" },
  body: JSON.stringify({ kind: "storage#object", generation: v1, metageneration: "1" }),
};

/** The service's answer to a read of `body`. */
export function found(body: string | Uint8Array, headers: Record<string, string> = {}): Answer {
  return {
    status: 200,
    headers: {
      date,
      "last-modified": modified,
      "content-type": "application/octet-stream",
      "x-goog-generation": v1,
      "x-goog-hash": `crc32c=${crc32c(body)},md5=ignored==`,
      "x-goog-stored-content-encoding": "identity",
      ...headers,
    },
    body,
  };
}

/** An error in the words of the JSON API. */
export function gcsError(status: number, reason: string): Answer {
  const message = "words for people";
  return {
    status,
    headers: { "content-type": "application/json; charset=UTF-8" },
    body: JSON.stringify({ error: { code: status, message, errors: [{ message, domain: "global", reason }] } }),
  };
}

export function crc32c(body: string | Uint8Array): string {
  const checksum = new CRC32C();
  checksum.update(Buffer.from(body));
  return checksum.toString();
}

export interface Bench extends AsyncDisposable {
  readonly server: ScriptedServer;
  readonly storage: Storage;
  readonly store: GcsStore;
}

/** A scripted server, a client of the SDK's own defaults on it, and a store on that. */
export async function bench(
  replies: Reply | readonly Reply[] | ((request: ReceivedRequest, nth: number) => Reply),
  options: { client?: StorageOptions; store?: Partial<GcsStoreOptions> } = {},
): Promise<Bench> {
  const server = await (typeof replies === "function"
    ? ScriptedServer.start(replies)
    : ScriptedServer.start(...(typeof replies === "string" || "status" in replies ? [replies] : replies)));
  const storage = new Storage({ apiEndpoint: server.url, ...options.client });
  const store = new GcsStore({ storage, bucket: "bucket", ...options.store });
  return { server, storage, store, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

/** What an upload carries: what the object is to be, and its bytes. */
export function uploaded({ headers, body }: ReceivedRequest): { metadata: unknown; media: Buffer } {
  const boundary = /^multipart\/related; boundary=(\S+)$/.exec(headers["content-type"] ?? "")?.[1];
  assert.ok(boundary !== undefined, `not an upload in two parts: ${headers["content-type"]}`);
  const divide = Buffer.from(`\r\n--${boundary}`);
  const second = body.indexOf(divide);
  const metadata = body.subarray(body.indexOf("\r\n\r\n") + 4, second).toString();
  const media = body.subarray(body.indexOf("\r\n\r\n", second) + 4, body.lastIndexOf(divide));
  return { metadata: JSON.parse(metadata), media };
}

export function rejectsWith(code: StoreErrorCode): (error: unknown) => true {
  return (error) => {
    assert.ok(StoreError.is(error), `not a StoreError: ${String(error)}`);
    assert.equal(error.code, code, error.message);
    return true;
  };
}
