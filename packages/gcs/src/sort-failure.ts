/**
 * What an answer of Cloud Storage means, and what a request without one. Pure: what was seen of one request in, a verdict
 * out.
 *
 * Sorted by status and reason together, never by message, and nothing is guessed (P5): an answer that is not listed is
 * `unknown` for a write and a failed read for a read. For a write an error is listed only where the service turned the
 * request away; where it may have done something first, the verdict is `unknown` (P2).
 *
 * Reasons: https://docs.cloud.google.com/storage/docs/json_api/v1/status-codes
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
import { member } from "./answer-body.ts";

/** An answer other than a success, with the reason in its body if one could be read. */
export interface Refusal {
  readonly status: number;
  readonly reason: string | undefined;
}

/** A request without a whole answer. */
export interface Failure {
  /** What was thrown, or the reason of an abort. */
  readonly error: unknown;
  readonly stage: "before" | "credentials" | "sent";
  /** The status line, if one arrived. */
  readonly status: number | undefined;
}

export function sortWriteRefusal(operation: "create" | "replace" | "remove", refusal: Refusal): WriteVerdict {
  const { status, reason } = refusal;
  switch (status) {
    case 412:
      // There are other reasons for a 412, an organization's policy among them; without one that can be read nobody knows.
      if (reason === "conditionNotMet") return { kind: "refused" };
      break;
    case 404:
      // An upload needs no object, so it is the bucket that is not there. A delete says the same of both, and there is
      // nothing of that name in either case.
      if (operation === "remove" && reason === "notFound") return { kind: "refused" };
      break;
    case 409:
      // "Failed to commit the change due to a conflicting concurrent change to the same resource."
      if (reason === "conflict") return { kind: "contended" };
      break;
    case 429:
      // About one write a second to a name: https://docs.cloud.google.com/storage/quotas#objects
      return { kind: "contended" };
    default:
  }
  return sortRejection(refusal) ?? { kind: "unknown" };
}

export function sortReadRefusal(refusal: Refusal): ReadVerdict {
  // A media answer has its errors as plain text, and no reason tells a missing object from a missing bucket. The first
  // create tells: that one has a reason.
  if (refusal.status === 404) return { kind: "missing" };
  return sortListRefusal(refusal);
}

export function sortListRefusal(refusal: Refusal): Rejection {
  return sortRejection(refusal) ?? unavailable(`the answer was ${describe(refusal)}`);
}

export function sortWriteFailure({ error, stage, status }: Failure): WriteVerdict {
  if (stage !== "sent") return sortUnsent(stage, error);
  if (status !== undefined) {
    // Its body did not come, and with it the reason.
    return sortWriteRefusal("create", { status, reason: undefined });
  }
  return neverSent(error) ? unavailable("no connection") : { kind: "unknown" };
}

export function sortReadFailure({ error, stage, status }: Failure): Rejection {
  if (stage !== "sent") return sortUnsent(stage, error);
  if (status === undefined) return unavailable("no answer");
  if (status === 200) return unavailable("the body did not arrive whole");
  return sortListRefusal({ status, reason: undefined });
}

/** Answers by which the service turns a request of any kind away, having done nothing. */
function sortRejection(refusal: Refusal): Rejection | undefined {
  const { status, reason } = refusal;
  const listed = rejections.get(`${status} ${reason}`) ?? rejections.get(`${status}`);
  return listed && { ...listed, why: `${listed.why} (${describe(refusal)})` };
}

