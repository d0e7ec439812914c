import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { toVersion, type ListedObject } from "@firstwrite/core";
import { S3Store } from "@firstwrite/s3";
import type { Answer, ReceivedRequest, Reply } from "@firstwrite/conformance/wire";
import { bench, bytes, clientOf, date, found, modified, rejectsWith, s3Error, stored, v1 } from "./setup.ts";

const bodies: readonly [title: string, body: Uint8Array][] = [
  ["empty", new Uint8Array()],
  ["every byte there is", Uint8Array.from({ length: 256 }, (_, n) => n)],
  ["bytes that are no UTF-8", Uint8Array.of(0xff, 0xfe, 0xc3, 0x28, 0x00, 0x0d, 0x0a)],
  ["text that ends like an S3 error", new TextEncoder().encode("<Error></Error>")],
  ["3 MiB of noise", randomBytes(3 * 1024 * 1024)],
  ["16 MiB, the most there can be", new Uint8Array(16 * 1024 * 1024).fill(7)],
];

describe("s3: create, replace and read", () => {
  it("a write answered 200 is written, with the ETag as given and the answer's Date", async () => {
    await using b = await bench(stored);
    const written = { kind: "written", version: v1, at: Date.parse(date) };
    assert.deepEqual(await b.store.create("x", bytes), written);
    assert.deepEqual(await b.store.replace("x", v1, bytes), written);
  });

  it("case 32: an ETag is opaque: no MD5 is computed or asked for", async () => {
    for (const etag of ['"CRC32-9z2Xaw=="', '"d41d8cd98f00b204e9800998ecf8427e-2"', "unquoted"]) {
      await using b = await bench({ ...stored, headers: { date, etag } });
      const outcome = await b.store.create("x", bytes);
      assert.ok(outcome.kind === "written");
      assert.equal(outcome.version, etag);
    }
  });

  it("a read is one GET: body, ETag, Last-Modified and Date of one answer", async () => {
    await using b = await bench(found("body"));
    assert.deepEqual(await b.store.read("x"), {
      bytes: new TextEncoder().encode("body"),
      version: v1,
      modifiedAt: Date.parse(modified),
      readAt: Date.parse(date),
    });
    assert.equal(b.server.requests.length, 1);
  });

  it("case 38: a delete marker is no record", async () => {
    await using b = await bench({ ...s3Error(404, "NoSuchKey"), headers: { "x-amz-delete-marker": "true" } });
    assert.equal(await b.store.read("x"), undefined);
    assert.equal((await b.store.replace("x", v1, bytes)).kind, "refused");
  });

  for (const [title, body] of bodies) {
    it(`P4: bytes are exact, out and in: ${title}`, async () => {
      await using b = await bench(({ method }) => (method === "PUT" ? stored : found(body)));
      assert.equal((await b.store.create("x", body)).kind, "written");
      assert.ok(b.server.requests[0]?.body.equals(body));
      const record = await b.store.read("x");
      assert.equal(Object.getPrototypeOf(record?.bytes), Uint8Array.prototype);
      assert.ok(record !== undefined && Buffer.from(record.bytes).equals(body));
    });
  }

  it("P4: bytes changed after the call are not what is sent", async () => {
    await using b = await bench(stored);
    const mine = Uint8Array.from(bytes);
    const create = b.store.create("x", mine);
    mine.fill(0);
    await create;
    assert.ok(b.server.requests[0]?.body.equals(bytes));
  });

  it("an empty record is read as one, and not as none", async () => {
    await using b = await bench(found(""));
    assert.equal((await b.store.read("x"))?.bytes.byteLength, 0);
  });
});

