import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { StoreError } from "@firstwrite/core";
import { openStore } from "@firstwrite/stores";

describe("openStore", () => {
  it("opens memory:", async () => {
    const store = await openStore("memory:");
    assert.equal(store.traits.name, "memory");
    assert.equal((await store.create("a", Buffer.from("x"))).kind, "written");
  });

  it("opens sqlite:PATH, relative and absolute, with the path as it is written", async () => {
    const folder = mkdtempSync(join(tmpdir(), "firstwrite-stores-"));
    try {
      const path = join(folder, "my store%20.db");
      const store = await openStore(`sqlite:${path}`);
      assert.equal((await store.create("a", Buffer.from("x"))).kind, "written");
      await store.close?.();
      const again = await openStore(`sqlite://${path}`);
      assert.ok(await again.read("a"));
      await again.close?.();
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("opens s3://bucket/prefix and its options without a request", async () => {
    const store = await openStore(
      "s3://bucket/some/prefix/?region=us-east-1&endpoint=http://127.0.0.1:1&checksums=none&unquotedIfMatch=true",
    );
    assert.equal(store.traits.name, "s3");
    assert.equal(store.traits.nameBytesMax, 1024 - "some/prefix/".length);
    await store.close?.();
  });

  it("opens azblob://account/container/prefix and its options without a request", async () => {
    await withEnvironment({ AZURE_STORAGE_KEY: "a2V5" }, async () => {
      const store = await openStore(
        "azblob://account/container/some/prefix/?endpoint=http://127.0.0.1:1&checksums=none",
      );
      assert.equal(store.traits.name, "azure");
      assert.equal(store.traits.nameBytesMax, 1024 - "some/prefix/".length);
      await store.close?.();
    });
  });

  it("opens gs://bucket/prefix and its options without a request", async () => {
    const store = await openStore("gs://bucket/some/prefix/?endpoint=http://127.0.0.1:1");
    assert.equal(store.traits.name, "gcs");
    assert.equal(store.traits.nameBytesMax, 1024 - "some/prefix/".length);
    await store.close?.();
  });

  const refused: [string, RegExp][] = [
    ["", /begins with none of azblob:, gs:, memory:, s3:, sqlite:/],
    ["ftp://x", /begins with none of/],
    ["memory:x", /nothing after the colon/],
    ["sqlite:", /must name a file/],
    ["sqlite:a.db?x=1", /no options/],
    ["s3://", /bucket has no name|cannot be read/],
    ["s3://user:SECRET@bucket/x", /no user or password/],
    ["s3://bucket/x?secretAccessKey=SECRET", /an option it does not know; it takes region, endpoint/],
    ["s3://bucket/x?endpoint=http://user:SECRET@host", /endpoint must be/],
    ["s3://bucket/x?region=a&region=SECRET", /twice/],
    ["s3://bucket/x?checksums=SECRET", /checksums must be/],
    ["s3://bucket/x?unquotedIfMatch=SECRET", /true or false/],
    ["s3://bucket/%SECRET", /%25/],
    ["azblob://account", /no container/],
    ["azblob://account/SECRET/x", /no container/],
    ["azblob://account-secondary/container", /3 to 24/],
    ["azblob://account.SECRET/container", /3 to 24/],
    ["azblob://user:SECRET@account/container", /no user or password/],
    ["azblob://account/container?sig=SECRET", /an option it does not know; it takes endpoint, checksums/],
    ["azblob://account/container?endpoint=https://host?sig=SECRET", /endpoint must be/],
    ["azblob://account/container?endpoint=https://user:SECRET@host", /endpoint must be/],
    ["azblob://account/container?checksums=SECRET", /checksums must be/],
    ["gs://", /name that no bucket can have|cannot be read/],
    ["gs://user:SECRET@bucket/x", /no user or password/],
    ["gs://bucket/x?keyFile=SECRET", /an option it does not know; it takes endpoint/],
    ["gs://bucket/x?endpoint=http://user:SECRET@host", /endpoint must be/],
  ];
  for (const [url, message] of refused) {
    it(`refuses ${JSON.stringify(url)}, and does not repeat it`, async () => {
      await assert.rejects(openStore(url), (error) => {
        assert.ok(StoreError.is(error), String(error));
        assert.equal(error.code, "INVALID_ARGUMENT");
        assert.match(error.message, message);
        assert.doesNotMatch(`${error.message} ${error.stack} ${JSON.stringify(error)}`, /SECRET/);
        return true;
      });
    });
  }

  it("loads nothing of an SDK until its scheme is named", () => {
    const script = `
      import { registerHooks } from "node:module";
      const loaded = [];
      registerHooks({ load(url, context, next) { loaded.push(url); return next(url, context); } });
      const { openStore } = await import("@firstwrite/stores");
      await openStore("memory:");
      console.log(JSON.stringify(loaded.filter((url) => /aws-sdk|smithy|@azure|google|sqlite/.test(url))));
    `;
    assert.deepEqual(JSON.parse(run(script)), []);
  });

  it("a package that is not installed is answered with the command that installs it", () => {
    const script = `
      import { registerHooks } from "node:module";
      registerHooks({
        resolve(specifier, context, next) {
          if (specifier !== "@aws-sdk/client-s3") return next(specifier, context);
          const error = new Error("Cannot find package '@aws-sdk/client-s3' imported from somewhere");
          throw Object.assign(error, { code: "ERR_MODULE_NOT_FOUND" });
        },
      });
      const { openStore } = await import("@firstwrite/stores");
      await openStore("s3://bucket").catch((error) => console.log(error.code, error.message));
    `;
    assert.match(run(script), /^INVALID_ARGUMENT .*npm install @firstwrite\/s3 @aws-sdk\/client-s3/);
  });
});

async function withEnvironment(variables: Record<string, string>, body: () => Promise<void>): Promise<void> {
  const before = { ...process.env };
  Object.assign(process.env, variables);
  try {
    await body();
  } finally {
    for (const name of Object.keys(variables)) {
      const value = before[name];
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
}

/** In a process of its own: which modules are loaded is a process's state. */
function run(script: string): string {
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ["--conditions=@firstwrite/source", "--input-type=module", "--eval", script],
    { cwd: import.meta.dirname, encoding: "utf8" },
  );
  assert.equal(status, 0, stderr);
  return stdout;
}
