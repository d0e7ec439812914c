/** A response ⇄ what its record holds. */

import { isUtf8 } from "node:buffer";

import { InvalidArgumentError } from "@firstwrite/core";

import { readResponse, type Answer, type HandlerAnswer } from "./answer.ts";

/** A response as it is recorded: JSON, its body byte for byte. */
export interface RecordedResponse {
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly encoding: "text" | "base64";
  readonly body: string;
}

/**
 * Never recorded, whatever the options: hop-by-hop headers (RFC 9110 §7.6.1), what is of one moment or of one connection, and
 * `Set-Cookie`, which would give a session of then to whoever retries.
 */
const NEVER: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "date",
  "idempotency-operation-id",
  "idempotent-replayed",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authentication-info",
  "proxy-connection",
  "set-cookie",
  "set-cookie2",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Says of a header's name, in lower case, whether it is recorded. */
export type HeaderFilter = (name: string) => boolean;

/**
 * The filter that `replayHeaders` asks for.
 *
 * @throws {InvalidArgumentError} for one that must never be replayed: left out in silence, it would be missed.
 */
export function headerFilter(only: readonly string[] | undefined): HeaderFilter {
  if (only === undefined) return (name) => !NEVER.has(name);
  if (!Array.isArray(only) || !only.every((name) => typeof name === "string")) {
    throw new InvalidArgumentError("replayHeaders must be a list of header names: the only ones that are replayed");
  }
  const names = new Set(only.map((name) => name.toLowerCase()));
  const never = Array.from(names).find((name) => NEVER.has(name));
  if (never !== undefined) {
    throw new InvalidArgumentError(`replayHeaders cannot have ${JSON.stringify(never)}: it is never replayed`);
  }
  return (name) => names.has(name);
}

/** What of a handler's answer is recorded. */
export function recordOf(
  { status, headers, body, inherited }: HandlerAnswer,
  isReplayed: HeaderFilter,
): RecordedResponse {
  // RFC 9110 §7.6.1: Connection names further headers that are for one hop.
  const hop = new Set(
    headers
      .filter(([name]) => name.toLowerCase() === "connection")
      .flatMap(([, value]) => value.split(","))
      .map((name) => name.trim().toLowerCase()),
  );
  const kept = headers.filter(([name]) => {
    const lower = name.toLowerCase();
    return isReplayed(lower) && !hop.has(lower) && !inherited.has(lower);
  });
  return { status, headers: kept, ...encode(Buffer.from(body.buffer, body.byteOffset, body.byteLength)) };
}

/** Text that a person can read in the record, unless its escapes would make it longer than base64. */
function encode(bytes: Buffer): Pick<RecordedResponse, "encoding" | "body"> {
  const base64 = bytes.toString("base64");
  if (isUtf8(bytes)) {
    const text = bytes.toString("utf8");
    if (Buffer.byteLength(JSON.stringify(text)) <= base64.length + 2) return { encoding: "text", body: text };
  }
  return { encoding: "base64", body: base64 };
}

/**
 * A `Response` as a record holds it: what a person who settles a held operation gives as its value.
 *
 * @throws {UnrecordableAnswerError}
 */
export async function recordedResponse(response: Response): Promise<RecordedResponse> {
  return recordOf(await readResponse(response, Infinity), headerFilter(undefined));
}

export function answerOf({ status, headers, encoding, body }: RecordedResponse): Answer {
  return { status, headers, body: Buffer.from(body, encoding === "base64" ? "base64" : "utf8") };
}

/** The recorded response that `value` is; `undefined` for anything else, such as what a person settled with. */
export function asRecordedResponse(value: unknown): RecordedResponse | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (!("status" in value && "headers" in value && "encoding" in value && "body" in value)) return undefined;
  const { status, headers, encoding, body } = value;
  if (typeof status !== "number" || !(status >= 200 && status <= 599) || !isHeaders(headers)) return undefined;
  if ((encoding !== "text" && encoding !== "base64") || typeof body !== "string") return undefined;
  return { status, headers, encoding, body };
}

function isHeaders(headers: unknown): headers is RecordedResponse["headers"] {
  return Array.isArray(headers) && headers.every((header: unknown) => isHeader(header));
}

/** One that HTTP can have: a person may have settled with another. */
function isHeader(header: unknown): boolean {
  if (!Array.isArray(header) || header.length !== 2) return false;
  const [name, value]: unknown[] = header;
  if (typeof name !== "string" || typeof value !== "string") return false;
  try {
    return new Headers([[name, value]]).has(name);
  } catch {
    return false;
  }
}

export function isSameResponse(one: RecordedResponse, other: RecordedResponse): boolean {
  return JSON.stringify(asRecordedResponse(one)) === JSON.stringify(asRecordedResponse(other));
}
