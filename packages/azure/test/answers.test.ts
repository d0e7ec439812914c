import assert from "node:assert/strict";
import { createHash } from "node:crypto";

import type { Reply } from "@firstwrite/conformance/wire";
import { toVersion, type StoreErrorCode } from "@firstwrite/core";

import {
  azureError,
  bench,
  bytes,
  date,
  ends,
  found,
  inBody,
  inHeader,
  rejectsWith,
  removed,
  stored,
  v1,
  type Sorted,
} from "./setup.ts";

const page: Reply = { status: 503, headers: { "content-type": "text/html" }, body: "<html><p>Bad gateway" };

/** Each answer, and what it means for a create, a replace (and a remove, which is sorted alike) and a read. */
const answers: readonly [
  title: string,
  reply: Reply,
  create: Sorted,
  replace: Sorted,
  read: StoreErrorCode | "missing",
][] = [
  ["case 17: 409 BlobAlreadyExists", azureError(409, "BlobAlreadyExists"), "refused", "unknown", "UNAVAILABLE"],
  [
    "409 BlobAlreadyExists, in the header alone",
    inHeader(409, "BlobAlreadyExists"),
    "refused",
    "unknown",
    "UNAVAILABLE",
  ],
  ["409 BlobAlreadyExists, in the body alone", inBody(409, "BlobAlreadyExists"), "refused", "unknown", "UNAVAILABLE"],
  ["case 17: 412 ConditionNotMet", azureError(412, "ConditionNotMet"), "refused", "refused", "UNAVAILABLE"],
  ["412 ConditionNotMet, in the header alone", inHeader(412, "ConditionNotMet"), "refused", "refused", "UNAVAILABLE"],
  ["412 ConditionNotMet, in the body alone", inBody(412, "ConditionNotMet"), "refused", "refused", "UNAVAILABLE"],
  ["412 without a code", { status: 412 }, "unknown", "unknown", "UNAVAILABLE"],
  ["412 with a page of a proxy", { ...page, status: 412 }, "unknown", "unknown", "UNAVAILABLE"],
  ["412 TargetConditionNotMet", azureError(412, "TargetConditionNotMet"), "unknown", "unknown", "UNAVAILABLE"],
  ["412 SourceConditionNotMet", azureError(412, "SourceConditionNotMet"), "unknown", "unknown", "UNAVAILABLE"],
  [
    "412 AppendPositionConditionNotMet",
    azureError(412, "AppendPositionConditionNotMet"),
    "unknown",
    "unknown",
    "UNAVAILABLE",
  ],
  ["304 ConditionNotMet", inHeader(304, "ConditionNotMet"), "unknown", "unknown", "UNAVAILABLE"],
  ["304", { status: 304 }, "unknown", "unknown", "UNAVAILABLE"],
  ["case 15: 404 BlobNotFound", azureError(404, "BlobNotFound"), "unknown", "refused", "missing"],
  ["404 BlobNotFound, in the header alone", inHeader(404, "BlobNotFound"), "unknown", "refused", "missing"],
  ["404 BlobNotFound, in the body alone", inBody(404, "BlobNotFound"), "unknown", "refused", "missing"],
  ["404 without a code", { status: 404 }, "unknown", "unknown", "UNAVAILABLE"],
  ["404 with a page of a proxy", { ...page, status: 404 }, "unknown", "unknown", "UNAVAILABLE"],
  ["409 of a code nobody knows", azureError(409, "SomethingElse"), "unknown", "unknown", "UNAVAILABLE"],
  ["409 without a code", { status: 409 }, "unknown", "unknown", "UNAVAILABLE"],
  ["409 ContainerAlreadyExists", azureError(409, "ContainerAlreadyExists"), "unknown", "unknown", "UNAVAILABLE"],
  ["400 of a code nobody knows", azureError(400, "SomethingElse"), "unknown", "unknown", "UNAVAILABLE"],
  ["400 without a code", { status: 400 }, "unknown", "unknown", "UNAVAILABLE"],
  ["408", { status: 408 }, "unknown", "unknown", "UNAVAILABLE"],
  ["429", { status: 429 }, "contended", "contended", "UNAVAILABLE"],
  ["302 to a page of a proxy", { status: 302, headers: { location: "/login" } }, "unknown", "unknown", "UNAVAILABLE"],
  ["307 to the same host", { status: 307, headers: { location: "/else" } }, "unknown", "unknown", "UNAVAILABLE"],
  ["case 10: 500 InternalError", azureError(500, "InternalError"), "unknown", "unknown", "UNAVAILABLE"],
  ["case 10: 500 OperationTimedOut", azureError(500, "OperationTimedOut"), "unknown", "unknown", "UNAVAILABLE"],
  ["502 with a page of a proxy", { ...page, status: 502 }, "unknown", "unknown", "UNAVAILABLE"],
  ["503 ServerBusy", azureError(503, "ServerBusy"), "unknown", "unknown", "UNAVAILABLE"],
  ["503 with a page of a proxy", page, "unknown", "unknown", "UNAVAILABLE"],
  ["504 without a body", { status: 504 }, "unknown", "unknown", "UNAVAILABLE"],
  ["a connection reset after the request was read", "reset", "unknown", "unknown", "UNAVAILABLE"],
  [
    "412 whose body stops early, for the SDK then gives nothing of it",
    { ...azureError(412, "ConditionNotMet"), stopsAfterBytes: 20 },
    "unknown",
    "unknown",
    "UNAVAILABLE",
  ],
  [
    "409 whose body contradicts its header, which counts",
    inBody(409, "BlobAlreadyExists", { "x-ms-error-code": "ContainerBeingDeleted" }),
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
  ],
];

