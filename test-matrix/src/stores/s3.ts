import { randomBytes } from "node:crypto";

import {
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteObjectsCommand,
  GetBucketVersioningCommand,
  ListObjectVersionsCommand,
  paginateListObjectsV2,
  PutBucketVersioningCommand,
  PutObjectLockConfigurationCommand,
  S3Client,
  type S3ClientConfig,
} from "@aws-sdk/client-s3";
import { S3Store } from "@firstwrite/s3";

import type { Provisioned } from "../row.ts";
import type { S3Endpoint, S3Service } from "../servers/s3-endpoint.ts";

/**
 * What a bucket does with what is written over:
 * - `off`: nothing, as a new bucket;
 * - `on`: it stays as an older version, and a delete puts a marker over it;
 * - `suspended`: as `on` was once, and what is written since then is one version, called null;
 * - `locked`: as `on`, and no version can be deleted for a day.
 *
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/Versioning.html
 */
export type Versioning = "off" | "on" | "suspended" | "locked";

/** A bucket of its own on an S3 service that is started for it. The second client goes by the service's last address. */
export async function provisionS3(
  start: () => Promise<S3Service>,
  versioning: Versioning = "off",
): Promise<Provisioned & { readonly bucket: string; readonly admin: S3Client }> {
  const service = await start();
  const [first] = service.endpoints;
  const second = service.endpoints.at(-1) ?? first;
  const place: Place = { bucket: `firstwrite-${randomBytes(6).toString("hex")}`, prefix: "matrix" };
  const admin = new S3Client(clientConfig(first));
  try {
    await makeBucket(admin, place.bucket, versioning);
  } catch (error) {
    admin.destroy();
    await service.stop();
    throw error;
  }
  const clients = new Clients(place);
  return {
    bucket: place.bucket,
    admin,
    open: () => clients.open(clientConfig(first)),
    openSecond: () => clients.open(clientConfig(second)),
    via: { endpoint: first.url, open: (address) => clients.open(clientConfig({ ...first, url: address })) },
    url: storeUrl(place, first),
    env: { AWS_ACCESS_KEY_ID: first.accessKeyId, AWS_SECRET_ACCESS_KEY: first.secretAccessKey },
    async close() {
      clients.destroy();
      try {
        // A service that was there before is left as it was found.
        await removeObjects(admin, place);
        await admin.send(new DeleteBucketCommand({ Bucket: place.bucket }));
      } finally {
        admin.destroy();
        await service.stop();
      }
    },
  };
}

/**
 * A folder of its own in a bucket that exists: `s3://bucket/folder?region=eu-central-1&endpoint=…`, with the credentials
 * that the SDK finds for itself.
 */
export async function provisionBucket(url: string): Promise<Provisioned> {
  const { hostname, pathname, searchParams } = new URL(url);
  const folder = `matrix-${randomBytes(6).toString("hex")}`;
  const place: Place = {
    bucket: hostname,
    prefix: [...pathname.split("/"), folder].filter((segment) => segment !== "").join("/"),
  };
  const region = searchParams.get("region");
  const endpoint = searchParams.get("endpoint");
  const config: S3ClientConfig = {
    ...(region !== null && { region }),
    ...(endpoint !== null && { endpoint, forcePathStyle: true }),
  };
  const clients = new Clients(place);
  return {
    open: () => clients.open(config),
    openSecond: () => clients.open(config),
    url: `s3://${place.bucket}/${place.prefix}?${searchParams.toString()}`,
    async close() {
      clients.destroy();
      const admin = new S3Client(config);
      try {
        await removeObjects(admin, place);
      } finally {
        admin.destroy();
      }
    },
  };
}

interface Place {
  readonly bucket: string;
  readonly prefix: string;
}

/** Stores do not end the clients they were given, so these are remembered. */
class Clients {
  readonly #place: Place;
  readonly #clients: S3Client[] = [];

