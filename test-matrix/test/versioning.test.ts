import assert from "node:assert/strict";
import { channel } from "node:diagnostics_channel";

import { GetObjectLockConfigurationCommand, ListObjectVersionsCommand } from "@aws-sdk/client-s3";
import type { ConditionalStore, Version } from "@firstwrite/core";

import { CannotRun } from "../src/row.ts";
import { startMoto } from "../src/servers/moto.ts";
import { provisionS3, type Versioning } from "../src/stores/s3.ts";

const couldNotRun = channel("firstwrite:matrix:could-not-run");

/** What is left of one name after {@link life}, newest first. */
const left: readonly (readonly [Versioning, readonly string[]])[] = [
  ["off", ["version"]],
  ["on", ["version", "delete marker", "version", "version"]],
  // Each write since then is the one version called null, which a delete marker replaces and is replaced by.
  ["suspended", ["version"]],
  ["locked", ["version", "delete marker", "version", "version"]],
];

describe("case 39: a bucket with versions", () => {
  // As the rows: a person who asks for some rows does not ask for these.
  const asked = process.env["FIRSTWRITE_ROWS"] === undefined;
  for (const [versioning, kinds] of asked ? left : []) {
    it(`versioning ${versioning}: conditions look at the current version alone, and a delete marker is no record`, async function () {
      this.timeout(5 * 60_000);
      const place = await provisionS3(() => startMoto("FIRSTWRITE_MATRIX_MOTO"), versioning).catch((error: unknown) => {
        if (!(error instanceof CannotRun)) throw error;
        couldNotRun.publish({ row: `moto, versioning ${versioning}`, reason: error.message });
        if (process.env["CI"] === "true") throw error;
        return this.skip();
      });
      const { admin, bucket: Bucket } = place;
      const versions = async () => {
        const { Versions = [], DeleteMarkers = [] } = await admin.send(new ListObjectVersionsCommand({ Bucket }));
        return [
          ...Versions.map((of) => ({ ...of, kind: "version" })),
          ...DeleteMarkers.map((of) => ({ ...of, kind: "delete marker" })),
        ].toSorted(
          (a, b) => Number(b.LastModified) - Number(a.LastModified) || Number(b.IsLatest) - Number(a.IsLatest),
        );
      };
      try {
        await life(await place.open());
        const after = await versions();
        assert.deepEqual(after.map(({ kind }) => kind).toSorted(), kinds.toSorted());
        assert.equal(after.find(({ IsLatest }) => IsLatest)?.kind, "version");
        if (versioning === "suspended") assert.equal(after[0]?.VersionId, "null");
        if (versioning === "locked") {
          const { ObjectLockConfiguration } = await admin.send(new GetObjectLockConfigurationCommand({ Bucket }));
          assert.equal(ObjectLockConfiguration?.Rule?.DefaultRetention?.Mode, "GOVERNANCE");
        }
      } finally {
        // Fails where a version or a delete marker was left: a bucket that is not empty cannot be deleted.
        await place.close();
      }
    });
  }
});

/** Of one record: made, written over, removed, made again. At each step what was true of it before is refused. */
async function life(store: ConditionalStore): Promise<void> {
  const name = "case-39/x.json";
  const first = await written(store.create(name, bytes("1")));
  assert.equal((await store.create(name, bytes("1b"))).kind, "refused");
  const second = await written(store.replace(name, first, bytes("2")));
  assert.equal(
    (await store.replace(name, first, bytes("2b"))).kind,
    "refused",
    "the older version is there, and is none",
  );
  assert.deepEqual((await store.read(name))?.bytes, bytes("2"));
  assert.ok(store.remove !== undefined && store.list !== undefined);
  assert.equal((await store.remove(name, first)).kind, "refused");
  assert.equal((await store.remove(name, second)).kind, "removed");
  assert.equal(await store.read(name), undefined);
  for await (const { name } of store.list("case-39/")) assert.fail(`${name} is listed, and was removed`);
  assert.equal((await store.replace(name, second, bytes("3"))).kind, "refused", "a delete marker has no version");
  const third = await written(store.create(name, bytes("3")));
  assert.equal((await store.replace(name, second, bytes("4"))).kind, "refused");
  assert.deepEqual((await store.read(name))?.version, third);
}

async function written(write: ReturnType<ConditionalStore["create"]>): Promise<Version> {
  const outcome = await write;
  assert.ok(outcome.kind === "written", outcome.kind);
  return outcome.version;
}

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
