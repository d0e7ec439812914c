import type { ConditionalStore } from "./conditional-store.ts";
import { OperationHeldError, type OperationFacts } from "./errors.ts";
import { publish } from "./events.ts";
import type { ExecutionFlight } from "./execution-flight.ts";
import type { Digest } from "./fingerprint.ts";
import type { KeyAge } from "./key-age.ts";
import type { RecordAddress } from "./object-name.ts";
import type { OperationDefinition } from "./operation.ts";
import { decodeRecord, type IdempotencyRecord } from "./record.ts";
import type { StoreSession, TimedRead } from "./store-session.ts";

/** One call of `execute`, checked. */
export interface Execution {
  readonly store: ConditionalStore;
  readonly operation: OperationDefinition<unknown, unknown>;
  readonly address: RecordAddress;
  readonly inputHash: Digest;
  /** A copy that nobody else has. */
  readonly input: unknown;
  readonly readFirst: boolean;
  readonly keyAge: KeyAge | undefined;
  readonly flight: ExecutionFlight;
  readonly openSession: (requestMsMax?: number) => StoreSession;
  /** Told of each settled record, and that it is at most so old at that time by the monotonic clock. */
  readonly remember: (record: IdempotencyRecord, ageMs: number, asOfMs: number) => void;
}

/** A record as a read found it. */
export interface Found {
  readonly stored: TimedRead;
  readonly record: IdempotencyRecord;
}

export async function look(
  session: StoreSession,
  { address }: { readonly address: RecordAddress },
): Promise<Found | undefined> {
  const stored = await session.read(address.name);
  return stored && { stored, record: decodeRecord(session.store.traits.name, address, stored) };
}

/** What errors and events name an operation by. */
export interface KnownFacts extends OperationFacts {
  readonly operationId: string;
  readonly keyHash: string;
}

export function factsOf({ operationId, keyHash }: IdempotencyRecord): KnownFacts {
  return { operationId, keyHash };
}

export function held(operation: string, record: IdempotencyRecord): OperationHeldError {
  publish("firstwrite:held", () => ({ operation, ...factsOf(record) }));
  return new OperationHeldError(
    "nobody knows whether the operation's effect happened, and a person has to decide: look it up by its operation ID, " +
      "then settle or release it",
    factsOf(record),
  );
}
