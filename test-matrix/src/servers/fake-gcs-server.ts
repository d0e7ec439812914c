/**
 * fake-gcs-server, the JSON API of Google Cloud Storage in memory or on a folder:
 * https://github.com/fsouza/fake-gcs-server. It keeps the conditions of uploads under concurrency and checks no
 * credentials. It ignores that of a delete.
 */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { GcsService } from "./gcs-endpoint.ts";
import { obtain, runInstaller, type Command, type Tool } from "./obtain.ts";
import { startServer } from "./start-server.ts";

const VERSION = "1.56.1";

const tool: Tool = {
  name: "fake-gcs-server",
  version: VERSION,
  program: "fake-gcs-server",
  installer: "go",
  installTakes: "a minute",
  async install(folder) {
    await runInstaller(["go", "install", `github.com/fsouza/fake-gcs-server@v${VERSION}`], {
      // GOFLAGS is set to something harmless, for when it is empty Go goes by its own configuration file instead.
      env: { ...process.env, GOBIN: folder, GOFLAGS: "-trimpath" },
    });
  },
  installed: (folder) => [join(folder, "fake-gcs-server")],
};

export interface FakeGcsServerOptions {
  /** The variable that names one that runs already. */
  readonly variable: string;
  readonly backend: "memory" | "filesystem";
}

export async function startFakeGcsServer({ variable, backend }: FakeGcsServerOptions): Promise<GcsService> {
  const running = process.env[variable] ?? "";
  if (running !== "") return { url: running, stop: () => Promise.resolve() };

  const command = await obtain(tool);
  const folder = backend === "memory" ? undefined : await mkdtemp(join(tmpdir(), "firstwrite-fake-gcs-server-"));
  try {
    const server = await startServer({
      name: "fake-gcs-server",
      ...(folder !== undefined && { folder }),
      command: (port) => commandLine(command, port, folder),
    });
    return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop() };
  } catch (error) {
    if (folder !== undefined) await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

function commandLine(command: Command, port: number, folder: string | undefined): Command {
  const backend =
    folder === undefined ? ["-backend", "memory"] : ["-backend", "filesystem", "-filesystem-root", folder];
  const address = ["-scheme", "http", "-host", "127.0.0.1", "-port", `${port}`, "-public-host", `127.0.0.1:${port}`];
  return [...command, ...address, ...backend, "-log-level", "error"];
}
