import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { inspect } from "node:util";
import { IdempotencyStrategy, type StorageOptions } from "@google-cloud/storage";
import { toVersion } from "@firstwrite/core";
import { ScriptedServer } from "@firstwrite/conformance/wire";
import { OAuth2Client } from "google-auth-library";
import { bench, bytes, found, gcsError, stored, uploaded, v1, type Bench } from "./setup.ts";

const retryEverything = {
  retry: 5,
  noResponseRetries: 5,
  retryDelay: 1,
  httpMethodsToRetry: ["GET", "POST", "DELETE"],
};

const clients: readonly (readonly [title: string, options: () => StorageOptions])[] = [
  ["the SDK's default retries", () => ({})],
  ["maxRetries: 10", () => ({ retryOptions: { autoRetry: true, maxRetries: 10, retryDelayMultiplier: 1 } })],
  ["RetryAlways", () => ({ retryOptions: { idempotencyStrategy: IdempotencyStrategy.RetryAlways } })],
  ["a transport that retries everything", () => withTransport({ retry: true, retryConfig: retryEverything })],
  ["a transport that follows redirects", () => withTransport({ redirect: "follow", maxRedirects: 5 })],
  ["a token that the client would renew and send again with", () => withToken({ refresh_token: "r" })],
  ["a client that renews its token at every 401 and 403", () => withToken({ refresh_token: "r" }, true)],
];

