import assert from "node:assert/strict";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { createServer, getCACertificates, setDefaultCACertificates } from "node:tls";

import {
  ContainerClient,
  newPipeline,
  StorageSharedKeyCredential,
  type RequestPolicyFactory,
  type StoragePipelineOptions,
} from "@azure/storage-blob";
import { AzureStore, type AzureStoreOptions } from "@firstwrite/azure";
import { ScriptedServer, type Answer, type ReceivedRequest, type Reply } from "@firstwrite/conformance/wire";
import { StoreError, toVersion, type StoreErrorCode, type Version, type WriteOutcome } from "@firstwrite/core";

import { selfSigned, type SelfSigned } from "./self-signed.ts";

export const bytes: Uint8Array = new TextEncoder().encode('{"status":"creating"}');
export const v1: Version = toVersion('"0x8DE3F1A2B3C4D5E"');
export const date = "Thu, 01 Jan 2026 00:00:05 GMT";
export const modified = "Thu, 01 Jan 2026 00:00:01 GMT";
export const credential: StorageSharedKeyCredential = new StorageSharedKeyCredential("account", "c2VjcmV0");

/** Azure's answer to a write that was done. */
export const stored: Answer = { status: 201, headers: { etag: v1, "last-modified": date, date } };
/** Azure's answer to a removal that was done. */
export const removed: Answer = { status: 202, headers: { date } };

/** Azure's answer to a read of `body`. */
export function found(body: string | Uint8Array, headers: Record<string, string> = {}): Answer {
  return { status: 200, headers: { etag: v1, date, "last-modified": modified, ...headers }, body };
}

/** An error in Azure's own words: the code in a header and in the body. */
export function azureError(status: number, code: string): Answer {
  return inBody(status, code, { "x-ms-error-code": code });
}

/** An error whose header was lost on the way. */
export function inBody(status: number, code: string, headers: Record<string, string> = {}): Answer {
  return {
    status,
    headers: { "content-type": "application/xml", ...headers },
    body: `<?xml version="1.0" encoding="utf-8"?>\n<Error><Code>${code}</Code><Message>words for people</Message></Error>`,
  };
}

/** An error as a HEAD or a 304 has it. */
export function inHeader(status: number, code: string): Answer {
  return { status, headers: { "x-ms-error-code": code } };
}

export interface Bench extends AsyncDisposable {
  readonly server: ScriptedServer;
  readonly container: ContainerClient;
  readonly store: AzureStore;
}

type Credential = NonNullable<Parameters<typeof newPipeline>[0]>;

export interface BenchOptions {
  /** By default a shared key. */
  readonly credential?: Credential;
  readonly pipeline?: StoragePipelineOptions;
  /** Policies of the user's own. */
  readonly factories?: readonly RequestPolicyFactory[];
  readonly store?: Partial<AzureStoreOptions>;
}

/** A scripted server, a client of the SDK's own defaults on it, and a store on that. */
export async function bench(
  replies: Reply | Reply[] | ((request: ReceivedRequest, nth: number) => Reply),
  options: BenchOptions = {},
): Promise<Bench> {
  const server = await (typeof replies === "function"
    ? ScriptedServer.start(replies)
    : ScriptedServer.start(...(Array.isArray(replies) ? replies : [replies])));
  const container = clientOf(server.url, options);
  const store = new AzureStore({ container, ...options.store });
  return { server, container, store, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

/**
 * As {@link bench}, by https: without it the SDK sends no token, and no copy of a request. What it sends is decrypted
 * and handed on to the scripted server byte by byte.
 */
export async function secureBench(replies: Parameters<typeof bench>[0], options: BenchOptions = {}): Promise<Bench> {
  const inner = await bench(replies);
  const { key, cert } = (certificate ??= selfSigned());
  const sockets = new Set<Duplex>();
  const front = createServer({ key, cert }, (socket) => {
    const onward = connect(inner.server.port, "127.0.0.1");
    for (const [one, other] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      sockets.add(one);
      one.pipe(other);
      one.on("error", () => other.destroy()).on("close", () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => front.listen(0, "127.0.0.1", resolve));
  const address = front.address();
  if (address === null || typeof address === "string") throw new Error("the server is not listening");
  // For the whole process: the SDK's own copies of a request lose the client's TLS options.
  const trusted = getCACertificates("default");
  setDefaultCACertificates([...trusted, cert]);
  const container = clientOf(`https://127.0.0.1:${address.port}`, options);
  return {
    server: inner.server,
    container,
    store: new AzureStore({ container, ...options.store }),
    async [Symbol.asyncDispose]() {
      setDefaultCACertificates(trusted);
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => front.close(resolve));
      await inner[Symbol.asyncDispose]();
    },
  };
}

let certificate: SelfSigned | undefined;

export function clientOf(endpoint: string, options: BenchOptions = {}): ContainerClient {
  const { pipeline, factories = [] } = options;
  const made = newPipeline(options.credential ?? credential, pipeline);
  made.factories.push(...factories);
  return new ContainerClient(`${endpoint}/container`, made);
}

/** The name of the blob that a request is for. */
export function blobOf({ url }: ReceivedRequest): string {
  return decodeURIComponent(url.pathname.slice("/container/".length));
}

export function rejectsWith(code: StoreErrorCode): (error: unknown) => true {
  return (error) => {
    assert.ok(StoreError.is(error), `not a StoreError: ${String(error)}`);
    assert.equal(error.code, code, error.message);
    return true;
  };
}

export type Sorted = WriteOutcome["kind"] | StoreErrorCode;

/** Asserts how a write or a removal ends. */
export async function ends(write: Promise<{ readonly kind: string }>, sorted: Sorted): Promise<void> {
  const code = errorCode(sorted);
  if (code === undefined) assert.equal((await write).kind, sorted);
  else await assert.rejects(write, rejectsWith(code));
}

function errorCode(sorted: Sorted): StoreErrorCode | undefined {
  switch (sorted) {
    case "written":
    case "refused":
    case "contended":
    case "unknown":
      return undefined;
    default:
      return sorted;
  }
}

export async function settled(call: Promise<unknown>): Promise<void> {
  await call.catch(() => undefined);
}
