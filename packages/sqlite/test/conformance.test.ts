import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { storeConformance } from "@firstwrite/conformance";
import { SqliteStore } from "@firstwrite/sqlite";

describe("SqliteStore keeps the contract of ConditionalStore", () => {
  const folder = mkdtempSync(join(tmpdir(), "firstwrite-sqlite-"));
  const path = join(folder, "store.db");
  after(() => rmSync(folder, { recursive: true, force: true }));
  storeConformance(
    { describe, it, before, after },
    { open: () => SqliteStore.open({ path }), openSecond: () => SqliteStore.open({ path }) },
  );
});
