import { randomBytes } from "node:crypto";

import { ContainerClient, StorageSharedKeyCredential } from "@azure/storage-blob";
import { AzureStore } from "@firstwrite/azure";

import type { Provisioned } from "../row.ts";
import type { AzureService } from "../servers/azurite.ts";

/** A container of its own on a blob service that is started for it. */
export async function provisionAzure(start: () => Promise<AzureService>): Promise<Provisioned> {
  const service = await start();
  const { endpoint, account, key } = service;
  const name = `firstwrite-${randomBytes(6).toString("hex")}`;
  const prefix = "matrix";
  const container = (at: string = endpoint): ContainerClient =>
    new ContainerClient(`${at}/${name}`, new StorageSharedKeyCredential(account, key));
  const open = async (): Promise<AzureStore> => new AzureStore({ container: container(), prefix });
  const { origin, pathname } = new URL(endpoint);
  try {
    await container().create();
  } catch (error) {
    await service.stop();
    throw error;
  }
  return {
    open,
    openSecond: open,
    via: {
      endpoint: origin,
      open: async (address) => new AzureStore({ container: container(`${address}${pathname}`), prefix }),
    },
    url: `azblob://${account}/${name}/${prefix}?endpoint=${endpoint}`,
    env: { AZURE_STORAGE_KEY: key },
    async close() {
      try {
        // A service that was there before is left as it was found.
        await container().delete();
      } finally {
        await service.stop();
      }
    },
  };
}
