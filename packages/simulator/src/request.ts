/** What callers ask, and what they are told: data, so that one answer can be given to the same code again. */

import type { StoredRecord, Version, WriteOutcome } from "@firstwrite/core";

import type { SharedDatabase } from "./scenario.ts";

export const channels = ["store", "service"] as const;
/** A caller has at most one request under way on each. */
export type Channel = (typeof channels)[number];

export type Request<Model> = StoreRequest | ServiceRequest<Model>;

interface AnyRequest {
  readonly caller: number;
  /** Equal for requests that ask the same, whenever they were sent. */
  readonly id: number;
  /** How many its caller had sent before it. */
  readonly nth: number;
  readonly readOnly: boolean;
  /** By the world's time, in epoch milliseconds. */
  readonly sentAt: number;
}

export interface StoreRequest extends AnyRequest {
  readonly channel: "store";
  readonly operation: "create" | "replace" | "read";
  readonly name: string;
  readonly expected: Version | undefined;
  /** Of a write. */
  readonly content: Content | undefined;
}

export interface ServiceRequest<Model> extends AnyRequest {
  readonly channel: "service";
  readonly label: string;
  readonly apply: (model: Model, database: SharedDatabase) => unknown;
}

/** Bytes, with a number that is equal for equal bytes. */
export interface Content {
  readonly bytes: Uint8Array;
  readonly id: number;
}

/** What a caller is told of one request. */
export type Answer =
  | { readonly kind: "outcome"; readonly outcome: WriteOutcome }
  | { readonly kind: "record"; readonly record: StoredRecord | undefined }
  /** `StoreError` of the code `UNAVAILABLE`. */
  | { readonly kind: "unavailable"; readonly why: string }
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "error"; readonly error: unknown };

/** All that an answer tells: equal for equal answers. */
export function textOf(answer: Answer): string {
  switch (answer.kind) {
    case "outcome":
      return answer.outcome.kind === "written"
        ? `written ${answer.outcome.version} at ${answer.outcome.at}`
        : answer.outcome.kind;
    case "record":
      return answer.record === undefined
        ? "absent"
        : `${answer.record.version} of ${answer.record.modifiedAt} at ${answer.record.readAt}`;
    case "unavailable":
      return `unavailable, ${answer.why}`;
    case "value":
      return `answers ${JSON.stringify(answer.value)}`;
    case "error":
      return `rejects ${String(answer.error)}`;
  }
}
