import type { Version } from "./conditional-store.ts";
import type { RecordPlace } from "./object-name.ts";
import { decodeRecord, encodeRecord, type IdempotencyRecord, type WritableRecord } from "./record.ts";
import { settleWrite, type SettledWrite } from "./settled-write.ts";
import type { StoreSession } from "./store-session.ts";

/**
 * Writes a record until it is known whose is there: by its `write_id` a writer tells its own (rule U1). `expected`: the version
 * it replaces; `undefined` creates it.
 *
 * @throws as `settleWrite`, and what a record that cannot be read throws.
 */
export async function settleRecord(
  session: StoreSession,
  address: RecordPlace,
  expected: Version | undefined,
  record: WritableRecord,
): Promise<SettledWrite<IdempotencyRecord>> {
  return settleWrite(session, {
    name: address.name,
    expected,
    bytes: encodeRecord(record),
    inspect(stored) {
      const seen = decodeRecord(session.store.traits.name, address, stored);
      return { ours: seen.writeId === record.writeId, seen };
    },
  });
}
