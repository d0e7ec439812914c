/**
 * What an Azure failure means. Pure: what was seen of one request in, a verdict out.
 *
 * Sorted by status and error code together, never by message, and nothing is guessed (P5): an answer that is not listed
 * is `unknown` for a write and a failed read for a read. For a write an error is listed only where the service turned
 * the request away; where it may have done something first, the verdict is `unknown` (P2).
 *
 * Codes: https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-error-codes and
 * https://learn.microsoft.com/en-us/rest/api/storageservices/common-rest-api-error-codes
 */

import {
  denied,
  invalid,
  neverConnected,
  unavailable,
  unsupported,
  type ReadVerdict,
  type Rejection,
  type WriteVerdict,
} from "@firstwrite/core";

import { ConditionLostError, type WireAnswer } from "./one-request.ts";

export interface Failure {
  /** What the SDK threw, or the reason of an abort. */
  readonly error: unknown;
  /** Whether the request was handed to the HTTP client. */
  readonly sent: boolean;
  /** The status line and headers, if they arrived. */
  readonly answer: WireAnswer | undefined;
}

/** `remove` is a write too: it is sorted as a `replace` is. */
export function sortWriteFailure(operation: "create" | "replace", { error, sent, answer }: Failure): WriteVerdict {
  if (!sent) return sortUnsent(error);
  if (answer === undefined) return connectionFailed(error) ? unavailable("no connection") : { kind: "unknown" };
  const { status } = answer;
  const code = serviceCode(error, answer);
  switch (`${status} ${code}`) {
    case "409 BlobAlreadyExists":
      // Of a 409 only this code: all the others are listed below, or are unknown.
      if (operation === "create") return { kind: "refused" };
      break;
    case "412 ConditionNotMet":
      // A create gets it too: https://github.com/google/go-cloud/blob/master/blob/azureblob/azureblob.go takes both. Of a
      // 412 only this code: a leased blob answers 412 as well.
      return { kind: "refused" };
    case "404 BlobNotFound":
      if (operation === "replace") return { kind: "refused" };
      break;
    default:
  }
  // Azure has no limit for one name; whoever limits here, such as a proxy, did nothing else (RFC 6585, 4).
  if (status === 429) return { kind: "contended" };
  return sortRejection(answer, code) ?? { kind: "unknown" };
}

export function sortReadFailure({ error, sent, answer }: Failure): ReadVerdict {
  if (!sent) return sortUnsent(error);
  if (answer === undefined) return unavailable("no answer");
  const { status } = answer;
  if (status === 200) return unavailable("the answer did not arrive whole");
  const code = serviceCode(error, answer);
  if (status === 404 && code === "BlobNotFound") return { kind: "missing" };
  return sortRejection(answer, code) ?? unavailable(`the answer was ${describe(status, code)}`);
}

/** Answers by which a service turns a request of any kind away, having done nothing. */
function sortRejection({ status, headers }: WireAnswer, code: string | undefined): Rejection | undefined {
  // Continuous access evaluation: the SDK has fetched a new token meanwhile, and uses it from the next request on.
  // https://learn.microsoft.com/en-us/entra/identity-platform/claims-challenge
  const claims = status === 401 && /\bclaims=/.test(headers["www-authenticate"] ?? "");
  const listed = claims ? tokenRevoked : (rejections.get(`${status} ${code}`) ?? rejections.get(`${status}`));
  return listed && { ...listed, why: `${listed.why} (${describe(status, code)})` };
}

const tokenRevoked = unavailable("the token was revoked; a new one is used next time");
const leased = denied("somebody holds a lease on the record: break it, and keep leases off records");
const immutable = unsupported("the container is immutable: a record must be replaceable");
const refusedRequest = invalid("the service does not take the request");

