import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** Run in a process of its own: what the import replaces is the process's. */
const program = `
  const BuiltIn = Response;
  const { serve } = await import("@hono/node-server");
  const { defineOperation, Idempotency } = await import("@firstwrite/core");
  const { idempotentHandler, operationHandler } = await import("@firstwrite/http");
  const { MemoryStore } = await import("@firstwrite/memory");

  const principal = () => "a1";
  const idempotency = new Idempotency({ store: new MemoryStore() });
  const json = (text) => new Response(text, { status: 201, headers: { "content-type": "application/json" } });
  const handlers = {
    "/handler": idempotentHandler({ idempotency, route: "/payouts", principal, recovery: "hold" }, () => json("{}")),
    "/operation": operationHandler({
      idempotency,
      operation: defineOperation({ name: "pay", recovery: "hold", run: () => 1 }),
      principal,
      input: () => "x",
      answer: () => json("{}"),
    }),
  };
  const server = serve({ fetch: (request) => handlers[new URL(request.url).pathname](request), port: 0 }, async ({ port }) => {
    const types = [];
    for (const path of Object.keys(handlers)) {
      for (const key of ['"k1"', '"k1"', "no key"]) {
        const headers = { "idempotency-key": key, "content-type": "application/json" };
        const response = await fetch("http://localhost:" + port + path, { method: "POST", body: "{}", headers });
        await response.text();
        types.push(response.headers.get("content-type"));
      }
    }
    console.log(JSON.stringify({ isReplaced: Response !== BuiltIn, types }));
    server.closeAllConnections();
    server.close();
  });
`;

describe("@hono/node-server, loaded before this package, with a Response of its own", () => {
  it("gives every answer one Content-Type", async () => {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ["--conditions=@firstwrite/source", "--input-type=module", "--eval", program],
      { cwd: new URL("..", import.meta.url), timeout: 15_000 },
    );
    const { isReplaced, types }: { readonly isReplaced: boolean; readonly types: readonly string[] } =
      JSON.parse(stdout);
    assert.equal(isReplaced, true);
    const each = ["application/json", "application/json", "application/problem+json"];
    assert.deepEqual(types, [...each, ...each]);
  });
});
