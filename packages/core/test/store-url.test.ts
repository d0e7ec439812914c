import assert from "node:assert/strict";
import { inspect } from "node:util";
import { parseStoreUrl } from "@firstwrite/core";
import { isStoreError, untyped } from "./setup.ts";

const known = ["region", "endpoint"];

describe("store URLs", () => {
  const taken: readonly [url: string, authority: string, path: string, options: Record<string, string>][] = [
    ["s3://bucket", "bucket", "", {}],
    ["s3://bucket/", "bucket", "", {}],
    ["s3://bucket/a/b", "bucket", "a/b", {}],
    ["s3://bucket/a/b/", "bucket", "a/b", {}],
    ["S3://Bucket_1/A?region=eu-west-1", "Bucket_1", "A", { region: "eu-west-1" }],
    [
      "s3://b/p?endpoint=http%3A%2F%2Flocalhost%3A9000&region=",
      "b",
      "p",
      { endpoint: "http://localhost:9000", region: "" },
    ],
    ["s3://b/with%20blank%23/%C3%A9", "b", "with blank#/é", {}],
    ["file:///var/lib/x.db", "", "var/lib/x.db", {}],
  ];
  for (const [url, authority, path, options] of taken) {
    it(`taken apart: ${url}`, () => {
      const { options: found, ...rest } = parseStoreUrl(url, known);
      assert.deepEqual({ ...rest, options: Object.fromEntries(found) }, { authority, path, options });
    });
  }

  const refused: readonly [url: unknown, message: RegExp][] = [
    ["", /cannot be read: write it as scheme:\/\/name/],
    ["SECRET", /cannot be read/],
    ["bucket/prefix?token=SECRET&endpoint=http://localhost", /cannot be read/],
    ["SECRET:SECRET@host/bucket", /cannot be read/],
    ["s3:bucket/SECRET", /cannot be read/],
    ["s3://[SECRET/", /cannot be read/],
    ["s3://SECRET@bucket", /no user or password: leave credentials to the vendor's own default chain/],
    ["s3://user:SECRET@bucket", /no user or password/],
    ["s3://:SECRET@bucket", /no user or password/],
    ["s3://b/p#SECRET", /no #fragment: percent-encode the #/],
    ["s3://b/p?secretAccessKey=SECRET", /an option it does not know; it takes region, endpoint/],
    ["s3://b/p?SECRET", /an option it does not know/],
    ["s3://b/p?region=SECRET&region=SECRET", /the option region twice/],
    ["s3://b/p%ZZSECRET", /a % that begins no percent-encoded UTF-8: write a lone % as %25/],
    ["s3://b/p%FFSECRET", /a % that begins no percent-encoded UTF-8/],
    [undefined, /cannot be read/],
    [{ url: "SECRET" }, /cannot be read/],
  ];
  for (const [url, message] of refused) {
    it(`refused, without a secret in the error: ${inspect(url)}`, () => {
      assert.throws(
        () => untyped(parseStoreUrl, undefined, [url, known]),
        (error) => {
          isStoreError(error, "INVALID_ARGUMENT");
          assert.match(error.message, message);
          assert.ok(!inspect(error, { showHidden: true }).includes("SECRET"), error.message);
          return true;
        },
      );
    });
  }

  it("an adapter without options says so", () => {
    assert.throws(() => parseStoreUrl("s3://b?x=1", []), /it takes none/);
  });
});
