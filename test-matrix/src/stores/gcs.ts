import { randomBytes } from "node:crypto";

import { Storage } from "@google-cloud/storage";
import { GcsStore } from "@firstwrite/gcs";

import type { Provisioned } from "../row.ts";
import type { GcsService } from "../servers/gcs-endpoint.ts";

/** A bucket of its own on a service that is started for it. */
export async function provisionGcs(start: () => Promise<GcsService>): Promise<Provisioned> {
  const service = await start();
  const bucket = `firstwrite-${randomBytes(6).toString("hex")}`;
  const prefix = "matrix";
  const client = (apiEndpoint: string = service.url): Storage => new Storage({ apiEndpoint, projectId: "firstwrite" });
  const admin = client();
  try {
    await admin.createBucket(bucket);
  } catch (error) {
    await service.stop();
    throw error;
  }
  const open = (): Promise<GcsStore> => Promise.resolve(new GcsStore({ storage: client(), bucket, prefix }));
  return {
    open,
    openSecond: open,
    via: {
      endpoint: service.url,
      open: async (address) => new GcsStore({ storage: client(address), bucket, prefix }),
    },
    url: `gs://${bucket}/${prefix}?endpoint=${service.url}`,
    async close() {
      try {
        // A service that was there before is left as it was found.
        await admin.bucket(bucket).deleteFiles({ force: true });
        await admin.bucket(bucket).delete();
      } finally {
        await service.stop();
      }
    },
  };
}
