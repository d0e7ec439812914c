/** What the draft, payment clients, and users of other libraries expect: one table, run against every integration. */

import assert from "node:assert/strict";

import { days } from "@firstwrite/core";
import { idempotencyContract, idempotencyScope } from "@firstwrite/http";
import { fetchWithIdempotency } from "@firstwrite/http/client";

import type { Integration, TestHandler } from "./integrations.ts";
import { problemOf, until, type Bench, type Got } from "./setup.ts";

export interface Case {
  readonly id: string;
  /** As the README has it. */
  readonly title: string;
  readonly run: (bench: (options?: { readonly virtual?: boolean }) => Bench) => Promise<void>;
  /** Where it does not apply, and why. */
  readonly na?: Partial<Readonly<Record<Integration["name"], string>>>;
  /** Why it does not apply to an operation that was defined before. */
  readonly notOfOperations?: string;
}

const bodies = (...got: readonly Got[]): readonly string[] => got.map(({ text }) => text);

/** An answer of ours in place of the handler's, as RFC 9457 has it. */
function refused(got: Got, status: number, title: string, retry: string): void {
  assert.equal(got.status, status, got.text);
  assert.equal(got.headers.get("content-type"), "application/problem+json");
  const problem = problemOf(got);
  assert.equal(problem["title"], title);
  assert.equal(problem["status"], status);
  assert.equal(problem["retry"], retry);
  assert.equal(typeof problem["detail"], "string");
  assert.ok(URL.canParse(String(problem["type"])));
}

/** A handler that goes on until it is told to end. */
function gated(answer: TestHandler): { readonly handler: TestHandler; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return {
    open: resolve,
    async handler(request, context) {
      await promise;
      return answer(request, context);
    },
  };
}

const docs = "https://example.com/docs/idempotency";
const invalid = "Idempotency-Key is invalid";
const used = "Idempotency-Key is already used";
const outstanding = "A request is outstanding for this Idempotency-Key";

