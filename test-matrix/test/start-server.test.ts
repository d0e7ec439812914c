import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { access, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { freePort } from "../src/servers/free-port.ts";
import { startServer, type ServerPlan } from "../src/servers/start-server.ts";

const fakeServer = fileURLToPath(new URL("fixtures/fake-server.ts", import.meta.url));
const starter = fileURLToPath(new URL("fixtures/starter.ts", import.meta.url));

describe("startServer", () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "firstwrite-server-"));
    await writeFile(join(folder, "data"), "");
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it("returns when the server answers on 127.0.0.1, and ends it and its folder when told to", async () => {
    const server = await startServer({ ...plan(), folder });
    const pid = await answeringPid(server.port);
    await server.stop();
    assert.equal(isAlive(pid), false);
    assert.equal(isAlive(server.pid), false);
    assert.equal(await exists(folder), false);
  });

  it("shows what a server printed that ended at once", async () => {
    await assert.rejects(startServer(plan("dies")), /^Error: fake did not start:\n(.*\n)*cannot go on$/);
  });

  it("says which program is not there", async () => {
    const missing: ServerPlan = { name: "fake", command: () => [join(folder, "no-such-program")] };
    await assert.rejects(startServer(missing), /could not be started: .*no-such-program/);
  });

  it("ends a server that does not answer in time, and shows what it printed", async () => {
    const silent = { ...plan("silent"), readyWithinMs: 500 };
    const error: unknown = await startServer(silent).catch((error: unknown) => error);
    assert.match(String(error), /^Error: fake did not start:\nfake server \d+ on \d+$/);
    assert.equal(isAlive(Number(/fake server (\d+)/.exec(String(error))?.[1])), false);
  });

  it("takes another port when somebody else has taken the one it found", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const address = taken.address();
    assert.ok(typeof address === "object" && address !== null);
    let asked = 0;
    const server = await startServer({
      name: "fake",
      folder,
      command: (port) => [process.execPath, fakeServer, String((asked += 1) === 1 ? address.port : port)],
    });
    assert.equal(asked, 2);
    assert.equal(await exists(folder), true);
    await server.stop();
    taken.close();
  });

  it("ends what the server started itself", async () => {
    const server = await startServer(plan("parent"));
    const pid = await answeringPid(server.port);
    assert.equal(isAlive(-pid), true);
    await server.stop();
    await gone(-pid);
  });

  it("ends a server that does not listen to SIGTERM", async () => {
    const server = await startServer(plan("stubborn"));
    const pid = await answeringPid(server.port);
    await server.stop();
    assert.equal(isAlive(pid), false);
  });

  it("says so when a server had ended by itself", async () => {
    const server = await startServer(plan());
    const pid = await answeringPid(server.port);
    process.kill(pid, "SIGKILL");
    await gone(server.pid);
    await delay(50);
    await assert.rejects(server.stop(), /^Error: fake ended by itself:/);
  });

  for (const ending of ["SIGKILL", "SIGTERM", "SIGINT", "crash", "exit"] as const) {
    it(`ends the server and its folder when the process that started it ends by ${ending}`, async () => {
      const child = spawn(process.execPath, [...process.execArgv, starter, folder, ending], {
        stdio: ["ignore", "pipe", "ignore"],
      });
      const [line] = await once(child.stdout, "data");
      const pid = Number(String(line));
      if (ending.startsWith("SIG")) {
        assert.equal(isAlive(pid), true);
        child.kill(ending === "crash" || ending === "exit" ? undefined : ending);
      }
      await gone(pid);
      for (let tries = 0; tries < 100 && (await exists(folder)); tries += 1) await delay(50);
      assert.equal(await exists(folder), false);
    });
  }
});

describe("freePort", () => {
  it("gives a port of 127.0.0.1 that can be bound", async () => {
    const server = createServer().listen(await freePort(), "127.0.0.1");
    await once(server, "listening");
    server.close();
  });
});

function plan(...modes: string[]): ServerPlan {
  return { name: "fake", command: (port) => [process.execPath, fakeServer, String(port), ...modes] };
}

async function answeringPid(port: number): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${port}/`);
  return Number(await response.text());
}

/** Of a process, or with a minus of a process group. */
function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function gone(pid: number): Promise<void> {
  for (let tries = 0; tries < 200 && isAlive(pid); tries += 1) await delay(50);
  assert.equal(isAlive(pid), false, `process ${pid} is still there`);
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    return false;
  }
}
