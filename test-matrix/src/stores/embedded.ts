import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { MemoryStore } from "@firstwrite/memory";
import { SqliteStore } from "@firstwrite/sqlite";

import type { Provisioned } from "../row.ts";

/** Memory is seen by one process and needs no server: a second client would be the first again. */
export function provisionMemory(): Promise<Provisioned> {
  const store = new MemoryStore();
  return Promise.resolve({ open: () => Promise.resolve(store), close: () => Promise.resolve() });
}

/** One file in a folder of its own; the second client is a second connection. */
export async function provisionSqlite(): Promise<Provisioned> {
  const folder = await mkdtemp(join(tmpdir(), "firstwrite-sqlite-"));
  const path = join(folder, "records.db");
  const open = (): Promise<SqliteStore> => SqliteStore.open({ path });
  return { open, openSecond: open, url: `sqlite:${path}`, close: () => rm(folder, { recursive: true, force: true }) };
}
