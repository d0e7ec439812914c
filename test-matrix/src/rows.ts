/**
 * The matrix: every store on every server it should work with. A new backend is its rows here, beside its package and its
 * line in `@firstwrite/stores`; what the tests do with a row is in suites.ts.
 *
 * A server that runs already is used, and none started, where its variable names it; these are compose.yaml's:
 *
 *     FIRSTWRITE_MATRIX_VERSITYGW=http://127.0.0.1:7070
 *     FIRSTWRITE_MATRIX_VERSITYGW_OPAQUE_ETAGS=http://127.0.0.1:7072
 *     FIRSTWRITE_MATRIX_VERSITYGW_TWO_GATEWAYS=http://127.0.0.1:7070,http://127.0.0.1:7071
 *     FIRSTWRITE_MATRIX_MOTO=http://127.0.0.1:5000
 *     FIRSTWRITE_MATRIX_AZURITE=http://127.0.0.1:10000
 *     FIRSTWRITE_MATRIX_FAKE_GCS_SERVER_MEMORY=http://127.0.0.1:4443
 *     FIRSTWRITE_MATRIX_FAKE_GCS_SERVER_FILESYSTEM=http://127.0.0.1:4444
 *
 * `FIRSTWRITE_MATRIX_BUCKET=s3://bucket/folder?region=eu-central-1` adds a row for a bucket that exists, which may be one
 * of a cloud, with the credentials that the AWS SDK finds. What the row writes is in a new folder, and removed.
 */

import { rowId, type Row } from "./row.ts";
import { startAzurite } from "./servers/azurite.ts";
import { startFakeGcsServer } from "./servers/fake-gcs-server.ts";
import { startMoto } from "./servers/moto.ts";
import { startVersitygw } from "./servers/versitygw.ts";
import { provisionAzure } from "./stores/azure.ts";
import { provisionMemory, provisionSqlite } from "./stores/embedded.ts";
import { provisionGcs } from "./stores/gcs.ts";
import { provisionBucket, provisionS3 } from "./stores/s3.ts";

/** `removeRecord` of the core finds this out, and does not remove there. */
const deletesInSpiteOfTheGeneration = {
  "a remove at a stale version is refused, and the record stays": "fake-gcs-server deletes in spite of the generation",
  "a version from before a remove fits no record made after it": "fake-gcs-server deletes in spite of the generation",
};

export const rows: readonly Row[] = [
  { name: "memory", store: "memory", second: false, proxied: false, provision: provisionMemory },
  { name: "sqlite", store: "sqlite", second: true, proxied: false, provision: provisionSqlite },
  {
    name: "versitygw",
    store: "s3",
    second: true,
    proxied: true,
    provision: () => provisionS3(() => startVersitygw({ variable: "FIRSTWRITE_MATRIX_VERSITYGW" })),
  },
  {
    name: "versitygw, opaque ETags",
    store: "s3",
    second: true,
    proxied: true,
    provision: () =>
      provisionS3(() => startVersitygw({ variable: "FIRSTWRITE_MATRIX_VERSITYGW_OPAQUE_ETAGS", opaqueETags: true })),
  },
  {
    name: "versitygw, two gateways",
    store: "s3",
    second: true,
    proxied: true,
    provision: () =>
      provisionS3(() => startVersitygw({ variable: "FIRSTWRITE_MATRIX_VERSITYGW_TWO_GATEWAYS", gateways: 2 })),
  },
  {
    name: "moto",
    store: "s3",
    second: true,
    proxied: true,
    provision: () => provisionS3(() => startMoto("FIRSTWRITE_MATRIX_MOTO")),
  },
  // Case 39: what was true of a bucket without versions has to be true of one with them. test/versioning.test.ts has the
  // other states of a bucket. What a proxy does to answers has nothing to do with it.
  {
    name: "moto, versioned bucket",
    store: "s3",
    second: true,
    proxied: false,
    provision: () => provisionS3(() => startMoto("FIRSTWRITE_MATRIX_MOTO"), "on"),
  },
  {
    name: "azurite",
    store: "azure",
    second: true,
    proxied: true,
    provision: () => provisionAzure(() => startAzurite("FIRSTWRITE_MATRIX_AZURITE")),
  },
  {
    name: "fake-gcs-server, memory",
    store: "gcs",
    second: true,
    proxied: true,
    gaps: deletesInSpiteOfTheGeneration,
    provision: () =>
      provisionGcs(() =>
        startFakeGcsServer({ variable: "FIRSTWRITE_MATRIX_FAKE_GCS_SERVER_MEMORY", backend: "memory" }),
      ),
  },
  {
    name: "fake-gcs-server, filesystem",
    store: "gcs",
    second: true,
    proxied: true,
    gaps: deletesInSpiteOfTheGeneration,
    provision: () =>
      provisionGcs(() =>
        startFakeGcsServer({ variable: "FIRSTWRITE_MATRIX_FAKE_GCS_SERVER_FILESYSTEM", backend: "filesystem" }),
      ),
  },
  ...bucketRow(process.env["FIRSTWRITE_MATRIX_BUCKET"]),
];

/**
 * The rows that `asked` names by their ids, with commas between: `FIRSTWRITE_ROWS=moto,versitygw-two-gateways`. All of
 * them when it is not set.
 *
 * @throws {Error} for a name that is no row's: a typing error must not pass for a row that ran.
 */
export function selectRows(asked: string | undefined): readonly Row[] {
  if (asked === undefined || asked.trim() === "") return rows;
  return asked.split(",").map((name) => {
    const row = rows.find((row) => rowId(row) === name.trim());
    if (row === undefined)
      throw new Error(`no row is called "${name.trim()}": there are ${rows.map(rowId).join(", ")}`);
    return row;
  });
}

function bucketRow(url: string | undefined): readonly Row[] {
  if (url === undefined || url === "") return [];
  return [{ name: "bucket", store: "s3", second: true, proxied: false, provision: () => provisionBucket(url) }];
}
