export {
  toVersion,
  type CallOptions,
  type ConditionalStore,
  type ListedObject,
  type RemoveOutcome,
  type StoredRecord,
  type StoreTraits,
  type Version,
  type WriteOutcome,
} from "./conditional-store.ts";
export { StoreError, type StoreErrorCode } from "./store-error.ts";
export { checkNotAborted, checkObjectName, checkWrite, objectNameFault } from "./store-arguments.ts";
export { isStrongETag, neverConnected, parseHttpDate, timeOfHeader, versionOfETag } from "./transport.ts";
export {
  denied,
  invalid,
  outcomeOf,
  rejectionError,
  unavailable,
  unsupported,
  type ReadVerdict,
  type Rejection,
  type WriteVerdict,
} from "./verdict.ts";
export { parseStoreUrl, type StoreUrl } from "./store-url.ts";
export {
  Idempotency,
  type ExecuteRequest,
  type Executed,
  type IdempotencyOptions,
  type OperationKey,
  type OperatorLimits,
  type RecordKey,
  type Reservation,
  type ReserveRequest,
} from "./idempotency.ts";
export {
  extendReservation,
  reserveIn,
  type Choice,
  type Claim,
  type HeldRecord,
  type ReservationAttempt,
  type Reserved,
} from "./reserve.ts";
export {
  defineOperation,
  type EffectContext,
  type ErrorMeaning,
  type OperationDefinition,
  type OperationOptions,
  type Reconciled,
  type RecordedFailure,
  type Recovery,
  type RunContext,
  type SettlingWrite,
} from "./operation.ts";
export { idempotent, type IdempotentOptions } from "./idempotent.ts";
export type { Inspection, OperatorAnswer, OperatorNote, UnreadableRecord } from "./operator.ts";
export { executionOf, noteExecution, type ExecutionFacts } from "./result.ts";
export { defineReservation, type ReservationDefinition, type ReservationOptions } from "./reservation.ts";
export { days, type Retention } from "./retention.ts";
export {
  IdempotencyConflictError,
  IdempotencyError,
  InProgressError,
  InvalidArgumentError,
  KeyTooOldError,
  OperationHeldError,
  OutcomeUnknownError,
  ResultGoneError,
  UnsupportedRecordError,
  type IdempotencyErrorCode,
  type OperationFacts,
} from "./errors.ts";
export { checkIssuedAt, timeOfKey } from "./key-age.ts";
export { onEvent, type EventName, type FirstwriteEvents } from "./events.ts";
export { canonicalJson, isJsonObject, parseJsonObject, toJson, type Json, type JsonObject } from "./canonical-json.ts";
export { fingerprintOf, sha256, type Digest } from "./fingerprint.ts";
export { encodeScope, recordAddress, type RecordAddress, type RecordPlace } from "./object-name.ts";
export { formatTime, nodeRuntime, uuidV4, type Runtime } from "./runtime.ts";
export { SessionEnded, StoreSession, type ConditionalWrite, type FlightLife, type TimedRead } from "./store-session.ts";
export { settleWrite, type Mine, type RecognisableWrite, type SettledWrite } from "./settled-write.ts";
export { SingleFlight, type CallLimits, type Landed } from "./single-flight.ts";
export type {
  IdempotencyRecord,
  InlineResult,
  OffloadedResult,
  RecordResult,
  RecordStatus,
  ResultEncoding,
} from "./record.ts";
export { checkNames } from "./check-argument.ts";
export { brandedError, type ErrorBrand } from "./error-brand.ts";
export {
  probeStore,
  verifyStore,
  type ProbeCheck,
  type ProbeFinding,
  type ProbeOptions,
  type ProbeReport,
} from "./probe-store.ts";
export { removeRecord } from "./remove-record.ts";
