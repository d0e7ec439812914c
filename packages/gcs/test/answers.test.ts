import assert from "node:assert/strict";
import { toVersion, type RemoveOutcome, type StoreErrorCode, type WriteOutcome } from "@firstwrite/core";
import type { Reply } from "@firstwrite/conformance/wire";
import { bench, bytes, date, found, gcsError, rejectsWith, stored, v1 } from "./setup.ts";

type Sorted = WriteOutcome["kind"] | StoreErrorCode;

const html: Reply = { status: 503, headers: { "content-type": "text/html" }, body: "<html><p>Bad gateway" };

/** Each answer, and what it means for a create, a replace, a remove and a read. */
const answers: readonly (readonly [
  title: string,
  reply: Reply,
  create: Sorted,
  replace: Sorted,
  remove: Sorted,
  read: Sorted | "missing",
])[] = [
  ["412 conditionNotMet", gcsError(412, "conditionNotMet"), "refused", "refused", "refused", "UNAVAILABLE"],
  ["412 without a body", { status: 412 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["412 with a page of a proxy", { ...html, status: 412 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  every("412 orgPolicyConstraintFailed", gcsError(412, "orgPolicyConstraintFailed"), "PERMISSION_DENIED"),
  ["412 of a reason nobody knows", gcsError(412, "somethingElse"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["304", { status: 304 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["404 notFound", gcsError(404, "notFound"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", "refused", "missing"],
  [
    "404 as plain text, as media has it",
    { status: 404, body: "Not Found" },
    "unknown",
    "unknown",
    "unknown",
    "missing",
  ],
  every("401 authError", gcsError(401, "authError"), "PERMISSION_DENIED"),
  every("401 without a body", { status: 401 }, "PERMISSION_DENIED"),
  every("403 forbidden", gcsError(403, "forbidden"), "PERMISSION_DENIED"),
  every("403 with a page of a proxy", { ...html, status: 403 }, "PERMISSION_DENIED"),
  every("403 retentionPolicyNotMet", gcsError(403, "retentionPolicyNotMet"), "PERMISSION_DENIED"),
  every("403 objectUnderActiveHold", gcsError(403, "objectUnderActiveHold"), "PERMISSION_DENIED"),
  every("403 rateLimitExceeded", gcsError(403, "rateLimitExceeded"), "UNAVAILABLE"),
  every("403 userRateLimitExceeded", gcsError(403, "userRateLimitExceeded"), "UNAVAILABLE"),
  [
    "case 20: 429 rateLimitExceeded",
    gcsError(429, "rateLimitExceeded"),
    "contended",
    "contended",
    "contended",
    "UNAVAILABLE",
  ],
  ["case 20: 429 without a body", { status: 429 }, "contended", "contended", "contended", "UNAVAILABLE"],
  ["409 conflict", gcsError(409, "conflict"), "contended", "contended", "contended", "UNAVAILABLE"],
  ["409 of a reason nobody knows", gcsError(409, "somethingElse"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["409 without a body", { status: 409 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  every("400 invalid", gcsError(400, "invalid"), "INVALID_ARGUMENT"),
  every("400 invalidArgument", gcsError(400, "invalidArgument"), "INVALID_ARGUMENT"),
  every("400 invalidParameter", gcsError(400, "invalidParameter"), "INVALID_ARGUMENT"),
  every("400 required", gcsError(400, "required"), "INVALID_ARGUMENT"),
  every("400 badRequest", gcsError(400, "badRequest"), "INVALID_ARGUMENT"),
  every("400 userProjectMissing", gcsError(400, "userProjectMissing"), "INVALID_ARGUMENT"),
  every("400 userProjectInvalid", gcsError(400, "userProjectInvalid"), "INVALID_ARGUMENT"),
  every("400 cloudKmsBadKey", gcsError(400, "cloudKmsBadKey"), "PERMISSION_DENIED"),
  every("400 cloudKmsDisabledKey", gcsError(400, "cloudKmsDisabledKey"), "PERMISSION_DENIED"),
  every("400 cloudKmsDecryptionKeyNotFound", gcsError(400, "cloudKmsDecryptionKeyNotFound"), "PERMISSION_DENIED"),
  every("400 cloudKmsEncryptionKeyNotFound", gcsError(400, "cloudKmsEncryptionKeyNotFound"), "PERMISSION_DENIED"),
  every("400 cloudKmsKeyLocationNotAllowed", gcsError(400, "cloudKmsKeyLocationNotAllowed"), "PERMISSION_DENIED"),
  every(
    "400 resourceIsEncryptedWithCustomerEncryptionKey",
    gcsError(400, "resourceIsEncryptedWithCustomerEncryptionKey"),
    "PERMISSION_DENIED",
  ),
  every("400 turnedDown", gcsError(400, "turnedDown"), "UNSUPPORTED"),
  every("400 wrongUrlForUpload", gcsError(400, "wrongUrlForUpload"), "UNSUPPORTED"),
  every("400 parseError", gcsError(400, "parseError"), "UNSUPPORTED"),
  ["400 of a reason nobody knows", gcsError(400, "somethingElse"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["400 without a body", { status: 400 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  every("405 methodNotAllowed", gcsError(405, "methodNotAllowed"), "UNSUPPORTED"),
  [
    "408 uploadBrokenConnection",
    gcsError(408, "uploadBrokenConnection"),
    "unknown",
    "unknown",
    "unknown",
    "UNAVAILABLE",
  ],
  ["410", { status: 410 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  every("411", { status: 411 }, "UNSUPPORTED"),
  every("413 uploadTooLarge", gcsError(413, "uploadTooLarge"), "INVALID_ARGUMENT"),
  every("413 with a page of a proxy", { ...html, status: 413 }, "INVALID_ARGUMENT"),
  every("301 to another address", { status: 301, headers: { location: "/elsewhere" } }, "INVALID_ARGUMENT"),
  every("307 temporaryRedirect", redirect(307, "temporaryRedirect"), "UNAVAILABLE"),
  ["302 found", redirect(302, "found"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["303 mediaDownloadRedirect", redirect(303, "mediaDownloadRedirect"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["308 of an upload in several requests", { status: 308 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["500 backendError", gcsError(500, "backendError"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["case 10: 500 internalError", gcsError(500, "internalError"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  every("case 34: 501", { status: 501 }, "UNSUPPORTED"),
  ["502 with a page of a proxy", { ...html, status: 502 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["503 backendError", gcsError(503, "backendError"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["503 with a page of a proxy", html, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["504 without a body", { status: 504 }, "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["500 that says conditionNotMet", gcsError(500, "conditionNotMet"), "unknown", "unknown", "unknown", "UNAVAILABLE"],
  ["a connection reset after the request was read", "reset", "unknown", "unknown", "unknown", "UNAVAILABLE"],
  [
    "412 whose body stops early",
    { ...gcsError(412, "conditionNotMet"), stopsAfterBytes: 20 },
    "unknown",
    "unknown",
    "unknown",
    "UNAVAILABLE",
  ],
  [
    "429 whose body stops early",
    { ...gcsError(429, "rateLimitExceeded"), stopsAfterBytes: 20 },
    "contended",
    "contended",
    "contended",
    "UNAVAILABLE",
  ],
  every("403 whose body stops early", { ...gcsError(403, "forbidden"), stopsAfterBytes: 20 }, "PERMISSION_DENIED"),
  [
    "case 7: 404 whose body stops early",
    { ...gcsError(404, "notFound"), stopsAfterBytes: 20 },
    "unknown",
    "unknown",
    "unknown",
    "UNAVAILABLE",
  ],
];

describe("gcs: what each answer means", () => {
  for (const [title, reply, create, replace, remove, read] of answers) {
    it(`${title}: create ${create}, replace ${replace}, remove ${remove}, read ${read}; one request each`, async () => {
      await using b = await bench(reply);
      await ends(b.store.create("x", bytes), create);
      await ends(b.store.replace("x", v1, bytes), replace);
      await ends(b.store.remove("x", v1), remove);
      if (read === "missing") assert.equal(await b.store.read("x"), undefined);
      else await assert.rejects(b.store.read("x"), rejectsWith(code(read)));
      assert.deepEqual(
        b.server.requests.map(({ method }) => method),
        ["POST", "POST", "DELETE", "GET"],
      );
    });
  }

  it("case 31: a write answered 200 without a usable generation is unknown, for its bytes are stored", async () => {
    for (const generation of [undefined, "", "0", "-1", "1e3", " 1", "01", "abc", 1796039922392442, null, ["1"]]) {
      await using b = await bench({ ...stored, body: JSON.stringify({ generation }) });
      const outcome = await b.store.create("x", bytes);
      assert.ok(outcome.kind === "unknown", `generation ${String(generation)}`);
      assert.ok(rejectsWith("UNSUPPORTED")(outcome.cause));
    }
  });

  it("a write answered 200 whose body is unreadable, no object, an error or stops early is unknown", async () => {
    for (const answer of [
      { ...stored, body: "" },
      { ...stored, body: "null" },
      { ...stored, body: "[]" },
      { ...stored, body: "<html>" },
      { ...gcsError(412, "conditionNotMet"), status: 200 },
      { ...stored, stopsAfterBytes: 10 },
    ]) {
      await using b = await bench(answer);
      assert.equal((await b.store.create("x", bytes)).kind, "unknown", String(answer.body));
      assert.equal((await b.store.replace("x", v1, bytes)).kind, "unknown", String(answer.body));
      assert.equal(b.server.requests.length, 2);
    }
  });

  it("a write answered 200 without a Date, or with one that is no time, is unknown", async () => {
    const { date: _, ...headers } = stored.headers ?? {};
    for (const answer of [
      { ...stored, headers, withoutDate: true },
      { ...stored, headers: { date: "yesterday" } },
      { ...stored, headers: { date: "2026-01-01 00:00:00" } },
    ]) {
      await using b = await bench(answer);
      assert.equal((await b.store.replace("x", v1, bytes)).kind, "unknown");
    }
  });

  it("a write answered with another checksum than that of its bytes is unknown, and says CORRUPT", async () => {
    await using b = await bench({ ...stored, body: JSON.stringify({ generation: v1, crc32c: "AAAAAA==" }) });
    const outcome = await b.store.create("x", bytes);
    assert.ok(outcome.kind === "unknown" && rejectsWith("CORRUPT")(outcome.cause));
    assert.equal((await b.store.create("x", new Uint8Array())).kind, "written");
  });

  it("a write answered by a success the service does not give is unknown, a read UNAVAILABLE", async () => {
    for (const status of [201, 202, 206]) {
      await using b = await bench(({ method }) => ({ ...(method === "POST" ? stored : found("x")), status }));
      assert.equal((await b.store.create("x", bytes)).kind, "unknown");
      assert.equal((await b.store.remove("x", v1)).kind, "unknown");
      await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
    }
  });

  it("case 31, 28: a read answered without a usable generation is UNSUPPORTED, whatever ETag it has", async () => {
    for (const generation of ["", "0", "-1", "abc", "1, 2"]) {
      await using b = await bench(found("x", { "x-goog-generation": generation, etag: '"strong"' }));
      await assert.rejects(b.store.read("x"), rejectsWith("UNSUPPORTED"), generation);
    }
    const { "x-goog-generation": _, ...headers } = found("x").headers ?? {};
    await using b = await bench({ ...found("x"), headers: { ...headers, etag: 'W/"weak"' } });
    await assert.rejects(b.store.read("x"), rejectsWith("UNSUPPORTED"));
  });

  it("case 28, 31: no write is sent with a version this store cannot have given, 0 above all", async () => {
    await using b = await bench(stored);
    for (const version of [
      "0",
      "00",
      "01",
      "-1",
      "+1",
      "1.0",
      "1e3",
      " 1",
      "1\n",
      '"1"',
      'W/"1"',
      "*",
      "x",
      "1".repeat(20),
    ]) {
      await assert.rejects(b.store.replace("x", toVersion(version), bytes), rejectsWith("INVALID_ARGUMENT"), version);
      await assert.rejects(b.store.remove("x", toVersion(version)), rejectsWith("INVALID_ARGUMENT"), version);
    }
    assert.equal(b.server.requests.length, 0);
  });

  it("a read answered without a usable Date or Last-Modified is UNSUPPORTED", async () => {
    const { "last-modified": _, ...withoutModified } = found("x").headers ?? {};
    const { date: _date, ...withoutDate } = found("x").headers ?? {};
    for (const answer of [
      { ...found("x"), headers: withoutModified },
      found("x", { "last-modified": "yesterday" }),
      found("x", { date: "yesterday" }),
      { ...found("x"), headers: withoutDate, withoutDate: true },
    ]) {
      await using b = await bench(answer);
      await assert.rejects(b.store.read("x"), rejectsWith("UNSUPPORTED"));
    }
  });

  it("P3: a read whose body does not fit its checksum is CORRUPT, wherever in the header that is", async () => {
    for (const hash of ["crc32c=AAAAAA==", "md5=x==,crc32c=AAAAAA==", "md5=x==, crc32c=AAAAAA=="]) {
      await using b = await bench(found("x", { "x-goog-hash": hash }));
      await assert.rejects(b.store.read("x"), rejectsWith("CORRUPT"));
      assert.equal(b.server.requests.length, 1);
    }
  });

  it("a read without a checksum is taken as it is", async () => {
    for (const hash of ["", "md5=x==", "xcrc32c=AAAAAA=="]) {
      await using b = await bench(found("x", { "x-goog-hash": hash }));
      assert.equal((await b.store.read("x"))?.bytes.byteLength, 1);
    }
  });

  it("a read whose body stops early is UNAVAILABLE, with or without a checksum", async () => {
    for (const headers of [{}, { "x-goog-hash": "" }]) {
      await using b = await bench({ ...found("x".repeat(5000), headers), stopsAfterBytes: 100 });
      await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
    }
  });

  it("what went wrong is said by the reason, and never by the service's words, which may have a name in them", async () => {
    await using b = await bench(gcsError(403, "forbidden"));
    await assert.rejects(b.store.create("x", bytes), (error) => {
      return error instanceof Error && error.message === "gcs: access was denied (403 forbidden)";
    });
    await using c = await bench({ ...gcsError(503, "backendError"), headers: { date } });
    const outcome = await c.store.create("x", bytes);
    assert.ok(outcome.kind === "unknown" && String(outcome.cause).endsWith("the answer was 503 backendError"));
  });
});

/** An answer that means the same for every call. */
function every(title: string, reply: Reply, all: StoreErrorCode): (typeof answers)[number] {
  return [title, reply, all, all, all, all];
}

function redirect(status: number, reason: string): Reply {
  return { ...gcsError(status, reason), headers: { "content-type": "application/json", location: "/elsewhere" } };
}

async function ends(write: Promise<WriteOutcome | RemoveOutcome>, sorted: Sorted): Promise<void> {
  if (/^[A-Z]/.test(sorted)) await assert.rejects(write, rejectsWith(code(sorted)));
  else assert.equal((await write).kind, sorted);
}

function code(sorted: Sorted): StoreErrorCode {
  switch (sorted) {
    case "written":
    case "refused":
    case "contended":
    case "unknown":
      throw new Error(`${sorted} is no error`);
    default:
      return sorted;
  }
}
