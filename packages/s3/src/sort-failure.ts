/**
 * What an S3 failure means. Pure: what was seen of one request in, a verdict out.
 *
 * Sorted by status and error code together, never by message, and nothing is guessed (P5): an answer that is not listed
 * is `unknown` for a write and a failed read for a read. For a write an error is listed only where the service turned
 * the request away; where it may have done something first, the verdict is `unknown` (P2).
 *
 * Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
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
import { ConditionLostError } from "./one-request.ts";

export interface Failure {
  /** What the SDK threw, or the reason of an abort. */
  readonly error: unknown;
  /** Whether the request was handed to the HTTP handler. */
  readonly sent: boolean;
  /** The status line, if one arrived. */
  readonly status: number | undefined;
}

export function sortWriteFailure(operation: "create" | "replace", { error, sent, status }: Failure): WriteVerdict {
  if (!sent) return sortUnsent(error);
  if (status === undefined) return neverConnected(error) ? unavailable("no connection") : { kind: "unknown" };
  const code = serviceCode(error);
  switch (status) {
    case 412:
      // Said by the status line alone, even if no body can be read. Another code would be another rule's refusal.
      return { kind: code === undefined || code === "PreconditionFailed" ? "refused" : "unknown" };
    case 304:
      // MinIO before April 2024: https://github.com/minio/minio/issues/19442
      return { kind: operation === "create" ? "refused" : "unknown" };
    case 404:
      // If-Match where there is no current version, or a delete marker:
      // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
      if (operation === "replace" && code === "NoSuchKey") return { kind: "refused" };
      break;
    case 409:
      // Another write was in flight; both codes mean "try again". Taken for "exists", the answer tells every caller that
      // someone else has a name that nobody has: https://github.com/apache/arrow-rs-object-store/pull/852
      if (code === "ConditionalRequestConflict" || code === "OperationAborted") return { kind: "contended" };
      break;
    case 429:
      // R2 takes one write a second to a name: https://developers.cloudflare.com/r2/platform/limits/
      return { kind: "contended" };
    default:
  }
  return sortRejection(status, code) ?? { kind: "unknown" };
}

export function sortReadFailure({ error, sent, status }: Failure): ReadVerdict {
  if (!sent) return sortUnsent(error);
  const code = serviceCode(error);
  if (status === undefined) return unavailable("no answer");
  if (status === 404 && code === "NoSuchKey") return { kind: "missing" };
  if (status !== 200) return sortRejection(status, code) ?? unavailable(`the answer was ${describe(status, code)}`);
  // The SDK has no code or class for this one. Should its words change, it is a failed read like any other.
  const mismatch = error instanceof Error && error.message.startsWith("Checksum mismatch");
  return mismatch
    ? { kind: "error", code: "CORRUPT", why: "the body does not fit its checksum" }
    : unavailable("the body did not arrive whole");
}

/** Answers by which a service turns a request of any kind away, having done nothing. */
function sortRejection(status: number, code: string | undefined): Rejection | undefined {
  const listed = rejections.get(`${status} ${code}`) ?? rejections.get(`${status}`);
  return listed && { ...listed, why: `${listed.why} (${describe(status, code)})` };
}

