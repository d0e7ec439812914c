import { StoreError, type ConditionalStore } from "@firstwrite/core";

/** What an adapter package has at its entry `./url`. */
interface UrlEntry {
  openUrl(url: string): Promise<ConditionalStore>;
}

interface Backend {
  /** The packages that a program installs for it. */
  readonly packages: readonly string[];
  /** Loads the adapter, and with it the vendor's SDK: only when its scheme is named. */
  readonly load: () => Promise<UrlEntry>;
}

/** One line a backend. */
const backends: ReadonlyMap<string, Backend> = new Map([
  ["azblob:", { packages: ["@firstwrite/azure", "@azure/storage-blob"], load: () => import("@firstwrite/azure/url") }],
  ["gs:", { packages: ["@firstwrite/gcs", "@google-cloud/storage"], load: () => import("@firstwrite/gcs/url") }],
  ["memory:", { packages: ["@firstwrite/memory"], load: () => import("@firstwrite/memory/url") }],
  ["s3:", { packages: ["@firstwrite/s3", "@aws-sdk/client-s3"], load: () => import("@firstwrite/s3/url") }],
  ["sqlite:", { packages: ["@firstwrite/sqlite"], load: () => import("@firstwrite/sqlite/url") }],
]);

/**
 * Opens a store by its URL: `s3://bucket/prefix?region=…`, `gs://bucket/prefix`, `azblob://account/container/prefix`,
 * `sqlite:PATH`, `memory:`. Each adapter's README has the options of its scheme. Close it when done.
 *
 * @throws {StoreError} `INVALID_ARGUMENT` for a URL that names no backend, or one whose package is not installed: the
 *   message has the command that installs it. Never the URL itself.
 */
export async function openStore(url: string): Promise<ConditionalStore> {
  const scheme = /^[a-z0-9]+:/.exec(url)?.[0] ?? "";
  const backend = backends.get(scheme);
  if (backend === undefined) {
    throw new StoreError("INVALID_ARGUMENT", "store", `the URL begins with none of ${[...backends.keys()].join(", ")}`);
  }
  return (await load(scheme, backend)).openUrl(url);
}

async function load(scheme: string, { packages, load }: Backend): Promise<UrlEntry> {
  try {
    return await load();
  } catch (error) {
    const message =
      error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND" ? error.message : "";
    if (!packages.some((name) => message.includes(`'${name}'`))) throw error;
    throw new StoreError(
      "INVALID_ARGUMENT",
      "store",
      `${scheme} needs packages that are not installed: npm install ${packages.join(" ")}`,
      { cause: error },
    );
  }
}
