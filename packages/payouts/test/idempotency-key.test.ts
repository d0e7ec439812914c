/**
 * What draft-ietf-httpapi-idempotency-key-header-07 and payment clients expect of the header, of this service over sockets. The
 * cases of `@firstwrite/http` by their IDs, as far as they are the service's to keep.
 */

import assert from "node:assert/strict";
import { connect } from "node:net";

import { days } from "@firstwrite/core";
import { MemoryStore } from "@firstwrite/memory";
import { openLedger, type PayoutLedger, type PayoutServer } from "@firstwrite/payouts";

import { API_KEY, balanceOf, Bank, newKey, pay, send, signed, tenEuros, type Reply } from "./service.ts";

interface World {
  readonly bank: Bank;
  readonly store: MemoryStore;
  readonly service: PayoutServer;
}

const OTHER = { authorization: "Bearer sk_test_other" };

/** With the header as it stands. */
function raw(
  { url }: PayoutServer,
  key: string | undefined,
  headers: Readonly<Record<string, string>> = {},
): Promise<Reply> {
  return send(`${url}/v1/payouts`, {
    method: "POST",
    body: JSON.stringify(tenEuros),
    headers: { ...(key !== undefined && { "idempotency-key": key }), ...headers },
  });
}

/** One of `@firstwrite/http`'s problems, as RFC 9457 has them, and nothing paid by it. */
function refused(reply: Reply, status: number, name: string, title: string, retry: string): void {
  assert.equal(reply.status, status, reply.text);
  assert.equal(reply.headers.get("content-type"), "application/problem+json");
  assert.deepEqual(
    ["type", "title", "status", "retry"].map((member) => reply.member(member)),
    [`urn:firstwrite:problem:${name}`, title, status, retry],
  );
}

const invalid = (reply: Reply): void => refused(reply, 400, "key-invalid", "Idempotency-Key is invalid", "never");
const reused = (reply: Reply): void => refused(reply, 422, "key-reused", "Idempotency-Key is already used", "new_key");
const outstanding = (reply: Reply): void => {
  refused(reply, 409, "in-progress", "A request is outstanding for this Idempotency-Key", "same_key");
  assert.match(reply.headers.get("retry-after") ?? "", /^[1-9]\d*$/);
};

async function records(store: MemoryStore): Promise<readonly string[]> {
  const found: string[] = [];
  for await (const { name } of store.list("")) found.push(`${name} ${(await store.read(name))?.version}`);
  return found;
}

/** A service whose ledger waits to be let. */
async function held({ bank }: World, isUp: () => void, gate: Promise<void>): Promise<PayoutServer> {
  return bank.serve({
    waitMs: 0,
    async openLedger(told): Promise<PayoutLedger> {
      const ledger = await openLedger(bank.ledgerUrl, told);
      const commit = ledger.commit.bind(ledger);
      return Object.assign(ledger, {
        async commit(...call: Parameters<PayoutLedger["commit"]>) {
          isUp();
          await gate;
          return commit(...call);
        },
      });
    },
  });
}

/** While a payout of `key` is going on. */
async function during(
  world: World,
  key: string,
  act: (services: readonly PayoutServer[]) => Promise<void>,
): Promise<Reply> {
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const one = await held(world, begin, gate);
  const first = pay(one, key);
  try {
    await begun;
    await act([one, await held(world, () => {}, gate)]);
  } finally {
    open();
  }
  return first;
}

