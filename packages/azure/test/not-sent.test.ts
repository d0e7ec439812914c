import assert from "node:assert/strict";
import { createServer, type AddressInfo, type Server } from "node:net";
import { Readable } from "node:stream";

import type { ContainerClient, RequestPolicyFactory, StoragePipelineOptions } from "@azure/storage-blob";
import { AzureStore } from "@firstwrite/azure";
import { StoreError, type StoreErrorCode } from "@firstwrite/core";

import { sortReadFailure, sortWriteFailure } from "../src/sort-failure.ts";
import { azureError, bench, bytes, clientOf, found, rejectsWith, secureBench, stored, v1 } from "./setup.ts";

describe("azure: what was not sent, and what may have been (P2)", () => {
  it("a refused connection is UNAVAILABLE: by address, and by a name with several addresses", async () => {
    const port = await closedPort();
    for (const host of ["127.0.0.1", "localhost"]) {
      const store = new AzureStore({ container: clientOf(`http://${host}:${port}`) });
      await assert.rejects(store.create("x", bytes), rejectsWith("UNAVAILABLE"));
      await assert.rejects(store.replace("x", v1, bytes), rejectsWith("UNAVAILABLE"));
      await assert.rejects(store.remove("x", v1), rejectsWith("UNAVAILABLE"));
      await assert.rejects(store.read("x"), rejectsWith("UNAVAILABLE"));
    }
  });

  it("a host name that does not resolve is UNAVAILABLE", async () => {
    const store = new AzureStore({ container: clientOf("http://store.invalid") });
    await assert.rejects(store.create("x", bytes), rejectsWith("UNAVAILABLE"));
  });

  it("a connection reset before the request was read is unknown: nobody can tell that from a lost reply", async () => {
    const server = createServer({ pauseOnConnect: true }, (socket) => {
      setTimeout(() => socket.resetAndDestroy(), 20);
    });
    const store = new AzureStore({ container: clientOf(`http://127.0.0.1:${await listening(server)}`) });
    assert.equal((await store.create("x", bytes)).kind, "unknown");
    assert.equal((await store.remove("x", v1)).kind, "unknown");
    await assert.rejects(store.read("x"), rejectsWith("UNAVAILABLE"));
    server.close();
  });

  it("an idle connection that the server has closed is unknown or used anew, and never refused", async () => {
    await using b = await bench([stored, "reset", azureError(409, "BlobAlreadyExists")]);
    assert.equal((await b.store.create("x", bytes)).kind, "written");
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 2);
  });

  it("a body shorter than it was announced is UNAVAILABLE, whatever HTTP client lets it pass", async () => {
    const { container } = withHttpClient((request) => {
      const headers = request.headers.clone();
      for (const name of headers.headerNames()) headers.remove(name);
      for (const [name, value] of Object.entries(found("x").headers ?? {})) headers.set(name, value);
      headers.set("content-length", "2");
      return Promise.resolve({ request, status: 200, headers, readableStreamBody: Readable.from([Buffer.from("x")]) });
    });
    await assert.rejects(new AzureStore({ container }).read("x"), rejectsWith("UNAVAILABLE"));
  });

  it("a failure that a user's own HTTP client reports is sorted by its system call", async () => {
    for (const [syscall, kind] of [
      ["connect", "UNAVAILABLE"],
      ["getaddrinfo", "UNAVAILABLE"],
      ["read", "unknown"],
      ["write", "unknown"],
    ] as const) {
      const { container } = withHttpClient(() =>
        Promise.reject(Object.assign(new Error("no"), { code: "ETIMEDOUT", syscall })),
      );
      const create = new AzureStore({ container }).create("x", bytes);
      if (kind === "UNAVAILABLE") await assert.rejects(create, rejectsWith(kind));
      else assert.equal((await create).kind, kind);
    }
  });

  it("another failure before sending is UNAVAILABLE, for nothing was sent", async () => {
    const failing: RequestPolicyFactory = {
      create: () => ({ sendRequest: () => Promise.reject(new Error("no settings")) }),
    };
    await using b = await bench(stored, { factories: [failing] });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 0);
  });

  it("only those codes say that there was no connection with which no open connection ends", () => {
    for (const code of ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"]) assert.equal(sorted({ code }), "error", code);
    for (const code of ["ECONNRESET", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "EPIPE", "REQUEST_SEND_ERROR"]) {
      assert.equal(sorted({ code }), "unknown", code);
      assert.equal(sorted({ code, syscall: "read" }), "unknown", code);
      assert.equal(sorted({ code, syscall: "connect" }), "error", code);
    }
  });

  it("a word of the SDK or of Node is no code of the service", () => {
    for (const code of ["PARSE_ERROR", "ECONNRESET", "", 409]) {
      const error = Object.assign(new Error("no"), { code });
      const answer = { status: 409, headers: {} };
      assert.equal(sortWriteFailure("create", { error, sent: true, answer }).kind, "unknown");
    }
  });

  it("what is thrown and is no Error is sorted too", () => {
    for (const error of [undefined, null, "no", { code: "ECONNREFUSED", syscall: "connect" }]) {
      assert.equal(sortWriteFailure("create", { error, sent: true, answer: undefined }).kind, "unknown");
      assert.equal(sortReadFailure({ error, sent: true, answer: undefined }).kind, "error");
      assert.equal(sortReadFailure({ error, sent: false, answer: undefined }).kind, "error");
    }
  });
});

