import assert from "node:assert/strict";

import { FaultyProxy, ScriptedServer, type ProxyFault } from "@firstwrite/conformance/wire";

describe("FaultyProxy", () => {
  const reset = (error: unknown): boolean => error instanceof TypeError;
  const put = (url: string, signal?: AbortSignal) =>
    fetch(`${url}/a%20b?x=1`, {
      method: "PUT",
      body: Buffer.from([0, 255]),
      headers: { "x-own": "1" },
      ...(signal && { signal }),
    });

  async function pair(): Promise<{ server: ScriptedServer; proxy: FaultyProxy } & AsyncDisposable> {
    const server = await ScriptedServer.start({ status: 201, headers: { etag: '"e"' }, body: Uint8Array.of(0, 254) });
    const proxy = await FaultyProxy.start(server.url);
    return {
      server,
      proxy,
      async [Symbol.asyncDispose]() {
        await proxy[Symbol.asyncDispose]();
        await server[Symbol.asyncDispose]();
      },
    };
  }

  it("forwards a request and its answer as they are, Host included", async () => {
    await using p = await pair();
    const answer = await put(p.proxy.url);
    assert.deepEqual([answer.status, answer.headers.get("etag")], [201, '"e"']);
    assert.deepEqual([...new Uint8Array(await answer.arrayBuffer())], [0, 254]);
    const [request] = p.server.requests;
    assert.deepEqual([request?.method, request?.url.pathname, request?.url.search], ["PUT", "/a%20b", "?x=1"]);
    assert.deepEqual([request?.headers["x-own"], request?.headers.host], ["1", new URL(p.proxy.url).host]);
    assert.deepEqual([...(request?.body ?? [])], [0, 255]);
  });

  // fault → whether the client gets an answer, and how many requests the service has got by then and in the end.
  const faults: [ProxyFault, boolean, number, number][] = [
    ["lostRequest", false, 0, 0],
    ["lostReply", false, 1, 1],
    ["landsLate", false, 0, 1],
    ["repeated", true, 1, 2],
    ["late", true, 1, 1],
  ];
  for (const [fault, isAnswered, then, inTheEnd] of faults) {
    it(`${fault}: the client is ${isAnswered ? "answered" : "cut off"}, the service asked ${inTheEnd} times`, async () => {
      await using p = await pair();
      p.proxy.inject(fault);
      if (isAnswered) assert.equal((await put(p.proxy.url)).status, 201);
      else await assert.rejects(put(p.proxy.url), reset);
      assert.equal(p.server.requests.length, then);
      await p.proxy.land();
      await p.server.received(inTheEnd);
      assert.equal((await put(p.proxy.url)).status, 201, "the next request meets no fault");
      assert.deepEqual([p.proxy.requests, p.proxy.faults, p.server.requests.length], [2, 1, inTheEnd + 1]);
    });
  }

  it("hangs: no answer, and nothing reaches the service", async () => {
    await using p = await pair();
    p.proxy.inject("hangs");
    await assert.rejects(put(p.proxy.url, AbortSignal.timeout(30)), { name: "TimeoutError" });
    assert.equal(p.server.requests.length, 0);
  });

  it("a fault is for what it matches, and is forgotten when healed", async () => {
    await using p = await pair();
    p.proxy.inject("lostRequest", ({ method }) => method === "GET");
    assert.equal((await put(p.proxy.url)).status, 201);
    await assert.rejects(fetch(p.proxy.url), reset);
    p.proxy.inject("lostRequest");
    p.proxy.heal();
    assert.equal((await put(p.proxy.url)).status, 201);
  });

  it("at random: as often as asked", async () => {
    await using p = await pair();
    let draw = 0;
    p.proxy.faultAtRandom(0.5, ["lostRequest"], () => (draw++ % 3 === 0 ? 0.4 : 0.6));
    const answers = await Promise.allSettled(Array.from({ length: 8 }, () => put(p.proxy.url)));
    assert.equal(answers.filter(({ status }) => status === "rejected").length, p.proxy.faults);
    assert.ok(p.proxy.faults > 0 && p.proxy.faults < 8);
  });

  it("a service that is away is a reset", async () => {
    const server = await ScriptedServer.start("silence");
    await using proxy = await FaultyProxy.start(server.url);
    await server[Symbol.asyncDispose]();
    await assert.rejects(put(proxy.url), reset);
  });
});
