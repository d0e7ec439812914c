import { randomBytes } from "node:crypto";

import {
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteObjectCommand,
  paginateListObjectsV2,
  S3Client,
  type S3ClientConfig,
} from "@aws-sdk/client-s3";
import { S3Store } from "@firstwrite/s3";

import type { Provisioned } from "../row.ts";
import type { S3Endpoint, S3Service } from "../servers/s3-endpoint.ts";

/** A bucket of its own on an S3 service that is started for it. The second client goes by the service's last address. */
export async function provisionS3(start: () => Promise<S3Service>): Promise<Provisioned> {
  const service = await start();
  const [first] = service.endpoints;
  const second = service.endpoints.at(-1) ?? first;
  const place: Place = { bucket: `firstwrite-${randomBytes(6).toString("hex")}`, prefix: "matrix" };
  const admin = new S3Client(clientConfig(first));
  try {
    await admin.send(new CreateBucketCommand({ Bucket: place.bucket }));
  } catch (error) {
    admin.destroy();
    await service.stop();
    throw error;
  }
  const clients = new Clients(place);
  return {
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

async function removeObjects(client: S3Client, { bucket, prefix }: Place): Promise<void> {
  for await (const page of paginateListObjectsV2({ client }, { Bucket: bucket, Prefix: `${prefix}/` })) {
    for (const { Key } of page.Contents ?? []) await client.send(new DeleteObjectCommand({ Bucket: bucket, Key }));
  }
}
