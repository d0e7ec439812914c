import assert from "node:assert/strict";

import {
  AnonymousCredential,
  BaseRequestPolicy,
  BlobServiceClient,
  ContainerClient,
  newPipeline,
  StorageRetryPolicyType,
  type RequestPolicy,
  type RequestPolicyFactory,
  type RequestPolicyOptions,
  type StoragePipelineOptions,
} from "@azure/storage-blob";
import { AzureStore } from "@firstwrite/azure";
import { ScriptedServer } from "@firstwrite/conformance/wire";
import { toVersion } from "@firstwrite/core";

import {
  azureError,
  bench,
  blobOf,
  bytes,
  clientOf,
  credential,
  ends,
  found,
  inBody,
  rejectsWith,
  removed,
  secureBench,
  settled,
  stored,
  v1,
} from "./setup.ts";

const fast = { retryDelayInMs: 1, maxRetryDelayInMs: 1 };
const pipelines: readonly [title: string, options: StoragePipelineOptions][] = [
  ["the SDK's default retries", {}],
  ["10 tries", { retryOptions: { ...fast, maxTries: 10 } }],
  ["fixed retries", { retryOptions: { ...fast, retryPolicyType: StorageRetryPolicyType.FIXED, maxTries: 3 } }],
  ["a secondary host", { retryOptions: { ...fast, secondaryHost: "127.0.0.2" } }],
  ["a time limit for each try", { retryOptions: { tryTimeoutInMs: 2000 } }],
];

