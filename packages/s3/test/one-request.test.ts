import assert from "node:assert/strict";
import { GetObjectCommand, PutObjectCommand, type S3ClientConfig } from "@aws-sdk/client-s3";
import { toVersion } from "@firstwrite/core";
import { bench, bytes, found, rejectsWith, s3Error, stored, v1, type Bench } from "./setup.ts";

const clients: readonly [title: string, config: S3ClientConfig][] = [
  ["the SDK's default retries", {}],
  ["maxAttempts: 10", { maxAttempts: 10 }],
  ["adaptive retries", { retryMode: "adaptive", maxAttempts: 5 }],
  ["followRegionRedirects", { followRegionRedirects: true }],
  ["a middleware cache", { cacheMiddleware: true }],
  ["an Expect header for every body", { expectContinueHeader: true }],
];

describe("s3: P1, one request for one call", () => {
  for (const [title, config] of clients) {
    it(`with ${title}: after a reset, a 500, a throttling, a redirect and a clock skew`, async () => {
      for (const reply of [
        "reset",
        s3Error(500, "InternalError"),
        s3Error(503, "SlowDown"),
        s3Error(429, "TooManyRequests"),
        s3Error(400, "RequestTimeout"),
        s3Error(403, "RequestTimeTooSkewed"),
        { ...s3Error(301, "PermanentRedirect"), headers: { "x-amz-bucket-region": "eu-west-1" } },
        { ...s3Error(307, "TemporaryRedirect"), headers: { location: "/elsewhere" } },
      ] as const) {
        await using b = await bench(reply, { client: config });
        await settled(b.store.create("x", bytes));
        await settled(b.store.replace("x", v1, bytes));
        await settled(b.store.read("x"));
        assert.equal(b.server.requests.length, 3, JSON.stringify(reply));
      }
    });
  }

  it("case 1: a create whose reply is lost is unknown, never refused, though the server has stored it", async () => {
    await using b = await bench((_, nth) => (nth === 1 ? "reset" : s3Error(412, "PreconditionFailed")));
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 1);
  });

  for (const step of ["initialize", "build", "finalizeRequest", "deserialize"] as const) {
    it(`with a user's own retry in the ${step} step: no second request, and the first answer counts`, async () => {
      for (const [reply, outcome] of [
        ["reset", "unknown"],
        [s3Error(503, "SlowDown"), "unknown"],
        [s3Error(412, "PreconditionFailed"), "refused"],
        [stored, "written"],
        // The code of the first answer is kept too: without it a 409 says nothing.
        [s3Error(409, "ConditionalRequestConflict"), "contended"],
      ] as const) {
        await using b = await bench([reply, stored]);
        retryEverything(b, step);
        assert.equal((await b.store.create("x", bytes)).kind, outcome);
        assert.equal(b.server.requests.length, 1);
      }
    });
  }

  it("the condition is on the wire: If-None-Match: * for a create, the ETag as it was given for a replace", async () => {
    await using b = await bench(stored);
    await b.store.create("x", bytes);
    await b.store.replace("x", toVersion('"CRC32-abc="'), bytes);
    await b.store.replace("x", toVersion("bare-token"), bytes);
    assert.deepEqual(
      b.server.requests.map(({ headers }) => [headers["if-none-match"], headers["if-match"]]),
      [
        ["*", undefined],
        [undefined, '"CRC32-abc="'],
        [undefined, "bare-token"],
      ],
    );
  });

  it("case 26: with unquotedIfMatch the ETag is sent without its quotes, and still given with them", async () => {
    await using b = await bench(stored, { store: { unquotedIfMatch: true } });
    const outcome = await b.store.replace("x", v1, bytes);
    assert.ok(outcome.kind === "written" && outcome.version === v1);
    assert.equal(b.server.requests[0]?.headers["if-match"], "11111111111111111111111111111111");
  });

  it("a write that has lost its condition on the way is not sent", async () => {
    for (const header of ["if-none-match", "if-match"]) {
      await using b = await bench(stored);
      b.client.middlewareStack.add(without(header), { step: "finalizeRequest", priority: "low" });
      const write = header === "if-match" ? b.store.replace("x", v1, bytes) : b.store.create("x", bytes);
      await assert.rejects(write, rejectsWith("UNSUPPORTED"));
      assert.equal(b.server.requests.length, 0);
    }
  });

  it("case 49: checksums follow the client, and can be left out for the store alone", async () => {
    const checksums = /^x-amz-(sdk-)?checksum/;
    const sent = async (client: S3ClientConfig, store: "client" | "none"): Promise<string[][]> => {
      await using b = await bench(({ method }) => (method === "PUT" ? stored : found("x")), {
        client,
        store: { checksums: store },
      });
      await b.store.create("x", bytes);
      await b.store.read("x");
      return b.server.requests.map(({ headers }) => Object.keys(headers).filter((name) => checksums.test(name)));
    };
    assert.deepEqual(await sent({}, "client"), [
      ["x-amz-sdk-checksum-algorithm", "x-amz-checksum-crc32"],
      ["x-amz-checksum-mode"],
    ]);
    assert.deepEqual(await sent({}, "none"), [[], []]);
    const whenRequired = {
      requestChecksumCalculation: "WHEN_REQUIRED",
      responseChecksumValidation: "WHEN_REQUIRED",
    } as const;
    assert.deepEqual(await sent(whenRequired, "client"), [[], []]);
  });

  it("no write is sent in chunks with a trailer, which some services cannot read", async () => {
    await using b = await bench(stored);
    await b.store.create("x", bytes);
    const { headers } = b.server.requests[0] ?? {};
    assert.equal(headers?.["content-length"], `${bytes.byteLength}`);
    assert.equal(headers?.["content-encoding"], undefined);
    assert.equal(headers?.["transfer-encoding"], undefined);
  });

  it("the user's client is left as it was: its middleware, its config, and its retries of its own calls", async () => {
    await using b = await bench([s3Error(500, "InternalError")], { client: { cacheMiddleware: true } });
    const own = (): Promise<unknown> =>
      b.client.send(new PutObjectCommand({ Bucket: "bucket", Key: "own", Body: "x" }));
    const middleware = b.client.middlewareStack.identify();

    await assert.rejects(own());
    assert.equal(b.server.requests.length, 3, "three attempts before the store was used");
    const config = Object.keys(b.client.config);
    await settled(b.store.create("x", bytes));
    await settled(b.store.read("x"));
    assert.equal(b.server.requests.length, 5);
    await assert.rejects(own());
    assert.equal(b.server.requests.length, 8, "three attempts after it");
    await assert.rejects(b.client.send(new GetObjectCommand({ Bucket: "bucket", Key: "own" })));
    assert.equal(b.server.requests.length, 11);

    assert.deepEqual(b.client.middlewareStack.identify(), middleware);
    assert.deepEqual(Object.keys(b.client.config), config);
    assert.equal(await b.client.config.maxAttempts(), 3);
    const last = b.server.requests.findLast(({ method }) => method === "PUT");
    assert.equal(last?.headers["if-none-match"], undefined);
  });

  it("a redirect to another region is not even prepared, for that would set the client's region meanwhile", async () => {
    const redirect = { ...s3Error(301, "PermanentRedirect"), headers: { "x-amz-bucket-region": "eu-west-1" } };
    await using b = await bench(redirect, { client: { followRegionRedirects: true } });
    let prepared = 0;
    b.client.middlewareStack.add(
      (next) => (args) => {
        prepared += 1;
        return next(args);
      },
      { step: "build" },
    );
    await assert.rejects(b.store.create("x", bytes), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(prepared, 1);
  });

  it("many calls at once on one client: one request each, and each its own answer", async () => {
    await using b = await bench(({ url, headers, body }) =>
      Number(body.toString()) % 2 === 0 && headers["if-none-match"] === "*"
        ? {
            ...stored,
            headers: { ...stored.headers, etag: `"${url.pathname}"` },
            lateByMs: Number(body.toString()) % 7,
          }
        : s3Error(412, "PreconditionFailed"),
    );
    const outcomes = await Promise.all(
      Array.from({ length: 300 }, (_, n) => b.store.create(`n${n}`, new TextEncoder().encode(`${n}`))),
    );
    assert.equal(b.server.requests.length, 300);
    for (const [n, outcome] of outcomes.entries()) {
      assert.equal(outcome.kind, n % 2 === 0 ? "written" : "refused");
      if (outcome.kind === "written") assert.equal(outcome.version, `"/bucket/n${n}"`);
    }
  });

  it("close leaves the client open, for it is the caller's", async () => {
    await using b = await bench(stored);
    await b.store.close();
    assert.equal((await b.store.create("x", bytes)).kind, "written");
  });
});