describe("s3: names", () => {
  it("prefix a/b keeps the record NAME at a/b/NAME", async () => {
    await using b = await bench(stored, { store: { prefix: "a/b" } });
    await b.store.create("scope/x.json", bytes);
    await b.store.replace("scope/x.json", v1, bytes);
    await b.store.read("scope/x.json").catch(() => undefined);
    assert.deepEqual(
      b.server.requests.map(keyOf),
      Array.from({ length: 3 }, () => "a/b/scope/x.json"),
    );
  });

  it("a name arrives as it is, whatever URLs, spaces and signatures make of it", async () => {
    await using b = await bench(stored);
    const names = ["a b+c", "100%", "ä/漢字/🦊", "%2e%2e/x", "q?x=1&y#z", "'()*!~", 'say "x"', "a=b;c,d@e:f$g", "%20"];
    for (const name of names) await b.store.create(name, bytes);
    assert.deepEqual(b.server.requests.map(keyOf), names);
  });

  it("a name and its prefix fit S3's 1024 bytes together", async () => {
    await using b = await bench(stored, { store: { prefix: "é/b" } });
    assert.equal(b.store.traits.nameBytesMax, 1024 - 5);
    assert.equal((await b.store.create("x".repeat(1019), bytes)).kind, "written");
    await assert.rejects(b.store.create("x".repeat(1020), bytes), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(b.server.requests.length, 1);
  });

  it("names and records the store cannot take are INVALID_ARGUMENT and not sent", async () => {
    await using b = await bench(stored);
    for (const name of ["", "/x", "x/", "a//b", "a/../b", ".", "\ud800", "a\u0000b"]) {
      await assert.rejects(b.store.create(name, bytes), rejectsWith("INVALID_ARGUMENT"));
      await assert.rejects(b.store.replace(name, v1, bytes), rejectsWith("INVALID_ARGUMENT"));
      await assert.rejects(b.store.read(name), rejectsWith("INVALID_ARGUMENT"));
    }
    await assert.rejects(b.store.create("x", new Uint8Array(16 * 1024 * 1024 + 1)), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(b.server.requests.length, 0);
  });

  it("a prefix is held to the rules of names, and a bucket has a name", () => {
    const client = clientOf("http://127.0.0.1:1");
    for (const prefix of ["/", "a/", "/a", "a//b", "..", "a\u0007", "x".repeat(1023)]) {
      assert.throws(() => new S3Store({ client, bucket: "bucket", prefix }), rejectsWith("INVALID_ARGUMENT"));
    }
    assert.throws(() => new S3Store({ client, bucket: "" }), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(new S3Store({ client, bucket: "bucket", prefix: "" }).traits.nameBytesMax, 1024);
  });

  it("traits can be set for a service that differs from S3", () => {
    const client = clientOf("http://127.0.0.1:1");
    const { traits } = new S3Store({ client, bucket: "b", traits: { name: "r2", clockGranularityMs: 5000 } });
    assert.deepEqual(traits, {
      name: "r2",
      nameBytesMax: 1024,
      recordBytesMax: 16 * 1024 * 1024,
      clockGranularityMs: 5000,
    });
  });
});

describe("s3: list", () => {
  it("gives every page's names without the store's prefix, and when they were written", async () => {
    await using b = await bench(
      [page(["a/b/s/1", "a/b/s/2"], "t1"), page([], "t2"), page(["a/b/s/&lt;3&gt; &amp; 4"])],
      {
        store: { prefix: "a/b" },
      },
    );
    const listed = await all(b.store.list("s/"));
    assert.deepEqual(
      listed,
      ["s/1", "s/2", "s/<3> & 4"].map((name) => ({ name, modifiedAt: Date.parse("2026-01-01T00:00:05Z") })),
    );
    assert.deepEqual(
      b.server.requests.map(({ url }) => [url.searchParams.get("prefix"), url.searchParams.get("continuation-token")]),
      [
        ["a/b/s/", null],
        ["a/b/s/", "t1"],
        ["a/b/s/", "t2"],
      ],
    );
  });

  it("is empty where there is nothing", async () => {
    await using b = await bench(page([]));
    assert.deepEqual(await all(b.store.list("")), []);
  });

  it("asks for no page that is not wanted", async () => {
    await using b = await bench(page(["1", "2"], "t"));
    for await (const { name } of b.store.list("")) {
      assert.equal(name, "1");
      break;
    }
    assert.equal(b.server.requests.length, 1);
  });

  it("never ends early in silence: a cut list without a way on is UNSUPPORTED, a failed page an error", async () => {
    for (const [reply, code] of [
      [page(["1"], undefined, true), "UNSUPPORTED"],
      [s3Error(404, "NoSuchBucket"), "INVALID_ARGUMENT"],
      [s3Error(404, "NoSuchKey"), "UNAVAILABLE"],
      [s3Error(403, "AccessDenied"), "PERMISSION_DENIED"],
      [s3Error(503, "SlowDown"), "UNAVAILABLE"],
      ["reset", "UNAVAILABLE"],
    ] as const) {
      await using b = await bench(reply);
      await assert.rejects(all(b.store.list("")), rejectsWith(code));
      assert.equal(b.server.requests.length, 1);
    }
  });

  it("stops at an abort", async () => {
    await using b = await bench([page(["1"], "t"), "silence"]);
    const abort = new AbortController();
    const list = b.store.list("", { signal: abort.signal });
    assert.equal((await list.next()).done, false);
    const next = list.next();
    await b.server.received(2);
    abort.abort();
    await assert.rejects(next, rejectsWith("UNAVAILABLE"));
  });
});

function keyOf({ url }: ReceivedRequest): string {
  return decodeURIComponent(url.pathname.slice("/bucket/".length));
}

function page(names: readonly string[], next?: string, truncated = next !== undefined): Answer {
  const token = next === undefined ? "" : `<NextContinuationToken>${next}</NextContinuationToken>`;
  const time = "<LastModified>2026-01-01T00:00:05.000Z</LastModified>";
  const contents = names.map((name) => `<Contents><Key>${name}</Key>${time}<Size>1</Size></Contents>`).join("");
  const body = `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>${truncated}</IsTruncated>${token}${contents}</ListBucketResult>`;
  return { status: 200, headers: { "content-type": "application/xml" }, body };
}

async function all(list: AsyncIterable<ListedObject>): Promise<ListedObject[]> {
  const listed: ListedObject[] = [];
  for await (const object of list) listed.push(object);
  return listed;
}

describe("s3: remove", () => {
  it("is one DELETE with If-Match", async () => {
    await using b = await bench({ status: 204 });
    assert.deepEqual(await b.store.remove("x", v1), { kind: "removed" });
    const [request, ...more] = b.server.requests;
    assert.deepEqual([request?.method, request?.headers["if-match"], more.length], ["DELETE", v1, 0]);
  });

  const outcomes: [string, Reply, string][] = [
    ["412", s3Error(412, "PreconditionFailed"), "refused"],
    ["404 NoSuchKey", s3Error(404, "NoSuchKey"), "refused"],
    ["409 ConditionalRequestConflict", s3Error(409, "ConditionalRequestConflict"), "contended"],
    ["500", s3Error(500, "InternalError"), "unknown"],
    ["a reset", "reset", "unknown"],
  ];
  for (const [title, reply, kind] of outcomes) {
    it(`answered ${title}: ${kind}, after one request`, async () => {
      await using b = await bench(reply);
      assert.equal((await b.store.remove("x", v1)).kind, kind);
      assert.equal(b.server.requests.length, 1);
    });
  }

  it("is refused before anything is sent for what is no version, and told apart where access is denied", async () => {
    await using b = await bench(s3Error(403, "AccessDenied"));
    for (const etag of ["*", '"a", "b"', 'W/"a"']) {
      await assert.rejects(b.store.remove("x", toVersion(etag)), rejectsWith("INVALID_ARGUMENT"));
    }
    assert.equal(b.server.requests.length, 0);
    await assert.rejects(b.store.remove("x", v1), rejectsWith("PERMISSION_DENIED"));
  });
});
