import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { CannotRun } from "../src/row.ts";
import { obtain, type Tool } from "../src/servers/obtain.ts";

const installer = fileURLToPath(new URL("fixtures/installer.ts", import.meta.url));

describe("obtain", () => {
  let folder: string;
  let cache: string;
  let env: Record<string, string>;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "firstwrite-obtain-"));
    cache = join(folder, "firstwrite");
    env = { XDG_CACHE_HOME: folder, PATH: `${join(folder, "bin")}:${dirname(process.execPath)}` };
    await mkdir(join(folder, "bin"));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it("takes a program from PATH and installs nothing", async () => {
    await program("fake-tool", "exit 0");
    assert.deepEqual(await obtain(tool({ install: never }), env), [join(folder, "bin/fake-tool")]);
  });

  it("passes by a program in PATH that does not work, as version managers leave them", async () => {
    await program("fake-tool", "exit 127");
    assert.deepEqual(await obtain(tool(), env), [join(cache, "fake-1.0.0/fake")]);
  });

  it("installs once: the second time nothing is done", async () => {
    const first = await obtain(tool(), env);
    assert.deepEqual(await obtain(tool({ install: never }), env), first);
    assert.equal(await readFile(first[0], "utf8"), "whole");
  });

  it("installs each version beside the others", async () => {
    await obtain(tool(), env);
    await obtain(tool({ version: "2.0.0" }), env);
    assert.deepEqual(await installations(), ["fake-1.0.0", "fake-2.0.0"]);
  });

  it("leaves nothing behind when an installation fails, and says why", async () => {
    await assert.rejects(obtain(tool({ install: offline }), env), (error: unknown) => {
      assert.ok(error instanceof CannotRun);
      assert.equal(error.message, "fake 1.0.0 could not be installed: exit 1\nno network");
      return true;
    });
    assert.deepEqual(await installations(), []);
  });

  it("says what is missing when the machine cannot install it", async () => {
    const missing = tool({ installer: "firstwrite-no-such-installer", install: never });
    await assert.rejects(
      obtain(missing, env),
      /firstwrite-no-such-installer, which would install fake, is not in PATH/,
    );
  });

  it("never takes the half of an installation that was killed for a whole one, and clears it away", async () => {
    const log = join(folder, "log");
    const killed = run(log, "hangs");
    while (!(await installations()).some((entry) => entry.includes(".partial-"))) await delay(20);
    killed.kill("SIGKILL");
    await once(killed, "exit");
    assert.equal(await output(run(log)), join(cache, "fake-1.0.0/fake"));
    assert.deepEqual(await installations(), ["fake-1.0.0"]);
  });

  it("installs once when several processes ask at the same time", async () => {
    const log = join(folder, "log");
    const found = await Promise.all([run(log), run(log), run(log)].map(output));
    assert.deepEqual(new Set(found), new Set([join(cache, "fake-1.0.0/fake")]));
    assert.equal((await readFile(log, "utf8")).trim().split("\n").length, 1);
  });

  async function program(name: string, script: string): Promise<void> {
    const file = join(folder, "bin", name);
    await writeFile(file, `#!/bin/sh\n${script}\n`);
    await chmod(file, 0o755);
  }

  async function installations(): Promise<string[]> {
    const entries = await readdir(cache).catch(() => []);
    return entries.filter((entry) => !entry.endsWith(".lock")).toSorted();
  }

  function run(...args: string[]): ChildProcess {
    return spawn(process.execPath, [...process.execArgv, installer, ...args], {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
  }
});

function tool(changes: Partial<Tool> = {}): Tool {
  return {
    name: "fake",
    version: "1.0.0",
    program: "fake-tool",
    installer: "node",
    installTakes: "a moment",
    install: (folder) => writeFile(join(folder, "fake"), "whole"),
    installed: (folder) => [join(folder, "fake")],
    ...changes,
  };
}

function offline(): Promise<never> {
  return Promise.reject(Object.assign(new Error("exit 1"), { stderr: "no network" }));
}

function never(): Promise<never> {
  return Promise.reject(new Error("nothing was to be installed"));
}

/** The last line a process prints before it ends well. */
async function output(child: ChildProcess): Promise<string> {
  let text = "";
  child.stdout?.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const [code] = await once(child, "close");
  assert.equal(code, 0);
  return text.trimEnd().split("\n").at(-1) ?? "";
}