export const draft: readonly Case[] = [
  {
    id: "I1",
    title: "a String of RFC 8941 is a key",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const [first, again] = [await send({ key: '"abc"' }), await send({ key: '"abc"' })];
      assert.deepEqual([first.status, again.status, bench.runs], [201, 201, 1]);
      assert.equal(again.headers.get("idempotent-replayed"), "true");
    },
  },
  {
    id: "I2",
    title: "a token, integer, decimal, boolean, byte sequence, date or display string is refused",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      for (const key of [
        "abc",
        "*a/b",
        "42",
        "4.2",
        "-1",
        "?1",
        ":YWJj:",
        "@1700000000",
        '%"a"',
        '"abc";v=1',
        '("a")',
      ]) {
        refused(await send({ key }), 400, invalid, "never");
      }
      assert.equal(bench.runs, 0);
    },
  },
  {
    id: "I3",
    title: "a list, or two lines of the header, is refused",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      refused(await send({ key: '"a","b"' }), 400, invalid, "never");
      refused(await send({ key: '"a", "a"' }), 400, invalid, "never");
      const lines = new Headers([
        ["idempotency-key", '"a"'],
        ["idempotency-key", '"b"'],
      ]);
      const response = await fetch(`${bench.url}/accounts/7/payouts`, { method: "POST", headers: lines, body: "{}" });
      assert.equal(response.status, 400);
      assert.equal(bench.runs, 0);
    },
  },
  {
    id: "I6",
    title: "comma, slash, dot, semicolon, escaped quote and backslash are part of a quoted key",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const keys = ['"a,b"', '"a, b"', '"a/b.c"', '"a;v=1"', String.raw`"a\"b"`, String.raw`"a\\b"`];
      for (const key of keys) assert.equal((await send({ key })).status, 201);
      assert.equal(bench.runs, keys.length);
    },
  },
  {
    id: "I7",
    title: "an empty key, and an empty header, are refused",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      refused(await send({ key: '""' }), 400, invalid, "never");
      refused(await send({ key: "" }), 400, invalid, "never");
      assert.equal(bench.runs, 0);
    },
  },
  {
    id: "I8",
    title: "the header's name is of any case, and space around its value does not count",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      await send({ key: undefined, headers: { "IDEMPOTENCY-KEY": ' \t"k1" ' } });
      await send({ key: undefined, headers: { "iDeMpOtEnCy-kEy": '"k1"' } });
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "I9",
    title: 'a bare key is refused in strict mode; in lenient mode k and "k" are one key',
    async run(make) {
      const bench = make();
      const strict = await bench.serve();
      refused(await strict({ key: "k1" }), 400, invalid, "never");
      const send = await bench.serve(bench.payout, { key: { format: "lenient" } });
      const [bare, quoted] = [await send({ key: "k1" }), await send({ key: '"k1"' })];
      assert.equal(bare.text, quoted.text);
      assert.equal(bench.runs, 1);
      for (const key of ["a,b", "a;v=1", 'a"b', "a b", '"a', '"a"b']) {
        refused(await send({ key }), 400, invalid, "never");
      }
    },
  },
  {
    id: "I10",
    title: "a missing key is 400, with a link to the documentation",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { docs });
      const got = await send({ key: undefined });
      refused(got, 400, "Idempotency-Key is missing", "never");
      assert.equal(problemOf(got)["type"], `${docs}#key-missing`);
      assert.equal(bench.runs, 0);
      assert.equal(await count(bench), 0);
    },
  },
  {
    id: "I11",
    title: "where a key is optional, a request without one runs, and nothing is stored",
    notOfOperations: "an operation always has a key",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { key: { required: false } });
      const [one, two] = [await send({ key: undefined }), await send({ key: undefined })];
      assert.deepEqual([one.status, two.status, bench.runs], [201, 201, 2]);
      assert.notEqual(one.text, two.text);
      assert.equal(await count(bench), 0);
    },
  },
  {
    id: "I12",
    title: "400, 409 and 422 carry a Link, rel describedby",
    async run(make) {
      const bench = make();
      const gate = gated(bench.payout);
      const send = await bench.serve(gate.handler, { docs });
      const first = send();
      await until(() => bench.runs === 1);
      for (const got of [await send({ key: undefined }), await send(), await send({ body: "{}" })]) {
        assert.ok([400, 409, 422].includes(got.status));
        assert.equal(got.headers.get("link"), `<${docs}>; rel="describedby"; type="text/html"`);
      }
      gate.open();
      assert.equal((await first).status, 201);
    },
  },
  {
    id: "I13",
    title: "the first request runs as it would without the header",
    async run(make) {
      const bench = make();
      const send = await bench.serve((request) => ({
        status: 202,
        headers: { "content-type": "text/plain", "x-target": request.target },
        body: request.body,
      }));
      const got = await send({ path: "/accounts/7/payouts?dry=1", body: '{ "a" : 1 }' });
      assert.deepEqual([got.status, got.text], [202, '{ "a" : 1 }']);
      assert.equal(got.headers.get("x-target"), "/accounts/7/payouts?dry=1");
    },
  },
  {
    id: "I14",
    title: "a retry after a success gets the same answer",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const [first, again] = [await send(), await send()];
      assert.deepEqual([again.status, again.text], [first.status, first.text]);
      for (const name of ["content-type", "location", "idempotency-operation-id"]) {
        assert.equal(again.headers.get(name), first.headers.get(name));
        assert.notEqual(first.headers.get(name), null);
      }
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "I15",
    title: "a retry after an error gets the same error (preset stripe)",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 409, body: `no funds ${bench.runs}` }));
      const [first, again] = [await send(), await send()];
      assert.deepEqual(bodies(first, again), ["no funds 1", "no funds 1"]);
      assert.deepEqual([first.status, again.status], [409, 409]);
      assert.equal(again.headers.get("idempotent-replayed"), "true");
    },
  },
  {
    id: "I16",
    title: "a retry while the first is running is 409 with Retry-After, in its process and in another",
    async run(make) {
      const bench = make();
      const gate = gated(bench.payout);
      const send = await bench.serve(gate.handler);
      const other = await bench.serve(gate.handler);
      const first = send();
      await until(() => bench.runs === 1);
      for (const got of [await send(), await other()]) {
        refused(got, 409, outstanding, "same_key");
        assert.match(got.headers.get("retry-after") ?? "", /^[1-9]\d*$/);
        assert.notEqual(got.headers.get("idempotency-operation-id"), null);
      }
      gate.open();
      const got = await first;
      assert.equal(got.status, 201);
      assert.deepEqual(bodies(await send(), await other()), [got.text, got.text]);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "I18",
    title: "another payload under the same key is 422, with a link",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { docs });
      await send();
      const got = await send({ body: '{"amount":1251,"currency":"EUR"}' });
      refused(got, 422, used, "new_key");
      assert.equal(problemOf(got)["type"], `${docs}#key-reused`);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "I19",
    title: "another payload while the first is running is 422, not 409",
    async run(make) {
      const bench = make();
      const gate = gated(bench.payout);
      const send = await bench.serve(gate.handler);
      const first = send();
      await until(() => bench.runs === 1);
      refused(await send({ body: '{"amount":9}' }), 422, used, "new_key");
      gate.open();
      assert.equal((await first).status, 201);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "I20",
    title: "a mismatch that is repeated is 422 again, and the record is unchanged",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const first = await send();
      const before = await records(bench);
      for (let times = 0; times < 3; times += 1) refused(await send({ body: "{}" }), 422, used, "new_key");
      assert.deepEqual(await records(bench), before);
      assert.equal((await send()).text, first.text);
    },
  },
  {
    id: "I22",
    title: "any change of the payload is 422; spaces and the order of members are none",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      await send({ body: '{"a":1,"b":[1,2],"n":9007199254740993}', key: '"big"' });
      refused(await send({ body: '{"a":1,"b":[1,2],"n":9007199254740992}', key: '"big"' }), 422, used, "new_key");
      await send({ body: '{"a":1,"b":[1,2]}' });
      assert.equal((await send({ body: ' {"b" : [1, 2.0], "a": 1e0} ' })).status, 201);
      const changed = [
        '{"a":1,"b":[2,1]}',
        '{"a":1}',
        '{"a":"1","b":[1,2]}',
        '{"a":1,"b":[1,2],"c":null}',
        "",
        "[]",
        "{",
      ];
      for (const body of [...changed, '{"a":0,"a":1,"b":[1,2]}']) {
        refused(await send({ body }), 422, used, "new_key");
      }
      refused(await send({ body: '{"a":1,"b":[1,2]}', path: "/accounts/7/payouts?x=1" }), 422, used, "new_key");
      assert.equal(bench.runs, 2);
      const text = { headers: { "content-type": "text/plain" }, key: '"t"' };
      await send({ ...text, body: "a b" });
      refused(await send({ ...text, body: "a  b" }), 422, used, "new_key");
    },
  },
  {
    id: "I23",
    title: "selected fields: a change outside of them is a replay, inside 422",
    notOfOperations: "the operation says what is compared",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { fingerprint: { fields: ["amount", ["to", "iban"]] } });
      const first = await send({ body: '{"amount":1,"to":{"iban":"X"},"at":1}' });
      const again = await send({ body: '{"at":2,"amount":1,"to":{"iban":"X","name":"n"}}' });
      assert.equal(again.text, first.text);
      for (const body of ['{"amount":2,"to":{"iban":"X"}}', '{"amount":1,"to":{"iban":"Y"}}', '{"amount":1,"to":{}}']) {
        refused(await send({ body }), 422, used, "new_key");
      }
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "I24",
    title: "no fingerprint: another payload is answered with the first one's answer",
    notOfOperations: "the operation says what is compared",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { fingerprint: "none" });
      const [first, again] = [await send(), await send({ body: "{}" })];
      assert.equal(again.text, first.text);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "I25",
    title: "the same key for another resource of the route is 422, by another method an operation of its own",
    notOfOperations: "one route is one operation, whatever the method",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const first = await send();
      const other = await send({ path: "/accounts/8/payouts" });
      refused(other, 422, used, "new_key");
      const patched = await send({ method: "PATCH" });
      assert.equal(patched.status, 201);
      assert.notEqual(patched.text, first.text);
      assert.equal(bench.runs, 2);
    },
  },
  {
    id: "I26",
    title: "POST and PATCH are covered; GET, PUT and DELETE ignore the key",
    notOfOperations: "no handler stands behind it: other methods are 405",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      for (const method of ["POST", "PATCH"]) {
        await send({ method });
        await send({ method });
      }
      assert.equal(bench.runs, 2);
      for (const method of ["GET", "PUT", "DELETE"]) {
        const body = method === "PUT" ? "{}" : undefined;
        assert.equal((await send({ method, body, key: "not a key" })).status, 201);
        assert.equal((await send({ method, body })).headers.get("idempotent-replayed"), null);
      }
      assert.equal(bench.runs, 8);
    },
  },
  {
    id: "I27",
    title: "after its expiry a key begins a new request, with any payload",
    async run(make) {
      const bench = make({ virtual: true });
      const send = await bench.serve(bench.payout, { retention: { ttlMs: days(2) } });
      const first = await send();
      await bench.clock?.advance(days(2));
      assert.equal((await send()).text, first.text);
      await bench.clock?.advance(1);
      const fresh = await send({ body: "{}" });
      assert.equal(fresh.status, 201);
      assert.notEqual(fresh.headers.get("idempotency-operation-id"), first.headers.get("idempotency-operation-id"));
      assert.equal(bench.runs, 2);
    },
  },
  {
    id: "I28",
    title: "the contract is published, expiry and key format in it, for programs to read",
    notOfOperations: "its contract has a test of its own",
    async run(make) {
      const bench = make();
      const contract = idempotencyContract({
        idempotency: bench.engine(),
        route: "/payouts",
        principal: () => "a1",
        recovery: "rerun",
        retention: { ttlMs: days(10), retryWindowMs: days(7) },
        docs,
      });
      const send = await bench.serve(() => ({ status: 200, body: JSON.stringify(contract) }));
      const served: Record<string, unknown> = JSON.parse((await send()).text);
      assert.deepEqual(served, { ...contract });
      assert.equal(contract.expiresAfterSeconds, 864_000);
      assert.equal(contract.retryWindowSeconds, 604_800);
      assert.deepEqual(contract.key, { format: "sf-string", lengthMin: 1, lengthMax: 255, time: "none" });
      assert.deepEqual(contract.methods, ["POST", "PATCH"]);
      assert.equal(contract.answers.length, 14);
    },
  },
  {
    id: "I30",
    title: "the same key of two principals is two keys",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const one = await send({ headers: { "x-account": "a1" } });
      const two = await send({ headers: { "x-account": "a2" } });
      assert.deepEqual([one.status, two.status, bench.runs], [201, 201, 2]);
      assert.notEqual(one.text, two.text);
      assert.equal((await send({ headers: { "x-account": "a2" } })).text, two.text);
    },
  },
  {
    id: "I31",
    title: "short keys and keys that can be guessed are refused where the route says so",
    async run(make) {
      const bench = make();
      const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
      const short = await bench.serve(bench.payout, { key: { lengthMin: 8 } });
      refused(await short({ key: '"1234567"' }), 400, invalid, "never");
      assert.equal((await short({ key: '"12345678"' })).status, 201);
      const checked = await bench.serve(bench.payout, { key: { check: (key) => uuid.test(key) } });
      refused(await checked({ key: '"12345678"' }), 400, invalid, "never");
      assert.equal((await checked({ key: '"8e03978e-40d5-43dd-bc93-6894a57f9324"' })).status, 201);
    },
  },
  {
    id: "I32",
    title: "refused authentication, rates and validation do not consume the key",
    notOfOperations: "`input` refuses, before the key is claimed",
    async run(make) {
      const bench = make();
      const statuses = [400, 401, 403, 413, 415, 422, 429];
      const send = await bench.serve((request, context) => {
        const status = statuses[bench.runs - 1];
        return status === undefined ? bench.payout(request, context) : { status, body: `refused ${status}` };
      });
      for (const status of statuses) assert.equal((await send()).status, status);
      const done = await send();
      assert.equal(done.status, 201);
      assert.equal((await send()).text, done.text);
      assert.equal(bench.runs, statuses.length + 1);
    },
  },
  {
    id: "I33",
    title: "a key on an endpoint without support does not fail the request",
    notOfOperations: "no handler stands behind it",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { methods: ["PATCH"] });
      assert.equal((await send()).status, 201);
      assert.equal((await send({ key: "nonsense" })).status, 201);
      assert.equal(bench.runs, 2);
    },
  },
  {
    id: "I34",
    title: "a failed validation does not consume the key: the corrected body under it runs, and has it",
    notOfOperations: "`input` refuses, before the key is claimed",
    async run(make) {
      const bench = make();
      const handler: TestHandler = (request, context) => {
        const { amount = 0 }: { readonly amount?: number } = JSON.parse(request.body.toString());
        // The other refusals go by who asks, and how often.
        const status = amount > 0 ? Number(request.header("x-refused") ?? 201) : 422;
        return status === 201 ? bench.payout(request, context) : { status, body: `refused ${status}` };
      };
      const send = await bench.serve(handler);
      const elsewhere = await bench.serve(handler);
      for (const [nth, status] of [422, 401, 403, 429].entries()) {
        const key = `"k${nth}"`;
        const wrong = { key, headers: { "x-refused": `${status}` }, body: status === 422 ? "{}" : '{"amount":1}' };
        const right = { key, body: '{"amount":1250}' };
        const runs = bench.runs;
        const refusals = [await send(wrong), await elsewhere(wrong)];
        assert.deepEqual(bodies(...refusals), [`refused ${status}`, `refused ${status}`]);
        const done = await (nth % 2 === 0 ? send(right) : elsewhere(right));
        assert.equal(done.status, 201, done.text);
        const [first, second] = refusals.map(({ headers }) => headers.get("idempotency-operation-id"));
        assert.equal(first, second, "of one body, attempts of one operation");
        assert.notEqual(done.headers.get("idempotency-operation-id"), first);
        for (const again of [await send(right), await elsewhere(right)]) {
          assert.deepEqual([again.text, again.headers.get("idempotent-replayed")], [done.text, "true"]);
        }
        refused(await send(wrong), 422, used, "new_key");
        refused(await elsewhere({ key, body: '{"amount":1251}' }), 422, used, "new_key");
        assert.equal(bench.runs, runs + 3);
      }
      assert.equal(await count(bench), 4);
    },
  },
  {
    id: "I35",
    title: "a key that is going on, done, held, recovering or released by a person is no other body's",
    notOfOperations: "what it throws means what its `onError` says",
    async run(make) {
      const bench = make({ virtual: true });
      const other = { body: '{"amount":1251}' };
      const gate = gated(bench.payout);
      const send = await bench.serve(gate.handler);
      const first = send();
      await until(() => bench.runs === 1);
      refused(await send(other), 422, used, "new_key");
      gate.open();
      assert.equal((await first).status, 201);
      refused(await send(other), 422, used, "new_key");

      const key = '"k2"';
      const unsure = await bench.serve(() => ({ status: 500 }), { recovery: "hold", record: () => "recover" });
      assert.equal((await unsure({ key })).status, 500);
      refused(await unsure({ ...other, key }), 422, used, "new_key");
      await bench.clock?.advance(60_001);
      refused(await unsure({ ...other, key }), 422, used, "new_key");
      const held = await unsure({ key });
      refused(held, 409, "The operation of this Idempotency-Key is held", "same_key");
      refused(await unsure({ ...other, key }), 422, used, "new_key");
      const scope = idempotencyScope({ principal: "a1", method: "POST", route: "/accounts/:account/payouts" });
      const operationId = held.headers.get("idempotency-operation-id") ?? "";
      const note = { operationId, by: "ada", why: "not in the ledger", nothingHappened: true };
      await bench.engine().release({ scope, key: "k2" }, note);
      refused(await unsure({ ...other, key }), 422, used, "new_key");
      assert.equal(bench.runs, 2);
      const sure = await bench.serve();
      assert.deepEqual([(await sure({ key })).status, bench.runs], [201, 3]);
    },
  },
];

