import assert from "node:assert/strict";
import { createServer, type AddressInfo, type Server } from "node:net";
import { inspect } from "node:util";
import { Storage, type StorageOptions } from "@google-cloud/storage";
import { StoreError } from "@firstwrite/core";
import { GcsStore } from "@firstwrite/gcs";
import { ScriptedServer } from "@firstwrite/conformance/wire";
import { OAuth2Client } from "google-auth-library";
import { bench, bytes, found, gcsError, rejectsWith, stored, v1 } from "./setup.ts";
import { sortReadFailure, sortWriteFailure } from "../src/sort-failure.ts";

describe("gcs: what was not sent, and what may have been (P2)", () => {
  it("a refused connection is UNAVAILABLE: by address, and by a name with several addresses", async () => {
    const port = await closedPort();
    for (const host of ["127.0.0.1", "localhost"]) {
      const store = storeAt(`http://${host}:${port}`);
      await assert.rejects(store.create("x", bytes), rejectsWith("UNAVAILABLE"));
      await assert.rejects(store.replace("x", v1, bytes), rejectsWith("UNAVAILABLE"));
      await assert.rejects(store.remove("x", v1), rejectsWith("UNAVAILABLE"));
      await assert.rejects(store.read("x"), rejectsWith("UNAVAILABLE"));
    }
  });

  it("a host name that does not resolve is UNAVAILABLE", async () => {
    await assert.rejects(storeAt("http://store.invalid").create("x", bytes), rejectsWith("UNAVAILABLE"));
  });

  it("a refused connection is told by a fetch of the user's too", async () => {
    const authClient = new OAuth2Client({ transporterOptions: { fetchImplementation: fetch } });
    authClient.setCredentials({ access_token: "t", expiry_date: Date.now() + 3_600_000 });
    for (const host of ["127.0.0.1", "localhost"]) {
      const apiEndpoint = `http://${host}:${await closedPort()}`;
      const storage = new Storage({ apiEndpoint, authClient, useAuthWithCustomEndpoint: true });
      const store = new GcsStore({ storage, bucket: "bucket" });
      await assert.rejects(store.create("x", bytes), rejectsWith("UNAVAILABLE"));
    }
    await using b = await bench("reset", { client: { authClient, useAuthWithCustomEndpoint: true } });
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    b.server.answers({ ...found("x".repeat(100)), stopsAfterBytes: 10 });
    await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
    b.server.answers({ status: 307, headers: { location: "/elsewhere" } });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 3);
  });

  it("a connection reset before the request was read is unknown: nobody can tell that from a lost reply", async () => {
    const server = createServer({ pauseOnConnect: true }, (socket) => {
      setTimeout(() => socket.resetAndDestroy(), 20);
    });
    const store = storeAt(`http://127.0.0.1:${await listening(server)}`);
    assert.equal((await store.create("x", bytes)).kind, "unknown");
    await assert.rejects(store.read("x"), rejectsWith("UNAVAILABLE"));
    server.close();
  });

  it("an idle connection that the server has closed is unknown or used anew, and never refused", async () => {
    await using b = await bench([stored, "reset", gcsError(412, "conditionNotMet")]);
    assert.equal((await b.store.create("x", bytes)).kind, "written");
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 2);
  });

  it("a body shorter or longer than it was announced is UNAVAILABLE, whatever transport lets it pass", async () => {
    const authClient = new OAuth2Client({ transporterOptions: { fetchImplementation } });
    authClient.setCredentials({ access_token: "t", expiry_date: Date.now() + 3_600_000 });
    await using b = await bench(stored, { client: { authClient, useAuthWithCustomEndpoint: true } });
    await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
  });

  it("a time limit of an open connection is unknown, one of opening it UNAVAILABLE, by syscall and not by code", () => {
    assert.equal(sortedSent({}), "unknown");
    assert.equal(sortedSent({ code: "ETIMEDOUT", type: "system" }), "unknown");
    assert.equal(sortedSent({ code: "ETIMEDOUT", erroredSysCall: "read" }), "unknown");
    assert.equal(sortedSent({ code: "ECONNREFUSED", erroredSysCall: "read" }), "unknown");
    assert.equal(sortedSent({ code: "ETIMEDOUT", erroredSysCall: "connect" }), "error");
    assert.equal(sortedSent({ code: "EAI_AGAIN", erroredSysCall: "getaddrinfo" }), "error");
    assert.equal(sortedSent({ code: "ECONNREFUSED" }), "error");
    assert.equal(sortedSent({ cause: Object.assign(new Error("no"), { syscall: "connect" }) }), "error");
    assert.equal(sortedSent({ cause: Object.assign(new Error("no"), { syscall: "read" }) }), "unknown");
  });

  it("what is thrown and is no Error is sorted too", () => {
    for (const error of [undefined, null, "no", { code: "ECONNREFUSED", syscall: "connect" }]) {
      assert.equal(sortWriteFailure({ error, stage: "sent", status: undefined }).kind, "unknown");
      assert.equal(sortReadFailure({ error, stage: "sent", status: undefined }).code, "UNAVAILABLE");
      assert.equal(sortReadFailure({ error, stage: "before", status: undefined }).code, "UNAVAILABLE");
      assert.equal(sortReadFailure({ error, stage: "credentials", status: undefined }).code, "PERMISSION_DENIED");
    }
  });
});

