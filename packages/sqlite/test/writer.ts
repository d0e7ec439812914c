/**
 * A process for the tests to kill: adds one to a counter by compare-and-swap for ever, and tells its parent each value
 * that was answered `written`.
 */

import { SqliteStore } from "@firstwrite/sqlite";

const [, , path = "", name = ""] = process.argv;
const store = await SqliteStore.open({ path });

for (;;) {
  const record = await store.read(name);
  const count = record === undefined ? 0 : Number(JSON.parse(Buffer.from(record.bytes).toString()).count);
  const bytes = Buffer.from(JSON.stringify({ count: count + 1, by: process.pid, padding: "x".repeat(20_000) }));
  const outcome =
    record === undefined ? await store.create(name, bytes) : await store.replace(name, record.version, bytes);
  if (outcome.kind === "written") await new Promise((resolve) => process.send?.(count + 1, resolve));
}