const rejections: ReadonlyMap<string, Rejection> = new Map([
  ["404 ContainerNotFound", invalid("the container does not exist")],
  ["409 ContainerBeingDeleted", invalid("the container is being deleted")],
  ["409 ContainerDisabled", denied("an administrator has disabled the container")],
  ["409 AccountBeingCreated", unavailable("the account is still being created")],
  ["409 BlobImmutableDueToPolicy", immutable],
  ["409 BlobImmutableDueToLegalHold", immutable],
  ["409 ContainerHasLegalHold", immutable],
  ["409 ContainerImmutabilityPolicyLocked", immutable],
  ["409 BlobArchived", unsupported("the record was moved to the archive tier: exclude records from that rule")],
  ["409 BlobBeingRehydrated", unavailable("the record is on its way back from the archive tier")],
  ["409 InvalidBlobType", invalid("a page or append blob has the name")],
  ["409 BlobOperationNotSupported", refusedRequest],
  ["409 SnapshotsPresent", invalid("the record has snapshots: delete them first")],
  ["409 FeatureVersionMismatch", refusedRequest],
  ["409 PublicAccessNotPermitted", denied("there are no credentials")],
  ["412 LeaseIdMissing", leased],
  ["412 LeaseIdMismatchWithBlobOperation", leased],
  ["412 LeaseLost", leased],
  ["412 LeaseNotPresentWithBlobOperation", leased],
  ["401", denied("the credentials were not accepted")],
  // Also where the clock of this machine is off, and for what a firewall or a network rule of the account keeps out.
  ["403", denied("access was denied")],
  ["403 UnauthorizedBlobOverwrite", denied("the SAS may create and not write: it needs the permission to write")],
  ["400 InvalidAuthenticationInfo", denied("the credentials were not accepted")],
  // What a request without credentials gets of a private container:
  // https://github.com/Azure/azure-storage-cpp/issues/397
  ["404 ResourceNotFound", denied("there is nothing to see without credentials")],
  ["400 InvalidInput", refusedRequest],
  ["400 InvalidHeaderValue", refusedRequest],
  ["400 InvalidQueryParameterValue", refusedRequest],
  ["400 InvalidUri", invalid("the service does not take the name")],
  ["400 InvalidResourceName", invalid("the service does not take the name")],
  ["400 OutOfRangeInput", invalid("the service does not take the name")],
  ["400 RequestUrlFailedToParse", invalid("the service does not take the name")],
  ["400 UnsupportedHeader", refusedRequest],
  ["400 UnsupportedQueryParameter", refusedRequest],
  ["400 MissingRequiredHeader", refusedRequest],
  ["400 MultipleConditionHeadersNotSupported", refusedRequest],
  ["413 RequestBodyTooLarge", invalid("the record is larger than the service takes")],
  // Validated before anything is stored:
  // https://learn.microsoft.com/en-us/archive/blogs/windowsazurestorage/windows-azure-blob-md5-overview
  ["400 Md5Mismatch", unavailable("the record was damaged on the way")],
  ["400 ConditionHeadersNotSupported", unsupported("the service has no conditional writes")],
  ["405 UnsupportedHttpVerb", unsupported("the service does not take the request")],
  ["501", unsupported("the service does not take the request")],
  // Left out, and therefore `unknown` for a write:
  // - 500 OperationTimedOut and InternalError: the write may have succeeded before or after
  //   (https://github.com/Azure/azure-sdk-for-python/issues/39615, https://github.com/MicrosoftDocs/architecture-center/issues/4274).
  // - 503 ServerBusy: no page says that nothing was done.
  // - 412 TargetConditionNotMet and SourceConditionNotMet: of copies, which are never made here.
  // - 412 and 409 without a code, which could be any of the above.
]);

/** Failed before the request was handed to the HTTP client: nothing was written, whatever the reason. */
function sortUnsent(error: unknown): Rejection {
  if (error instanceof ConditionLostError) return unsupported(error.message);
  if (!(error instanceof Error) || !credentialErrors.has(error.name)) return unavailable("the request was not sent");
  const status = "statusCode" in error && typeof error.statusCode === "number" ? error.statusCode : 0;
  return status === 429 || status >= 500
    ? unavailable("the service that gives tokens is not available")
    : denied(noCredentials);
}

const noCredentials =
  "the credential gave no token: run `az login`, or give the machine or container this runs on a managed identity, or, for " +
  "a store opened by its URL, set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN";

/** https://learn.microsoft.com/en-us/javascript/api/@azure/identity */
const credentialErrors: ReadonlySet<string> = new Set([
  "AggregateAuthenticationError",
  "AuthenticationError",
  "AuthenticationRequiredError",
  "CredentialUnavailableError",
]);

/**
 * Whether no connection was made. The SDK's own HTTP client drops the system call from what Node reports, so that only
 * those codes count that no open connection ends with.
 */
function connectionFailed(error: unknown): boolean {
  if (neverConnected(error)) return true;
  return error instanceof Error && "code" in error && connectionCodes.has(error.code);
}

const connectionCodes: ReadonlySet<unknown> = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"]);

/**
 * The service's own error code: from the header that it comes with, from the body where there is none. A HEAD and a 304
 * have no body.
 */
function serviceCode(error: unknown, { headers }: WireAnswer): string | undefined {
  const header = headers["x-ms-error-code"];
  if (header !== undefined && header !== "") return header;
  // Where the body cannot be read, this is a word of the SDK's own (PARSE_ERROR), which is listed nowhere.
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

function describe(status: number, code: string | undefined): string {
  return code === undefined ? `${status}` : `${status} ${code}`;
}
