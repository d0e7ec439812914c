import { isStale } from "./classify.ts";
import type { ConditionalStore } from "./conditional-store.ts";
import { InvalidArgumentError } from "./errors.ts";
import type { RecordAddress } from "./object-name.ts";
import { removeHonoured } from "./probe-store.ts";
import { decodeRecord } from "./record.ts";
import { uuidV4 } from "./runtime.ts";
import { StoreError } from "./store-error.ts";
import type { StoreSession } from "./store-session.ts";

/** A duplicate of an old create may still be in flight for so long, and would bring an old claim back. */
const SETTLED_MS = 3_600_000;

const honouredBy = new WeakMap<ConditionalStore, boolean>();

/**
 * Removes a key's record, as an operator does who prunes (rule P9). The usual way to prune is the bucket's lifecycle rule.
 *
 * @param options `force`: also a record whose TTL is not over; its key is then forgotten.
 * @returns whether there was a record and it is gone; false where there was none, or another write came first.
 * @throws {InvalidArgumentError} for a record that is `creating` or `held`, was written within the last hour, or, unless
 *   forced, is not stale. It says which.
 * @throws {StoreError} `UNSUPPORTED` where the service has no conditional delete, or was found not to honour it.
 */
export async function removeRecord(
  session: StoreSession,
  address: RecordAddress,
  options: { readonly force?: boolean } = {},
): Promise<boolean> {
  const { store } = session;
  const stored = await session.read(address.name);
  if (stored === undefined) return false;
  const record = decodeRecord(store.traits.name, address, stored);
  const refuse = (why: string): InvalidArgumentError => new InvalidArgumentError(`the record is not removed: ${why}`);
  const stale = isStale(record, stored, store.traits.clockGranularityMs);
  if (record.status === "held") throw refuse("it is held for a person to decide");
  if (record.status === "creating" && !stale) throw refuse("its operation is not settled");
  if (stored.readAt - stored.modifiedAt <= SETTLED_MS + store.traits.clockGranularityMs) {
    throw refuse("it was written within the last hour, and a copy of its first write may still be in flight");
  }
  if (!stale && options.force !== true) throw refuse("its TTL is not over; force forgets the key all the same");
  if (!(await honours(session))) {
    throw new StoreError(
      "UNSUPPORTED",
      store.traits.name,
      "the service does not delete on condition: use its lifecycle rules",
    );
  }
  const outcome = await session.remove(address.name, stored.version);
  return outcome.kind === "removed" || (outcome.kind === "unknown" && (await session.read(address.name)) === undefined);
}

/** Found out once for a store, by trying. */
async function honours(session: StoreSession): Promise<boolean> {
  const known = honouredBy.get(session.store);
  if (known !== undefined) return known;
  const found = (await removeHonoured(session, `firstwrite-probe/${uuidV4(session.runtime)}/remove.json`)) === true;
  honouredBy.set(session.store, found);
  return found;
}
