/** What an operation returned or threw ⇄ what its record holds. Byte-exact; no I/O. */

import { isJsonObject, toJson, type Json, type JsonObject } from "./canonical-json.ts";
import { checkObject } from "./check-argument.ts";
import { copyOf } from "./copy-of.ts";
import { sha256 } from "./fingerprint.ts";
import type { RecordedFailure } from "./operation.ts";
import type { InlineResult, OffloadedResult } from "./record.ts";

/**
 * A value as it is recorded: bytes as base64, a string as it is, `undefined` as nothing, anything else as JSON.
 *
 * @throws {InvalidArgumentError} for a value that is none of these, naming the part.
 */
export function encodeValue(value: unknown): InlineResult {
  if (value === undefined) return { kind: "value", encoding: "none", body: null };
  if (typeof value === "string" && value.isWellFormed()) return { kind: "value", encoding: "text", body: value };
  if (value instanceof Uint8Array) {
    const body = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
    return { kind: "value", encoding: "base64", body };
  }
  return { kind: "value", encoding: "json", body: toJson(value, "the result") };
}

/**
 * A failure as it is recorded: its name, message and code, and what `serializeError` chose. Never its stack.
 *
 * @throws whatever `serializeError` throws, and {@link InvalidArgumentError} for what is not JSON.
 */
export function encodeFailure(
  error: unknown,
  serializeError: (error: unknown) => Readonly<Record<string, unknown>>,
): InlineResult {
  const chosen = serializeError(error);
  checkObject(chosen, "what serializeError returns");
  const details = toJson(chosen, "what serializeError returns");
  const body: Record<string, Json> = { name: "Error", message: String(error) };
  if (typeof error === "object" && error !== null) {
    if ("name" in error && typeof error.name === "string") body["name"] = error.name.toWellFormed();
    if ("message" in error && typeof error.message === "string") body["message"] = error.message.toWellFormed();
    if ("code" in error && (typeof error.code === "string" || Number.isFinite(error.code))) {
      body["code"] = toJson(error.code, "the error's code");
    }
  }
  if (isJsonObject(details) && Object.keys(details).length > 0) body["details"] = details;
  return { kind: "failure", encoding: "json", body };
}

/** The recorded value, a copy for each caller. Bytes come as a `Buffer`, which is a `Uint8Array`, too. */
export function decodeValue(result: InlineResult): unknown {
  switch (result.encoding) {
    case "none":
      return undefined;
    case "base64":
      return Buffer.from(result.body, "base64");
    case "text":
      return result.body;
    case "json":
      return copyOf(result.body);
  }
}

/** What a retry of a recorded failure is thrown. */
export function decodeFailure(
  { body }: InlineResult,
  deserializeError: ((failure: RecordedFailure) => unknown) | undefined,
): unknown {
  const failure = recordedFailure(body);
  if (deserializeError !== undefined) return deserializeError(failure);
  const error = new Error(failure.message);
  // Own members, as JSON gave them; `name` is not to show up in a log as a member of its own.
  Object.defineProperty(error, "name", { value: failure.name, configurable: true, writable: true });
  const members: JsonObject = failure.code === undefined ? {} : { code: failure.code };
  for (const [member, value] of Object.entries({ ...failure.details, ...members })) {
    if (member === "name" || member === "message" || member === "stack") continue;
    Object.defineProperty(error, member, { value, configurable: true, enumerable: true, writable: true });
  }
  return error;
}

function recordedFailure(body: Json): RecordedFailure {
  const failure = isJsonObject(body) ? body : {};
  const { name, message, code, details } = failure;
  return {
    name: typeof name === "string" ? name : "Error",
    message: typeof message === "string" ? message : "the operation failed",
    code: typeof code === "string" || typeof code === "number" ? code : undefined,
    details: isJsonObject(details) ? copyOf(details) : undefined,
  };
}

/** The bytes of a result that stands in an object of its own (rule E9). */
export function resultBytes(result: InlineResult): Uint8Array {
  if (result.encoding === "base64") return Buffer.from(result.body, "base64");
  return Buffer.from(result.encoding === "text" ? result.body : JSON.stringify(result.body));
}

/** The result that `bytes` are; `undefined` for bytes that are not what was stored. */
export function resultOfBytes(offloaded: OffloadedResult, bytes: Uint8Array): InlineResult | undefined {
  if (bytes.byteLength !== offloaded.bytes || sha256(bytes) !== offloaded.sha256) return undefined;
  const { of: kind, encoding } = offloaded;
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (encoding === "base64") return { kind, encoding, body: buffer.toString("base64") };
  if (encoding === "text") return { kind, encoding, body: buffer.toString("utf8") };
  const body: Json = JSON.parse(buffer.toString("utf8"));
  return { kind, encoding, body };
}

const executionSymbol = Symbol.for("firstwrite.execution");

/** How a call of `execute` went, beside its value or error. */
export interface ExecutionFacts {
  /** What logs, ledgers and support tickets name the operation by. */
  readonly operationId: string;
  /** No effect was run for this call: it got the result of another one. */
  readonly replayed: boolean;
  /** The result is in the record. False: it may be decided otherwise for the next call, and the ledger knows better. */
  readonly recorded: boolean;
  /** Of an error that is not recorded: it speaks for the last attempt alone, and one before it may have succeeded, or succeed yet (rule E7). */
  readonly earlierMaySucceed?: boolean;
}

/** For products: leaves the facts with an error that the operation threw; one that is frozen, or no object, goes without. */
export function noteExecution(error: unknown, facts: ExecutionFacts): void {
  if (typeof error !== "object" || error === null) return;
  try {
    Reflect.defineProperty(error, executionSymbol, { value: facts, configurable: true });
  } catch {
    // A proxy has its own mind, and the caller is to be thrown what the operation threw all the same.
  }
}

/**
 * The facts of the execution that threw `error`; `undefined` for an error that no operation threw, such as the engine's own. Of an
 * error that several executions throw, such as a constant, those of the last: throw a new one each time.
 */
export function executionOf(error: unknown): ExecutionFacts | undefined {
  if (typeof error !== "object" || error === null) return undefined;
  try {
    const facts: unknown = Reflect.get(error, executionSymbol);
    return isFacts(facts) ? facts : undefined;
  } catch {
    // As above: a proxy that lets nothing be read.
    return undefined;
  }
}

function isFacts(facts: unknown): facts is ExecutionFacts {
  return typeof facts === "object" && facts !== null && "operationId" in facts;
}