/** Answers that mean the same for every call: the request was turned away. */
const rejections: readonly [code: StoreErrorCode, replies: readonly Reply[]][] = [
  [
    "INVALID_ARGUMENT",
    [
      azureError(404, "ContainerNotFound"),
      inHeader(404, "ContainerNotFound"),
      inBody(404, "ContainerNotFound"),
      azureError(409, "ContainerBeingDeleted"),
      azureError(409, "InvalidBlobType"),
      azureError(409, "BlobOperationNotSupported"),
      azureError(409, "SnapshotsPresent"),
      azureError(409, "FeatureVersionMismatch"),
      azureError(400, "InvalidInput"),
      azureError(400, "InvalidHeaderValue"),
      azureError(400, "InvalidQueryParameterValue"),
      azureError(400, "InvalidUri"),
      azureError(400, "InvalidResourceName"),
      azureError(400, "OutOfRangeInput"),
      azureError(400, "RequestUrlFailedToParse"),
      azureError(400, "UnsupportedHeader"),
      azureError(400, "UnsupportedQueryParameter"),
      azureError(400, "MissingRequiredHeader"),
      azureError(400, "MultipleConditionHeadersNotSupported"),
      azureError(413, "RequestBodyTooLarge"),
    ],
  ],
  [
    "PERMISSION_DENIED",
    [
      { status: 401 },
      azureError(401, "NoAuthenticationInformation"),
      azureError(401, "InvalidAuthenticationInfo"),
      azureError(400, "InvalidAuthenticationInfo"),
      { ...page, status: 403 },
      azureError(403, "AuthorizationFailure"),
      azureError(403, "AuthenticationFailed"),
      azureError(403, "AuthorizationPermissionMismatch"),
      azureError(403, "InsufficientAccountPermissions"),
      azureError(403, "AccountIsDisabled"),
      azureError(403, "UnauthorizedBlobOverwrite"),
      azureError(404, "ResourceNotFound"),
      azureError(409, "PublicAccessNotPermitted"),
      azureError(409, "ContainerDisabled"),
      azureError(412, "LeaseIdMissing"),
      inHeader(412, "LeaseIdMissing"),
      azureError(412, "LeaseIdMismatchWithBlobOperation"),
      azureError(412, "LeaseLost"),
      azureError(412, "LeaseNotPresentWithBlobOperation"),
    ],
  ],
  [
    "UNAVAILABLE",
    [
      azureError(409, "AccountBeingCreated"),
      azureError(409, "BlobBeingRehydrated"),
      azureError(400, "Md5Mismatch"),
      {
        status: 401,
        headers: { "www-authenticate": 'Bearer error="insufficient_claims", claims="eyJhIjoxfQ=="' },
      },
    ],
  ],
  [
    "UNSUPPORTED",
    [
      azureError(409, "BlobImmutableDueToPolicy"),
      azureError(409, "BlobImmutableDueToLegalHold"),
      azureError(409, "ContainerHasLegalHold"),
      azureError(409, "ContainerImmutabilityPolicyLocked"),
      azureError(409, "BlobArchived"),
      azureError(400, "ConditionHeadersNotSupported"),
      azureError(405, "UnsupportedHttpVerb"),
      azureError(501, "NotImplemented"),
    ],
  ],
];