const rejections: ReadonlyMap<string, Rejection> = new Map([
  // Wrong location: https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingRouting.html
  ["301", invalid("the bucket is at another endpoint or in another region than the client's")],
  ["308", invalid("the bucket is at another endpoint than the client's")],
  ["400 AuthorizationHeaderMalformed", invalid("the bucket is in another region than the client's")],
  ["400 IllegalLocationConstraintException", invalid("the bucket is in another region than the client's")],
  ["307", unavailable("the address of a new bucket is not known everywhere yet")],
  ["400 EntityTooLarge", invalid("the record is larger than the service takes")],
  ["413 EntityTooLarge", invalid("the record is larger than the service takes")],
  ["400 KeyTooLongError", invalid("the name is longer than the service takes")],
  ["400 InvalidURI", invalid("the service does not take the name")],
  ["400 InvalidBucketName", invalid("the bucket's name cannot be one")],
  ["404 NoSuchBucket", invalid("the bucket does not exist")],
  ["400 InvalidArgument", invalid("the service does not take the request")],
  ["400 InvalidRequest", invalid("the service does not take the request")],
  // versitygw keeps records as files, so that no name can go on from another one's with a slash: a 409 that time does
  // not heal. https://github.com/versity/versitygw/blob/main/s3err/s3err.go
  ["409 ObjectParentIsFile", invalid("a part of the name before a slash is a record already")],
  ["409 ExistingObjectIsDirectory", invalid("the names of other records go on from this one with a slash")],
  ["401", denied("the credentials were not accepted")],
  ["403", denied("access was denied")],
  ["400 ExpiredToken", denied("the session token has expired")],
  ["400 InvalidToken", denied("the session token is not valid")],
  ["400 TokenRefreshRequired", denied("the session token must be renewed")],
  // versitygw, for an access key it does not know.
  ["404 XAdminUserNotFound", denied("the access key is not known")],
  // Not the caller's rights but its clock. The SDK takes the service's time from this answer, and the next request is
  // signed by it: https://github.com/aws/aws-sdk-js-v3/pull/2686
  ["403 RequestTimeTooSkewed", unavailable("the clock of this machine is off")],
  // Accepted only after the checksum was found to fit:
  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
  ["400 BadDigest", unavailable("the record was damaged on the way")],
  ["400 XAmzContentSHA256Mismatch", unavailable("the record was damaged on the way")],
  ["400 IncompleteBody", unavailable("the record did not arrive whole")],
  ["405 MethodNotAllowed", unsupported("the service does not take the request")],
  // Backblaze B2's answer to a conditional PUT: https://github.com/sathinduga/obsidian-s3-sync-and-backup/issues/78
  ["501", unsupported("the service has no conditional writes")],
  // Left out, and therefore `unknown` for a write:
  // - 400 RequestTimeout and 408: the other side, or a proxy before it, gave up waiting. For what, it does not say.
  // - 500 InternalError: S3 may hold the old value or the new one
  //   (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorBestPractices.html).
  // - 503 SlowDown: that page does not say that nothing was done, and MinIO answers SlowDownWrite when too few of its
  //   drives took a write (https://github.com/minio/minio/blob/master/cmd/api-errors.go).
]);

/** Failed before the request was handed to the HTTP handler: nothing was written, whatever the reason. */
function sortUnsent(error: unknown): Rejection {
  if (error instanceof ConditionLostError) return unsupported(error.message);
  const name = error instanceof Error ? error.name : "";
  if (credentialErrors.has(name)) return denied(noCredentials);
  if (addressErrors.has(name)) return invalid("the client cannot address the bucket");
  // Another request came first: to STS or SSO for credentials, or to S3 Express for a session.
  const status = serviceStatus(error);
  const listed = status === undefined ? undefined : sortRejection(status, serviceCode(error));
  return listed ?? unavailable("the request was not sent");
}

// Where the SDK looks: https://docs.aws.amazon.com/sdk-for-javascript/v3/developer-guide/setting-credentials-node.html
const noCredentials =
  "the AWS SDK found no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile that " +
  "has some (of SSO: after `aws sso login`), or give the machine, container or service account this runs on a role";

const credentialErrors: ReadonlySet<string> = new Set([
  "CredentialsProviderError",
  "ProviderError",
  "TokenProviderError",
]);

const addressErrors: ReadonlySet<string> = new Set(["EndpointError", "InvalidBucketName"]);

/** The service's own error code; `undefined` where the SDK found none and put a word of its own there. */
function serviceCode(error: unknown): string | undefined {
  if (!(error instanceof Error && "$fault" in error)) return undefined;
  return placeholder.test(error.name) ? undefined : error.name;
}

const placeholder = /^(Error|NotFound|Unknown|UnknownError|\d+)$/;

function serviceStatus(error: unknown): number | undefined {
  if (!(error instanceof Error && "$fault" in error && "$metadata" in error)) return undefined;
  const metadata = error.$metadata;
  if (typeof metadata !== "object" || metadata === null || !("httpStatusCode" in metadata)) return undefined;
  return typeof metadata.httpStatusCode === "number" ? metadata.httpStatusCode : undefined;
}

function describe(status: number, code: string | undefined): string {
  return code === undefined ? `${status}` : `${status} ${code}`;
}
