import { Storage } from "@google-cloud/storage";
import { parseStoreUrl, StoreError, type ConditionalStore } from "@firstwrite/core";

import { GcsStore } from "./gcs-store.ts";

/**
 * Opens `gs://bucket/prefix`, with one option after `?`:
 * - `endpoint`: of an emulator, `http://host:port`; it gets no credentials.
 *
 * Without it, credentials are the Application Default Credentials: `GOOGLE_APPLICATION_CREDENTIALS`, gcloud's, the
 * machine's own.
 *
 * @throws {StoreError} `INVALID_ARGUMENT`.
 */
export async function openUrl(url: string): Promise<ConditionalStore> {
  const { authority: bucket, path: prefix, options } = parseStoreUrl(url, ["endpoint"]);
  const endpoint = options.get("endpoint");
  if (endpoint !== undefined && !/^https?:\/\/[^/@?#]+\/?$/.test(endpoint)) {
    throw new StoreError(
      "INVALID_ARGUMENT",
      "gcs",
      "the option endpoint must be http://host:port or https://host:port",
    );
  }
  return new GcsStore({
    storage: new Storage(endpoint === undefined ? {} : { apiEndpoint: endpoint }),
    bucket,
    prefix,
  });
}
