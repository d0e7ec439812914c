import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import { Storage } from "@google-cloud/storage";
import type { ListedObject } from "@firstwrite/core";
import { GcsStore } from "@firstwrite/gcs";
import { openUrl } from "@firstwrite/gcs/url";
import { ScriptedServer, type Answer, type ReceivedRequest } from "@firstwrite/conformance/wire";
import { bench, bytes, crc32c, date, found, gcsError, modified, rejectsWith, stored, uploaded, v1 } from "./setup.ts";

const bodies: readonly [title: string, body: Uint8Array][] = [
  ["empty", new Uint8Array()],
  ["every byte there is", Uint8Array.from({ length: 256 }, (_, n) => n)],
  ["bytes that are no UTF-8", Uint8Array.of(0xff, 0xfe, 0xc3, 0x28, 0x00, 0x0d, 0x0a)],
  ["line breaks and what looks like the end of a part", new TextEncoder().encode("\r\n--x--\r\n\r\n--\r\n")],
  ["what is gzip already", gzipSync("x")],
  ["3 MiB of noise", randomBytes(3 * 1024 * 1024)],
  ["16 MiB, the most there can be", new Uint8Array(16 * 1024 * 1024).fill(7)],
];

describe("gcs: create, replace and read", () => {
  it("a write answered 200 is written, with the generation as given and the answer's Date", async () => {
    await using b = await bench(stored);
    const written = { kind: "written", version: v1, at: Date.parse(date) };
    assert.deepEqual(await b.store.create("x", bytes), written);
    assert.deepEqual(await b.store.replace("x", v1, bytes), written);
  });

  it("a generation beyond 2^53 is exact, and case 29: equal bytes have their own", async () => {
    for (const generation of ["9007199254740993", "9223372036854775807", "1796039922392442", "1"]) {
      await using b = await bench(({ method }) =>
        method === "GET"
          ? found("x", { "x-goog-generation": generation })
          : { ...stored, body: JSON.stringify({ generation }) },
      );
      const outcome = await b.store.create("x", bytes);
      assert.ok(outcome.kind === "written");
      assert.equal(outcome.version, generation);
      assert.equal((await b.store.read("x"))?.version, generation);
    }
  });

  it("a read is one GET: body, generation, Last-Modified and Date of one answer", async () => {
    await using b = await bench(found("body"));
    assert.deepEqual(await b.store.read("x"), {
      bytes: new TextEncoder().encode("body"),
      version: v1,
      modifiedAt: Date.parse(modified),
      readAt: Date.parse(date),
    });
    assert.equal(b.server.requests.length, 1);
  });

  it("a read goes by the path for downloads, so that it is not redirected there", async () => {
    await using b = await bench(found("body"));
    await b.store.read("a/b");
    const { url } = b.server.requests[0] ?? {};
    assert.equal(`${url?.pathname}${url?.search}`, "/download/storage/v1/b/bucket/o/a%2Fb?alt=media");
  });

  it("a write carries its checksum, and is kept from caches and from compression", async () => {
    await using b = await bench(stored);
    await b.store.create("x", bytes);
    const [request] = b.server.requests;
    assert.ok(request !== undefined);
    assert.deepEqual(uploaded(request).metadata, {
      contentType: "application/octet-stream",
      cacheControl: "no-store",
      crc32c: crc32c(bytes),
    });
  });

  it("checksums are the client's own to compute", async () => {
    await using b = await bench(
      ({ method }) => (method === "GET" ? found("x", { "x-goog-hash": "crc32c=AAAAAA==" }) : stored),
      {
        client: { crc32cGenerator },
      },
    );
    assert.equal((await b.store.create("x", bytes)).kind, "written");
    assert.equal((await b.store.read("x"))?.bytes.byteLength, 1);
  });

  for (const [title, body] of bodies) {
    it(`P4: bytes are exact, out and in: ${title}`, async () => {
      await using b = await bench(({ method }) => (method === "POST" ? stored : found(body)));
      assert.equal((await b.store.create("x", body)).kind, "written");
      const [request] = b.server.requests;
      assert.ok(request !== undefined && uploaded(request).media.equals(body));
      const record = await b.store.read("x");
      assert.equal(Object.getPrototypeOf(record?.bytes), Uint8Array.prototype);
      assert.ok(record !== undefined && Buffer.from(record.bytes).equals(body));
      assert.equal(record.bytes.buffer.byteLength, body.byteLength);
    });
  }

  it("P4: bytes changed after the call are not what is sent", async () => {
    await using b = await bench(stored);
    const mine = Uint8Array.from(bytes);
    const create = b.store.create("x", mine);
    mine.fill(0);
    await create;
    const [request] = b.server.requests;
    assert.ok(request !== undefined && uploaded(request).media.equals(bytes));
  });

  it("an empty record is read as one, and not as none", async () => {
    await using b = await bench(found(""));
    assert.equal((await b.store.read("x"))?.bytes.byteLength, 0);
  });

  it("no compressed answer is asked for", async () => {
    await using b = await bench(found("x"));
    await b.store.read("x");
    assert.equal(b.server.requests[0]?.headers["accept-encoding"], "identity");
  });

  it("a record that a proxy has compressed on the way arrives as it is", async () => {
    await using b = await bench({ ...found("x".repeat(100)), body: gzipSync("x".repeat(100)) });
    const { headers } = found("x".repeat(100));
    b.server.answers({
      status: 200,
      headers: { ...headers, "content-encoding": "gzip" },
      body: gzipSync("x".repeat(100)),
    });
    assert.equal((await b.store.read("x"))?.bytes.byteLength, 100);
  });

  it("an object that another writer has compressed is CORRUPT, whether the service or the client decompresses it", async () => {
    const compressed = gzipSync("x".repeat(100));
    const headers = { "x-goog-hash": `crc32c=${crc32c(compressed)}`, "x-goog-stored-content-encoding": "gzip" };
    for (const answer of [
      found("x".repeat(100), headers),
      { ...found(compressed, { ...headers, "content-encoding": "gzip" }) },
    ]) {
      await using b = await bench(answer);
      await assert.rejects(b.store.read("x"), rejectsWith("CORRUPT"));
    }
  });
});

