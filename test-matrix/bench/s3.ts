import { randomBytes } from "node:crypto";

import { CreateBucketCommand, GetObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { S3Store } from "@firstwrite/s3";

import type { S3Service } from "../src/servers/s3-endpoint.ts";
import type { AdapterBench } from "./adapter-bench.ts";

export async function s3Bench(start: () => Promise<S3Service>): Promise<AdapterBench> {
  const service = await start();
  const [{ url, region, accessKeyId, secretAccessKey }] = service.endpoints;
  const newClient = (): S3Client =>
    new S3Client({
      endpoint: url,
      region,
      forcePathStyle: true,
      credentials: { accessKeyId, secretAccessKey },
    });
  const [client, own] = [newClient(), newClient()];
  const Bucket = `firstwrite-${randomBytes(6).toString("hex")}`;
  await client.send(new CreateBucketCommand({ Bucket }));
  return {
    store: new S3Store({ client: own, bucket: Bucket }),
    bare: {
      async create(Key, Body) {
        const { ETag } = await client.send(new PutObjectCommand({ Bucket, Key, Body, IfNoneMatch: "*" }));
        return ETag ?? "";
      },
      async replace(Key, version, Body) {
        const { ETag } = await client.send(new PutObjectCommand({ Bucket, Key, Body, IfMatch: version }));
        return ETag ?? "";
      },
      async read(Key) {
        const { Body } = await client.send(new GetObjectCommand({ Bucket, Key }));
        return (await Body?.transformToByteArray()) ?? new Uint8Array();
      },
    },
    async close() {
      client.destroy();
      own.destroy();
      await service.stop();
    },
  };
}