const rejections: ReadonlyMap<string, Rejection> = new Map([
  ["301", invalid("the endpoint has moved to another address")],
  ["307", unavailable("the service is elsewhere for the moment")],
  ["404 notFound", invalid("the bucket does not exist")],
  ["413", invalid("the record is larger than the service takes")],
  // Also for a record that does not fit its checksum, with no reason of its own.
  ["400 invalid", invalid("the service does not take the request")],
  ["400 invalidArgument", invalid("the service does not take the request")],
  ["400 invalidParameter", invalid("the service does not take the request")],
  ["400 required", invalid("the service does not take the request")],
  ["400 userProjectInvalid", invalid("the project to be billed cannot be one")],
  ["400 userProjectMissing", invalid("the bucket is paid for by requesters, and no project is named")],
  ["400 badRequest", invalid("the bucket's settings do not allow the request")],
  ["401", denied("the credentials were not accepted")],
  ["403", denied("access was denied")],
  ["403 retentionPolicyNotMet", denied("the bucket retains its objects")],
  ["403 objectUnderActiveHold", denied("the object is on hold")],
  ["412 orgPolicyConstraintFailed", denied("an organization's policy forbids it")],
  ["400 cloudKmsBadKey", denied("the encryption key cannot be used")],
  ["400 cloudKmsDisabledKey", denied("the encryption key is disabled")],
  ["400 cloudKmsDecryptionKeyNotFound", denied("the encryption key does not exist")],
  ["400 cloudKmsEncryptionKeyNotFound", denied("the encryption key does not exist")],
  ["400 cloudKmsKeyLocationNotAllowed", denied("the encryption key is in another location")],
  ["400 resourceIsEncryptedWithCustomerEncryptionKey", denied("the object is encrypted with a key of its writer's")],
  // What 429 says today: https://github.com/googleapis/nodejs-storage/blob/main/src/storage.ts (`retryableErrorFn`)
  ["403 rateLimitExceeded", unavailable("too many requests")],
  ["403 userRateLimitExceeded", unavailable("too many requests")],
  ["400 turnedDown", unsupported("the service no longer has this interface")],
  ["400 wrongUrlForUpload", unsupported("the service does not take the request")],
  ["400 parseError", unsupported("the service does not take the request")],
  ["405", unsupported("the service does not take the request")],
  ["411", unsupported("the length of the record was lost on the way")],
  ["501", unsupported("the service does not take the request")],
  // Left out, and therefore `unknown` for a write:
  // - 408 uploadBrokenConnection, 500, 502, 503, 504: Google's page says to try again, and not that nothing was done.
  // - 410 and 308 belong to uploads in several requests, which are never made here.
]);

/** Nothing was written, whatever the reason. */
function sortUnsent(stage: "before" | "credentials", error: unknown): Rejection {
  if (stage === "before") return unavailable("the request was not sent");
  const status = member(member(error, "response"), "status");
  if (typeof status === "number") {
    return status >= 400 && status < 500 && status !== 408 && status !== 429
      ? denied(`the credentials were not accepted (${status})`)
      : unavailable(`the token service answered ${status}`);
  }
  // What is left is of two kinds: a connection that failed, and credentials that are missing or cannot be read.
  return neverSent(error) || isNetworkError(error)
    ? unavailable("the token service cannot be reached")
    : denied(noCredentials);
}

// Where the SDK looks: https://docs.cloud.google.com/docs/authentication/application-default-credentials
const noCredentials =
  "there are no credentials that can be used: set GOOGLE_APPLICATION_CREDENTIALS to a file of them, or run `gcloud auth " +
  "application-default login`, or attach a service account to the machine or container this runs on";

/**
 * Whether no connection was made. The HTTP client, node-fetch, keeps the system call under a name of its own, and nothing
 * of an attempt at several addresses but the first one's code: ECONNREFUSED, ENOTFOUND and EAI_AGAIN come from nothing
 * but opening a connection. A `fetch` of the user's has the system's error as its cause.
 */
function neverSent(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (neverConnected(error) || neverConnected(error.cause)) return true;
  const call = member(error, "erroredSysCall");
  const code = member(error, "code");
  return (
    call === "connect" ||
    call === "getaddrinfo" ||
    (call === undefined && (code === "ECONNREFUSED" || code === "ENOTFOUND" || code === "EAI_AGAIN"))
  );
}

/** An error of the HTTP client, as far as it is of the network and not of a file. */
function isNetworkError(error: unknown): boolean {
  return member(error, "type") === "system" || member(error, "config") !== undefined;
}

function describe({ status, reason }: Refusal): string {
  return reason === undefined ? `${status}` : `${status} ${reason}`;
}
