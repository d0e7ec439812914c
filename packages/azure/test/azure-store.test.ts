import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";

import type { ContainerClient } from "@azure/storage-blob";
import { AzureStore } from "@firstwrite/azure";
import type { Answer } from "@firstwrite/conformance/wire";
import type { ListedObject } from "@firstwrite/core";

import {
  azureError,
  bench,
  blobOf,
  bytes,
  clientOf,
  date,
  found,
  modified,
  rejectsWith,
  removed,
  stored,
  v1,
} from "./setup.ts";

const bodies: readonly [title: string, body: Uint8Array][] = [
  ["empty", new Uint8Array()],
  ["every byte there is", Uint8Array.from({ length: 256 }, (_, n) => n)],
  ["bytes that are no UTF-8", Uint8Array.of(0xff, 0xfe, 0xc3, 0x28, 0x00, 0x0d, 0x0a)],
  ["text that ends like an Azure error", new TextEncoder().encode("<Error></Error>")],
  ["3 MiB of noise", randomBytes(3 * 1024 * 1024)],
  ["16 MiB, the most there can be", new Uint8Array(16 * 1024 * 1024).fill(7)],
];

describe("azure: create, replace, read and remove", () => {
  it("a write answered 201 is written, with the ETag as given and the answer's Date", async () => {
    await using b = await bench(stored);
    const written = { kind: "written", version: v1, at: Date.parse(date) };
    assert.deepEqual(await b.store.create("x", bytes), written);
    assert.deepEqual(await b.store.replace("x", v1, bytes), written);
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
    assert.equal(b.server.requests[0]?.method, "GET");
  });

  it("a removal answered 202 is removed", async () => {
    await using b = await bench(removed);
    assert.deepEqual(await b.store.remove("x", v1), { kind: "removed" });
    assert.equal(b.server.requests[0]?.method, "DELETE");
    assert.equal(b.server.requests[0]?.headers["x-ms-delete-snapshots"], undefined);
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

  it("P4: bytes changed after the call are not what is sent, and fit the checksum that is", async () => {
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

  it("a record is stored as bytes, whatever it is", async () => {
    await using b = await bench(stored);
    await b.store.create("x", bytes);
    assert.equal(b.server.requests[0]?.headers["x-ms-blob-content-type"], "application/octet-stream");
    assert.equal(b.server.requests[0]?.headers["x-ms-blob-content-encoding"], undefined);
  });
});

describe("azure: names", () => {
  it("prefix a/b keeps the record NAME at a/b/NAME", async () => {
    await using b = await bench(stored, { store: { prefix: "a/b" } });
    await b.store.create("scope/x.json", bytes);
    await b.store.replace("scope/x.json", v1, bytes);
    await b.store.read("scope/x.json").catch(() => undefined);
    await b.store.remove("scope/x.json", v1);
    assert.deepEqual(
      b.server.requests.map(blobOf),
      Array.from({ length: 4 }, () => "a/b/scope/x.json"),
    );
  });

  it("a name arrives as it is, whatever URLs, spaces and signatures make of it", async () => {
    await using b = await bench(stored);
    const names = ["a b+c", "100%", "ä/漢字/🦊", "%2e%2e/x", "q?x=1&y#z", "'()*!~", 'say "x"', "a=b;c,d@e:f$g", "%20"];
    for (const name of names) await b.store.create(name, bytes);
    assert.deepEqual(b.server.requests.map(blobOf), names);
  });

  it("a backslash and a dot at a segment's end arrive encoded, for Azure would make other names of them", async () => {
    await using b = await bench(stored, { store: { prefix: "p." } });
    for (const name of ["a\\b", "a.", "a./b", "a%2E"]) await b.store.create(name, bytes);
    assert.deepEqual(b.server.requests.map(blobOf), ["p%2E/a%5Cb", "p%2E/a%2E", "p%2E/a%2E/b", "p%2E/a%252E"]);
  });

  it("a name and its prefix fit Azure's 1,024 characters together, as they are encoded", async () => {
    await using b = await bench(stored, { store: { prefix: "é/b" } });
    assert.equal(b.store.traits.nameBytesMax, 1024 - 4);
    assert.equal((await b.store.create("x".repeat(1020), bytes)).kind, "written");
    await assert.rejects(b.store.create("x".repeat(1021), bytes), rejectsWith("INVALID_ARGUMENT"));
    await assert.rejects(b.store.create(`${"x".repeat(1019)}.`, bytes), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(b.server.requests.length, 1);
  });

  it("names and records the store cannot take are INVALID_ARGUMENT and not sent", async () => {
    await using b = await bench(stored);
    const names = [
      "",
      "/x",
      "x/",
      "a//b",
      "a/../b",
      ".",
      "\ud800",
      "a\u0000b",
      "a\ue000",
      "a\uffff",
      "x/".repeat(254) + "x",
    ];
    for (const name of names) {
      await assert.rejects(b.store.create(name, bytes), rejectsWith("INVALID_ARGUMENT"));
      await assert.rejects(b.store.replace(name, v1, bytes), rejectsWith("INVALID_ARGUMENT"));
      await assert.rejects(b.store.remove(name, v1), rejectsWith("INVALID_ARGUMENT"));
      await assert.rejects(b.store.read(name), rejectsWith("INVALID_ARGUMENT"));
    }
    await assert.rejects(b.store.create("x", new Uint8Array(16 * 1024 * 1024 + 1)), rejectsWith("INVALID_ARGUMENT"));
    assert.equal(b.server.requests.length, 0);
  });

  it("a prefix is held to the rules of names", () => {
    const container = clientOf("http://127.0.0.1:1");
    for (const prefix of [
      "/",
      "a/",
      "/a",
      "a//b",
      "..",
      "a\u0007",
      "a\ue000",
      "x".repeat(1023),
      `${"x".repeat(1020)}.`,
    ]) {
      assert.throws(() => new AzureStore({ container, prefix }), rejectsWith("INVALID_ARGUMENT"), prefix);
    }
    assert.equal(new AzureStore({ container, prefix: "" }).traits.nameBytesMax, 1024);
  });

  it("traits can be set for a service that differs from Azure", () => {
    const container = clientOf("http://127.0.0.1:1");
    const { traits } = new AzureStore({ container, traits: { name: "azurite", clockGranularityMs: 5000 } });
    assert.deepEqual(traits, {
      name: "azurite",
      nameBytesMax: 1024,
      recordBytesMax: 16 * 1024 * 1024,
      clockGranularityMs: 5000,
    });
  });

  it("a client whose inside is not what is known of the SDK is refused, and not used without the guard", () => {
    const container = clientOf("http://127.0.0.1:1");
    const strange: ContainerClient = Object.create(container, { pipeline: { value: {} } });
    assert.throws(() => new AzureStore({ container: strange }), rejectsWith("INVALID_ARGUMENT"));
  });
});

describe("azure: list", () => {
  it("gives every page's names without the store's prefix, and when they were written", async () => {
    await using b = await bench(
      [page(["a/b/s/1", "a/b/s/2"], "t1"), page([], "t2"), page(["a/b/s/&lt;3&gt; &amp; 4%2E", "a/b/s/%5C"])],
      { store: { prefix: "a/b" } },
    );
    assert.deepEqual(
      await all(b.store.list("s/")),
      ["s/1", "s/2", "s/<3> & 4.", "s/\\"].map((name) => ({ name, modifiedAt: Date.parse(modified) })),
    );
    assert.deepEqual(
      b.server.requests.map(({ url }) => [url.searchParams.get("prefix"), url.searchParams.get("marker")]),
      [
        ["a/b/s/", null],
        ["a/b/s/", "t1"],
        ["a/b/s/", "t2"],
      ],
    );
  });

  it("finds what begins with a prefix whose end is encoded here and not there", async () => {
    await using b = await bench(page(["a%2E", "a.b", "a", "ab"]));
    assert.deepEqual(
      (await all(b.store.list("a."))).map(({ name }) => name),
      ["a.", "a.b"],
    );
    assert.equal(b.server.requests[0]?.url.searchParams.get("prefix"), "a");
  });

  it("gives a name that XML cannot hold", async () => {
    await using b = await bench({
      ...page([]),
      body: page(["x"]).body?.toString().replace("<Name>x", '<Name Encoded="true">%EF%BF%BE') ?? "",
    });
    assert.deepEqual(
      (await all(b.store.list(""))).map(({ name }) => name),
      ["\ufffe"],
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

  it("never ends early in silence: a failed page is an error, and no second request", async () => {
    for (const [reply, code] of [
      [azureError(404, "ContainerNotFound"), "INVALID_ARGUMENT"],
      [azureError(404, "BlobNotFound"), "UNAVAILABLE"],
      [azureError(403, "AuthorizationFailure"), "PERMISSION_DENIED"],
      [azureError(503, "ServerBusy"), "UNAVAILABLE"],
      [{ ...page(["1"]), body: "<EnumerationResults><Blobs>" }, "UNAVAILABLE"],
      [{ ...page(["1"]), body: "" }, "UNAVAILABLE"],
      [{ ...page(["1"]), body: "<html>sign in</html>" }, "UNAVAILABLE"],
      [{ ...page(["1"]), stopsAfterBytes: 20 }, "UNAVAILABLE"],
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

function page(names: readonly string[], next = ""): Answer {
  const properties = `<Properties><Last-Modified>${modified}</Last-Modified><Etag>0x1</Etag></Properties>`;
  const blobs = names.map((name) => `<Blob><Name>${name}</Name>${properties}</Blob>`).join("");
  const body = `<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="container"><Blobs>${blobs}</Blobs><NextMarker>${next}</NextMarker></EnumerationResults>`;
  return { status: 200, headers: { "content-type": "application/xml", date }, body };
}

async function all(list: AsyncIterable<ListedObject>): Promise<ListedObject[]> {
  const listed: ListedObject[] = [];
  for await (const object of list) listed.push(object);
  return listed;
}
