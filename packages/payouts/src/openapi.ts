/** OpenAPI 3.1: what the service takes and answers. A test holds every path, status and shape of it against the running service. */

import type { IdempotencyContract } from "@firstwrite/http";

import { currencies } from "./money.ts";
import { KEY_TIME_HEADER } from "./payout-key.ts";
import { problems } from "./problem.ts";

type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };

const DECLINES = ["insufficient_funds", "destination_closed", "destination_unknown"];

/** @param answers what is answered in the operation's place, as its contract has it */
export function openApiDocument(answers: IdempotencyContract["answers"]): Json {
  const known = [...answers, ...Object.values(problems)];
  return {
    openapi: "3.1.0",
    info: {
      title: "Payouts",
      version: "1",
      description:
        "Payouts that are paid once, however often they are sent. What can be got can be asked for by HEAD, too; OPTIONS tells the methods of a resource, and any other is answered 405.",
      license: { name: "MIT", identifier: "MIT" },
    },
    security: [{ apiKey: [] }],
    paths: {
      "/v1/payouts": {
        post: {
          operationId: "createPayout",
          summary: "Pay once: every sending with one key gets one answer, byte for byte.",
          parameters: [
            {
              name: "Idempotency-Key",
              in: "header",
              required: true,
              description: "An RFC 8941 String, in quotes; the same for all sendings of one payout.",
              schema: { type: "string", examples: ['"01980d6b-5a3c-7c1e-9f63-2f1d0a7f4c11"'] },
            },
            {
              name: KEY_TIME_HEADER,
              in: "header",
              required: false,
              description: "When the key was issued, signed; for keys that are no UUID of version 7 and no ULID.",
              schema: { type: "string", pattern: "^t=[0-9]{1,11},v1=[0-9a-f]{64}$" },
            },
          ],
          requestBody: { required: true, content: { "application/json": { schema: ref("PayoutRequest") } } },
          responses: {
            201: answer("It was paid.", "application/json", "Payout", {
              ...operationIdHeader,
              "Idempotent-Replayed": { description: "It had been paid before.", schema: { const: "true" } },
            }),
            402: answer("It was declined, for good.", "application/problem+json", "Decline", operationIdHeader),
            ...refusals(known, [400, 401, 409, 413, 415, 422, 500, 503]),
          },
        },
      },
      "/v1/payouts/{id}": {
        get: lookUp(known, "getPayout", "A payout, paid or declined.", "id", "Payout", []),
      },
      "/v1/operations/{operation_id}": {
        get: lookUp(known, "getOperation", "The payout that an operation came to.", "operation_id", "Operation", [
          {
            name: "Idempotency-Key",
            in: "header",
            required: false,
            description: "The operation's key: with it, one that is going on is told, too.",
            schema: { type: "string" },
          },
        ]),
      },
      "/healthz": {
        get: {
          operationId: "getHealth",
          summary: "Whether store and ledger answer.",
          security: [],
          responses: {
            200: answer("They do.", "application/json", "Health"),
            503: answer("One of them does not.", "application/json", "Health"),
          },
        },
      },
      "/metrics": {
        get: {
          operationId: "getMetrics",
          summary: "In the text format of Prometheus.",
          security: [],
          responses: { 200: { description: "Metrics.", content: { "text/plain": { schema: { type: "string" } } } } },
        },
      },
      "/v1/idempotency-contract": {
        get: {
          operationId: "getIdempotencyContract",
          summary: "What clients may count on: the form of keys, how long they count, what is replayed.",
          security: [],
          responses: { 200: answer("The contract.", "application/json", "Contract") },
        },
      },
      "/openapi.json": {
        get: {
          operationId: "getOpenApi",
          summary: "This document.",
          security: [],
          responses: {
            200: { description: "OpenAPI 3.1.", content: { "application/json": { schema: { type: "object" } } } },
          },
        },
      },
    },
    components: {
      securitySchemes: { apiKey: { type: "http", scheme: "bearer", description: "The merchant's API key." } },
      schemas: { ...schemas, Problem: problemSchema(known) },
    },
  };
}

const operationIdHeader = {
  "Idempotency-Operation-Id": { description: "What logs and the ledger name it by.", schema: { type: "string" } },
};

interface Known {
  readonly type: string;
  readonly status: number;
  readonly title: string;
}