export const stripe: readonly Case[] = [
  {
    id: "S1",
    title: "a key counts on POST, and has no effect on GET and DELETE",
    notOfOperations: "no handler stands behind it: other methods are 405",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      for (const method of ["GET", "DELETE"]) {
        await send({ method, body: undefined });
        await send({ method, body: undefined });
      }
      assert.equal(bench.runs, 4);
      await send();
      await send();
      assert.equal(bench.runs, 5);
    },
  },
  {
    id: "S2",
    title: "255 characters are taken, 256 refused",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      assert.equal((await send({ key: `"${"k".repeat(255)}"` })).status, 201);
      refused(await send({ key: `"${"k".repeat(256)}"` }), 400, invalid, "never");
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "S3",
    title: "without a key every call runs",
    notOfOperations: "an operation always has a key",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { key: { required: false } });
      for (let times = 0; times < 3; times += 1) await send({ key: undefined });
      assert.equal(bench.runs, 3);
    },
  },
  {
    id: "S4",
    title: "the same key and parameters: the same status and body",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 200, body: `${Math.random()}` }));
      const [first, again] = [await send(), await send()];
      assert.deepEqual([again.status, again.body], [first.status, first.body]);
    },
  },
  {
    id: "S5",
    title: "a 500 after execution began is replayed, thrown or answered",
    notOfOperations: "what it throws means what its `onError` says",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => {
        if (bench.runs > 1) return { status: 500, body: "answered" };
        throw new Error("the processor is away");
      });
      const [thrown, again] = [await send(), await send()];
      assert.deepEqual([thrown.status, again.status], [500, 500]);
      assert.deepEqual(again.body, thrown.body);
      assert.equal(again.headers.get("idempotent-replayed"), "true");
      const [answered, repeated] = [await send({ key: '"k2"' }), await send({ key: '"k2"' })];
      assert.deepEqual(bodies(answered, repeated), ["answered", "answered"]);
      assert.equal(bench.runs, 2);
    },
  },
  {
    id: "S6",
    title: "a 402 after execution began is replayed",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 402, body: "declined" }));
      const [first, again] = [await send(), await send()];
      assert.deepEqual([first.status, again.status, again.text], [402, 402, "declined"]);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "S8",
    title: "a 409 to a concurrent request is not saved, and its retry is answered",
    async run(make) {
      const bench = make();
      const gate = gated(bench.payout);
      const send = await bench.serve(gate.handler);
      const first = send();
      await until(() => bench.runs === 1);
      const before = await records(bench);
      assert.equal((await send()).status, 409);
      assert.deepEqual(await records(bench), before);
      gate.open();
      assert.equal((await send()).text, (await first).text);
    },
  },
  {
    id: "S10",
    title: "a 401 without an API key is passed on untouched, and not saved",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, {
        principal(header) {
          const account = header("x-account");
          if (account === undefined) return Response.json({ error: "who?" }, { status: 401 });
          if (account !== "a1") throw new Response("not you", { status: 403, headers: { "x-why": "closed" } });
          return account;
        },
      });
      const unknown = await send();
      assert.deepEqual([unknown.status, unknown.text], [401, '{"error":"who?"}']);
      const closed = await send({ headers: { "x-account": "a2" } });
      assert.deepEqual([closed.status, closed.text, closed.headers.get("x-why")], [403, "not you", "closed"]);
      // Before the key is looked at.
      assert.equal((await send({ key: "not a key" })).status, 401);
      assert.equal(await count(bench), 0);
      assert.equal((await send({ headers: { "x-account": "a1" } })).status, 201);
    },
  },
  {
    id: "S11",
    title: "other parameters are refused by a type of its own (422 as in the draft, not Stripe's 400)",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      await send();
      const got = await send({ body: "{}" });
      refused(got, 422, used, "new_key");
      assert.equal(problemOf(got)["type"], "urn:firstwrite:problem:key-reused");
    },
  },
  {
    id: "S13",
    title: "a concurrent request with the key is refused by a type of its own",
    async run(make) {
      const bench = make();
      const gate = gated(bench.payout);
      const send = await bench.serve(gate.handler);
      const first = send();
      await until(() => bench.runs === 1);
      assert.equal(problemOf(await send())["type"], "urn:firstwrite:problem:in-progress");
      gate.open();
      await first;
    },
  },
  {
    id: "S14",
    title: "a replay says Idempotent-Replayed: true, the first answer does not, whatever the handler says",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 200, headers: { "idempotent-replayed": "true" } }));
      assert.equal((await send()).headers.get("idempotent-replayed"), null);
      assert.equal((await send()).headers.get("idempotent-replayed"), "true");
    },
  },
  {
    id: "S15",
    title: "every refusal says whether to send again: the member retry",
    async run(make) {
      const bench = make();
      const gate = gated(bench.payout);
      const send = await bench.serve(gate.handler, { bodyBytesMax: 100 });
      const first = send();
      await until(() => bench.runs === 1);
      const retries = [await send(), await send({ body: "{}" }), await send({ key: undefined })];
      retries.push(await send({ key: '"k2"', body: "x".repeat(101) }));
      assert.deepEqual(
        retries.map((got) => problemOf(got)["retry"]),
        ["same_key", "new_key", "never", "never"],
      );
      gate.open();
      await first;
    },
  },
  {
    id: "S16",
    title: "a key is kept for 24 hours, and with that retention reuse after it is a new request",
    async run(make) {
      const bench = make({ virtual: true });
      const send = await bench.serve(bench.payout, { retention: { ttlMs: days(1) } });
      const first = await send();
      await bench.clock?.advance(days(1) - 1);
      assert.equal((await send()).text, first.text);
      await bench.clock?.advance(2);
      assert.notEqual((await send()).text, first.text);
      assert.equal(bench.runs, 2);
    },
  },
  {
    id: "S17",
    title: "a key is unique within its account (and here within its method and route)",
    notOfOperations: "the operation says what is compared: one key is one operation",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const other = await bench.serve(bench.payout, { route: "/accounts/:account/refunds" });
      const [payout, refund] = [await send(), await other({ path: "/accounts/7/refunds" })];
      assert.notEqual(payout.text, refund.text);
      assert.equal((await send()).text, payout.text);
      assert.equal((await other({ path: "/accounts/7/refunds" })).text, refund.text);
      assert.equal(bench.runs, 2);
    },
  },
  {
    id: "S18",
    title: "a client that lost its connection sends again until it is answered",
    async run(make) {
      const bench = make();
      const gate = gated(bench.payout);
      const send = await bench.serve(gate.handler);
      const lost = new AbortController();
      const first = send({ signal: lost.signal });
      await until(() => bench.runs === 1);
      lost.abort();
      await assert.rejects(first);
      assert.equal((await send()).status, 409);
      gate.open();
      let got = await send();
      for (; got.status === 409; got = await send());
      assert.equal(got.status, 201);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "S19",
    title: "a recorded 500 stays what it is, and says that it is final",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 500, body: "indeterminate" }));
      const first = await send();
      for (let times = 0; times < 3; times += 1) assert.equal((await send()).text, first.text);
      // A client does not hope for another one.
      let sendings = 0;
      const response = await fetchWithIdempotency(
        `${bench.url}/accounts/7/payouts`,
        { method: "POST", body: '{"amount":1250,"currency":"EUR"}', headers: { "content-type": "application/json" } },
        {
          idempotencyKey: "k1",
          fetch(request) {
            sendings += 1;
            return fetch(request);
          },
        },
      );
      assert.deepEqual([response.status, sendings, bench.runs], [500, 1, 1]);
    },
  },
  {
    id: "S20",
    title: "the client's retries use one key, with backoff",
    async run(make) {
      const bench = make();
      const gate = gated(bench.payout);
      await bench.serve(gate.handler);
      const keys = new Set<string | null>();
      const url = `${bench.url}/accounts/7/payouts`;
      const waits: number[] = [];
      const response = await fetchWithIdempotency(
        url,
        { method: "POST", body: "{}" },
        {
          attemptMs: 200,
          fetch(request) {
            keys.add(request.headers.get("idempotency-key"));
            return fetch(request);
          },
          runtime: {
            monotonicMs: () => performance.now(),
            now: () => Date.now(),
            random: () => 0.5,
            setTimer(ms, fire) {
              if (ms !== 200) {
                waits.push(ms);
                if (waits.length === 2) gate.open();
              }
              const timer = setTimeout(fire, ms);
              return () => clearTimeout(timer);
            },
          },
        },
      );
      assert.equal(response.status, 201);
      assert.equal(keys.size, 1);
      assert.equal(bench.runs, 1);
      // The first sending was given up; the second was answered 409 with Retry-After: 1.
      assert.deepEqual(waits.slice(0, 2), [125, 1_000]);
    },
  },
  {
    id: "S21",
    title: "v2: a success is not repeated, a failure is tried again with an updated answer (preset success)",
    notOfOperations: "what it throws means what its `onError` says",
    async run(make) {
      // After a 503 nobody knows what happened, so that a 402 is told where the ledger has shut out the attempt before (P32).
      const shutsOut = { reconcile: async () => "absent" as const, absentIsFinal: true };
      for (const [statuses, recovery] of [
        [[402, 503, 200], "rerun"],
        [[503, 402, 200], shutsOut],
      ] as const) {
        const bench = make({ virtual: true });
        const send = await bench.serve(() => ({ status: statuses[bench.runs - 1] ?? 200, body: `try ${bench.runs}` }), {
          record: "success",
          recoverAfterMs: 0,
          recovery,
        });
        assert.deepEqual(bodies(await send(), await send(), await send(), await send()), [
          "try 1",
          "try 2",
          "try 3",
          "try 3",
        ]);
      }
    },
  },
  {
    id: "S22",
    title: "v2: a key is kept for 30 days, the default here",
    async run(make) {
      const bench = make({ virtual: true });
      const send = await bench.serve();
      const first = await send();
      await bench.clock?.advance(days(30));
      assert.equal((await send()).text, first.text);
      await bench.clock?.advance(1);
      assert.notEqual((await send()).text, first.text);
    },
  },
];

/** Of every record: its name, and when it was last written. */
export async function records(bench: Bench): Promise<readonly string[]> {
  const found: string[] = [];
  for await (const { name } of bench.store.list("")) {
    const stored = await bench.store.read(name);
    found.push(`${name} ${stored?.version} ${Buffer.from(stored?.bytes ?? []).toString("base64")}`);
  }
  return found;
}

export async function count(bench: Bench): Promise<number> {
  return (await records(bench)).length;
}