describe("azure: a token credential", () => {
  it("its token goes with each request, and is asked for once", async () => {
    let asked = 0;
    await using b = await secureBench(({ method }) => (method === "PUT" ? stored : found("x")), {
      credential: tokens(() => (asked += 1)),
    });
    assert.equal((await b.store.create("x", bytes)).kind, "written");
    assert.ok(await b.store.read("x"));
    assert.deepEqual(
      b.server.requests.map(({ headers }) => headers.authorization),
      ["Bearer token-1", "Bearer token-1"],
    );
    assert.equal(asked, 1);
  });

  it("without https nothing can be sent, and the store says so when it is made", () => {
    const container = clientOf("http://127.0.0.1:1", { credential: tokens(() => 1) });
    assert.throws(() => new AzureStore({ container }), rejectsWith("INVALID_ARGUMENT"));
  });

  it("a failure to get one is sorted by what it says, and nothing is sent", async () => {
    for (const [name, statusCode, code] of [
      ["CredentialUnavailableError", undefined, "PERMISSION_DENIED"],
      ["AuthenticationRequiredError", undefined, "PERMISSION_DENIED"],
      ["AggregateAuthenticationError", undefined, "PERMISSION_DENIED"],
      ["AuthenticationError", 400, "PERMISSION_DENIED"],
      ["AuthenticationError", 429, "UNAVAILABLE"],
      ["AuthenticationError", 500, "UNAVAILABLE"],
      ["AuthenticationError", 503, "UNAVAILABLE"],
      ["RestError", undefined, "UNAVAILABLE"],
      ["Error", undefined, "UNAVAILABLE"],
    ] as const satisfies readonly (readonly [string, number | undefined, StoreErrorCode])[]) {
      const error = Object.assign(new Error("no"), { name, ...(statusCode === undefined ? {} : { statusCode }) });
      await using b = await secureBench(stored, { credential: { getToken: () => Promise.reject(error) } });
      await assert.rejects(b.store.create("x", bytes), rejectsWith(code), name);
      await assert.rejects(b.store.read("x"), rejectsWith(code), name);
      assert.equal(b.server.requests.length, 0);
    }
  });

  it("a challenge to use another tenant is one request and PERMISSION_DENIED", async () => {
    const challenge = {
      ...azureError(401, "InvalidAuthenticationInfo"),
      headers: {
        "x-ms-error-code": "InvalidAuthenticationInfo",
        "www-authenticate":
          "Bearer authorization_uri=https://login.microsoftonline.com/72f988bf-86f1-41af-91ab-2d7cd011db47/oauth2/authorize resource_id=https://storage.azure.com",
      },
    };
    await using b = await secureBench([challenge, stored], { credential: tokens(() => 1) });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("PERMISSION_DENIED"));
    assert.equal(b.server.requests.length, 1);
  });

  it("a token that was revoked is one request and UNAVAILABLE, and the next goes with a new one", async () => {
    let asked = 0;
    const revoked = {
      ...azureError(401, "InvalidAuthenticationInfo"),
      headers: {
        "www-authenticate": `Bearer error="insufficient_claims", claims="${Buffer.from('{"access_token":{}}').toString("base64")}"`,
      },
    };
    await using b = await secureBench([revoked, stored], { credential: tokens(() => (asked += 1)) });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 1);
    assert.equal((await b.store.create("x", bytes)).kind, "written");
    assert.equal(b.server.requests[1]?.headers.authorization, "Bearer token-2");
  });
});

