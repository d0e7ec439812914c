import { randomBytes } from "node:crypto";

import { GcsStore } from "@firstwrite/gcs";
import { Storage } from "@google-cloud/storage";

import type { GcsService } from "../src/servers/gcs-endpoint.ts";
import type { AdapterBench } from "./adapter-bench.ts";

export async function gcsBench(start: () => Promise<GcsService>): Promise<AdapterBench> {
  const service = await start();
  const newClient = (): Storage => new Storage({ apiEndpoint: service.url, projectId: "firstwrite" });
  const name = `firstwrite-${randomBytes(6).toString("hex")}`;
  const client = newClient();
  await client.createBucket(name);
  const bucket = client.bucket(name);
  // As few requests as the SDK's own call can be had with: one, and no check that would delete the object.
  const save = async (file: string, bytes: Uint8Array, generation: string): Promise<string> => {
    const object = bucket.file(file);
    const preconditionOpts = { ifGenerationMatch: generation };
    await object.save(Buffer.from(bytes), { resumable: false, validation: false, preconditionOpts });
    return String(object.metadata.generation);
  };
  return {
    store: new GcsStore({ storage: newClient(), bucket: name }),
    bare: {
      create: (file, bytes) => save(file, bytes, "0"),
      replace: (file, version, bytes) => save(file, bytes, version),
      async read(file) {
        const [bytes] = await bucket.file(file).download();
        return bytes;
      },
    },
    close: () => service.stop(),
  };
}