  constructor(place: Place) {
    this.#place = place;
  }

  async open(config: S3ClientConfig): Promise<S3Store> {
    const client = new S3Client(config);
    this.#clients.push(client);
    return new S3Store({ client, ...this.#place });
  }

  destroy(): void {
    for (const client of this.#clients) client.destroy();
  }
}

function clientConfig({ url, region, accessKeyId, secretAccessKey }: S3Endpoint): S3ClientConfig {
  return {
    endpoint: url,
    region,
    // A bucket as a subdomain of 127.0.0.1 cannot be resolved.
    forcePathStyle: true,
    credentials: { accessKeyId, secretAccessKey },
  };
}

function storeUrl({ bucket, prefix }: Place, { url, region }: S3Endpoint): string {
  return `s3://${bucket}/${prefix}?endpoint=${url}&region=${region}`;
}

async function makeBucket(client: S3Client, Bucket: string, versioning: Versioning): Promise<void> {
  await client.send(new CreateBucketCommand({ Bucket, ObjectLockEnabledForBucket: versioning === "locked" }));
  if (versioning === "on" || versioning === "suspended") await setVersioning(client, Bucket, "Enabled");
  // Of a bucket that never had versions nothing is to be seen of its being suspended.
  if (versioning === "suspended") await setVersioning(client, Bucket, "Suspended");
  if (versioning === "locked") {
    const Rule = { DefaultRetention: { Mode: "GOVERNANCE", Days: 1 } } as const;
    const ObjectLockConfiguration = { ObjectLockEnabled: "Enabled", Rule } as const;
    await client.send(new PutObjectLockConfigurationCommand({ Bucket, ObjectLockConfiguration }));
  }
}

async function setVersioning(client: S3Client, Bucket: string, Status: "Enabled" | "Suspended"): Promise<void> {
  await client.send(new PutBucketVersioningCommand({ Bucket, VersioningConfiguration: { Status } }));
}

async function removeObjects(client: S3Client, place: Place): Promise<void> {
  if (await hasVersions(client, place.bucket)) return removeVersions(client, place);
  const { bucket: Bucket, prefix } = place;
  for await (const page of paginateListObjectsV2({ client }, { Bucket, Prefix: `${prefix}/` })) {
    await removeAll(client, Bucket, page.Contents ?? []);
  }
}

/** A service that has no versions may not know the question. */
async function hasVersions(client: S3Client, Bucket: string): Promise<boolean> {
  try {
    return (await client.send(new GetBucketVersioningCommand({ Bucket }))).Status !== undefined;
  } catch {
    return false;
  }
}

/** Every version and every delete marker, also those that a lock of ours retains. */
async function removeVersions(client: S3Client, { bucket: Bucket, prefix }: Place): Promise<void> {
  for (;;) {
    // From the beginning each time: those seen before are gone.
    const page = await client.send(new ListObjectVersionsCommand({ Bucket, Prefix: `${prefix}/` }));
    const found = [...(page.Versions ?? []), ...(page.DeleteMarkers ?? [])];
    if (found.length === 0) return;
    await removeAll(client, Bucket, found);
  }
}

/** A page of a listing, which is as many as one request may remove. */
async function removeAll(
  client: S3Client,
  Bucket: string,
  found: readonly { readonly Key?: string | undefined; readonly VersionId?: string | undefined }[],
): Promise<void> {
  const Objects = found.flatMap(({ Key, VersionId }) =>
    Key === undefined ? [] : [{ Key, ...(VersionId !== undefined && { VersionId }) }],
  );
  if (Objects.length === 0) return;
  const Delete = { Objects, Quiet: true };
  const answer = await client.send(new DeleteObjectsCommand({ Bucket, Delete, BypassGovernanceRetention: true }));
  const [error] = answer.Errors ?? [];
  if (error !== undefined) throw new Error(`${error.Key} cannot be removed: ${error.Code} ${error.Message}`);
}
