import assert from "node:assert/strict";
import { createServer, type AddressInfo, type Server } from "node:net";
import { Readable } from "node:stream";
import type { S3ClientConfig } from "@aws-sdk/client-s3";
import { StoreError } from "@firstwrite/core";
import { S3Store } from "@firstwrite/s3";
import type { Answer } from "@firstwrite/conformance/wire";
import { bench, bytes, clientOf, found, rejectsWith, s3Error, stored, v1 } from "./setup.ts";
import { sortReadFailure, sortWriteFailure } from "../src/sort-failure.ts";

describe("s3: what was not sent, and what may have been (P2)", () => {
  it("a refused connection is UNAVAILABLE: by address, and by a name with several addresses", async () => {
    const port = await closedPort();
    for (const host of ["127.0.0.1", "localhost"]) {
      const client = clientOf(`http://${host}:${port}`);
      const store = new S3Store({ client, bucket: "bucket" });
      await assert.rejects(store.create("x", bytes), rejectsWith("UNAVAILABLE"));
      await assert.rejects(store.replace("x", v1, bytes), rejectsWith("UNAVAILABLE"));
      await assert.rejects(store.read("x"), rejectsWith("UNAVAILABLE"));
      client.destroy();
    }
  });

  it("a host name that does not resolve is UNAVAILABLE", async () => {
    const client = clientOf("http://store.invalid");
    await assert.rejects(new S3Store({ client, bucket: "bucket" }).create("x", bytes), rejectsWith("UNAVAILABLE"));
    client.destroy();
  });

  it("a connection reset before the request was read is unknown: nobody can tell that from a lost reply", async () => {
    const server = createServer({ pauseOnConnect: true }, (socket) => {
      setTimeout(() => socket.resetAndDestroy(), 20);
    });
    const client = clientOf(`http://127.0.0.1:${await listening(server)}`);
    const store = new S3Store({ client, bucket: "bucket" });
    assert.equal((await store.create("x", bytes)).kind, "unknown");
    await assert.rejects(store.read("x"), rejectsWith("UNAVAILABLE"));
    client.destroy();
    server.close();
  });

  it("an idle connection that the server has closed is unknown or used anew, and never refused", async () => {
    await using b = await bench([stored, "reset", s3Error(412, "PreconditionFailed")]);
    assert.equal((await b.store.create("x", bytes)).kind, "written");
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 2);
  });

  it("the client's own time limit is unknown for a write and UNAVAILABLE for a read", async () => {
    await using b = await bench("silence", {
      client: { requestHandler: { requestTimeout: 50, throwOnRequestTimeout: true } },
    });
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 2);
  });

  it("a body shorter than it was announced is UNAVAILABLE, whatever HTTP handler lets it pass", async () => {
    const requestHandler = handler(() => found("x", { "content-length": "2" }));
    await using b = await bench(stored, { client: { requestHandler } });
    await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
  });

  it("without credentials nothing is sent: PERMISSION_DENIED", async () => {
    await using b = await bench(stored, {
      client: {
        credentials: () => Promise.reject(Object.assign(new Error("none"), { name: "CredentialsProviderError" })),
      },
    });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("PERMISSION_DENIED"));
    await assert.rejects(b.store.read("x"), rejectsWith("PERMISSION_DENIED"));
    assert.equal(b.server.requests.length, 0);
  });

  it("without credentials the error says how to give some, and keeps the SDK's own as its cause", async () => {
    const none = Object.assign(new Error("none"), { name: "CredentialsProviderError" });
    await using b = await bench(stored, { client: { credentials: () => Promise.reject(none) } });
    for (const call of [b.store.create("x", bytes), b.store.read("x")]) {
      await assert.rejects(call, (error) => {
        assert.ok(StoreError.is(error));
        assert.match(error.message, /AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.* a role/);
        assert.equal(error.cause, none);
        return true;
      });
    }
  });

  it("a bucket name no client can address is INVALID_ARGUMENT, and not sent", async () => {
    await using b = await bench(stored, { store: { bucket: "a/b" } });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(b.server.requests.length, 0);
  });

  it("another failure before sending is UNAVAILABLE", async () => {
    await using b = await bench(stored, {
      client: { requestChecksumCalculation: () => Promise.reject(new Error("no settings")) },
    });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 0);
  });

  it("an answer of the service that gives credentials is sorted as what it says", () => {
    assert.equal(sortedUnsent(stsError(403, "AccessDenied")), "PERMISSION_DENIED");
    assert.equal(sortedUnsent(stsError(400, "ExpiredToken")), "PERMISSION_DENIED");
    assert.equal(sortedUnsent(stsError(500, "InternalFailure")), "UNAVAILABLE");
    assert.equal(sortedUnsent(stsError(412, "PreconditionFailed")), "UNAVAILABLE");
  });

  it("a time limit of an open connection is unknown, one of opening it UNAVAILABLE, by syscall and not by code", () => {
    assert.equal(sortedTimeout({}), "unknown");
    assert.equal(sortedTimeout({ syscall: "read" }), "unknown");
    assert.equal(sortedTimeout({ syscall: "connect" }), "error");
    const mixed = new AggregateError([
      Object.assign(new Error("no"), { syscall: "connect" }),
      Object.assign(new Error("no"), { syscall: "read" }),
    ]);
    assert.equal(sortWriteFailure("create", { error: mixed, sent: true, status: undefined }).kind, "unknown");
    const empty = new AggregateError([]);
    assert.equal(sortWriteFailure("create", { error: empty, sent: true, status: undefined }).kind, "unknown");
  });

  it("what is thrown and is no Error is sorted too", () => {
    for (const error of [undefined, null, "no", { code: "ECONNREFUSED", syscall: "connect" }]) {
      assert.equal(sortWriteFailure("create", { error, sent: true, status: undefined }).kind, "unknown");
      assert.equal(sortReadFailure({ error, sent: true, status: undefined }).kind, "error");
      assert.equal(sortReadFailure({ error, sent: false, status: undefined }).kind, "error");
    }
  });
});

