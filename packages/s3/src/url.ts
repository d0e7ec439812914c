import { S3Client } from "@aws-sdk/client-s3";
import { parseStoreUrl, StoreError, type ConditionalStore } from "@firstwrite/core";

import { S3Store } from "./s3-store.ts";

/**
 * Opens `s3://bucket/prefix`, with these options after `?`:
 * - `region`: by default the SDK's own (`AWS_REGION`, the profile);
 * - `endpoint`: of another service than AWS, `http://host:port`; the bucket then goes into the path;
 * - `unquotedIfMatch=true`, `checksums=none`: see `S3StoreOptions`.
 *
 * Credentials come from the SDK's default chain: environment, profile, container, instance.
 *
 * @throws {StoreError} `INVALID_ARGUMENT`, also where there is no region: no request could ever be signed.
 */
export async function openUrl(url: string): Promise<ConditionalStore> {
  const {
    authority: bucket,
    path: prefix,
    options,
  } = parseStoreUrl(url, ["region", "endpoint", "unquotedIfMatch", "checksums"]);
  const region = options.get("region");
  const endpoint = options.get("endpoint");
  const checksums = options.get("checksums");
  if (endpoint !== undefined && !/^https?:\/\/[^/@?#]+\/?$/.test(endpoint)) {
    throw new StoreError("INVALID_ARGUMENT", "s3", "the option endpoint must be http://host:port or https://host:port");
  }
  if (checksums !== undefined && checksums !== "none" && checksums !== "client") {
    throw new StoreError("INVALID_ARGUMENT", "s3", "the option checksums must be client or none");
  }
  const client = new S3Client({
    ...(region === undefined ? {} : { region }),
    ...(endpoint === undefined ? {} : { endpoint, forcePathStyle: true }),
  });
  const store = new S3Store({
    client,
    ownsClient: true,
    bucket,
    prefix,
    checksums,
    unquotedIfMatch: booleanOption(options.get("unquotedIfMatch"), "unquotedIfMatch"),
  });
  await checkRegion(client);
  return store;
}

/** The SDK would say so only at the first request, in an error that has nothing but its message to be known by. */
async function checkRegion(client: S3Client): Promise<void> {
  try {
    await client.config.region();
  } catch (cause) {
    client.destroy();
    const why = "there is no region: give it in the URL (?region=eu-west-1), in AWS_REGION or in the profile";
    throw new StoreError("INVALID_ARGUMENT", "s3", why, { cause });
  }
}

function booleanOption(value: string | undefined, name: string): boolean {
  if (value === undefined || value === "false") return false;
  if (value === "true") return true;
  throw new StoreError("INVALID_ARGUMENT", "s3", `the option ${name} must be true or false`);
}
