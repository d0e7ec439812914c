import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { ScriptedServer } from "@firstwrite/conformance/wire";
import { StoreError } from "@firstwrite/core";
import { openUrl } from "@firstwrite/s3/url";

import { bytes, stored } from "./setup.ts";

describe("s3: openUrl, with what the SDK finds around it", () => {
  let folder: string;
  let before: NodeJS.ProcessEnv;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "firstwrite-s3-"));
    before = { ...process.env };
    // A machine with nothing of AWS on it, and with no metadata service to wait for.
    for (const name of Object.keys(process.env)) if (name.startsWith("AWS_")) delete process.env[name];
    process.env["AWS_EC2_METADATA_DISABLED"] = "true";
    process.env["AWS_CONFIG_FILE"] = join(folder, "config");
    process.env["AWS_SHARED_CREDENTIALS_FILE"] = join(folder, "credentials");
  });
  afterEach(() => {
    for (const name of Object.keys(process.env)) delete process.env[name];
    Object.assign(process.env, before);
    rmSync(folder, { recursive: true });
  });

  it("nothing that names a region: INVALID_ARGUMENT at once, which says where to name it, with the SDK's error as its cause", async () => {
    for (const url of ["s3://bucket/x", "s3://bucket/x?endpoint=http://127.0.0.1:1"]) {
      await assert.rejects(openUrl(url), (error) => {
        assert.ok(StoreError.is(error), String(error));
        assert.equal(error.code, "INVALID_ARGUMENT");
        assert.match(error.message, /region=eu-west-1.*AWS_REGION.*profile/);
        assert.ok(error.cause instanceof Error);
        return true;
      });
    }
  });

  it("a region of the URL, of AWS_REGION and of a profile each do", async () => {
    // Written first: the SDK reads a file once.
    writeFileSync(join(folder, "config"), "[profile acme]\nregion = eu-west-1\n");
    await (await openUrl("s3://bucket?region=eu-west-1")).close?.();
    process.env["AWS_REGION"] = "eu-west-1";
    await (await openUrl("s3://bucket")).close?.();
    delete process.env["AWS_REGION"];
    process.env["AWS_PROFILE"] = "acme";
    await (await openUrl("s3://bucket")).close?.();
  });

  it("no credentials anywhere: PERMISSION_DENIED, which says how to give some, and nothing is sent", async () => {
    await using server = await ScriptedServer.start(stored);
    const store = await openUrl(`s3://bucket?region=eu-west-1&endpoint=${server.url}`);
    for (const call of [store.create("x", bytes), store.read("x")]) {
      await assert.rejects(call, (error) => {
        assert.ok(StoreError.is(error), String(error));
        assert.equal(error.code, "PERMISSION_DENIED");
        assert.match(error.message, /AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.* a role/);
        assert.ok(error.cause instanceof Error && error.cause.name === "CredentialsProviderError");
        return true;
      });
    }
    assert.equal(server.requests.length, 0);
    await store.close?.();
  });

  it("credentials of the environment and of a profile each do", async () => {
    await using server = await ScriptedServer.start(stored);
    const url = `s3://bucket?region=eu-west-1&endpoint=${server.url}`;
    writeFileSync(join(folder, "credentials"), "[acme]\naws_access_key_id = key2\naws_secret_access_key = secret\n");
    Object.assign(process.env, { AWS_ACCESS_KEY_ID: "key", AWS_SECRET_ACCESS_KEY: "secret" });
    const byEnvironment = await openUrl(url);
    assert.equal((await byEnvironment.create("x", bytes)).kind, "written");
    delete process.env["AWS_ACCESS_KEY_ID"];
    delete process.env["AWS_SECRET_ACCESS_KEY"];
    process.env["AWS_PROFILE"] = "acme";
    const byProfile = await openUrl(url);
    assert.equal((await byProfile.create("x", bytes)).kind, "written");
    assert.deepEqual(
      server.requests.map(({ headers }) => /Credential=(\w+)\//.exec(String(headers.authorization))?.[1]),
      ["key", "key2"],
    );
    for (const store of [byEnvironment, byProfile]) await store.close?.();
  });
});