/** By status: what is answered with one status is one response. */
function refusals(known: readonly Known[], statuses: readonly number[]): Readonly<Record<string, Json>> {
  return Object.fromEntries(
    statuses.map((status) => {
      const titles = new Set(known.filter((one) => one.status === status).map(({ title }) => title));
      return [String(status), answer(`${[...titles].join("; ")}.`, "application/problem+json", "Problem")];
    }),
  );
}

function lookUp(
  known: readonly Known[],
  operationId: string,
  summary: string,
  parameter: string,
  schema: string,
  more: readonly Json[],
): Json {
  return {
    operationId,
    summary,
    parameters: [{ name: parameter, in: "path", required: true, schema: { type: "string" } }, ...more],
    responses: {
      200: answer("It is there.", "application/json", schema, operationIdHeader),
      ...refusals(known, [401, 404, 503]),
    },
  };
}

function answer(description: string, contentType: string, schema: string, headers?: Json): Json {
  return {
    description,
    content: { [contentType]: { schema: ref(schema) } },
    ...(headers !== undefined && { headers }),
  };
}

function ref(schema: string): Json {
  return { $ref: `#/components/schemas/${schema}` };
}

const text: Json = { type: "string" };

function problemSchema(known: readonly Known[]): Json {
  return {
    type: "object",
    required: ["type", "title", "status", "detail", "retry"],
    additionalProperties: false,
    properties: {
      type: { enum: known.map(({ type }) => type) },
      title: text,
      status: { type: "integer" },
      detail: text,
      retry: { enum: ["same_key", "new_key", "never"] },
      operation_id: text,
      earlier_operation_id: text,
    },
  };
}

const schemas: Readonly<Record<string, Json>> = {
  PayoutRequest: {
    type: "object",
    required: ["amount", "currency", "destination"],
    additionalProperties: false,
    properties: {
      amount: {
        type: "string",
        pattern: "^(0|[1-9][0-9]{0,14})(\\.[0-9]{1,3})?$",
        description:
          'In the major unit, with no more decimal places than the currency has. "10", "10.0" and "10.00" are the same.',
      },
      currency: { enum: currencies },
      destination: { type: "string", pattern: "^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$" },
    },
  },
  Payout: {
    type: "object",
    required: ["payout_id", "operation_id", "state", "amount", "currency", "destination", "created_at"],
    additionalProperties: false,
    properties: {
      payout_id: { type: "string", pattern: "^po_[0-9a-f]{32}$" },
      operation_id: text,
      state: { enum: ["paid", "declined"] },
      decline_code: { enum: DECLINES },
      amount: text,
      currency: { enum: currencies },
      destination: text,
      created_at: { type: "string", format: "date-time" },
    },
  },
  Operation: {
    anyOf: [
      ref("Payout"),
      {
        type: "object",
        required: ["operation_id", "payout_id", "state"],
        additionalProperties: false,
        properties: { operation_id: text, payout_id: text, state: { enum: ["in_progress", "held"] } },
      },
    ],
  },
  Decline: {
    type: "object",
    required: ["type", "title", "status", "detail", "retry", "decline_code", "payout_id", "operation_id"],
    additionalProperties: false,
    properties: {
      type: text,
      title: text,
      status: { const: 402 },
      detail: text,
      retry: { const: "new_key" },
      decline_code: { enum: DECLINES },
      payout_id: text,
      operation_id: text,
    },
  },
  Health: {
    type: "object",
    required: ["status", "store", "ledger"],
    additionalProperties: false,
    properties: {
      status: { enum: ["ok", "unavailable"] },
      store: { enum: ["ok", "unavailable"] },
      ledger: { enum: ["ok", "unavailable"] },
    },
  },
  Contract: {
    type: "object",
    required: [
      "header",
      "required",
      "format",
      "key",
      "scope",
      "fingerprint",
      "retention",
      "wait_ms",
      "replay",
      "outcomes",
    ],
    additionalProperties: false,
    properties: {
      header: { const: "Idempotency-Key" },
      required: { const: true },
      format: text,
      key: { type: "object", required: ["length_min", "length_max", "issued_at"] },
      scope: { type: "array", items: text },
      fingerprint: { type: "array", items: text },
      retention: {
        type: "object",
        required: ["client_retry_ms", "broker_delay_ms", "key_age_max_ms", "audit_ms", "ttl_ms"],
        additionalProperties: { type: "integer" },
      },
      wait_ms: { type: "integer" },
      replay: { type: "object" },
      outcomes: { type: "array", items: { type: "object", required: ["status", "cached", "retry"] } },
    },
  },
};