function retryEverything({ client }: Bench, step: "initialize" | "build" | "finalizeRequest" | "deserialize"): void {
  switch (step) {
    case "initialize":
      return client.middlewareStack.add(carelessRetry, { step });
    case "build":
      return client.middlewareStack.add(carelessRetry, { step });
    case "finalizeRequest":
      return client.middlewareStack.add(carelessRetry, { step, priority: "low" });
    case "deserialize":
      return client.middlewareStack.add(carelessRetry, { step, priority: "low" });
  }
}

function without(header: string) {
  return <Args extends { request: unknown }, Result>(next: (args: Args) => Promise<Result>) =>
    (args: Args): Promise<Result> => {
      const { request } = args;
      if (
        typeof request !== "object" ||
        request === null ||
        !("headers" in request) ||
        typeof request.headers !== "object"
      )
        throw new Error("no headers");
      const headers = Object.fromEntries(Object.entries({ ...request.headers }).filter(([name]) => name !== header));
      return next({ ...args, request: { ...request, headers } });
    };
}

/** Three attempts, whatever came. */
function carelessRetry<Args extends object, Result extends object>(
  next: (args: Args) => Promise<Result>,
): (args: Args) => Promise<Result> {
  return async (args) => {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await next(args);
      } catch (error) {
        if (attempt === 3) throw error;
      }
    }
  };
}

async function settled(call: Promise<unknown>): Promise<void> {
  await call.catch(() => undefined);
}