describe("gcs: names", () => {
  it("prefix a/b keeps the record NAME at a/b/NAME", async () => {
    await using b = await bench(stored, { store: { prefix: "a/b" } });
    await b.store.create("scope/x.json", bytes);
    await b.store.replace("scope/x.json", v1, bytes);
    await b.store.remove("scope/x.json", v1);
    await b.store.read("scope/x.json").catch(() => undefined);
    assert.deepEqual(
      b.server.requests.map(nameOf),
      Array.from({ length: 4 }, () => "a/b/scope/x.json"),
    );
  });

  it("a name arrives as it is, whatever URLs, spaces and parts make of it", async () => {
    await using b = await bench(({ method }) => (method === "GET" ? found("x") : stored));
    const names = [
      "a b+c",
      "100%",
      "ä/漢字/🦊",
      "%2e%2e/x",
      "q?x=1&y#z",
      "'()*!~",
      'say "x"',
      "a=b;c,d@e:f$g",
      "%20",
      "a[0]\\b",
    ];
    for (const name of names) {
      await b.store.create(name, bytes);
      await b.store.read(name);
      await b.store.remove(name, v1);
    }
    assert.deepEqual(
      b.server.requests.map(nameOf),
      names.flatMap((name) => [name, name, name]),
    );
  });

  it("a name and its prefix fit the service's 1024 bytes together", async () => {
    await using b = await bench(stored, { store: { prefix: "é/b" } });
    assert.equal(b.store.traits.nameBytesMax, 1024 - 5);
    assert.equal((await b.store.create("x".repeat(1019), bytes)).kind, "written");
    await assert.rejects(b.store.create("x".repeat(1020), bytes), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(b.server.requests.length, 1);
  });

  it("names and records the store cannot take are INVALID_ARGUMENT and not sent", async () => {
    await using b = await bench(stored);
    const reserved = ".well-known/acme-challenge/x";
    for (const name of ["", "/x", "x/", "a//b", "a/../b", ".", "..", "\ud800", "a\u0000b", "a\rb", "a\nb", reserved]) {
      await assert.rejects(b.store.create(name, bytes), rejectsWith("INVALID_ARGUMENT"));
      await assert.rejects(b.store.replace(name, v1, bytes), rejectsWith("INVALID_ARGUMENT"));
      await assert.rejects(b.store.remove(name, v1), rejectsWith("INVALID_ARGUMENT"));
      await assert.rejects(b.store.read(name), rejectsWith("INVALID_ARGUMENT"));
    }
    await assert.rejects(b.store.create("x", new Uint8Array(16 * 1024 * 1024 + 1)), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(b.server.requests.length, 0);
    await using c = await bench(stored, { store: { prefix: "p" } });
    assert.equal((await c.store.create(reserved, bytes)).kind, "written", "it is no reserved name below a prefix");
    await using d = await bench(stored, { store: { prefix: ".well-known/acme-challenge" } });
    await assert.rejects(d.store.create("x", bytes), rejectsWith("INVALID_ARGUMENT"));
  });

  it("a prefix is held to the rules of names, and a bucket to those of buckets", () => {
    const storage = new Storage({ apiEndpoint: "http://127.0.0.1:1" });
    for (const prefix of ["/", "a/", "/a", "a//b", "..", "a\u0007", "x".repeat(1023)]) {
      assert.throws(() => new GcsStore({ storage, bucket: "bucket", prefix }), rejectsWith("INVALID_ARGUMENT"));
    }
    for (const bucket of ["", "..", "ab", "a/b", "a?b", "a b", "A-bucket", "-bucket", "bucket-", "x".repeat(223)]) {
      assert.throws(() => new GcsStore({ storage, bucket }), rejectsWith("INVALID_ARGUMENT"), bucket);
    }
    for (const bucket of ["abc", "my_bucket-1", "records.example.com"]) {
      assert.equal(new GcsStore({ storage, bucket, prefix: "" }).traits.nameBytesMax, 1024);
    }
  });

  it("traits can be set for a service that differs", () => {
    const storage = new Storage({ apiEndpoint: "http://127.0.0.1:1" });
    const { traits } = new GcsStore({ storage, bucket: "bucket", traits: { name: "hns", nameBytesMax: 512 } });
    assert.deepEqual(traits, {
      name: "hns",
      nameBytesMax: 512,
      recordBytesMax: 16 * 1024 * 1024,
      clockGranularityMs: 2000,
    });
  });
});

describe("gcs: list", () => {
  it("gives every page's names without the store's prefix, and when they were written", async () => {
    await using b = await bench([page(["a/b/s/1", "a/b/s/2"], "t1"), page(undefined, "t2"), page(["a/b/s/<3> & 4"])], {
      store: { prefix: "a/b" },
    });
    assert.deepEqual(
      await all(b.store.list("s/")),
      ["s/1", "s/2", "s/<3> & 4"].map((name) => ({ name, modifiedAt: Date.parse("2026-01-01T00:00:05.123Z") })),
    );
    assert.deepEqual(
      b.server.requests.map(({ url }) => [url.searchParams.get("prefix"), url.searchParams.get("pageToken")]),
      [
        ["a/b/s/", null],
        ["a/b/s/", "t1"],
        ["a/b/s/", "t2"],
      ],
    );
  });

  it("is empty where there is nothing", async () => {
    await using b = await bench(page(undefined));
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

  it("never ends early in silence: a page that cannot be read is UNSUPPORTED, a failed one an error", async () => {
    for (const [reply, code] of [
      [{ status: 200, body: "" }, "UNSUPPORTED"],
      [{ status: 200, body: "null" }, "UNSUPPORTED"],
      [{ status: 200, body: "[]" }, "UNSUPPORTED"],
      [{ status: 200, body: '{"items":{}}' }, "UNSUPPORTED"],
      [{ status: 200, body: '{"items":[{"name":"x"}]}' }, "UNSUPPORTED"],
      [{ status: 200, body: '{"items":[{"name":"x","updated":"yesterday"}]}' }, "UNSUPPORTED"],
      [{ status: 200, body: '{"items":[{"name":"x","updated":"2026-13-01T00:00:00Z"}]}' }, "UNSUPPORTED"],
      [{ status: 200, body: '{"items":[{"updated":"2026-01-01T00:00:05Z"}]}' }, "UNSUPPORTED"],
      [{ status: 200, body: '{"nextPageToken":""}' }, "UNSUPPORTED"],
      [{ status: 200, body: '{"nextPageToken":7}' }, "UNSUPPORTED"],
      [{ ...page(["1"]), stopsAfterBytes: 10 }, "UNAVAILABLE"],
      [gcsError(404, "notFound"), "INVALID_ARGUMENT"],
      [{ status: 404 }, "UNAVAILABLE"],
      [gcsError(403, "forbidden"), "PERMISSION_DENIED"],
      [gcsError(429, "rateLimitExceeded"), "UNAVAILABLE"],
      [gcsError(503, "backendError"), "UNAVAILABLE"],
      ["reset", "UNAVAILABLE"],
    ] as const) {
      await using b = await bench(reply);
      await assert.rejects(all(b.store.list("")), rejectsWith(code), JSON.stringify(reply));
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

describe("gcs: openUrl", () => {
  it("opens gs://bucket/prefix?endpoint=… without credentials", async () => {
    await using server = await ScriptedServer.start(stored);
    for (const slash of ["", "/"]) {
      const store = await openUrl(`gs://my_bucket/a/b?endpoint=${server.url}${slash}`);
      assert.equal((await store.create("x", bytes)).kind, "written");
      const request = server.requests.at(-1);
      assert.equal(request?.url.pathname, "/upload/storage/v1/b/my_bucket/o");
      assert.equal(request.url.searchParams.get("name"), "a/b/x");
      assert.equal(request.headers.authorization, undefined);
    }
  });

  it("opens gs://bucket at the service itself", async () => {
    assert.equal((await openUrl("gs://bucket")).traits.nameBytesMax, 1024);
  });

  it("takes no other option, no credentials and no endpoint with a path, and repeats none of them", async () => {
    for (const url of [
      "gs://bucket?region=secret",
      "gs://me:secret@bucket",
      "gs://bucket?endpoint=http://secret@127.0.0.1",
      "gs://bucket?endpoint=http://127.0.0.1/secret",
      "gs://bucket?endpoint=secret:1",
      "gs://",
      "gs://SECRET",
    ]) {
      await assert.rejects(openUrl(url), (error) => {
        rejectsWith("INVALID_ARGUMENT")(error);
        return error instanceof Error && !/secret/i.test(error.message);
      });
    }
  });
});

function crc32cGenerator() {
  return { update: () => undefined, validate: () => true, toString: () => "AAAAAA==" };
}

function nameOf({ url }: ReceivedRequest): string {
  return url.searchParams.get("name") ?? decodeURIComponent(url.pathname.replace(/^.*\/b\/bucket\/o\//, ""));
}

function page(names: readonly string[] | undefined, nextPageToken?: string): Answer {
  const items = names?.map((name) => ({ name, updated: "2026-01-01T00:00:05.123Z" }));
  return {
    status: 200,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ kind: "storage#objects", items, nextPageToken }),
  };
}

async function all(list: AsyncIterable<ListedObject>): Promise<ListedObject[]> {
  const listed: ListedObject[] = [];
  for await (const object of list) listed.push(object);
  return listed;
}