const cases: readonly [id: string, title: string, run: (world: World) => Promise<void>, paidMinor: bigint][] = [
  [
    "I1",
    "a String of RFC 8941 is a key",
    async ({ service }) => assert.equal((await raw(service, `"${newKey()}"`)).status, 201),
    10_00n,
  ],
  [
    "I2",
    "a token, integer, decimal, boolean, byte sequence, date or display string is refused",
    async ({ service }) => {
      for (const key of [
        "abc",
        newKey(),
        "42",
        "4.2",
        "-1",
        "?1",
        ":YWJj:",
        "@1700000000",
        '%"a"',
        `"${newKey()}";v=1`,
      ])
        invalid(await raw(service, key));
    },
    0n,
  ],
  [
    "I3",
    "a list, or two lines of the header, is refused",
    async ({ service }) => {
      const [one, two] = [`"${newKey()}"`, `"${newKey()}"`];
      invalid(await raw(service, `${one}, ${two}`));
      // As two lines, which `fetch` would join.
      const { hostname, port } = new URL(service.url);
      const socket = connect(Number(port), hostname);
      const body = JSON.stringify(tenEuros);
      let got = "";
      socket.on("data", (bytes) => (got += bytes.toString()));
      socket.write(
        `POST /v1/payouts HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer ${API_KEY}\r\nIdempotency-Key: ${one}\r\n` +
          `Idempotency-Key: ${two}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      await new Promise<void>((resolve) => socket.once("close", () => resolve()));
      assert.match(got, /^HTTP\/1.1 400 [^]*urn:firstwrite:problem:key-invalid/);
    },
    0n,
  ],
  [
    "I6",
    "comma, slash, dot, semicolon, escaped quote and backslash are part of a quoted key",
    async ({ service }) => {
      for (const key of ["a,b", "a/b.c", "a;v=1", 'a"b', "a\\b"]) {
        const field = `"${key.replace(/["\\]/g, "\\$&")}"`;
        assert.equal((await raw(service, field, signed(key))).status, 201, key);
      }
    },
    50_00n,
  ],
  [
    "I7",
    "an empty key, and an empty header, are refused",
    async ({ service }) => {
      for (const key of ['""', ""]) invalid(await raw(service, key));
    },
    0n,
  ],
  [
    "I8",
    "the header's name is of any case, and space around its value does not count",
    async ({ service }) => {
      const key = newKey();
      const [one, two] = [
        await raw(service, undefined, { "IDEMPOTENCY-KEY": ` \t"${key}" ` }),
        await raw(service, undefined, { "iDeMpOtEnCy-kEy": `"${key}"` }),
      ];
      assert.deepEqual([one.status, two.text], [201, one.text]);
    },
    10_00n,
  ],
  [
    "I10, S3",
    "a missing key is 400: without one nothing is paid",
    async ({ service }) =>
      refused(await raw(service, undefined), 400, "key-missing", "Idempotency-Key is missing", "never"),
    0n,
  ],
  [
    "I13, I14, S4, S14",
    "a retry gets the same answer, byte for byte, and says that it is a replay",
    async ({ service }) => {
      const key = newKey();
      const [first, again] = [await pay(service, key), await pay(service, key)];
      assert.deepEqual([first.status, again.status, again.text], [201, 201, first.text]);
      for (const name of ["content-type", "idempotency-operation-id"]) {
        assert.equal(again.headers.get(name), first.headers.get(name));
      }
      assert.equal(first.headers.get("idempotency-operation-id"), first.member("operation_id"));
      assert.deepEqual(
        [first, again].map(({ headers }) => headers.get("idempotent-replayed")),
        [null, "true"],
      );
    },
    10_00n,
  ],
  [
    "I15, S6",
    "a retry after a decline gets the same decline",
    async ({ service }) => {
      const key = newKey();
      const closed = { ...tenEuros, destination: "acct_closed" };
      const [first, again] = [await pay(service, key, closed), await pay(service, key, closed)];
      assert.deepEqual([first.status, again.status, again.text], [402, 402, first.text]);
    },
    0n,
  ],
  [
    "I16, S8, S13",
    "a retry while the first is running is 409, in its process and in another, and is not saved",
    async (world) => {
      const key = newKey();
      const first = await during(world, key, async (services) => {
        const before = await records(world.store);
        const replies = await Promise.all(services.map((service) => pay(service, key)));
        for (const reply of replies) outstanding(reply);
        assert.equal(new Set(replies.map((reply) => reply.member("operation_id"))).size, 1);
        assert.equal(replies[0]?.headers.get("idempotency-operation-id"), replies[0]?.member("operation_id"));
        assert.deepEqual(await records(world.store), before);
      });
      assert.equal(first.status, 201, first.text);
      assert.equal((await pay(world.service, key)).text, first.text);
    },
    10_00n,
  ],
  [
    "I18, I20, S11",
    "another payload under the same key is 422, as often as it is sent, and the record is unchanged",
    async ({ service, store }) => {
      const key = newKey();
      const first = await pay(service, key);
      const before = await records(store);
      for (const change of [{ amount: "10.01" }, { currency: "USD" }, { destination: "acct_2" }]) {
        const reply = await pay(service, key, { ...tenEuros, ...change });
        reused(reply);
        assert.equal(reply.member("operation_id"), first.member("operation_id"));
      }
      assert.deepEqual(await records(store), before);
      assert.equal((await pay(service, key)).text, first.text);
    },
    10_00n,
  ],
  [
    "I19",
    "another payload while the first is running is 422, not 409",
    async (world) => {
      const key = newKey();
      const first = await during(world, key, async (services) => {
        for (const service of services) reused(await pay(service, key, { ...tenEuros, amount: "1.00" }));
      });
      assert.equal(first.status, 201);
    },
    10_00n,
  ],
  [
    "I26, S1",
    "GET, HEAD and OPTIONS ignore the key, also one that is none",
    async ({ service, store }) => {
      const paid = await pay(service, newKey());
      const before = await records(store);
      const path = `/v1/payouts/${String(paid.member("payout_id"))}`;
      for (const key of ["not a key", '""', `"${newKey()}"`, `"${"k".repeat(300)}"`]) {
        const headers = { "idempotency-key": key };
        const got = await send(service.url + path, { headers });
        assert.deepEqual([got.status, got.text], [200, paid.text]);
        const operation = await send(`${service.url}/v1/operations/${String(paid.member("operation_id"))}`, {
          headers,
        });
        assert.deepEqual([operation.status, operation.text], [200, paid.text]);
        const head = await send(service.url + path, { method: "HEAD", headers });
        assert.deepEqual([head.status, head.text, head.headers.get("content-type")], [200, "", "application/json"]);
        const options = await send(`${service.url}/v1/payouts`, { method: "OPTIONS", headers });
        assert.deepEqual([options.status, options.headers.get("allow")], [204, "POST, OPTIONS"]);
      }
      assert.deepEqual(await records(store), before);
    },
    10_00n,
  ],
  [
    "I27, S16",
    "a key that is older than it is remembered is refused, and not paid again",
    async ({ service }) => {
      const reply = await pay(service, newKey(Date.now() - days(9)));
      refused(reply, 422, "key-too-old", "Idempotency-Key is too old", "never");
    },
    0n,
  ],
  [
    "I28",
    "the contract is published, for programs to read: expiry, key format, and every answer in place of a payout",
    async ({ service }) => {
      const { text } = await send(`${service.url}/v1/idempotency-contract`, { headers: { authorization: "" } });
      const contract: {
        readonly format: string;
        readonly key: { readonly issued_at: { readonly one_of: readonly string[] } };
        readonly retention: { readonly ttl_ms: number };
        readonly outcomes: readonly { readonly type?: string; readonly status: number; readonly cached: boolean }[];
      } = JSON.parse(text);
      assert.equal(contract.format, "RFC 8941 String");
      assert.deepEqual(contract.key.issued_at.one_of, ["uuid_v7", "ulid", "signed"]);
      assert.equal(contract.retention.ttl_ms, days(91));
      const types = contract.outcomes.flatMap(({ type }) => (type === undefined ? [] : [type]));
      assert.equal(new Set(types).size, types.length);
      for (const type of [
        "problem:key-reused",
        "problem:in-progress",
        "payouts:key_spent",
        "payouts:ledger_unavailable",
      ])
        assert.ok(types.includes(`urn:firstwrite:${type}`), type);
      assert.deepEqual(
        contract.outcomes.filter(({ cached }) => cached).map(({ type, status }) => type ?? status),
        [201, 402, "urn:firstwrite:problem:operation-failed-for-good", "urn:firstwrite:payouts:key_spent"],
      );
    },
    0n,
  ],
  [
    "I30, S17",
    "the same key of two merchants is two keys",
    async ({ service }) => {
      const key = newKey();
      const [mine, theirs] = [await pay(service, key), await pay(service, key, tenEuros, OTHER)];
      assert.deepEqual([mine.status, theirs.status], [201, 402]);
      assert.notEqual(theirs.member("operation_id"), mine.member("operation_id"));
      // Nor does the one learn of the other's by a mismatch.
      const other = await pay(service, key, { ...tenEuros, amount: "1.00" }, OTHER);
      reused(other);
      assert.equal(other.member("operation_id"), theirs.member("operation_id"));
    },
    10_00n,
  ],
  [
    "I31",
    "a key that could be guessed is taken only with the merchant's signature of its time",
    async ({ service }) => {
      invalid(await raw(service, '"1"'));
      assert.equal((await raw(service, '"1"', signed("1"))).status, 201);
    },
    10_00n,
  ],
  [
    "I32, S10",
    "refused authentication and validation do not consume the key",
    async ({ service, store }) => {
      const key = newKey();
      const replies = [
        await pay(service, key, tenEuros, { authorization: "" }),
        await pay(service, key, { ...tenEuros, amount: 10 }),
        await pay(service, key, " ".repeat(20_000)),
        await pay(service, key, tenEuros, { "content-type": "text/plain" }),
      ];
      assert.deepEqual(
        replies.map(({ status, headers }) => [status, headers.get("idempotency-operation-id")]),
        [
          [401, null],
          [400, null],
          [413, null],
          [415, null],
        ],
      );
      assert.equal(replies[0]?.headers.get("www-authenticate"), 'Bearer realm="payouts"');
      assert.deepEqual(await records(store), []);
      assert.equal((await pay(service, key)).status, 201);
    },
    10_00n,
  ],
  [
    "S2",
    "255 characters are taken, 256 refused",
    async ({ service }) => {
      const [most, more] = ["k".repeat(255), "k".repeat(256)];
      assert.equal((await raw(service, `"${most}"`, signed(most))).status, 201);
      invalid(await raw(service, `"${more}"`, signed(more)));
    },
    10_00n,
  ],
  [
    "S15",
    "every refusal says whether to send again: the member retry",
    async ({ service }) => {
      const key = newKey();
      await pay(service, key);
      const replies = [
        await raw(service, undefined),
        await pay(service, key, { ...tenEuros, amount: "1.00" }),
        await pay(service, newKey(), "{"),
        await pay(service, newKey(), tenEuros, { authorization: "" }),
      ];
      assert.deepEqual(
        replies.map((reply) => reply.member("retry")),
        ["never", "new_key", "never", "same_key"],
      );
    },
    10_00n,
  ],
];