describe("azure: an abort", () => {
  it("before the call: UNAVAILABLE, nothing is sent", async () => {
    await using b = await bench(stored);
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(b.store.create("x", bytes, { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.replace("x", v1, bytes, { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.remove("x", v1, { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.read("x", { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.list("", { signal }).next(), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 0);
  });

  it("while a token is awaited: UNAVAILABLE at once, and nothing is sent when it comes", async () => {
    const token = Promise.withResolvers<{ token: string; expiresOnTimestamp: number }>();
    await using b = await secureBench(stored, { credential: { getToken: () => token.promise } });
    const abort = new AbortController();
    const { signal } = abort;
    const calls = [
      b.store.create("x", bytes, { signal }),
      b.store.replace("x", v1, bytes, { signal }),
      b.store.remove("x", v1, { signal }),
      b.store.read("x", { signal }),
    ];
    setTimeout(() => abort.abort(new Error("enough")), 20);
    for (const call of calls) await assert.rejects(call, rejectsWith("UNAVAILABLE"));
    token.resolve({ token: "late", expiresOnTimestamp: Date.now() + 3_600_000 });
    await pause(100);
    assert.equal(b.server.requests.length, 0);
    assert.equal((await b.store.create("x", bytes)).kind, "written");
  });

  it("while a token is awaited: nothing is sent by an HTTP client that looks at no signal either", async () => {
    const gate = Promise.withResolvers<void>();
    let handled = 0;
    const waits: RequestPolicyFactory = {
      create: (next) => ({ sendRequest: (request) => gate.promise.then(() => next.sendRequest(request)) }),
    };
    const { container } = withHttpClient(() => {
      handled += 1;
      return Promise.reject(new Error("no"));
    }, [waits]);
    const abort = new AbortController();
    const create = new AzureStore({ container }).create("x", bytes, { signal: abort.signal });
    abort.abort();
    await assert.rejects(create, rejectsWith("UNAVAILABLE"));
    gate.resolve();
    await pause(50);
    assert.equal(handled, 0);
  });

  it("in a policy on the way: UNAVAILABLE, and not sent after all", async () => {
    const abort = new AbortController();
    let handled = 0;
    const aborts: RequestPolicyFactory = {
      create: (next) => ({
        sendRequest: (request) => {
          abort.abort();
          return next.sendRequest(request);
        },
      }),
    };
    const { container } = withHttpClient(() => {
      handled += 1;
      return Promise.reject(new Error("no"));
    }, [aborts]);
    const create = new AzureStore({ container }).create("x", bytes, { signal: abort.signal });
    await assert.rejects(create, rejectsWith("UNAVAILABLE"));
    await pause(20);
    assert.equal(handled, 0);
  });

  it("ends the connection of a service that hangs", async () => {
    const server = createServer((socket) => socket.on("error", () => undefined).resume());
    const store = new AzureStore({ container: clientOf(`http://127.0.0.1:${await listening(server)}`) });
    assert.equal((await store.create("x", bytes, { signal: AbortSignal.timeout(50) })).kind, "unknown");
    await assert.rejects(store.read("x", { signal: AbortSignal.timeout(50) }), rejectsWith("UNAVAILABLE"));
    await new Promise((resolve) => server.close(resolve));
  });

  it("while the service is silent: unknown for a write, UNAVAILABLE for a read", async () => {
    await using b = await bench("silence");
    for (const write of [
      (signal: AbortSignal) => b.store.create("x", bytes, { signal }),
      (signal: AbortSignal) => b.store.replace("x", v1, bytes, { signal }),
      (signal: AbortSignal) => b.store.remove("x", v1, { signal }),
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
    await b.server.received(4);
    abort.abort();
    await assert.rejects(read, rejectsWith("UNAVAILABLE"));
  });

  it("by a deadline, while the service is silent: the call ends then, and nothing more is sent", async () => {
    await using b = await bench("silence");
    const start = performance.now();
    assert.equal((await b.store.create("x", bytes, { signal: AbortSignal.timeout(60) })).kind, "unknown");
    await assert.rejects(b.store.read("x", { signal: AbortSignal.timeout(60) }), rejectsWith("UNAVAILABLE"));
    assert.ok(performance.now() - start < 1000);
    await pause(100);
    assert.equal(b.server.requests.length, 2);
  });

  it("while the answer's body is on its way: unknown for a write, UNAVAILABLE for a read, and the connection ends", async () => {
    await using b = await bench({ ...found("x".repeat(100)), stopsAfterBytes: 10, thenSilent: true });
    const create = b.store.create("x", bytes, { signal: AbortSignal.timeout(100) });
    assert.equal((await create).kind, "unknown");
    await assert.rejects(b.store.read("x", { signal: AbortSignal.timeout(100) }), rejectsWith("UNAVAILABLE"));
  });

  it("while a late answer is awaited: unknown, and the late answer does no harm", async () => {
    await using b = await bench({ ...stored, lateByMs: 100 });
    assert.equal((await b.store.create("x", bytes, { signal: AbortSignal.timeout(30) })).kind, "unknown");
    await pause(120);
    assert.equal((await b.store.create("x", bytes)).kind, "written");
  });

  it("after the answer: nothing changes, and the signal keeps no listener", async () => {
    await using b = await bench(stored);
    const abort = new AbortController();
    let listeners = 0;
    const { signal } = abort;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    Object.assign(signal, {
      addEventListener: (...args: Parameters<typeof add>) => {
        listeners += 1;
        add(...args);
      },
      removeEventListener: (...args: Parameters<typeof remove>) => {
        listeners -= 1;
        remove(...args);
      },
    });
    const outcome = await b.store.create("x", bytes, { signal });
    assert.equal(listeners, 0);
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

describe("azure: an answer that is given up", () => {
  it("for a header leaves no connection open", async () => {
    const server = createServer((socket) => {
      socket
        .on("error", () => undefined)
        .once("data", () => {
          socket.write(`HTTP/1.1 200 OK\r\nDate: ${found("").headers?.["date"]}\r\nContent-Length: 5000000\r\n\r\nx`);
        });
    });
    const store = new AzureStore({ container: clientOf(`http://127.0.0.1:${await listening(server)}`) });
    await assert.rejects(store.read("x"), rejectsWith("UNSUPPORTED"));
    // Ends only when every connection has.
    await new Promise((resolve) => server.close(resolve));
  });
});

/** As the SDK reports a failure, with more details. */
function sorted(details: object): string {
  const error = Object.assign(new Error("no"), { name: "RestError" }, details);
  return sortWriteFailure("create", { error, sent: true, answer: undefined }).kind;
}

function tokens(asks: () => number): { getToken(): Promise<{ token: string; expiresOnTimestamp: number }> } {
  return {
    getToken: () => Promise.resolve({ token: `token-${asks()}`, expiresOnTimestamp: Date.now() + 3_600_000 }),
  };
}

type HttpClient = NonNullable<StoragePipelineOptions["httpClient"]>;

function withHttpClient(
  sendRequest: HttpClient["sendRequest"],
  factories: readonly RequestPolicyFactory[] = [],
): { container: ContainerClient } {
  return { container: clientOf("http://store.invalid", { pipeline: { httpClient: { sendRequest } }, factories }) };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
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
