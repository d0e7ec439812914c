/** What users of other libraries ran into, and what has to be right because money moves: run against every integration. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect } from "node:net";

import { Idempotency, type CallOptions, type ConditionalStore, type Version } from "@firstwrite/core";
import { idempotencyScope, recordedResponse, type IdempotencyContext } from "@firstwrite/http";
import type { MemoryStore } from "@firstwrite/memory";

import { count, records, type Case } from "./cases.ts";
import type { TestHandler } from "./integrations.ts";
import { problemOf, sleep, until, type Bench } from "./setup.ts";

const record = (bench: Bench): Promise<string> =>
  records(bench).then(([found = ""]) => Buffer.from(found.split(" ")[2] ?? "", "base64").toString());

/** Lets virtual time pass until a request that waits for it is answered. */
async function passing<Result>(bench: Bench, ms: number, answer: Promise<Result>): Promise<Result> {
  const ended = new AbortController();
  const ends = answer.finally(() => ended.abort());
  while (!ended.signal.aborted) {
    await bench.clock?.advance(ms);
    await sleep(1);
  }
  return ends;
}

/** A process of its own that dies in the middle of its handler, after `effect`, while its client hangs up. */
async function diesInHandler(
  bench: Bench,
  options: Parameters<Bench["serve"]>[1] = {},
  effect: (context: IdempotencyContext) => unknown = () => {},
): Promise<{ readonly send: Awaited<ReturnType<Bench["serve"]>>; readonly cut: CutStore }> {
  const cut = new CutStore(bench.store);
  const idempotency = new Idempotency({ store: cut, ...(bench.clock && { runtime: bench.clock }) });
  const send = await bench.serve(
    (_request, context) => {
      effect(context);
      cut.isCut = true;
      return new Promise(() => {});
    },
    { idempotency, ...options },
  );
  const gone = new AbortController();
  const first = send({ signal: gone.signal });
  await until(() => bench.runs === 1);
  gone.abort();
  await assert.rejects(first);
  return { send, cut };
}