describe("azure: P1, one request for one call", () => {
  for (const [title, pipeline] of pipelines) {
    it(`with ${title}: after a reset, a 500, a throttling, a redirect and a challenge`, async () => {
      for (const reply of [
        "reset",
        azureError(500, "InternalError"),
        azureError(500, "OperationTimedOut"),
        azureError(503, "ServerBusy"),
        { status: 429, headers: { "retry-after": "0" } },
        { status: 307, headers: { location: "/container/elsewhere" } },
        { status: 301, headers: { location: "/container/elsewhere" } },
        { status: 300, headers: { location: "/container/elsewhere" } },
        { status: 401, headers: { "www-authenticate": "Bearer authorization_uri=https://login.invalid/tenant" } },
      ] as const) {
        await using b = await bench(reply, { pipeline });
        await settled(b.store.create("x", bytes));
        await settled(b.store.replace("x", v1, bytes));
        await settled(b.store.remove("x", v1));
        await settled(b.store.read("x"));
        await settled(b.store.list("").next());
        assert.equal(b.server.requests.length, 5, JSON.stringify(reply));
      }
    });
  }

  it("case 3: a create whose reply is lost is unknown, never refused, though the server has stored it", async () => {
    await using b = await bench((_, nth) => (nth === 1 ? "reset" : azureError(409, "BlobAlreadyExists")));
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 1);
  });

  it("case 4: a replace whose reply is lost is unknown, never refused, though the server has stored it", async () => {
    await using b = await bench((_, nth) => (nth === 1 ? "reset" : azureError(412, "ConditionNotMet")));
    assert.equal((await b.store.replace("x", v1, bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 1);
  });

  it("case 5: a condition that was false is refused, whoever wrote the record that is there", async () => {
    await using b = await bench(({ method }) =>
      method === "PUT" ? azureError(409, "BlobAlreadyExists") : found("theirs"),
    );
    assert.equal((await b.store.create("x", bytes)).kind, "refused");
    assert.deepEqual((await b.store.read("x"))?.bytes, new TextEncoder().encode("theirs"));
  });

  it("case 19: a write is one Put Blob, however long the record: no blocks, and nothing in chunks", async () => {
    await using b = await bench(stored);
    const long = new Uint8Array(16 * 1024 * 1024).fill(7);
    assert.equal((await b.store.create("x", long)).kind, "written");
    assert.equal(b.server.requests.length, 1);
    const [request] = b.server.requests;
    assert.equal(request?.method, "PUT");
    assert.equal(request?.url.search, "");
    assert.equal(request?.headers["x-ms-blob-type"], "BlockBlob");
    assert.equal(request?.headers["content-length"], `${long.byteLength}`);
    assert.equal(request?.headers["transfer-encoding"], undefined);
  });

  it("the condition is on the wire: If-None-Match: * for a create, the ETag as it was given for the others", async () => {
    await using b = await bench(({ method }) => (method === "DELETE" ? removed : stored));
    await b.store.create("x", bytes);
    await b.store.replace("x", v1, bytes);
    await b.store.replace("x", toVersion("bare-token"), bytes);
    await b.store.remove("x", v1);
    assert.deepEqual(
      b.server.requests.map(({ headers }) => [headers["if-none-match"], headers["if-match"]]),
      [
        ["*", undefined],
        [undefined, v1],
        [undefined, "bare-token"],
        [undefined, v1],
      ],
    );
  });

  it("case 18: no write carries a lease ID, and one that got one on the way is not sent", async () => {
    await using b = await bench(stored);
    await b.store.create("x", bytes);
    assert.equal(b.server.requests[0]?.headers["x-ms-lease-id"], undefined);
    const addLease = policy((request, next) => {
      request.headers.set("x-ms-lease-id", "11111111-1111-1111-1111-111111111111");
      return next(request);
    });
    await using leased = await bench(stored, { factories: [addLease] });
    await assert.rejects(leased.store.create("x", bytes), rejectsWith("UNSUPPORTED"));
    assert.equal(leased.server.requests.length, 0);
  });

  it("a write that has lost its condition on the way is not sent", async () => {
    for (const header of ["if-none-match", "if-match"]) {
      const drop = policy((request, next) => {
        request.headers.remove(header);
        return next(request);
      });
      await using b = await bench(stored, { factories: [drop] });
      if (header === "if-match") {
        await assert.rejects(b.store.replace("x", v1, bytes), rejectsWith("UNSUPPORTED"));
        await assert.rejects(b.store.remove("x", v1), rejectsWith("UNSUPPORTED"));
      } else await assert.rejects(b.store.create("x", bytes), rejectsWith("UNSUPPORTED"));
      assert.equal(b.server.requests.length, 0);
    }
  });

  const careless: readonly [title: string, factory: RequestPolicyFactory][] = [
    ["of the request as it is", policy((request, next) => retry(() => next(request)))],
    ["of copies of the request", policy((request, next) => retry(() => next(request.clone())))],
    [
      "of requests under a signal of its own",
      policy((request, next) => {
        request.abortSignal = AbortSignal.timeout(5000);
        return retry(() => next(request.clone()));
      }),
    ],
    [
      "of requests under an ID of its own",
      policy((request, next) => {
        request.requestId = "correlation";
        return retry(() => next(request));
      }),
    ],
    ["in the place of the SDK's own retries", inPlaceOfRetries((request, next) => retry(() => next(request)))],
  ];
  for (const [title, factory] of careless) {
    it(`with a user's own retry ${title}: no second request, and the first answer counts`, async () => {
      for (const [reply, outcome] of [
        ["reset", "unknown"],
        [azureError(503, "ServerBusy"), "unknown"],
        [azureError(409, "BlobAlreadyExists"), "refused"],
        [azureError(412, "ConditionNotMet"), "refused"],
        [inBody(409, "BlobAlreadyExists"), "refused"],
        [azureError(404, "ContainerNotFound"), "INVALID_ARGUMENT"],
        [stored, "written"],
      ] as const) {
        await using b = await secureBench([reply, stored], { factories: [factory] });
        await ends(b.store.create("x", bytes), outcome);
        assert.equal(b.server.requests.length, 1);
      }
      await using b = await secureBench([azureError(503, "ServerBusy"), found("x")], { factories: [factory] });
      await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
      assert.equal(b.server.requests.length, 1);
    });
  }

  it("the user's policies and options are kept for the store's requests", async () => {
    const seen: string[] = [];
    const stamp = policy((request, next) => {
      seen.push(request.method);
      request.headers.set("x-stamp", "ours");
      return next(request);
    });
    const pipeline = { userAgentOptions: { userAgentPrefix: "acme/1" }, retryOptions: { tryTimeoutInMs: 7000 } };
    await using b = await bench(({ method }) => (method === "PUT" ? stored : found("x")), {
      pipeline,
      factories: [stamp],
    });
    await b.store.create("x", bytes);
    await b.store.read("x");
    assert.deepEqual(seen, ["PUT", "GET"]);
    for (const { headers, url } of b.server.requests) {
      assert.equal(headers["x-stamp"], "ours");
      assert.match(String(headers["user-agent"]), /^acme\/1 /);
      assert.equal(url.searchParams.get("timeout"), "7");
    }
  });

  it("a user's own HTTP client is used", async () => {
    let handled = 0;
    const { httpClient } = httpClientThat(() => (handled += 1));
    const store = new AzureStore({ container: clientOf("http://store.invalid", { pipeline: { httpClient } }) });
    assert.equal((await store.create("x", bytes)).kind, "written");
    assert.equal(handled, 1);
  });

  it("the user's client is left as it was: its pipeline, its options, and its retries of its own calls", async () => {
    const stamp = policy((request, next) => next(request));
    await using b = await bench(azureError(500, "InternalError"), {
      pipeline: { retryOptions: { ...fast, maxTries: 3 } },
      factories: [stamp],
    });
    const own = (): Promise<unknown> => b.container.getBlockBlobClient("own").upload("x", 1);
    const ownRead = (): Promise<unknown> => b.container.getBlobClient("own").download();

    await assert.rejects(own());
    assert.equal(b.server.requests.length, 3, "three tries before the store was used");
    const before = snapshot(b.container);
    await settled(b.store.create("x", bytes));
    await settled(b.store.remove("x", v1));
    await settled(b.store.read("x"));
    assert.equal(b.server.requests.length, 6);
    assert.deepEqual(snapshot(b.container), before);
    const again = new AzureStore({ container: b.container });
    assert.deepEqual(snapshot(b.container), before);
    await settled(again.create("x", bytes));
    assert.equal(b.server.requests.length, 7);

    await assert.rejects(own());
    assert.equal(b.server.requests.length, 10, "three tries after it");
    await assert.rejects(ownRead());
    assert.equal(b.server.requests.length, 13);
    assert.equal(b.server.requests.at(-4)?.headers["if-none-match"], undefined);
  });

  it("many calls at once on one client: one request each, and each its own answer", async () => {
    await using b = await bench((request) => {
      const n = Number(request.body.toString());
      return n % 2 === 0 && request.headers["if-none-match"] === "*"
        ? { ...stored, headers: { ...stored.headers, etag: `"${blobOf(request)}"` }, lateByMs: n % 7 }
        : azureError(409, "BlobAlreadyExists");
    });
    const outcomes = await Promise.all(
      Array.from({ length: 300 }, (_, n) => b.store.create(`n${n}`, new TextEncoder().encode(`${n}`))),
    );
    assert.equal(b.server.requests.length, 300);
    for (const [n, outcome] of outcomes.entries()) {
      assert.equal(outcome.kind, n % 2 === 0 ? "written" : "refused");
      if (outcome.kind === "written") assert.equal(outcome.version, `"n${n}"`);
    }
  });
});

describe("azure: credentials", () => {
  it("a connection string: the requests are signed", async () => {
    await using server = await ScriptedServer.start(stored);
    const text = `DefaultEndpointsProtocol=http;AccountName=account;AccountKey=c2VjcmV0;BlobEndpoint=${server.url}`;
    const container = BlobServiceClient.fromConnectionString(text).getContainerClient("container");
    const outcome = await new AzureStore({ container }).create("a/b", bytes);
    assert.equal(outcome.kind, "written");
    assert.match(String(server.requests[0]?.headers.authorization), /^SharedKey account:/);
    assert.equal(server.requests[0]?.url.pathname, "/container/a/b");
  });

  it("a SAS: it goes with each request, and the request has no other signature", async () => {
    await using server = await ScriptedServer.start(stored, found("x"), listing, removed);
    const store = new AzureStore({
      container: new ContainerClient(`${server.url}/container?sv=2025-01-01&sig=a%2Bb%3D`),
    });
    assert.equal((await store.create("a?b", bytes)).kind, "written");
    assert.ok(await store.read("a?b"));
    assert.equal((await store.list("").next()).done, true);
    assert.equal((await store.remove("a?b", v1)).kind, "removed");
    for (const { url, headers } of server.requests) {
      assert.equal(url.searchParams.get("sig"), "a+b=");
      assert.equal(url.searchParams.get("sv"), "2025-01-01");
      assert.equal(headers.authorization, undefined);
    }
    assert.equal(server.requests[0]?.url.pathname, "/container/a%3Fb");
    assert.equal(server.requests[2]?.url.searchParams.get("comp"), "list");
  });

  it("a pipeline of the older form, whose credential is one of its policies: the requests are signed", async () => {
    await using server = await ScriptedServer.start(stored);
    const pipeline = newPipeline(new AnonymousCredential());
    pipeline.factories.push(credential);
    Object.assign(pipeline, { _credential: undefined });
    const store = new AzureStore({ container: new ContainerClient(`${server.url}/container`, pipeline) });
    assert.equal((await store.create("x", bytes)).kind, "written");
    assert.match(String(server.requests[0]?.headers.authorization), /^SharedKey account:/);
  });
});

const listing = {
  status: 200,
  headers: { "content-type": "application/xml" },
  body: "<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>",
};

type Request = Parameters<BaseRequestPolicy["sendRequest"]>[0];
type Response = ReturnType<BaseRequestPolicy["sendRequest"]>;
type Step = (request: Request, next: (request: Request) => Response) => Response;

class StepPolicy extends BaseRequestPolicy {
  readonly #step: Step;

  constructor(next: RequestPolicy, options: RequestPolicyOptions, step: Step) {
    super(next, options);
    this.#step = step;
  }

  override sendRequest(request: Request): Response {
    return this.#step(request, (request) => this._nextPolicy.sendRequest(request));
  }
}

/** A policy of the user's own, as the SDK takes them. */
function policy(step: Step): RequestPolicyFactory {
  return {
    create(next, options) {
      return new StepPolicy(next, options, step);
    },
  };
}

/** By this name the SDK lets a policy come after its retries. */
function inPlaceOfRetries(step: Step): RequestPolicyFactory {
  class InjectorPolicyFactory {
    create = policy(step).create;
  }
  return new InjectorPolicyFactory();
}

/** Three tries, whatever came, unless it is a success. */
async function retry(send: () => Response): Response {
  for (let tries = 1; ; tries += 1) {
    try {
      const response = await send();
      if (response.status < 300 || tries === 3) return response;
    } catch (error) {
      if (tries === 3) throw error;
    }
  }
}

/** Stands in for a network: every write is stored. */
function httpClientThat(sees: () => void): Required<Pick<StoragePipelineOptions, "httpClient">> {
  return {
    httpClient: {
      async sendRequest(request) {
        sees();
        const headers = request.headers.clone();
        for (const name of headers.headerNames()) headers.remove(name);
        for (const [name, value] of Object.entries(stored.headers ?? {})) headers.set(name, value);
        return { request, status: 201, headers, bodyAsText: "" };
      },
    },
  };
}

/** All of a client that a program could see changed: what is in its pipeline, and the order of its policies. */
function snapshot(container: ContainerClient): unknown {
  const inner: unknown = Reflect.get(container, "pipeline");
  assert.ok(typeof inner === "object" && inner !== null);
  const core: unknown = Reflect.get(inner, "_corePipeline");
  assert.ok(typeof core === "object" && core !== null);
  const policies: unknown = Reflect.get(core, "getOrderedPolicies").call(core);
  assert.ok(Array.isArray(policies));
  const options: unknown = Reflect.get(inner, "options");
  return {
    url: container.url,
    credential: container.credential,
    factories: Object.values({ ...Reflect.get(inner, "factories") }),
    options: structuredClone(options),
    policies: policies.map((policy: { name: string }) => policy.name),
  };
}
