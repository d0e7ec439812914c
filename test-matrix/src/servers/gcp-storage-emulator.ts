/**
 * gcp-storage-emulator: https://github.com/oittaa/gcp-storage-emulator. A negative control: it ignores every
 * precondition.
 */

import { join } from "node:path";

import type { GcsService } from "./gcs-endpoint.ts";
import { obtain, runInstaller, type Tool } from "./obtain.ts";
import { startServer } from "./start-server.ts";

const VERSION = "2026.7.19";

const tool: Tool = {
  name: "gcp-storage-emulator",
  version: VERSION,
  program: undefined,
  installer: "python3",
  installTakes: "half a minute",
  async install(folder) {
    await runInstaller(["python3", "-m", "venv", folder]);
    const python = join(folder, "bin", "python");
    await runInstaller([python, "-m", "pip", "install", `gcp-storage-emulator==${VERSION}`]);
  },
  // The program that pip makes names the folder it was made in, which is renamed.
  installed: (folder) => [
    join(folder, "bin", "python"),
    "-c",
    "import sys; from gcp_storage_emulator.__main__ import main; sys.exit(main())",
  ],
};

export async function startGcpStorageEmulator(variable: string): Promise<GcsService> {
  const running = process.env[variable] ?? "";
  if (running !== "") return { url: running, stop: () => Promise.resolve() };

  const command = await obtain(tool);
  const server = await startServer({
    name: "gcp-storage-emulator",
    command: (port) => [...command, "start", "--host", "127.0.0.1", "--port", `${port}`, "-M", "-q"],
  });
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop() };
}
