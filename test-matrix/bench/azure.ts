import { createHash, randomBytes } from "node:crypto";
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
    // The same work: the MD5 that the service checks a write by is most of what an adapter's write costs more.
    const blobHTTPHeaders = { blobContentType: "application/octet-stream", blobContentMD5: md5Of(bytes) };
    const body = Buffer.from(bytes);
    const { etag } = await client
      .getBlockBlobClient(name)
      .upload(body, body.byteLength, { conditions, blobHTTPHeaders });
    return etag ?? "";
  };
  return {
    store: new AzureStore({ container: newClient() }),
    bare: {
      create: (name, bytes) => upload(name, bytes, { ifNoneMatch: "*" }),
      replace: (name, version, bytes) => upload(name, bytes, { ifMatch: version }),
      async read(name) {
        const { readableStreamBody, contentMD5 } = await client.getBlockBlobClient(name).download();
        const bytes = readableStreamBody === undefined ? Buffer.alloc(0) : await buffer(readableStreamBody);
        if (contentMD5 === undefined || !md5Of(bytes).equals(contentMD5)) throw new Error("the body is not its MD5's");
        return bytes;
      },
    },
    close: () => service.stop(),
  };
}

function md5Of(bytes: Uint8Array): Buffer {
  return createHash("md5").update(bytes).digest();
}
