import assert from "node:assert/strict";
import { toVersion, type StoreErrorCode, type WriteOutcome } from "@firstwrite/core";
import type { Reply } from "@firstwrite/conformance/wire";
import { bench, bytes, date, found, rejectsWith, s3Error, stored, v1 } from "./setup.ts";

type Sorted = WriteOutcome["kind"] | StoreErrorCode;

const html: Reply = { status: 503, headers: { "content-type": "text/html" }, body: "<html><p>Bad gateway" };

/** Each answer, and what it means for a create, a replace and a read. */
const answers: readonly [title: string, reply: Reply, create: Sorted, replace: Sorted, read: Sorted | "missing"][] = [
  ["412 PreconditionFailed", s3Error(412, "PreconditionFailed"), "refused", "refused", "UNAVAILABLE"],
  ["412 without a body", { status: 412 }, "refused", "refused", "UNAVAILABLE"],
  ["412 with a page of a proxy", { ...html, status: 412 }, "refused", "refused", "UNAVAILABLE"],
  ["412 with another code", s3Error(412, "LeaseIdMissing"), "unknown", "unknown", "UNAVAILABLE"],
  ["case 16: 304 (minio#19442)", { status: 304 }, "refused", "unknown", "UNAVAILABLE"],
  [
    "cases 11, 12, 13: 409 ConditionalRequestConflict",
    s3Error(409, "ConditionalRequestConflict"),
    "contended",
    "contended",
    "UNAVAILABLE",
  ],
  ["409 OperationAborted", s3Error(409, "OperationAborted"), "contended", "contended", "UNAVAILABLE"],
  [
    "409 ObjectParentIsFile (versitygw)",
    s3Error(409, "ObjectParentIsFile"),
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
  ],
  [
    "409 ExistingObjectIsDirectory (versitygw)",
    s3Error(409, "ExistingObjectIsDirectory"),
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
  ],
  ["409 of a code nobody knows", s3Error(409, "SomethingElse"), "unknown", "unknown", "UNAVAILABLE"],
  ["409 without a body", { status: 409 }, "unknown", "unknown", "UNAVAILABLE"],
  ["cases 15, 38: 404 NoSuchKey", s3Error(404, "NoSuchKey"), "unknown", "refused", "missing"],
  ["404 NoSuchBucket", s3Error(404, "NoSuchBucket"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
  [
    "404 XAdminUserNotFound (versitygw)",
    s3Error(404, "XAdminUserNotFound"),
    "PERMISSION_DENIED",
    "PERMISSION_DENIED",
    "PERMISSION_DENIED",
  ],
  ["404 without a body", { status: 404 }, "unknown", "unknown", "UNAVAILABLE"],
  ["404 with a page of a proxy", { ...html, status: 404 }, "unknown", "unknown", "UNAVAILABLE"],
  ["401", { status: 401 }, "PERMISSION_DENIED", "PERMISSION_DENIED", "PERMISSION_DENIED"],
  ["403 AccessDenied", s3Error(403, "AccessDenied"), "PERMISSION_DENIED", "PERMISSION_DENIED", "PERMISSION_DENIED"],
  [
    "403 SignatureDoesNotMatch",
    s3Error(403, "SignatureDoesNotMatch"),
    "PERMISSION_DENIED",
    "PERMISSION_DENIED",
    "PERMISSION_DENIED",
  ],
  [
    "403 with a page of a proxy",
    { ...html, status: 403 },
    "PERMISSION_DENIED",
    "PERMISSION_DENIED",
    "PERMISSION_DENIED",
  ],
  ["403 RequestTimeTooSkewed", s3Error(403, "RequestTimeTooSkewed"), "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"],
  ["400 ExpiredToken", s3Error(400, "ExpiredToken"), "PERMISSION_DENIED", "PERMISSION_DENIED", "PERMISSION_DENIED"],
  ["400 InvalidToken", s3Error(400, "InvalidToken"), "PERMISSION_DENIED", "PERMISSION_DENIED", "PERMISSION_DENIED"],
  [
    "400 TokenRefreshRequired",
    s3Error(400, "TokenRefreshRequired"),
    "PERMISSION_DENIED",
    "PERMISSION_DENIED",
    "PERMISSION_DENIED",
  ],
  ["400 InvalidArgument", s3Error(400, "InvalidArgument"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
  ["400 InvalidRequest", s3Error(400, "InvalidRequest"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
  ["400 InvalidURI", s3Error(400, "InvalidURI"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
  [
    "400 InvalidBucketName",
    s3Error(400, "InvalidBucketName"),
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
  ],
  ["400 EntityTooLarge", s3Error(400, "EntityTooLarge"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
  ["413 EntityTooLarge", s3Error(413, "EntityTooLarge"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
  ["400 KeyTooLongError", s3Error(400, "KeyTooLongError"), "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
  [
    "400 AuthorizationHeaderMalformed",
    s3Error(400, "AuthorizationHeaderMalformed"),
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
  ],
  [
    "400 IllegalLocationConstraintException",
    s3Error(400, "IllegalLocationConstraintException"),
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
  ],
  ["400 BadDigest", s3Error(400, "BadDigest"), "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"],
  [
    "400 XAmzContentSHA256Mismatch",
    s3Error(400, "XAmzContentSHA256Mismatch"),
    "UNAVAILABLE",
    "UNAVAILABLE",
    "UNAVAILABLE",
  ],
  ["400 IncompleteBody", s3Error(400, "IncompleteBody"), "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"],
  ["400 RequestTimeout", s3Error(400, "RequestTimeout"), "unknown", "unknown", "UNAVAILABLE"],
  ["408", { status: 408 }, "unknown", "unknown", "UNAVAILABLE"],
  ["400 of a code nobody knows", s3Error(400, "SomethingElse"), "unknown", "unknown", "UNAVAILABLE"],
  ["405 MethodNotAllowed", s3Error(405, "MethodNotAllowed"), "UNSUPPORTED", "UNSUPPORTED", "UNSUPPORTED"],
  ["cases 20, 21: 429", { status: 429 }, "contended", "contended", "UNAVAILABLE"],
  ["429 SlowDown", s3Error(429, "SlowDown"), "contended", "contended", "UNAVAILABLE"],
  [
    "301 PermanentRedirect",
    s3Error(301, "PermanentRedirect"),
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
  ],
  [
    "308 to https",
    { status: 308, headers: { location: "https://127.0.0.1:1/" } },
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
  ],
  ["307 TemporaryRedirect", s3Error(307, "TemporaryRedirect"), "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"],
  ["302 to a page of a proxy", { status: 302, headers: { location: "/login" } }, "unknown", "unknown", "UNAVAILABLE"],
  ["case 10: 500 InternalError", s3Error(500, "InternalError"), "unknown", "unknown", "UNAVAILABLE"],
  ["case 34: 501 NotImplemented", s3Error(501, "NotImplemented"), "UNSUPPORTED", "UNSUPPORTED", "UNSUPPORTED"],
  ["502 with a page of a proxy", { ...html, status: 502 }, "unknown", "unknown", "UNAVAILABLE"],
  ["503 SlowDown", s3Error(503, "SlowDown"), "unknown", "unknown", "UNAVAILABLE"],
  ["case 37: 503 SlowDownWrite (MinIO)", s3Error(503, "SlowDownWrite"), "unknown", "unknown", "UNAVAILABLE"],
  ["503 with a page of a proxy", html, "unknown", "unknown", "UNAVAILABLE"],
  ["504 without a body", { status: 504 }, "unknown", "unknown", "UNAVAILABLE"],
  ["a connection reset after the request was read", "reset", "unknown", "unknown", "UNAVAILABLE"],
  [
    "412 whose body stops early",
    { ...s3Error(412, "PreconditionFailed"), stopsAfterBytes: 20 },
    "refused",
    "refused",
    "UNAVAILABLE",
  ],
  [
    "409 whose body stops early",
    { ...s3Error(409, "ConditionalRequestConflict"), stopsAfterBytes: 20 },
    "unknown",
    "unknown",
    "UNAVAILABLE",
  ],
];

describe("s3: what each answer means", () => {
  for (const [title, reply, create, replace, read] of answers) {
    it(`${title}: a create is ${create}, a replace is ${replace}, a read is ${read}; one request each`, async () => {
      await using b = await bench(reply);
      await ends(b.store.create("x", bytes), create);
      await ends(b.store.replace("x", v1, bytes), replace);
      if (read === "missing") assert.equal(await b.store.read("x"), undefined);
      else await assert.rejects(b.store.read("x"), rejectsWith(read === "unknown" ? "UNAVAILABLE" : code(read)));
      assert.deepEqual(
        b.server.requests.map(({ method }) => method),
        ["PUT", "PUT", "GET"],
      );
    });
  }

  it("case 31, 28: a write answered 200 without a usable ETag is unknown, for its bytes are stored", async () => {
    for (const etag of [undefined, "", '""', 'W/"abc"', 'w/"abc"', '"a', "*", '"a", "b"']) {
      await using b = await bench({ status: 200, headers: { date, ...(etag === undefined ? {} : { etag }) } });
      const outcome = await b.store.create("x", bytes);
      assert.equal(outcome.kind, "unknown", `ETag ${etag}`);
      assert.ok(outcome.kind === "unknown" && rejectsWith("UNSUPPORTED")(outcome.cause));
    }
  });

  it("case 31, 28: a read answered without a usable ETag is UNSUPPORTED", async () => {
    for (const etag of ["", '""', 'W/"abc"', 'w/"abc"', "W/abc", '"a', "*", '"a", "b"']) {
      await using b = await bench(found("x", { etag }));
      await assert.rejects(b.store.read("x"), rejectsWith("UNSUPPORTED"), `ETag ${etag}`);
    }
    await using b = await bench({ status: 200, headers: { date, "last-modified": date }, body: "x" });
    await assert.rejects(b.store.read("x"), rejectsWith("UNSUPPORTED"));
  });

  it("case 28, 31: no write is sent with a weak or empty version, with a list, or with *", async () => {
    await using b = await bench(stored);
    for (const etag of ['W/"abc"', '""', "*", '"a", "b"', "a b", 'a"']) {
      await assert.rejects(b.store.replace("x", toVersion(etag), bytes), rejectsWith("INVALID_ARGUMENT"), etag);
    }
    assert.equal(b.server.requests.length, 0);
  });

  it("a write answered 200 without a Date, or with one that is no time, is unknown", async () => {
    for (const answer of [
      { status: 200, headers: { etag: v1 }, withoutDate: true },
      { status: 200, headers: { etag: v1, date: "yesterday" } },
      { status: 200, headers: { etag: v1, date: "2026-01-01 00:00:00" } },
    ]) {
      await using b = await bench(answer);
      assert.equal((await b.store.replace("x", v1, bytes)).kind, "unknown");
    }
  });

  it("a read answered without a usable Date or Last-Modified is UNSUPPORTED", async () => {
    const { "last-modified": _, ...withoutModified } = found("x").headers ?? {};
    for (const answer of [
      { ...found("x"), headers: withoutModified },
      found("x", { "last-modified": "yesterday" }),
      found("x", { date: "yesterday" }),
      { status: 200, headers: { etag: v1, "last-modified": date }, body: "x", withoutDate: true },
    ]) {
      await using b = await bench(answer);
      await assert.rejects(b.store.read("x"), rejectsWith("UNSUPPORTED"));
    }
  });

  it("a write answered 200 whose body is an error, is unreadable or stops early is unknown", async () => {
    for (const answer of [
      { ...s3Error(200, "PreconditionFailed"), headers: stored.headers ?? {} },
      { ...s3Error(200, "InternalError"), headers: stored.headers ?? {} },
      { ...stored, body: "x".repeat(100), stopsAfterBytes: 10 },
    ]) {
      await using b = await bench(answer);
      assert.equal((await b.store.create("x", bytes)).kind, "unknown");
      assert.equal(b.server.requests.length, 1);
    }
  });

  it("a write answered by a success S3 does not know is unknown, a read UNAVAILABLE", async () => {
    await using b = await bench({ ...found("x"), status: 202 });
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
  });

  it("P3: a read whose body does not fit its checksum is CORRUPT", async () => {
    await using b = await bench(found("x", { "x-amz-checksum-crc32": "AAAAAA==" }));
    await assert.rejects(b.store.read("x"), rejectsWith("CORRUPT"));
    assert.equal(b.server.requests.length, 1);
  });

  it("a read whose body stops early is UNAVAILABLE, with or without a checksum", async () => {
    for (const headers of [{}, { "x-amz-checksum-crc32": "AAAAAA==" }]) {
      await using b = await bench({ ...found("x".repeat(5000), headers), stopsAfterBytes: 100 });
      await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
    }
  });

  it("after RequestTimeTooSkewed the next request is signed by the service's clock", async () => {
    await using b = await bench([{ ...s3Error(403, "RequestTimeTooSkewed"), headers: { date } }, stored]);
    await assert.rejects(b.store.create("x", bytes), rejectsWith("UNAVAILABLE"));
    assert.equal((await b.store.create("x", bytes)).kind, "written");
    assert.match(String(b.server.requests[1]?.headers["x-amz-date"]), /^20260101T0000/);
  });
});

async function ends(write: Promise<WriteOutcome>, sorted: Sorted): Promise<void> {
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
