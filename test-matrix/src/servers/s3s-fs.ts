/**
 * s3s-fs, an S3 server on a folder: https://github.com/Nugine/s3s. A negative control: it answers every condition right,
 * one at a time, and lets several writers win at once.
 */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { obtain, runInstaller, type Tool } from "./obtain.ts";
import { s3ServiceFromEnvironment, TEST_CREDENTIALS, type S3Service } from "./s3-endpoint.ts";
import { startServer } from "./start-server.ts";

const VERSION = "0.14.1";

const tool: Tool = {
  name: "s3s-fs",
  version: VERSION,
  program: "s3s-fs",
  installer: "cargo",
  installTakes: "four minutes",
  async install(folder) {
    await runInstaller(
      ["cargo", "install", "s3s-fs", "--version", VERSION, "--features", "binary", "--root", folder, "--locked"],
      { env: process.env },
    );
  },
  installed: (folder) => [join(folder, "bin", "s3s-fs")],
};

export async function startS3sFs(variable: string): Promise<S3Service> {
  const running = s3ServiceFromEnvironment(variable);
  if (running !== undefined) return running;

  const command = await obtain(tool);
  const folder = await mkdtemp(join(tmpdir(), "firstwrite-s3s-fs-"));
  try {
    const { accessKeyId, secretAccessKey } = TEST_CREDENTIALS;
    const server = await startServer({
      name: "s3s-fs",
      folder,
      command: (port) => [
        ...command,
        "--host",
        "127.0.0.1",
        "--port",
        `${port}`,
        "--access-key",
        accessKeyId,
        "--secret-key",
        secretAccessKey,
        folder,
      ],
    });
    return {
      endpoints: [{ url: `http://127.0.0.1:${server.port}`, ...TEST_CREDENTIALS }],
      async stop() {
        await server.stop();
        await rm(folder, { recursive: true, force: true });
      },
    };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}