export const peers: readonly Case[] = [
  {
    id: "P1",
    title: "a 204 replay runs the handler again",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 204, headers: { "x-made": "yes" } }));
      for (let times = 0; times < 3; times += 1) {
        const got = await send();
        assert.deepEqual([got.status, got.body.length, got.headers.get("x-made")], [204, 0, "yes"]);
        assert.equal(got.headers.get("content-length"), null);
      }
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "P2",
    title: "an empty body is replayed as something else",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 200 }));
      const [first, again] = [await send(), await send()];
      assert.deepEqual([first.body.length, again.body.length, again.status, bench.runs], [0, 0, 200, 1]);
    },
  },
  {
    id: "P3",
    title: "a store outage hangs the request, or runs it unprotected",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { deadlineMs: 150 });
      bench.store.inject("away", { times: Infinity });
      const got = await send();
      assert.equal(got.status, 503);
      assert.deepEqual([problemOf(got)["retry"], got.headers.get("retry-after"), bench.runs], ["same_key", "1", 0]);
      bench.store.heal();
      assert.equal((await send()).status, 201);
      bench.store.inject("denied", { times: Infinity });
      assert.equal((await send({ key: '"k2"' })).status, 503);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "P4",
    title: "run_unprotected, asked for by name, leaves requests unprotected though the store is there",
    notOfOperations: "an operation is never run unprotected",
    async run(make) {
      const bench = make();
      let context: IdempotencyContext | undefined;
      const handler: TestHandler = (request, told) => {
        context = told;
        return { status: 200, body: request.body };
      };
      const send = await bench.serve(handler, { deadlineMs: 100, storeAway: "run_unprotected" });
      bench.store.inject("away", { times: Infinity });
      const got = await send();
      assert.deepEqual([got.status, got.text], [200, '{"amount":1250,"currency":"EUR"}']);
      assert.equal(context?.protected, false);
      bench.store.heal();
      await send();
      await send();
      assert.equal(context?.protected, true);
      assert.equal(bench.runs, 2);
    },
  },
  {
    id: "P5",
    title: "Set-Cookie is replayed, or kept in the store, and so are Date and headers of one hop",
    notOfOperations: "`answer` makes the headers, of what is recorded",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({
        status: 200,
        headers: { "set-cookie": ["sid=secret-1; HttpOnly", "b=2"], "x-kept": ["a", "b"] },
        body: "done",
      }));
      const first = await send();
      assert.deepEqual(first.headers.getSetCookie(), ["sid=secret-1; HttpOnly", "b=2"]);
      const again = await send();
      assert.deepEqual(again.headers.getSetCookie(), []);
      assert.equal(again.headers.get("x-kept"), "a, b");
      assert.ok(Math.abs(Date.parse(again.headers.get("date") ?? "") - Date.now()) < 5_000);
      const kept = await record(bench);
      assert.match(kept, /"done"/);
      assert.doesNotMatch(kept, /secret-1|keep-alive|"date"/i);
    },
  },
  {
    id: "P6",
    title: "headers that were set outside of the handler, for one request, are replayed to others",
    na: { fetch: "nothing stands outside of a fetch handler that could set headers" },
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const [first, again] = [await send(), await send()];
      const conflict = await send({ body: "{}" });
      const outer = [first, again, conflict].map(({ headers }) => headers.get("x-outer"));
      assert.equal(new Set(outer).size, 3);
      assert.ok(outer.every((value) => value?.startsWith("r")));
      assert.doesNotMatch(await record(bench), /x-outer/i);
    },
  },
  {
    id: "P7",
    title: "after a replay next() still runs",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      await send();
      await send();
      // What `next()` would begin begins by now.
      await sleep(20);
      assert.equal(bench.runs, 1);
      assert.equal((await send({ body: "{}" })).status, 422);
      await sleep(20);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "P8",
    title: "a client-sent x-hit header hangs a request",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      const headers = { "x-hit": "true", "idempotent-replayed": "true", "idempotency-operation-id": "mine" };
      const got = await send({ headers });
      assert.equal(got.status, 201);
      assert.equal(got.headers.get("idempotent-replayed"), null);
      assert.notEqual(got.headers.get("idempotency-operation-id"), "mine");
    },
  },
  {
    id: "P9",
    title: "a concurrent 409 overwrites the running record, and a 422 the good one",
    async run(make) {
      const bench = make();
      const { promise, resolve } = Promise.withResolvers<void>();
      const handler: TestHandler = async (request, context) => {
        await promise;
        return bench.payout(request, context);
      };
      const send = await bench.serve(handler);
      const other = await bench.serve(handler);
      const first = send();
      await until(() => bench.runs === 1);
      const running = await records(bench);
      assert.deepEqual([(await send()).status, (await other()).status], [409, 409]);
      assert.deepEqual(await records(bench), running);
      resolve();
      const { text } = await first;
      const done = await records(bench);
      assert.equal((await other({ body: "{}" })).status, 422);
      assert.deepEqual(await records(bench), done);
      assert.equal((await other()).text, text);
    },
  },
  {
    id: "P10",
    title: "the same key and body on another path replays the first path's answer",
    async run(make) {
      const bench = make();
      const send = await bench.serve((request) => ({ status: 200, body: request.target }));
      assert.equal((await send({ path: "/accounts/7/payouts" })).text, "/accounts/7/payouts");
      const other = await send({ path: "/accounts/8/payouts" });
      assert.equal(other.status, 422);
      assert.doesNotMatch(other.text, /accounts\/7/);
    },
  },
  {
    id: "P11",
    title: "another customer with a new key and the same body gets 409, or with the same key the first one's answer",
    notOfOperations: "a principal is its own scope",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 200, body: `${bench.runs}` }));
      await send({ headers: { "x-account": "a1" } });
      assert.equal((await send({ headers: { "x-account": "a2" }, key: '"k2"' })).text, "2");
      assert.equal((await send({ headers: { "x-account": "a2" } })).text, "3");
      // Nor by a principal that is made to look like another one and the rest.
      assert.notEqual(
        idempotencyScope({ principal: 'a","POST', method: "POST", route: "/x" }),
        idempotencyScope({ principal: "a", method: 'POST","POST', route: "/x" }),
      );
    },
  },
  {
    id: "P12",
    title: "one lost acknowledgement locks the key for its whole TTL",
    async run(make) {
      for (const on of ["create", "replace"] as const) {
        for (const fault of ["lostReply", "lostRequest"] as const) {
          const bench = make();
          const send = await bench.serve();
          bench.store.inject(fault, { on });
          const first = await send();
          assert.deepEqual([first.status, (await send()).text, bench.runs], [201, first.text, 1]);
        }
      }
    },
  },
  {
    id: "P13",
    title: "a comma inside a quoted key is refused",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      assert.deepEqual([(await send({ key: '"a,b"' })).status, (await send({ key: '"a,b"' })).status], [201, 201]);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "P14",
    title: "binary bodies are corrupted, in the request, in the first answer or in the replay",
    async run(make) {
      const bench = make();
      const send = await bench.serve((request) => ({ status: 200, body: request.body }));
      const bytes = [
        randomBytes(1_000),
        randomBytes(400_000),
        Buffer.from([0xef, 0xbb, 0xbf, 0x61]),
        Buffer.alloc(5_000),
      ];
      for (const [index, body] of bytes.entries()) {
        const sending = { body, key: `"b${index}"`, headers: { "content-type": "application/octet-stream" } };
        const [first, again] = [await send(sending), await send(sending)];
        assert.ok(body.equals(first.body));
        assert.ok(body.equals(again.body));
        assert.equal(again.headers.get("content-length"), String(body.length));
      }
      assert.equal(bench.runs, bytes.length);
    },
  },
  {
    id: "P15",
    title: "the completion write fails after the effect, and success becomes an error or a second effect",
    async run(make) {
      const bench = make({ virtual: true });
      const ledger = new Map<string, string>();
      const reconcile = async ({ operationId }: IdempotencyContext): Promise<Response | "absent"> => {
        const row = ledger.get(operationId);
        return row === undefined ? "absent" : new Response(row, { status: 201 });
      };
      const send = await bench.serve(
        (_request, { operationId }) => {
          ledger.set(operationId, "paid");
          bench.store.inject("away", { on: "replace", times: Infinity });
          return { status: 201, body: "paid" };
        },
        { recovery: { reconcile }, deadlineMs: 5_000 },
      );
      const first = await passing(bench, 500, send());
      assert.deepEqual([first.status, first.text], [201, "paid"]);
      // Until nobody tries to record it any more.
      await bench.clock?.advance(10_000);
      bench.store.heal();
      assert.equal((await send()).status, 409);
      await bench.clock?.advance(60_001);
      const again = await send();
      assert.deepEqual([again.status, again.text, bench.runs, ledger.size], [201, "paid", 1, 1]);
    },
  },
  {
    id: "P16",
    title: "secrets are in the store, in an answer, or in an error: the raw key, the body, the principal",
    notOfOperations: "a principal is its own scope: a test of its own",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 204 }), { storeKey: false });
      const sending = {
        key: '"secret-key"',
        body: '{"iban":"secret-iban"}',
        headers: { "x-account": "secret-account" },
      };
      await send(sending);
      assert.doesNotMatch(await record(bench), /secret/);
      for (const got of [await send({ ...sending, body: "{}" }), await send({ ...sending, key: "secret-key" })]) {
        assert.ok(got.status >= 400);
        assert.doesNotMatch(got.text + JSON.stringify(Array.from(got.headers)), /secret/);
      }
    },
  },
  {
    id: "P17",
    title: "fifty at once: two effects, or two answers",
    async run(make) {
      const bench = make();
      const handler: TestHandler = async (request, context) => {
        await sleep(30);
        return bench.payout(request, context);
      };
      const one = await bench.serve(handler);
      const two = await bench.serve(handler);
      const got = await Promise.all(Array.from({ length: 50 }, (_, index) => (index % 2 === 0 ? one() : two())));
      assert.equal(bench.runs, 1);
      const done = got.filter(({ status }) => status === 201);
      assert.ok(done.length >= 1);
      assert.ok(got.every(({ status }) => status === 201 || status === 409));
      assert.equal(new Set(done.map(({ text }) => text)).size, 1);
      assert.equal((await two()).text, done[0]?.text);
    },
  },
  {
    id: "P18",
    title: "fifty at once that wait: one is told something else, in its process or in another",
    async run(make) {
      const bench = make();
      const handler: TestHandler = async (request, context) => {
        await sleep(60);
        return bench.payout(request, context);
      };
      const one = await bench.serve(handler, { waitMs: 5_000 });
      const two = await bench.serve(handler, { waitMs: 5_000 });
      const got = await Promise.all(Array.from({ length: 50 }, (_, index) => (index % 2 === 0 ? one() : two())));
      assert.equal(bench.runs, 1);
      assert.deepEqual(new Set(got.map(({ status, text }) => `${status} ${text}`)).size, 1);
      assert.equal(got.filter(({ headers }) => headers.get("idempotent-replayed") === null).length, 1);
    },
  },
  {
    id: "P19",
    title: "a wait has no bound, and does not end in 409 when waitMs is over",
    async run(make) {
      const bench = make();
      const { promise, resolve } = Promise.withResolvers<void>();
      const handler: TestHandler = async (request, context) => {
        await promise;
        return bench.payout(request, context);
      };
      const one = await bench.serve(handler, { waitMs: 150 });
      const two = await bench.serve(handler, { waitMs: 150 });
      const first = one();
      await until(() => bench.runs === 1);
      const begun = performance.now();
      const got = await Promise.all([one(), two()]);
      assert.deepEqual(
        got.map(({ status }) => status),
        [409, 409],
      );
      const took = performance.now() - begun;
      assert.ok(took >= 149 && took < 2_000, `${took}`);
      resolve();
      assert.equal((await first).status, 201);
    },
  },
  {
    id: "P20",
    title: "a client that hangs up undoes the effect, or its retry does it again",
    async run(make) {
      const bench = make();
      const { promise, resolve } = Promise.withResolvers<void>();
      let aborted: boolean | undefined;
      const send = await bench.serve(async (request, context) => {
        await promise;
        aborted = context.signal.aborted;
        return bench.payout(request, context);
      });
      const lost = new AbortController();
      const first = send({ signal: lost.signal });
      await until(() => bench.runs === 1);
      lost.abort();
      await assert.rejects(first);
      await sleep(30);
      resolve();
      await until(() => aborted !== undefined);
      assert.equal(aborted, false);
      let got = await send();
      for (; got.status === 409; got = await send());
      assert.deepEqual([got.status, got.headers.get("idempotent-replayed"), bench.runs], [201, "true", 1]);
    },
  },
  {
    id: "P21",
    title: "a client that hangs up while it waits goes on to claim the key, or to read the store",
    async run(make) {
      const bench = make();
      const { promise, resolve } = Promise.withResolvers<void>();
      const handler: TestHandler = async (request, context) => {
        await promise;
        return bench.payout(request, context);
      };
      const one = await bench.serve(handler);
      const first = one();
      await until(() => bench.runs === 1);
      let reads = 0;
      const store: ConditionalStore = {
        traits: bench.store.traits,
        create: (...call) => bench.store.create(...call),
        replace: (...call) => bench.store.replace(...call),
        read(...call) {
          reads += 1;
          return bench.store.read(...call);
        },
      };
      const two = await bench.serve(handler, { waitMs: 60_000, idempotency: new Idempotency({ store }) });
      const lost = new AbortController();
      const waiting = two({ signal: lost.signal });
      await until(() => reads > 1);
      lost.abort();
      await assert.rejects(waiting);
      await sleep(100);
      const before = reads;
      await sleep(1_200);
      assert.equal(reads, before);
      resolve();
      assert.equal((await first).status, 201);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "P22",
    title: "a handler that outlives its request's deadline is not recorded, or sends into a finished response",
    async run(make) {
      const bench = make();
      const { promise, resolve } = Promise.withResolvers<void>();
      const send = await bench.serve(
        async (request, context) => {
          await promise;
          return bench.payout(request, context);
        },
        { deadlineMs: 150 },
      );
      const late = await send();
      assert.equal(late.status, 503);
      assert.equal(problemOf(late)["retry"], "same_key");
      assert.equal(late.headers.get("retry-after"), "1");
      resolve();
      let got = await send();
      for (; got.status === 409; got = await send());
      assert.equal(got.status, 201);
      assert.equal(got.headers.get("idempotency-operation-id"), late.headers.get("idempotency-operation-id"));
      assert.equal(got.headers.get("retry-after"), null);
      assert.equal(got.headers.get("content-language"), null);
      assert.match(got.headers.get("content-type") ?? "", /^application\/json/);
      assert.equal(bench.runs, 1);
      // The connections are still good for others.
      assert.equal((await send({ key: '"k2"' })).status, 201);
    },
  },
  {
    id: "P23",
    title: "a crash between effect and answer: the next process pays again",
    async run(make) {
      const bench = make({ virtual: true });
      const ledger = new Map<string, string>();
      const reconcile = async ({ operationId }: IdempotencyContext): Promise<Response | "absent"> => {
        const row = ledger.get(operationId);
        return row === undefined ? "absent" : Response.json({ row }, { status: 201 });
      };
      await diesInHandler(bench, { recovery: { reconcile } }, ({ operationId }) => ledger.set(operationId, "paid"));

      const next = await bench.serve(bench.payout, { recovery: { reconcile } });
      assert.equal((await next()).status, 409);
      await bench.clock?.advance(60_001);
      const got = await next();
      assert.deepEqual([got.status, got.text], [201, '{"row":"paid"}']);
      assert.equal((await next()).text, got.text);
      assert.deepEqual([bench.runs, ledger.size], [1, 1]);
    },
  },
  {
    id: "P24",
    title: "a crash before the effect: the key is stuck",
    async run(make) {
      const bench = make({ virtual: true });
      await diesInHandler(bench);
      const attempts: number[] = [];
      const next = await bench.serve(
        (request, context) => {
          attempts.push(context.attempt);
          return bench.payout(request, context);
        },
        { recovery: { reconcile: async () => "absent" } },
      );
      await bench.clock?.advance(60_001);
      assert.equal((await next()).status, 201);
      assert.deepEqual(attempts, [2]);
    },
  },
  {
    id: "P25",
    title: "nobody knows: the effect is done again instead of held; and what a person settles is not replayed",
    notOfOperations: "its value is its own: a test of its own settles one",
    async run(make) {
      const bench = make({ virtual: true });
      await diesInHandler(bench, { recovery: "hold" });
      await bench.clock?.advance(60_001);
      const next = await bench.serve(bench.payout, { recovery: "hold" });
      let operationId = "";
      for (let times = 0; times < 2; times += 1) {
        const held = await next();
        operationId = held.headers.get("idempotency-operation-id") ?? "";
        assert.deepEqual([held.status, problemOf(held)["retry"]], [409, "same_key"]);
        assert.equal(problemOf(held)["type"], "urn:firstwrite:problem:held");
        assert.equal(held.headers.get("retry-after"), "60");
      }
      const route = "/accounts/:account/payouts";
      await bench
        .engine()
        .settle(
          { scope: idempotencyScope({ principal: "a1", method: "POST", route }), key: "k1" },
          { value: await recordedResponse(new Response("settled", { status: 202 })) },
          { operationId, by: "ada", why: "looked it up" },
        );
      const got = await next();
      assert.deepEqual([got.status, got.text, bench.runs], [202, "settled", 1]);
    },
  },
  {
    id: "P26",
    title: "a record that holds no answer of ours crashes the server, or runs the handler",
    notOfOperations: "its value is its own: a test of its own spoils one",
    async run(make) {
      const bench = make({ virtual: true });
      const send = await bench.serve(() => ({ status: 500 }), {
        recovery: "hold",
        record: () => "recover",
        recoverAfterMs: 0,
      });
      const scope = idempotencyScope({ principal: "a1", method: "POST", route: "/accounts/:account/payouts" });
      const split = { status: 200, headers: [["x-a", "b\r\nset-cookie: c"]], encoding: "text", body: "" };
      for (const [index, value] of [{ paid: true }, split].entries()) {
        const key = `k${index}`;
        const sending = { key: `"${key}"` };
        assert.equal((await send(sending)).status, 500);
        const operationId = (await send(sending)).headers.get("idempotency-operation-id") ?? "";
        await bench.engine().settle({ scope, key }, { value }, { operationId, by: "ada", why: "by hand" });
        const got = await send(sending);
        assert.deepEqual([got.status, problemOf(got)["retry"], bench.runs], [500, "never", index + 1]);
      }
    },
  },
  {
    id: "P27",
    title: "a large answer is cut, or kept in the record",
    async run(make) {
      const bench = make();
      const body = randomBytes(1_500_000);
      const send = await bench.serve(() => ({ status: bench.runs === 1 ? 200 : 402, body }));
      for (const key of ['"ok"', '"declined"']) {
        await send({ key });
        const again = await send({ key });
        assert.equal(again.headers.get("idempotent-replayed"), "true");
        assert.ok(body.equals(again.body));
      }
      // Each has its record, and an object of its own for the answer.
      assert.equal(await count(bench), 4);
      for await (const { name } of bench.store.list("")) if (name.endsWith(".result")) bench.store.expire(name);
      const gone = await send({ key: '"ok"' });
      assert.deepEqual([gone.status, problemOf(gone)["retry"], bench.runs], [500, "never", 2]);
    },
  },
  {
    id: "P28",
    title: "an answer that is too large is cut or corrupted, and not refused",
    notOfOperations: "what is recorded is its value, and the engine bounds that",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 200, body: "x".repeat(2_000) }), {
        answerBytesMax: 1_999,
        recoverAfterMs: 0,
        recovery: { reconcile: async () => new Response("short", { status: 200 }) },
      });
      const got = await send();
      assert.equal(got.status, 500);
      assert.equal(problemOf(got)["type"], "urn:firstwrite:problem:answer-not-recordable");
      assert.equal(got.headers.get("idempotency-operation-id")?.length, 36);
      // The effect may have happened: it is the ledger's to say.
      assert.deepEqual([(await send()).text, (await send()).text, bench.runs], ["short", "short", 1]);
    },
  },
  {
    id: "P29",
    title: "a body that is too large reaches the store, or the handler; declared or not",
    async run(make) {
      const bench = make();
      const send = await bench.serve(bench.payout, { bodyBytesMax: 1_000 });
      assert.equal((await send({ body: "x".repeat(1_000), headers: { "content-type": "text/plain" } })).status, 201);
      const declared = await send({ body: "x".repeat(1_001), key: '"k2"' });
      assert.deepEqual([declared.status, problemOf(declared)["retry"]], [413, "never"]);
      const stream = new ReadableStream<Uint8Array>({
        start(controller) {
          for (let chunks = 0; chunks < 20; chunks += 1) controller.enqueue(Buffer.alloc(100));
          controller.close();
        },
      });
      const response = await fetch(`${bench.url}/accounts/7/payouts`, {
        method: "POST",
        headers: { "idempotency-key": '"k3"', "content-type": "application/octet-stream" },
        body: stream,
        duplex: "half",
      });
      assert.equal(response.status, 413);
      assert.deepEqual([bench.runs, await count(bench)], [1, 1]);
    },
  },
  {
    id: "P30",
    title: "a client that hangs up in the middle of its body has begun an operation",
    async run(make) {
      const bench = make();
      await bench.serve();
      const { port } = new URL(bench.url);
      const socket = connect(Number(port), "127.0.0.1");
      await new Promise<void>((resolve) => socket.once("connect", resolve));
      socket.write(
        'POST /accounts/7/payouts HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "k1"\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"a"',
      );
      await sleep(30);
      socket.destroy();
      await sleep(30);
      assert.deepEqual([bench.runs, await count(bench)], [0, 0]);
    },
  },
  {
    id: "P31",
    title: "a body in many chunks is another one than in a single chunk",
    async run(make) {
      const bench = make();
      const send = await bench.serve((request) => ({ status: 200, body: request.body }));
      const body = '{"amount":1250,"currency":"EUR"}';
      const { port } = new URL(bench.url);
      const socket = connect(Number(port), "127.0.0.1");
      let got = "";
      socket.on("data", (bytes) => (got += bytes.toString()));
      socket.write(
        'POST /accounts/7/payouts HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: "k1"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
      );
      for (const character of body) {
        socket.write(`1\r\n${character}\r\n`);
        if (character === ",") await sleep(10);
      }
      await sleep(10);
      socket.write("0\r\n\r\n");
      await new Promise<void>((resolve) => socket.once("close", () => resolve()));
      assert.match(got, /^HTTP\/1.1 200 /);
      assert.ok(got.endsWith(body));
      const again = await send({ body });
      assert.deepEqual([again.text, again.headers.get("idempotent-replayed"), bench.runs], [body, "true", 1]);
    },
  },
  {
    id: "P32",
    title: "after a takeover a failure is recorded, or told, though the owner before may yet succeed (rule E7)",
    notOfOperations: "what it throws means what its `onError` says: a test of its own",
    async run(make) {
      // A refusal that is kept for the key, and one that gives the key back.
      for (const status of [402, 422]) {
        const bench = make({ virtual: true });
        await diesInHandler(bench);
        await bench.clock?.advance(60_001);
        const next = await bench.serve(() => ({ status: bench.runs === 2 ? status : 201, body: `${bench.runs}` }), {
          recovery: "rerun",
          recoverAfterMs: 0,
        });
        // Not the refusal itself: a client that takes it for final would begin anew, beside an owner that may yet succeed.
        const unsure = await next();
        assert.deepEqual([unsure.status, problemOf(unsure)["retry"]], [503, "same_key"]);
        assert.deepEqual([(await next()).text, (await next()).text], ["3", "3"]);
      }
    },
  },
  {
    id: "P33",
    title: "a key that is too old begins its operation again after it was forgotten",
    async run(make) {
      const bench = make({ virtual: true });
      const send = await bench.serve(bench.payout, { keyTime: true });
      const now = bench.clock?.now() ?? 0;
      const key = (at: number): string =>
        `"${at
          .toString(16)
          .padStart(12, "0")
          .replace(/^(.{8})/, "$1-")}-7cde-8def-0123456789ab"`;
      assert.equal((await send({ key: key(now) })).status, 201);
      const old = await send({ key: key(now - 40 * 86_400_000) });
      assert.deepEqual([old.status, problemOf(old)["retry"]], [422, "never"]);
      assert.equal(problemOf(old)["title"], "Idempotency-Key is too old");
      for (const wrong of ['"order-1"', key(now + 3 * 86_400_000)]) {
        assert.deepEqual(problemOf(await send({ key: wrong }))["retry"], "never");
      }
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "P34",
    title: "a record that a later version wrote, or that is no record, is overwritten",
    async run(make) {
      const bench = make();
      const send = await bench.serve();
      await send();
      const spoil = async (change: (text: string) => string): Promise<void> => {
        for await (const { name } of bench.store.list("")) {
          const stored = await bench.store.read(name);
          assert.ok(stored !== undefined);
          await bench.store.replace(name, stored.version, Buffer.from(change(Buffer.from(stored.bytes).toString())));
        }
      };
      await spoil((text) => text.replace('"format":1', '"format":9'));
      const later = await send();
      assert.deepEqual([later.status, problemOf(later)["retry"]], [503, "same_key"]);
      await spoil(() => "what is this");
      const broken = await send();
      assert.deepEqual([broken.status, problemOf(broken)["retry"], bench.runs], [500, "never", 1]);
    },
  },
  {
    id: "P35",
    title: "a 409, 422 or 429 of the handler's own is taken for one of these",
    async run(make) {
      const bench = make();
      const send = await bench.serve(() => ({ status: 409, body: "the account is closed" }));
      const [first, again] = [await send(), await send()];
      assert.deepEqual([first.text, again.text, again.status], ["the account is closed", "the account is closed", 409]);
      assert.equal(again.headers.get("retry-after"), null);
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "P36",
    title: "an answer that is shared and not recorded says that it is final",
    notOfOperations: "what it throws means what its `onError` says: a test of its own",
    async run(make) {
      const bench = make();
      const { promise, resolve } = Promise.withResolvers<void>();
      const send = await bench.serve(
        async () => {
          await promise;
          return { status: 429, body: "slower" };
        },
        { waitMs: 5_000 },
      );
      const first = send();
      await until(() => bench.runs === 1);
      const second = send();
      await sleep(50);
      resolve();
      for (const got of await Promise.all([first, second])) {
        assert.deepEqual([got.status, got.headers.get("idempotent-replayed")], [429, null]);
      }
      await send();
      assert.ok(bench.runs >= 2);
    },
  },
  {
    id: "P37",
    title: "a process that lost its operation to another says 409 as long as its own handler hangs",
    async run(make) {
      const bench = make({ virtual: true });
      const { send: stuck, cut } = await diesInHandler(bench);
      await bench.clock?.advance(60_001);
      const other = await bench.serve();
      const done = await other();
      assert.equal(done.status, 201);
      cut.isCut = false;
      assert.equal((await passing(bench, 500, stuck())).text, done.text);
      assert.equal(bench.runs, 2);
    },
  },
  {
    id: "P38",
    title: "a success that could not be recorded is shared as a replay of one that was",
    async run(make) {
      const bench = make();
      const { promise, resolve } = Promise.withResolvers<void>();
      const send = await bench.serve(
        async (request, context) => {
          await promise;
          return bench.payout(request, context);
        },
        { waitMs: 5_000, deadlineMs: 400 },
      );
      bench.store.inject("away", { on: "replace", times: Infinity });
      const first = send();
      await until(() => bench.runs === 1);
      const second = send();
      await sleep(50);
      resolve();
      for (const got of await Promise.all([first, second])) {
        assert.deepEqual([got.status, got.headers.get("idempotent-replayed")], [201, null]);
      }
      assert.equal(bench.runs, 1);
    },
  },
  {
    id: "P39",
    title: "a client that sends more than its request has the effect done and not recorded",
    async run(make) {
      const bench = make();
      const { promise, resolve } = Promise.withResolvers<void>();
      const send = await bench.serve(
        async (request, context) => {
          await promise;
          return bench.payout(request, context);
        },
        { recovery: "hold", recoverAfterMs: 0 },
      );
      const { port } = new URL(bench.url);
      const socket = connect(Number(port), "127.0.0.1");
      socket.on("error", () => {});
      socket.write(
        'POST /accounts/7/payouts HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "k1"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}',
      );
      await until(() => bench.runs === 1);
      socket.write("what is this\r\n\r\n");
      await sleep(50);
      resolve();
      await sleep(50);
      const got = await send({ body: "{}" });
      assert.deepEqual([got.status, got.headers.get("idempotent-replayed"), bench.runs], [201, "true", 1]);
      socket.destroy();
    },
  },
];

/** What a process is to its store when it has died: nothing that it sends arrives, and nothing is answered. */
class CutStore implements ConditionalStore {
  isCut = false;
  readonly traits: MemoryStore["traits"];
  readonly #store: MemoryStore;

  constructor(store: MemoryStore) {
    this.#store = store;
    this.traits = store.traits;
  }

  create(name: string, bytes: Uint8Array, options?: CallOptions): ReturnType<MemoryStore["create"]> {
    return this.isCut ? new Promise(() => {}) : this.#store.create(name, bytes, options);
  }

  replace(
    name: string,
    expected: Version,
    bytes: Uint8Array,
    options?: CallOptions,
  ): ReturnType<MemoryStore["replace"]> {
    return this.isCut ? new Promise(() => {}) : this.#store.replace(name, expected, bytes, options);
  }

  read(name: string, options?: CallOptions): ReturnType<MemoryStore["read"]> {
    return this.isCut ? new Promise(() => {}) : this.#store.read(name, options);
  }
}
