import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { inspect } from "node:util";

import { openUrl } from "@firstwrite/azure/url";
import { ScriptedServer } from "@firstwrite/conformance/wire";
import { StoreError } from "@firstwrite/core";

import { bytes, rejectsWith, stored } from "./setup.ts";

const variables = ["AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"] as const;
type Environment = Partial<Record<(typeof variables)[number], string>>;

describe("azure: openUrl", () => {
  let before: Environment;
  beforeEach(() => {
    before = {};
    for (const name of variables) {
      const value = process.env[name];
      if (value !== undefined) before[name] = value;
      delete process.env[name];
    }
  });
  afterEach(() => {
    for (const name of variables) delete process.env[name];
    Object.assign(process.env, before);
  });

  it("a connection string of the account gives address and key", async () => {
    await using server = await ScriptedServer.start(stored);
    process.env["AZURE_STORAGE_CONNECTION_STRING"] = connectionString(`BlobEndpoint=${server.url}/account`);
    const store = await openUrl("azblob://account/container/a/b");
    assert.equal((await store.create("x", bytes)).kind, "written");
    assert.equal(server.requests[0]?.url.pathname, "/account/container/a/b/x");
    assert.match(String(server.requests[0]?.headers.authorization), /^SharedKey account:/);
  });

  it("an endpoint in the URL comes before that of a connection string, which still gives key or SAS", async () => {
    await using server = await ScriptedServer.start(stored);
    process.env["AZURE_STORAGE_CONNECTION_STRING"] = connectionString("BlobEndpoint=http://127.0.0.1:1/account");
    const byKey = await openUrl(`azblob://account/container?endpoint=${server.url}/account`);
    assert.equal((await byKey.create("x", bytes)).kind, "written");
    process.env["AZURE_STORAGE_CONNECTION_STRING"] =
      "BlobEndpoint=https://account.blob.core.windows.net;SharedAccessSignature=sv=2025-01-01&sig=abc";
    const bySas = await openUrl(`azblob://account/container?endpoint=${server.url}/account/`);
    assert.equal((await bySas.create("x", bytes)).kind, "written");
    assert.deepEqual(
      server.requests.map(({ url }) => [url.pathname, url.searchParams.get("sig")]),
      [
        ["/account/container/x", null],
        ["/account/container/x", "abc"],
      ],
    );
  });

  it("a connection string of another account is refused: the records would be in another place", async () => {
    process.env["AZURE_STORAGE_CONNECTION_STRING"] = connectionString("EndpointSuffix=core.windows.net");
    await assert.rejects(openUrl("azblob://other/container"), refuses(/of the account account, and the URL of other/));
  });

  it("a key, or else a SAS token with or without its question mark", async () => {
    await using server = await ScriptedServer.start(stored);
    const url = `azblob://account/container?endpoint=${server.url}`;
    for (const token of ["sv=2025-01-01&sig=a%2Bb", "?sv=2025-01-01&sig=a%2Bb"]) {
      process.env["AZURE_STORAGE_SAS_TOKEN"] = token;
      assert.equal((await (await openUrl(url)).create("x", bytes)).kind, "written");
      assert.equal(server.requests.at(-1)?.url.search, "?sv=2025-01-01&sig=a%2Bb");
      assert.equal(server.requests.at(-1)?.headers.authorization, undefined);
    }
    process.env["AZURE_STORAGE_KEY"] = "c2VjcmV0";
    assert.equal((await (await openUrl(url)).create("x", bytes)).kind, "written");
    assert.match(String(server.requests.at(-1)?.headers.authorization), /^SharedKey account:/);
    assert.equal(server.requests.at(-1)?.url.searchParams.get("sig"), null);
  });

  it("without any of these, the default credential of @azure/identity, by https only", async () => {
    const store = await openUrl("azblob://account/container/prefix");
    assert.equal(store.traits.name, "azure");
    await assert.rejects(openUrl("azblob://account/container?endpoint=http://127.0.0.1:1"), refuses(/https only/));
  });

  it("@azure/identity is loaded only then, and asked for by name where it is not installed", () => {
    const script = `
      import { registerHooks } from "node:module";
      registerHooks({
        resolve(specifier, context, next) {
          if (specifier !== "@azure/identity") return next(specifier, context);
          const error = new Error("Cannot find package '@azure/identity' imported from somewhere");
          throw Object.assign(error, { code: "ERR_MODULE_NOT_FOUND" });
        },
      });
      const { openUrl } = await import("@firstwrite/azure/url");
      process.env.AZURE_STORAGE_SAS_TOKEN = "sig=abc";
      console.log((await openUrl("azblob://account/container")).traits.name);
      delete process.env.AZURE_STORAGE_SAS_TOKEN;
      await openUrl("azblob://account/container").catch((error) => console.log(error.code, error.message));
    `;
    const { stdout, stderr, status } = spawnSync(
      process.execPath,
      ["--conditions=@firstwrite/source", "--input-type=module", "--eval", script],
      { cwd: import.meta.dirname, encoding: "utf8" },
    );
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^azure\nINVALID_ARGUMENT .*AZURE_STORAGE_CONNECTION_STRING.*npm install @azure\/identity/);
  });

  it("the options are those of the store", async () => {
    await using server = await ScriptedServer.start(stored);
    process.env["AZURE_STORAGE_KEY"] = "c2VjcmV0";
    for (const [checksums, header] of [
      ["none", "undefined"],
      ["md5", "string"],
    ] as const) {
      const store = await openUrl(`azblob://account/container?endpoint=${server.url}&checksums=${checksums}`);
      await store.create("x", bytes);
      assert.equal(typeof server.requests.at(-1)?.headers["x-ms-blob-content-md5"], header);
    }
  });

  const connectionStrings: readonly string[] = [
    "SECRET",
    "AccountName=account;AccountKey=SECRET",
    "DefaultEndpointsProtocol=SECRET;AccountName=account;AccountKey=SECRET;EndpointSuffix=core.windows.net",
    "BlobEndpoint=https://account.blob.core.windows.net;SharedAccessSignature=",
    "BlobEndpoint=SECRET;SharedAccessSignature=sig=SECRET",
  ];
  for (const text of connectionStrings) {
    it(`a connection string that cannot be read is refused, and no part of it repeated: ${text}`, async () => {
      process.env["AZURE_STORAGE_CONNECTION_STRING"] = text;
      await assert.rejects(openUrl("azblob://account/container"), refuses(/AZURE_STORAGE_CONNECTION_STRING/));
    });
  }

  it("no error of a store with a SAS has the SAS in it, when it is printed or written as JSON", async () => {
    await using server = await ScriptedServer.start({
      status: 403,
      headers: { "x-ms-error-code": "AuthenticationFailed" },
    });
    process.env["AZURE_STORAGE_SAS_TOKEN"] = "sv=2025-01-01&sig=SECRET";
    const store = await openUrl(`azblob://account/container?endpoint=${server.url}`);
    for (const call of [() => store.create("x", bytes), () => store.read("x")]) {
      await assert.rejects(call, (error) => {
        rejectsWith("PERMISSION_DENIED")(error);
        assert.doesNotMatch(shown(error), /SECRET/);
        return true;
      });
    }
    server.answers("reset");
    const outcome = await store.create("x", bytes);
    assert.equal(outcome.kind, "unknown");
    assert.doesNotMatch(shown(outcome), /SECRET/);
  });

  const refused: readonly [url: string, why: RegExp][] = [
    ["azblob://", /cannot be read|account/],
    ["azblob://account", /container/],
    ["azblob:///container", /account/],
    ["azblob://ac/container", /account/],
    ["azblob://account-secondary/container", /account/],
    ["azblob://account.blob.core.windows.net/container", /account/],
    ["azblob://account/co", /container/],
    ["azblob://account/Container", /container/],
    ["azblob://account/-container", /container/],
    ["azblob://account/con--tainer", /container/],
    ["azblob://account/container/a//b", /segment/],
    ["azblob://account/container?sas=SECRET", /does not know; it takes endpoint, checksums/],
    ["azblob://account:SECRET@host/container", /no user or password/],
    ["azblob://account/container?endpoint=ftp://SECRET", /endpoint must be/],
    ["azblob://account/container?endpoint=http://host/account?sig=SECRET", /endpoint must be/],
    ["azblob://account/container?endpoint=http://host/a/SECRET", /endpoint must be/],
    ["azblob://account/container?checksums=SECRET", /checksums must be/],
  ];
  for (const [url, why] of refused) {
    it(`refuses ${url}, and does not repeat what may be a secret`, async () => {
      process.env["AZURE_STORAGE_KEY"] = "c2VjcmV0";
      await assert.rejects(openUrl(url), refuses(why));
    });
  }
});

function connectionString(endpoint: string): string {
  return `DefaultEndpointsProtocol=https;AccountName=account;AccountKey=c2VjcmV0;${endpoint}`;
}

function refuses(why: RegExp): (error: unknown) => true {
  return (error) => {
    assert.ok(StoreError.is(error), String(error));
    assert.equal(error.code, "INVALID_ARGUMENT");
    assert.match(error.message, why);
    assert.doesNotMatch(shown(error), /SECRET/);
    return true;
  };
}

function shown(x: unknown): string {
  return inspect(x, { depth: 10 }) + JSON.stringify(x);
}