describe("azure: what each answer means", () => {
  for (const [title, reply, create, replace, read] of answers) {
    it(`${title}: a create is ${create}, a replace and a remove are ${replace}, a read is ${read}; one request each`, async () => {
      await using b = await bench(reply);
      await ends(b.store.create("x", bytes), create);
      await ends(b.store.replace("x", v1, bytes), replace);
      await ends(b.store.remove("x", v1), replace);
      if (read === "missing") assert.equal(await b.store.read("x"), undefined);
      else await assert.rejects(b.store.read("x"), rejectsWith(read));
      assert.deepEqual(
        b.server.requests.map(({ method }) => method),
        ["PUT", "PUT", "DELETE", "GET"],
      );
    });
  }

  for (const [code, replies] of rejections) {
    for (const reply of replies) {
      it(`case 17: ${titleOf(reply)}: ${code}, whatever was called; one request each`, async () => {
        await using b = await bench(reply);
        await assert.rejects(b.store.create("x", bytes), rejectsWith(code));
        await assert.rejects(b.store.replace("x", v1, bytes), rejectsWith(code));
        await assert.rejects(b.store.remove("x", v1), rejectsWith(code));
        await assert.rejects(b.store.read("x"), rejectsWith(code));
        await assert.rejects(b.store.list("").next(), rejectsWith(code));
        assert.equal(b.server.requests.length, 5);
      });
    }
  }

  it("case 31, 28: a write answered 201 without a usable ETag is unknown, for its bytes are stored", async () => {
    for (const etag of [undefined, "", '""', 'W/"abc"', 'w/"abc"', '"a', "*", '"a", "b"']) {
      await using b = await bench({ status: 201, headers: { date, ...(etag === undefined ? {} : { etag }) } });
      const outcome = await b.store.create("x", bytes);
      assert.ok(outcome.kind === "unknown", `ETag ${etag}`);
      assert.ok(rejectsWith("UNSUPPORTED")(outcome.cause));
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

  it("case 28, 31: nothing is sent with a weak or empty version, with a list, or with *", async () => {
    await using b = await bench(stored);
    for (const etag of ['W/"abc"', '""', "*", '"a", "b"', "a b", 'a"']) {
      await assert.rejects(b.store.replace("x", toVersion(etag), bytes), rejectsWith("INVALID_ARGUMENT"), etag);
      await assert.rejects(b.store.remove("x", toVersion(etag)), rejectsWith("INVALID_ARGUMENT"), etag);
    }
    assert.equal(b.server.requests.length, 0);
  });

  it("a write answered 201 without a Date, or with one that is no time, is unknown", async () => {
    for (const answer of [
      { status: 201, headers: { etag: v1 }, withoutDate: true },
      { status: 201, headers: { etag: v1, date: "yesterday" } },
      { status: 201, headers: { etag: v1, date: "2026-01-01 00:00:00" } },
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

  it("an answer that Azure never gives is unknown for a write and UNAVAILABLE for a read", async () => {
    for (const status of [200, 202, 204]) {
      await using b = await bench({ ...stored, status });
      assert.equal((await b.store.create("x", bytes)).kind, "unknown", `${status}`);
    }
    for (const status of [200, 201, 204]) {
      await using b = await bench({ ...removed, status });
      assert.equal((await b.store.remove("x", v1)).kind, "unknown", `${status}`);
    }
    for (const status of [201, 202, 204, 206]) {
      await using b = await bench({ ...found("x"), status });
      await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"), `${status}`);
    }
  });

  it("a write answered 201 whose body stops early is unknown", async () => {
    await using b = await bench({ ...stored, body: "x".repeat(100), stopsAfterBytes: 10 });
    assert.equal((await b.store.create("x", bytes)).kind, "unknown");
    assert.equal(b.server.requests.length, 1);
  });

  it("P3: a read whose body does not fit its checksum is CORRUPT, and is not asked for again", async () => {
    await using b = await bench(found("x", { "content-md5": md5("y") }));
    await assert.rejects(b.store.read("x"), rejectsWith("CORRUPT"));
    assert.equal(b.server.requests.length, 1);
  });

  it("a read whose body fits its checksum, or has none, is the record", async () => {
    for (const headers of [{}, { "content-md5": md5("x") }]) {
      await using b = await bench(found("x", headers));
      assert.ok(await b.store.read("x"));
    }
  });

  it("a read whose body stops early is UNAVAILABLE with or without a checksum, and is not gone on with", async () => {
    for (const headers of [{}, { "content-md5": md5("y") }]) {
      await using b = await bench({ ...found("x".repeat(5000), headers), stopsAfterBytes: 100 });
      await assert.rejects(b.store.read("x"), rejectsWith("UNAVAILABLE"));
      assert.equal(b.server.requests.length, 1);
    }
  });

  it("the record goes with its MD5, and without it where checksums are none", async () => {
    await using b = await bench(stored);
    await b.store.create("x", bytes);
    assert.equal(b.server.requests[0]?.headers["x-ms-blob-content-md5"], md5(bytes));
    await using none = await bench([stored, found("x", { "content-md5": md5("y") })], { store: { checksums: "none" } });
    await none.store.create("x", bytes);
    assert.equal(none.server.requests[0]?.headers["x-ms-blob-content-md5"], undefined);
    assert.ok(await none.store.read("x"));
  });
});

function titleOf(reply: Reply): string {
  if (typeof reply === "string") return reply;
  const code = reply.headers?.["x-ms-error-code"] ?? /<Code>(\w+)/.exec(String(reply.body))?.[1];
  const where = reply.headers?.["x-ms-error-code"] === undefined ? "in the body alone" : "in the header alone";
  const both = reply.headers?.["x-ms-error-code"] !== undefined && reply.body !== undefined;
  if (code === undefined)
    return `${reply.status} ${reply.headers === undefined ? "without a code" : "of another form"}`;
  return `${reply.status} ${code}${both ? "" : `, ${where}`}`;
}

function md5(body: string | Uint8Array): string {
  return createHash("md5").update(body).digest("base64");
}