describe("gcs: credentials", () => {
  it("are fetched once, sent with every request, and never sent to a custom endpoint unless the client says so", async () => {
    await using token = await ScriptedServer.start(tokenAnswer);
    await using b = await bench(({ method }) => (method === "GET" ? found("x") : stored), { client: fetching(token) });
    await b.store.create("x", bytes);
    await b.store.read("x");
    assert.equal(token.requests.length, 1);
    assert.deepEqual(
      b.server.requests.map(({ headers }) => headers.authorization),
      ["Bearer fresh", "Bearer fresh"],
    );
    const { authClient } = fetching(token);
    await using c = await bench(stored, { client: { ...(authClient !== undefined && { authClient }) } });
    await c.store.create("x", bytes);
    assert.equal(c.server.requests[0]?.headers.authorization, undefined);
  });

  it("that are not there are PERMISSION_DENIED, and nothing is sent", async () => {
    await using b = await bench(stored, {
      client: { useAuthWithCustomEndpoint: true, authClient: new OAuth2Client() },
    });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("PERMISSION_DENIED"));
    await assert.rejects(b.store.read("x"), rejectsWith("PERMISSION_DENIED"));
    assert.equal(b.server.requests.length, 0);
  });

  it("that are nowhere by default are PERMISSION_DENIED", async () => {
    // Variable by variable: another object in the place of `process.env` leaves the process's own environment changed.
    const nowhere = {
      METADATA_SERVER_DETECTION: "none",
      HOME: "/no/such/home",
      CLOUDSDK_CONFIG: "/none",
      GOOGLE_APPLICATION_CREDENTIALS: undefined,
    };
    const before = Object.keys(nowhere).map((name) => [name, process.env[name]] as const);
    set(Object.entries(nowhere));
    try {
      await using b = await bench(stored, { client: { useAuthWithCustomEndpoint: true } });
      await assert.rejects(b.store.create("x", bytes), rejectsWith("PERMISSION_DENIED"));
      assert.equal(b.server.requests.length, 0);
    } finally {
      set(before);
    }
  });

  for (const [title, answer, code] of [
    ["revoked", { status: 400, body: '{"error":"invalid_grant"}' }, "PERMISSION_DENIED"],
    ["forbidden", { status: 403 }, "PERMISSION_DENIED"],
    ["of a service that is overloaded", { status: 503 }, "UNAVAILABLE"],
    ["of a service that wants fewer requests", { status: 429 }, "UNAVAILABLE"],
    ["of a service whose connection is reset", "reset", "UNAVAILABLE"],
  ] as const) {
    it(`${title}: ${code}, and nothing is sent`, async () => {
      await using token = await ScriptedServer.start(answer);
      await using b = await bench(stored, { client: fetching(token) });
      await assert.rejects(b.store.create("x", bytes), rejectsWith(code));
      await assert.rejects(b.store.remove("x", v1), rejectsWith(code));
      assert.equal(b.server.requests.length, 0);
    });
  }

  it("of a service that is not there: UNAVAILABLE, and nothing is sent", async () => {
    const url = `http://127.0.0.1:${await closedPort()}`;
    await using b = await bench(stored, { client: fetching({ url }) });
    await assert.rejects(b.store.create("x", bytes), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 0);
  });

  it("and records are in no error", async () => {
    await using token = await ScriptedServer.start(tokenAnswer);
    await using b = await bench(["reset", "reset", gcsError(503, "backendError"), gcsError(403, "forbidden")], {
      client: fetching(token),
    });
    const secret = new TextEncoder().encode("a customer's secret");
    const seen: unknown[] = [];
    for (let n = 0; n < 3; n += 1) seen.push(await b.store.create("x", secret));
    seen.push(await b.store.create("x", secret).catch((error: unknown) => error));
    seen.push(
      await storeAt(`http://127.0.0.1:${await closedPort()}`)
        .create("x", secret)
        .catch((e: unknown) => e),
    );
    const text = inspect(seen, { depth: 20, showHidden: true, maxArrayLength: null, maxStringLength: null });
    assert.doesNotMatch(text, /fresh|refresh-secret|a customer's secret/);
    assert.doesNotMatch(text, /61 20 63 75 73 74 6f 6d/);
    assert.doesNotMatch(text, /97,\s+32,\s+99,\s+117/);
  });
});

