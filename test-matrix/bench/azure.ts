import { randomBytes } from "node:crypto";
import { buffer } from "node:stream/consumers";

import { ContainerClient, StorageSharedKeyCredential } from "@azure/storage-blob";
import { AzureStore } from "@firstwrite/azure";

import type { AzureService } from "../src/servers/azurite.ts";
import type { AdapterBench } from "./adapter-bench.ts";

export async function azureBench(start: () => Promise<AzureService>): Promise<AdapterBench> {
  const service = await start();
  const { endpoint, account, key } = service;
  const url = `${endpoint}/firstwrite-${randomBytes(6).toString("hex")}`;
  const newClient = (): ContainerClient => new ContainerClient(url, new StorageSharedKeyCredential(account, key));
  const client = newClient();
  await client.create();
  const upload = async (
    name: string,
    bytes: Uint8Array,
    conditions: { ifMatch: string } | { ifNoneMatch: string },
  ): Promise<string> => {
    const { etag } = await client.getBlockBlobClient(name).upload(Buffer.from(bytes), bytes.byteLength, { conditions });
    return etag ?? "";
  };
  return {
    store: new AzureStore({ container: newClient() }),
    bare: {
      create: (name, bytes) => upload(name, bytes, { ifNoneMatch: "*" }),
      replace: (name, version, bytes) => upload(name, bytes, { ifMatch: version }),
      async read(name) {
        const { readableStreamBody } = await client.getBlockBlobClient(name).download();
        return readableStreamBody === undefined ? new Uint8Array() : buffer(readableStreamBody);
      },
    },
    close: () => service.stop(),
  };
}
