/** Who owns an operation: rules E1 and E2. What may be done with a record is said by `classify.ts`. */

import { Backoff } from "./backoff.ts";
import { classifyOperation } from "./classify.ts";
import { IdempotencyConflictError } from "./errors.ts";
import { publish } from "./events.ts";
import { factsOf, held, look, type Execution, type Found } from "./execution.ts";
import { isTooOld, keyTooOld } from "./key-age.ts";
import { stamp, type IdempotencyRecord, type RecordResult, type WritableRecord } from "./record.ts";
import { formatTime, uuidV4 } from "./runtime.ts";
import { settleRecord } from "./settled-record.ts";
import type { Mine } from "./settled-write.ts";
import type { StoreSession } from "./store-session.ts";

export type Claimed =
  | { readonly kind: "settled"; readonly found: Found; readonly result: RecordResult }
  | {
      readonly kind: "mine";
      readonly record: WritableRecord;
      readonly mine: Mine<unknown>;
      readonly firstSentAtMs: number;
      /** The attempt before it may have had an effect. */
      readonly recovers: boolean;
    };

/** Rules E1 and E2. `found`: what was read just now, if anything was. */
export async function claim(session: StoreSession, execution: Execution, found: Found | undefined): Promise<Claimed> {
  const { flight, address, operation } = execution;
  const backoff = new Backoff(session.runtime);
  if (found === undefined && execution.readFirst) found = await look(session, execution);
  for (;;) {
    const next = nextClaim(session, execution, found);
    switch (next.kind) {
      case "settled":
        flight.claims(undefined);
        return next;
      case "wait":
        if (flight.waits({ operationId: next.found.record.operationId, leaseLeftMs: next.leaseLeftMs })) {
          flight.onJoin = () => session.wake();
          await session.pause(backoff);
          flight.onJoin = () => {};
        }
        found = await look(session, execution);
        continue;
      case "write":
        break;
    }
    flight.claims(found?.record.status === "creating" ? { ...factsOf(found.record), leaseLeftMs: 0 } : undefined);
    const { record } = next;
    const firstSentAtMs = session.runtime.monotonicMs();
    const settled = await settleRecord(session, address, found?.stored.version, record);
    if (settled.kind === "mine") {
      if (record.status === "held") throw held(operation.name, record);
      if (next.recovers) {
        publish("firstwrite:taken-over", () => ({
          operation: operation.name,
          ...factsOf(record),
          attempt: record.attempt,
        }));
      }
      return { kind: "mine", record, mine: settled, firstSentAtMs, recovers: next.recovers };
    }
    // An overwrite was lost, or the record is gone: not in a tight loop.
    if (found !== undefined || settled.kind === "absent") await session.pause(backoff);
    found = settled.kind === "other" ? { stored: settled.stored, record: settled.seen } : undefined;
  }
}

type NextClaim =
  | Extract<Claimed, { kind: "settled" }>
  | { readonly kind: "wait"; readonly found: Found; readonly leaseLeftMs: number }
  | { readonly kind: "write"; readonly record: WritableRecord; readonly recovers: boolean };

/** What a claimer does about the record it found. */
function nextClaim(session: StoreSession, execution: Execution, found: Found | undefined): NextClaim {
  const fresh = (): NextClaim => ({ kind: "write", record: freshClaim(session, execution), recovers: false });
  if (found === undefined) return fresh();
  const { operation, inputHash, keyAge, address } = execution;
  const { record, stored } = found;
  const refuseTooOld = (): void => {
    if (keyAge !== undefined && isTooOld(keyAge, stored.readAt)) throw keyTooOld(keyAge, { keyHash: address.keyHash });
  };
  const verdict = classifyOperation(record, stored, inputHash, session.store.traits.clockGranularityMs);
  switch (verdict.kind) {
    case "stale":
    case "free":
      refuseTooOld();
      return fresh();
    case "conflict":
      publish("firstwrite:conflict", () => ({ operation: operation.name, ...factsOf(record) }));
      throw new IdempotencyConflictError(
        "the idempotency key was used with another input or operation: send the same input again, or use a new key for a new request",
        factsOf(record),
      );
    case "ready":
      return { kind: "settled", found, result: verdict.result };
    case "released":
      refuseTooOld();
      return { kind: "write", record: nextAttempt(session, execution, record, {}), recovers: false };
    case "live":
      return { kind: "wait", found, leaseLeftMs: verdict.leaseLeftMs };
    case "over": {
      const holds = operation.recovery === "hold";
      const changes = { takeover: true, ...(holds ? { status: "held" as const, leaseMs: undefined } : {}) };
      return { kind: "write", record: nextAttempt(session, execution, record, changes), recovers: true };
    }
    case "held":
      throw held(operation.name, record);
  }
}

function freshClaim(session: StoreSession, { operation, address, inputHash }: Execution): WritableRecord {
  const { runtime } = session;
  const { scope, key, keyHash } = address;
  return {
    ...stamp(runtime, operation.retention.ttlMs),
    scope,
    key: operation.storeKey ? key : undefined,
    keyHash,
    inputHash,
    operationId: uuidV4(runtime),
    status: "creating",
    attempt: 1,
    takeover: false,
    leaseMs: operation.leaseMs + operation.recoverAfterMs,
    createdAt: formatTime(runtime.now()),
    result: undefined,
    fields: {},
  };
}

/** What is known of the operation stays: its ID, since when it is, whether it was ever taken over, what persons noted. */
function nextAttempt(
  session: StoreSession,
  { operation, address }: Execution,
  record: IdempotencyRecord,
  changes: Partial<Pick<WritableRecord, "status" | "leaseMs" | "takeover">>,
): WritableRecord {
  return {
    ...record,
    ...stamp(session.runtime, operation.retention.ttlMs),
    scope: address.scope,
    status: "creating",
    attempt: record.attempt + 1,
    leaseMs: operation.leaseMs + operation.recoverAfterMs,
    result: undefined,
    ...changes,
  };
}
