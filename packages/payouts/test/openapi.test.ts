/** The document against the running service: everything it names is exercised, and everything that is answered is in it. */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import { canonicalJson, parseJsonObject, recordAddress } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";
import {
  LedgerUnavailableError,
  openLedger,
  parsePayoutRequest,
  payoutIdOf,
  type PayoutServer,
} from "@firstwrite/payouts";
import { Ajv2020 } from "ajv/dist/2020.js";

import { Bank, newKey, pay, send, tenEuros, type Reply } from "./service.ts";

interface OpenApi {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

interface Operation {
  readonly responses: Readonly<Record<string, Response>>;
  readonly security?: readonly unknown[];
}

interface Response {
  readonly content: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, unknown>>;
}

const NO_KEY = { authorization: "" };

/** What brings each answer about, by what the document calls it; after the colon, which of several. */
const exercises: Readonly<Record<string, (world: World) => Promise<Reply>>> = {
  async "get /v1/operations/{operation_id} 200 :in progress"({ service, broken, store }) {
    const key = newKey();
    const { first, going } = await begin(service, broken, store, key);
    const { url } = broken;
    const headers = { "idempotency-key": `"${key}"` };
    const shown = await send(`${url}/v1/operations/${String(going.member("operation_id"))}`, { headers });
    assert.equal(shown.member("state"), "in_progress");
    assert.equal(shown.member("payout_id"), payoutIdOf(String(going.member("operation_id"))));
    await first;
    return shown;
  },
  "post /v1/payouts 201": ({ service }) => pay(service, newKey()),
  "post /v1/payouts 402": ({ service }) => pay(service, newKey(), { ...tenEuros, destination: "acct_closed" }),
  "post /v1/payouts 400": ({ service }) => pay(service, "not a UUID"),
  "post /v1/payouts 401": ({ service }) => pay(service, newKey(), tenEuros, NO_KEY),
  "post /v1/payouts 409": ({ service, broken, store }) => inProgress(service, broken, store),
  "post /v1/payouts 413": ({ service }) => pay(service, newKey(), " ".repeat(20_000)),
  "post /v1/payouts 415": ({ service }) => pay(service, newKey(), tenEuros, { "content-type": "text/plain" }),
  async "post /v1/payouts 422"({ service }) {
    const key = newKey();
    await pay(service, key);
    return pay(service, key, { ...tenEuros, amount: "1.00" });
  },
  async "post /v1/payouts 500"({ service, store }) {
    const key = newKey();
    const first = await pay(service, key);
    const { name } = recordAddress("idempotency/", "acme", key);
    const stored = await store.read(name);
    assert.ok(stored !== undefined);
    const spoilt = Buffer.from(stored.bytes).toString().replace('"state":"paid"', '"state":"what?"');
    await store.replace(name, stored.version, Buffer.from(spoilt));
    const reply = await pay(service, key);
    assert.equal(reply.member("operation_id"), first.member("operation_id"));
    return reply;
  },
  "post /v1/payouts 503": ({ service, store }) => whileAway(store, () => pay(service, newKey())),
  async "get /v1/payouts/{id} 200"({ service }) {
    const paid = await pay(service, newKey());
    return send(`${service.url}/v1/payouts/${String(paid.member("payout_id"))}`);
  },
  "get /v1/payouts/{id} 401": ({ service }) => send(`${service.url}/v1/payouts/po_1`, { headers: NO_KEY }),
  "get /v1/payouts/{id} 404": ({ service }) => send(`${service.url}/v1/payouts/po_1`),
  "get /v1/payouts/{id} 503": ({ broken }) => send(`${broken.url}/v1/payouts/po_1`),
  async "get /v1/operations/{operation_id} 200"({ service }) {
    const declined = await pay(service, newKey(), { ...tenEuros, destination: "acct_closed" });
    return send(`${service.url}/v1/operations/${String(declined.member("operation_id"))}`);
  },
  "get /v1/operations/{operation_id} 401": ({ service }) => send(`${service.url}/v1/operations/1`, { headers: NO_KEY }),
  "get /v1/operations/{operation_id} 404": ({ service }) => send(`${service.url}/v1/operations/1`),
  "get /v1/operations/{operation_id} 503": ({ broken }) => send(`${broken.url}/v1/operations/1`),
  "get /healthz 200": ({ service }) => send(`${service.url}/healthz`, { headers: NO_KEY }),
  "get /healthz 503": ({ service, store }) =>
    whileAway(store, () => send(`${service.url}/healthz`, { headers: NO_KEY })),
  "get /metrics 200": ({ service }) => send(`${service.url}/metrics`, { headers: NO_KEY }),
  "get /v1/idempotency-contract 200": ({ service }) =>
    send(`${service.url}/v1/idempotency-contract`, { headers: NO_KEY }),
  "get /openapi.json 200": ({ service }) => send(`${service.url}/openapi.json`, { headers: NO_KEY }),
};

interface World {
  readonly service: PayoutServer;
  /** Whose ledger is away. */
  readonly broken: PayoutServer;
  readonly store: MemoryStore;
}

async function inProgress(service: PayoutServer, other: PayoutServer, store: MemoryStore): Promise<Reply> {
  const { first, going } = await begin(service, other, store, newKey());
  await first;
  return going;
}

/** A payout whose settling write does not get there for a while, and what another service says of it meanwhile. */
async function begin(
  service: PayoutServer,
  other: PayoutServer,
  store: MemoryStore,
  key: string,
): Promise<{ readonly first: Promise<Reply>; readonly going: Reply }> {
  store.inject("hangs", { on: "replace", times: 1 });
  const first = pay(service, key);
  const { name } = recordAddress("idempotency/", "acme", key);
  while ((await store.read(name)) === undefined) await sleep(5);
  return { first, going: await pay(other, key) };
}

async function whileAway(store: MemoryStore, ask: () => Promise<Reply>): Promise<Reply> {
  store.inject("away", { times: Infinity });
  const reply = await ask();
  store.heal();
  return reply;
}

describe("GET /openapi.json", () => {
  it("names every answer, and every answer is as it says", async function () {
    this.timeout(30_000);
    const store = new MemoryStore();
    await using bank = await Bank.open(store);
    const service = await bank.serve({ budgetMs: 300, waitMs: 0 });
    const broken = await bank.serve({
      openLedger: async (told) => {
        const ledger = await openLedger(bank.ledgerUrl, told);
        const away = (): Promise<never> => Promise.reject(new LedgerUnavailableError("away"));
        return Object.assign(ledger, { findByOperation: away, findByPayoutId: away });
      },
    });
    const { text } = await send(`${service.url}/openapi.json`);
    const document: OpenApi = JSON.parse(text);
    assert.equal(document.openapi, "3.1.0");

    const named = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.entries(operations).flatMap(([method, { responses }]) =>
        Object.keys(responses).map((status) => `${method} ${path} ${status}`),
      ),
    );
    const exercised = new Set(Object.keys(exercises).map((name) => name.replace(/ :.*/, "")));
    assert.deepEqual(named.toSorted(), [...exercised].toSorted(), "each is exercised");

    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    ajv.addSchema(document, "openapi");
    for (const [name, exercise] of Object.entries(exercises)) {
      const [method = "", path = "", status = ""] = name.split(" ");
      const reply = await exercise({ service, broken, store });
      assert.equal(String(reply.status), status, `${name}: ${reply.text}`);
      const response = document.paths[path]?.[method]?.responses[status];
      assert.ok(response !== undefined);
      const [contentType = "", rest] = Object.keys(response.content);
      assert.equal(rest, undefined);
      assert.ok(
        reply.headers.get("content-type")?.startsWith(contentType),
        `${name}: ${reply.headers.get("content-type")}`,
      );
      for (const header of Object.keys(response.headers ?? {})) {
        if (header !== "Idempotent-Replayed") assert.ok(reply.headers.has(header), `${name}: ${header}`);
      }
      if (contentType === "text/plain") continue;
      const pointer = [path, method, "responses", status, "content", contentType, "schema"]
        .map(escapePointer)
        .join("/");
      const validate = ajv.getSchema(`openapi#/paths/${pointer}`);
      assert.ok(validate !== undefined, name);
      assert.ok(validate(JSON.parse(reply.text)), `${name}: ${JSON.stringify(validate.errors)} in ${reply.text}`);
    }
  });

  it("takes the same requests as the service", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const { text } = await send(`${service.url}/openapi.json`);
    const ajv = new Ajv2020({ strict: false });
    ajv.addSchema(parseJsonObject(Buffer.from(text)) ?? {}, "openapi");
    const validate = ajv.getSchema("openapi#/components/schemas/PayoutRequest");
    assert.ok(validate !== undefined);
    const requests: readonly [request: object, isTaken: boolean][] = [
      [tenEuros, true],
      [{ ...tenEuros, amount: "10" }, true],
      [{ ...tenEuros, amount: 10 }, false],
      [{ ...tenEuros, amount: "1e1" }, false],
      [{ ...tenEuros, amount: "010" }, false],
      [{ ...tenEuros, currency: "XXX" }, false],
      [{ ...tenEuros, destination: "a b" }, false],
      [{ ...tenEuros, more: 1 }, false],
      [{ amount: "1", currency: "EUR" }, false],
    ];
    for (const [request, isTaken] of requests) {
      assert.equal(validate(request), isTaken, canonicalJson(request, "the request"));
      assert.equal(
        "request" in parsePayoutRequest(JSON.stringify(request)),
        isTaken,
        canonicalJson(request, "the request"),
      );
    }
  });
});

/** RFC 6901, in a URI's fragment. */
function escapePointer(part: string): string {
  return encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1"));
}