describe("gcs: an abort", () => {
  it("before the call: UNAVAILABLE, nothing is sent", async () => {
    await using b = await bench(stored);
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(b.store.create("x", bytes, { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.replace("x", v1, bytes, { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.remove("x", v1, { signal }), rejectsWith("UNAVAILABLE"));
    await assert.rejects(b.store.read("x", { signal }), rejectsWith("UNAVAILABLE"));
    assert.equal(b.server.requests.length, 0);
  });

  it("while credentials are awaited: UNAVAILABLE at once, and nothing is sent when they come", async () => {
    const headers = Promise.withResolvers<Headers>();
    const authClient = new (class extends OAuth2Client {
      override getRequestHeaders(): Promise<Headers> {
        return headers.promise;
      }
    })();
    await using b = await bench(stored, { client: { authClient, useAuthWithCustomEndpoint: true } });
    const abort = new AbortController();
    const create = b.store.create("x", bytes, { signal: abort.signal });
    const read = b.store.read("x", { signal: abort.signal });
    setTimeout(() => abort.abort(new Error("enough")), 20);
    await assert.rejects(create, rejectsWith("UNAVAILABLE"));
    await assert.rejects(read, rejectsWith("UNAVAILABLE"));
    headers.resolve(new Headers());
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(b.server.requests.length, 0);
  });

  it("while the service is silent: at once, unknown for a write, UNAVAILABLE for a read", async () => {
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

  it("takes the connection with it, so that a hung service holds none", async () => {
    const closed = Promise.withResolvers<void>();
    const server = createServer((socket) => socket.on("close", () => closed.resolve()).resume());
    const store = storeAt(`http://127.0.0.1:${await listening(server)}`);
    assert.equal((await store.create("x", bytes, { signal: AbortSignal.timeout(50) })).kind, "unknown");
    await closed.promise;
    server.close();
  });

  it("while the answer's body is on its way: unknown for a write, UNAVAILABLE for a read", async () => {
    await using b = await bench({ ...found("x".repeat(100)), stopsAfterBytes: 10, thenSilent: true });
    assert.equal((await b.store.create("x", bytes, { signal: AbortSignal.timeout(100) })).kind, "unknown");
    await assert.rejects(b.store.read("x", { signal: AbortSignal.timeout(100) }), rejectsWith("UNAVAILABLE"));
  });

  it("after a 429 whose body does not come: contended, for that was said", async () => {
    await using b = await bench({ ...gcsError(429, "rateLimitExceeded"), stopsAfterBytes: 10, thenSilent: true });
    assert.equal((await b.store.create("x", bytes, { signal: AbortSignal.timeout(100) })).kind, "contended");
  });

  it("while a late answer is awaited: unknown, and the late answer does no harm", async () => {
    await using b = await bench({ ...stored, lateByMs: 100 });
    assert.equal((await b.store.create("x", bytes, { signal: AbortSignal.timeout(30) })).kind, "unknown");
    await new Promise((resolve) => setTimeout(resolve, 120));
    assert.equal((await b.store.create("x", bytes)).kind, "written");
  });

  it("by the client's own time limit: unknown for a write, UNAVAILABLE for a read, alone and beside a signal", async () => {
    await using b = await bench("silence", { client: { timeout: 50 } });
    for (const options of [{}, { signal: new AbortController().signal }]) {
      assert.equal((await b.store.create("x", bytes, options)).kind, "unknown");
      await assert.rejects(b.store.read("x", options), rejectsWith("UNAVAILABLE"));
    }
    assert.equal(b.server.requests.length, 4);
    const abort = new AbortController();
    const patient = new Storage({ apiEndpoint: b.server.url, timeout: 60_000 });
    const create = new GcsStore({ storage: patient, bucket: "bucket" }).create("x", bytes, { signal: abort.signal });
    setTimeout(() => abort.abort(), 20);
    assert.equal((await create).kind, "unknown");
  });

  it("of one call leaves the others alone", async () => {
    await using b = await bench({ ...stored, lateByMs: 100 });
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

async function fetchImplementation(): Promise<Response> {
  return new Response("x", { headers: { ...found("x").headers, "content-length": "2" } });
}

/** A failure after sending, with the details that Node and node-fetch give. */
function sortedSent(details: object): string {
  const error = Object.assign(new Error("no"), details);
  return sortWriteFailure({ error, stage: "sent", status: undefined }).kind;
}

const tokenAnswer = {
  status: 200,
  headers: { "content-type": "application/json" },
  body: '{"access_token":"fresh","expires_in":3600,"token_type":"Bearer"}',
};

/** A client that fetches its tokens from `url`. */
function fetching({ url }: { url: string }): StorageOptions {
  const authClient = new OAuth2Client({
    clientId: "id",
    clientSecret: "refresh-secret",
    endpoints: { oauth2TokenUrl: `${url}/token` },
    transporterOptions: { retryConfig: { retryDelay: 1, maxRetryDelay: 1 } },
  });
  authClient.setCredentials({ refresh_token: "refresh-secret" });
  return { authClient, useAuthWithCustomEndpoint: true };
}

function storeAt(apiEndpoint: string): GcsStore {
  return new GcsStore({ storage: new Storage({ apiEndpoint }), bucket: "bucket" });
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

function set(variables: readonly (readonly [string, string | undefined])[]): void {
  for (const [name, value] of variables) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
}