describe("Idempotency-Key of POST /v1/payouts", () => {
  for (const [id, title, run, paidMinor] of cases) {
    it(`${id} ${title}`, async () => {
      const store = new MemoryStore();
      await using bank = await Bank.open(store);
      const service = await bank.serve();
      await run({ bank, store, service });
      assert.equal(await balanceOf(service, "destination:acct_1"), paidMinor);
    });
  }
});

describe("a method that a resource does not take", () => {
  it("is answered 405 with those that it takes, asks for no API key, and pays nothing", async () => {
    await using bank = await Bank.open();
    const service = await bank.serve();
    const headers = { authorization: "", "idempotency-key": `"${newKey()}"` };
    for (const [method, path, status, allow] of [
      ["PUT", "/v1/payouts", 405, "POST, OPTIONS"],
      ["HEAD", "/v1/payouts", 405, "POST, OPTIONS"],
      ["GET", "/v1/payouts", 405, "POST, OPTIONS"],
      ["DELETE", "/v1/payouts/po_1", 405, "GET, HEAD, OPTIONS"],
      ["OPTIONS", "/v1/operations/1", 204, "GET, HEAD, OPTIONS"],
      ["OPTIONS", "/healthz", 204, "GET, HEAD, OPTIONS"],
    ] as const) {
      const reply = await send(service.url + path, { method, headers });
      assert.deepEqual([reply.status, reply.headers.get("allow")], [status, allow], `${method} ${path}`);
      if (status === 405 && method !== "HEAD") {
        assert.equal(reply.member("type"), "urn:firstwrite:payouts:method_not_allowed");
      }
    }
    const head = await send(`${service.url}/healthz`, { method: "HEAD", headers });
    assert.deepEqual([head.status, head.text], [200, ""]);
    assert.equal((await send(`${service.url}/v1/payouts/po_1`, { method: "HEAD", headers })).status, 401);
    assert.equal(await balanceOf(service, "destination:acct_1"), 0n);
    const routes = bank.log.map((line): { route: string } => JSON.parse(line)).map(({ route }) => route);
    assert.deepEqual(new Set(routes).size, 4, "the templates alone");
  });
});