describe("s3: an abort", () => {
  it("before the call: UNAVAILABLE, nothing is sent", async () => {
    await using b = await bench(stored);
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(b.store.create("x", bytes, { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.replace("x", v1, bytes, { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.read("x", { signal }), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 0);
  });

  it("while credentials are awaited: UNAVAILABLE at once, and nothing is sent when they come", async () => {
    const credentials = Promise.withResolvers<{ accessKeyId: string; secretAccessKey: string }>();
    await using b = await bench(stored, { client: { credentials: () => credentials.promise } });
    const abort = new AbortController();
    const create = b.store.create("x", bytes, { signal: abort.signal });
    const read = b.store.read("x", { signal: abort.signal });
    setTimeout(() => abort.abort(new Error("enough")), 20);
    await assert.rejects(create, rejectsWith("UNAVAILABLE"));
    await assert.rejects(read, rejectsWith("UNAVAILABLE"));
    credentials.resolve({ accessKeyId: "key", secretAccessKey: "secret" });
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(b.server.requests.length, 0);
  });

  it("while credentials are awaited: nothing is sent by an HTTP handler that looks at no signal either", async () => {
    const credentials = Promise.withResolvers<{ accessKeyId: string; secretAccessKey: string }>();
    let handled = 0;
    const requestHandler = handler(() => {
      handled += 1;
      return found("x");
    });
    await using b = await bench(stored, { client: { requestHandler, credentials: () => credentials.promise } });
    const abort = new AbortController();
    const create = b.store.create("x", bytes, { signal: abort.signal });
    abort.abort();
    await assert.rejects(create, rejectsWith("UNAVAILABLE"));
    credentials.resolve({ accessKeyId: "key", secretAccessKey: "secret" });
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(handled, 0);
  });

  it("while the service is silent: unknown for a write, UNAVAILABLE for a read", async () => {
    await using b = await bench("silence");
    for (const write of [
      (signal: AbortSignal) => b.store.create("x", bytes, { signal }),
      (signal: AbortSignal) => b.store.replace("x", v1, bytes, { signal }),
    ]) {
      const abort = new AbortController();
      const outcome = write(abort.signal);
      await b.server.received(b.server.requests.length + 1);
      const reason = new Error("enough");
      abort.abort(reason);
      assert.deepEqual(await outcome, { kind: "unknown", cause: reason });
    }
    const abort = new AbortController();
    const read = b.store.read("x", { signal: abort.signal });
    await b.server.received(3);
    abort.abort();
    await assert.rejects(read, rejectsWith("UNAVAILABLE"));
  });

  it("while the answer's body is on its way: unknown for a write, UNAVAILABLE for a read", async () => {
    await using b = await bench({ ...found("x".repeat(100)), stopsAfterBytes: 10, thenSilent: true });
    const create = b.store.create("x", bytes, { signal: AbortSignal.timeout(100) });
    assert.equal((await create).kind, "unknown");
    await assert.rejects(b.store.read("x", { signal: AbortSignal.timeout(100) }), rejectsWith("UNAVAILABLE"));
  });

  it("after a 412 whose body does not come: refused, for that was said", async () => {
    await using b = await bench({ ...s3Error(412, "PreconditionFailed"), stopsAfterBytes: 10, thenSilent: true });
    assert.equal((await b.store.create("x", bytes, { signal: AbortSignal.timeout(100) })).kind, "refused");
  });

  it("while a late answer is awaited: unknown, and the late answer does no harm", async () => {
    await using b = await bench({ ...stored, lateByMs: 100 });
    assert.equal((await b.store.create("x", bytes, { signal: AbortSignal.timeout(30) })).kind, "unknown");
    await new Promise((resolve) => setTimeout(resolve, 120));
    assert.equal((await b.store.create("x", bytes)).kind, "written");
  });

  it("after the answer: nothing changes, and the signal keeps no listener", async () => {
    await using b = await bench(stored);
    const abort = new AbortController();
    const outcome = await b.store.create("x", bytes, { signal: abort.signal });
    abort.abort();
    assert.equal(outcome.kind, "written");
  });

  it("of one call leaves the others alone", async () => {
    await using b = await bench({ ...stored, lateByMs: 60 });
    const abort = new AbortController();
    const calls = Array.from({ length: 20 }, (_, n) =>
      b.store.create(`n${n}`, bytes, n % 2 === 0 ? { signal: abort.signal } : {}),
    );
    await b.server.received(20);
    abort.abort();
    const kinds = (await Promise.all(calls)).map(({ kind }) => kind);
    assert.deepEqual(
      kinds,
      kinds.map((_, n) => (n % 2 === 0 ? "unknown" : "written")),
    );
  });

  it("is told apart from the store's own errors by its cause", async () => {
    await using b = await bench(stored);
    const reason = new Error("enough");
    await assert.rejects(b.store.read("x", { signal: AbortSignal.abort(reason) }), (error) => {
      return StoreError.is(error) && error.cause === reason;
    });
  });
});

function stsError(status: number, name: string): Error {
  return Object.assign(new Error("no"), { name, $fault: "client", $metadata: { httpStatusCode: status } });
}

function sortedUnsent(error: Error): string {
  const verdict = sortWriteFailure("create", { error, sent: false, status: undefined });
  return verdict.kind === "error" ? verdict.code : verdict.kind;
}

/** As Node and the SDK report a time limit, with more details. */
function sortedTimeout(details: object): string {
  const error = Object.assign(new Error("no"), { name: "TimeoutError", code: "ETIMEDOUT" }, details);
  return sortWriteFailure("create", { error, sent: true, status: undefined }).kind;
}

/** An HTTP handler of the user's own, which answers at once. */
function handler(answer: () => Answer): NonNullable<S3ClientConfig["requestHandler"]> {
  return {
    handle: async () => {
      const { status, headers, body = "" } = answer();
      return { response: { statusCode: status, headers: { ...headers }, body: Readable.from([Buffer.from(body)]) } };
    },
    updateHttpClientConfig: () => undefined,
    httpHandlerConfigs: () => ({}),
  };
}

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address: AddressInfo | string | null = server.address();
  if (address === null || typeof address === "string") throw new Error("the server is not listening");
  return address.port;
}

async function closedPort(): Promise<number> {
  const server = createServer();
  const port = await listening(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
}
