/**
 * Negative controls: servers that cannot be used, so that a probe, and a suite, which find nothing wrong with them are
 * themselves found out.
 */

import type { ConditionalStore, ProbeCheck } from "@firstwrite/core";

import type { Provisioned } from "./row.ts";
import { startGcpStorageEmulator } from "./servers/gcp-storage-emulator.ts";
import { startS3sFs } from "./servers/s3s-fs.ts";
import { provisionGcs } from "./stores/gcs.ts";
import { provisionS3 } from "./stores/s3.ts";

export interface Control {
  readonly name: string;
  /** What `probeStore` must find wrong, any of these. */
  readonly failsAt: readonly ProbeCheck[];
  /** @throws {CannotRun} when this machine has not got what it takes. */
  provision(): Promise<Pick<Provisioned, "close"> & { open(): Promise<ConditionalStore> }>;
}

export const controls: readonly Control[] = [
  {
    name: "s3s-fs",
    // Readers meet bodies that two winners wrote over each other.
    failsAt: ["race of creators", "race of replacers", "reads"],
    provision: () => provisionS3(() => startS3sFs("FIRSTWRITE_MATRIX_S3S_FS")),
  },
  {
    name: "gcp-storage-emulator",
    // It gives no generation with a body, so that a read of it is no record.
    failsAt: ["create existing", "reads"],
    provision: () => provisionGcs(() => startGcpStorageEmulator("FIRSTWRITE_MATRIX_GCP_STORAGE_EMULATOR")),
  },
];