describe("gcs: P1, one request for one call", () => {
  for (const [title, options] of clients) {
    it(`with ${title}: after a reset, a 5xx, a 429, a redirect and refused credentials`, async () => {
      for (const reply of [
        "reset",
        gcsError(500, "backendError"),
        gcsError(503, "backendError"),
        gcsError(429, "rateLimitExceeded"),
        gcsError(408, "uploadBrokenConnection"),
        gcsError(401, "authError"),
        gcsError(403, "forbidden"),
        ...[301, 302, 303, 307, 308].map((status) => ({ status, headers: { location: "/elsewhere" } })),
      ] as const) {
        await using b = await bench(reply, { client: options() });
        await settled(b.store.create("x", bytes));
        await settled(b.store.replace("x", v1, bytes));
        await settled(b.store.remove("x", v1));
        await settled(b.store.read("x"));
        await settled(b.store.list("").next());
        assert.equal(b.server.requests.length, 5, JSON.stringify(reply));
      }
    });
  }

  it("case 1: a create whose reply is lost is unknown, never refused, though the server has stored it", async () => {
    await using b = await bench((_, nth) => (nth === 1 ? "reset" : gcsError(412, "conditionNotMet")));
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 1);
  });

  it("case 4: a replace whose reply is lost is unknown, never refused", async () => {
    await using b = await bench((_, nth) => (nth === 1 ? "reset" : gcsError(412, "conditionNotMet")));
    assert.equal((await b.store.replace("x", v1, bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 1);
  });

  it("with an adapter of the user's that tries again: no second request, and the first answer counts", async () => {
    for (const [reply, outcome] of [
      ["reset", "unknown"],
      [gcsError(503, "backendError"), "unknown"],
      [gcsError(412, "conditionNotMet"), "refused"],
      [gcsError(409, "conflict"), "contended"],
      [stored, "written"],
    ] as const) {
      let tries = 0;
      const authClient = signedIn();
      authClient.transporter.defaults.adapter = async (options, standard) => {
        for (;;) {
          tries += 1;
          try {
            const response = await standard(options);
            if (tries === 3) return response;
          } catch (error) {
            if (tries === 3) throw error;
          }
        }
      };
      await using b = await bench([reply, stored], { client: { authClient, useAuthWithCustomEndpoint: true } });
      assert.equal((await b.store.create("x", bytes)).kind, outcome);
      assert.equal(tries, 3);
      assert.equal(b.server.requests.length, 1);
    }
  });

  it("with an interceptor of the user's that sends a failed request again: no second request", async () => {
    const authClient = signedIn();
    let tries = 0;
    authClient.transporter.interceptors.response.add({
      resolved: async (response) => {
        tries += 1;
        return response.status === 503 && tries < 3 ? authClient.transporter.request(response.config) : response;
      },
    });
    await using b = await bench([gcsError(503, "backendError"), stored], {
      client: { authClient, useAuthWithCustomEndpoint: true },
    });
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    assert.equal(tries, 3);
    assert.equal(b.server.requests.length, 1);
  });

  it("case 22: the condition of every write is the generation, in the query, and no ETag", async () => {
    await using b = await bench(stored);
    await b.store.create("x", bytes);
    await b.store.replace("x", toVersion("9223372036854775807"), bytes);
    await b.store.remove("x", toVersion("9007199254740993"));
    assert.deepEqual(
      b.server.requests.map(({ url, headers }) => [
        url.searchParams.getAll("ifGenerationMatch"),
        headers["if-match"],
        headers["if-none-match"],
      ]),
      [
        [["0"], undefined, undefined],
        [["9223372036854775807"], undefined, undefined],
        [["9007199254740993"], undefined, undefined],
      ],
    );
  });

  it("case 23, 24: a write is one upload in one request, however large, and no upload is begun", async () => {
    await using b = await bench(stored);
    await b.store.create("x", new Uint8Array(16 * 1024 * 1024));
    const [request] = b.server.requests;
    assert.equal(b.server.requests.length, 1);
    assert.equal(request?.url.searchParams.get("uploadType"), "multipart");
    assert.equal(request.headers["content-length"], `${request.body.byteLength}`);
    assert.equal(request.headers["transfer-encoding"], undefined);
  });

  it("case 24: the condition of a write is in no later one of the client's", async () => {
    await using b = await bench(stored);
    await b.store.create("x", bytes);
    await b.store.replace("x", v1, bytes);
    await b.storage.bucket("bucket").file("x").save("own", { resumable: false, validation: false });
    assert.equal(b.server.requests.at(-1)?.url.searchParams.has("ifGenerationMatch"), false);
  });

  it("case 45: remove sends its condition, and asks nothing first; some emulators take it and ignore it", async () => {
    await using b = await bench([{ status: 204 }, { status: 200, body: "null" }, gcsError(412, "conditionNotMet")]);
    assert.deepEqual(await b.store.remove("a/b", v1), { kind: "removed" });
    assert.deepEqual(await b.store.remove("a/b", v1), { kind: "removed" });
    assert.deepEqual(await b.store.remove("a/b", v1), { kind: "refused" });
    assert.deepEqual(
      b.server.requests.map(({ method, url }) => `${method} ${url.pathname}${url.search}`),
      Array.from({ length: 3 }, () => `DELETE /storage/v1/b/bucket/o/a%2Fb?ifGenerationMatch=${v1}`),
    );
  });

  it("the user's client is left as it was: its options, its transport, and its retries of its own calls", async () => {
    const authClient = signedIn();
    const retryOptions = { autoRetry: true, maxRetries: 1 };
    await using b = await bench([gcsError(503, "backendError")], {
      client: { authClient, useAuthWithCustomEndpoint: true, retryOptions },
    });
    const own = (): Promise<unknown> =>
      b.storage
        .bucket("bucket")
        .file("own")
        .save("x", {
          resumable: false,
          preconditionOpts: { ifGenerationMatch: 0 },
        });
    const once = await requestsOf(b, () => settled(own()));
    assert.equal(once, 2, "two attempts before the store was used");
    const before = stateOf(b);
    await settled(b.store.create("x", bytes));
    await settled(b.store.replace("x", v1, bytes));
    await settled(b.store.remove("x", v1));
    await settled(b.store.read("x"));
    await settled(b.store.list("").next());
    assert.equal(stateOf(b), before);
    assert.equal(await requestsOf(b, () => settled(own())), 2, "two attempts after it");
  });

  it("the client's user agent and its transport's own settings are kept", async () => {
    const authClient = signedIn();
    let sent = 0;
    authClient.transporter.defaults.adapter = (options, standard) => {
      sent += 1;
      return standard(options);
    };
    authClient.transporter.defaults.headers = new Headers({ "x-mine": "yes" });
    await using b = await bench(stored, {
      client: { authClient, useAuthWithCustomEndpoint: true, userAgent: "acme/1" },
    });
    await b.store.create("x", bytes);
    const headers = b.server.requests[0]?.headers;
    assert.match(String(headers?.["user-agent"]), /^acme\/1 /);
    assert.equal(headers?.["x-mine"], "yes");
    assert.equal(headers?.authorization, "Bearer t");
    assert.equal(sent, 1);
  });

  it("the proxy of the client's transport is used", async () => {
    await using proxy = await ScriptedServer.start(stored);
    const authClient = new OAuth2Client({ transporterOptions: { proxy: proxy.url } });
    authClient.setCredentials(token);
    await using b = await bench(stored, { client: { authClient, useAuthWithCustomEndpoint: true } });
    // The scripted server is no proxy, and knows no CONNECT: that the request never came to the service says enough.
    await settled(b.store.create("x", bytes, { signal: AbortSignal.timeout(500) }));
    assert.equal(b.server.requests.length, 0);
  });

  it("many calls at once on one client: one request each, and each its own answer", async () => {
    await using b = await bench((request) => {
      const n = Number(uploaded(request).media.toString());
      return n % 2 === 0
        ? { ...stored, body: JSON.stringify({ generation: `${1000 + n}` }), lateByMs: n % 7 }
        : gcsError(412, "conditionNotMet");
    });
    const outcomes = await Promise.all(
      Array.from({ length: 200 }, (_, n) => b.store.create(`n${n}`, new TextEncoder().encode(`${n}`))),
    );
    assert.equal(b.server.requests.length, 200);
    for (const [n, outcome] of outcomes.entries()) {
      assert.equal(outcome.kind, n % 2 === 0 ? "written" : "refused");
      if (outcome.kind === "written") assert.equal(outcome.version, `${1000 + n}`);
    }
  });

  it("a signal that is used for many calls keeps no listener", async () => {
    await using b = await bench(found("x"));
    const { signal } = new AbortController();
    for (let n = 0; n < 5; n += 1) await b.store.read("x", { signal });
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(getEventListeners(signal, "abort").length, 0);
  });
});

const token = { access_token: "t", expiry_date: Date.now() + 3_600_000 };

function signedIn(): OAuth2Client {
  const client = new OAuth2Client();
  client.setCredentials(token);
  return client;
}

function withTransport(transporterOptions: object): StorageOptions {
  const authClient = new OAuth2Client({ transporterOptions });
  authClient.setCredentials(token);
  return { authClient, useAuthWithCustomEndpoint: true };
}

/** A token without a time of expiry, which the client's own `request` renews and sends again with. */
function withToken(credentials: { refresh_token: string }, forceRefreshOnFailure = false): StorageOptions {
  const authClient = new (class extends OAuth2Client {
    protected override async refreshToken(): ReturnType<OAuth2Client["refreshTokenNoCache"]> {
      return { tokens: { access_token: "t2" }, res: null };
    }
  })({ forceRefreshOnFailure });
  authClient.setCredentials({ access_token: "t", ...credentials });
  return { authClient, useAuthWithCustomEndpoint: true };
}

function stateOf({ storage }: Bench): string {
  return inspect(storage, { depth: 12, showHidden: true, getters: false });
}

async function requestsOf({ server }: Bench, call: () => Promise<void>): Promise<number> {
  const before = server.requests.length;
  await call();
  return server.requests.length - before;
}

async function settled(call: Promise<unknown>): Promise<void> {
  await call.catch(() => undefined);
}
