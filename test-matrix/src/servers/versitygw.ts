/**
 * versitygw, an S3 gateway on a folder: https://github.com/versity/versitygw. The default S3 server here: it is built
 * from source by one command, checks signatures, and kept every condition under concurrency.
 */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { obtain, runInstaller, type Command, type Tool } from "./obtain.ts";
import { s3ServiceFromEnvironment, TEST_CREDENTIALS, type S3Endpoint, type S3Service } from "./s3-endpoint.ts";
import { startServer, type RunningServer } from "./start-server.ts";

const VERSION = "1.8.0";

const tool: Tool = {
  name: "versitygw",
  version: VERSION,
  program: "versitygw",
  installer: "go",
  installTakes: "two minutes",
  async install(folder) {
    await runInstaller(["go", "install", `github.com/versity/versitygw/cmd/versitygw@v${VERSION}`], {
      // GOFLAGS is set to something harmless, for when it is empty Go goes by its own configuration file instead.
      env: { ...process.env, GOBIN: folder, GOFLAGS: "-trimpath" },
    });
  },
  installed: (folder) => [join(folder, "versitygw")],
};

export interface VersitygwOptions {
  /** The variable that names one that runs already. */
  readonly variable: string;
  /** How many gateways serve the folder: one store with as many addresses. */
  readonly gateways?: number;
  /** ETags that are no MD5 of the body. */
  readonly opaqueETags?: boolean;
}

export async function startVersitygw(options: VersitygwOptions): Promise<S3Service> {
  const running = s3ServiceFromEnvironment(options.variable);
  if (running !== undefined) return running;

  const command = await obtain(tool);
  const folder = await mkdtemp(join(tmpdir(), "firstwrite-versitygw-"));
  const gateways: RunningServer[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const first = await startGateway(command, folder, options);
    gateways.push(first);
    while (gateways.length < (options.gateways ?? 1)) gateways.push(await startGateway(command, folder, options));
    return { endpoints: [endpoint(first), ...gateways.slice(1).map(endpoint)], stop };
  } catch (error) {
    // Why it did not start matters more than how ending the rest of it went.
    await stop().catch(() => undefined);
    throw error;
  }
}

function startGateway(command: Command, folder: string, { opaqueETags }: VersitygwOptions): Promise<RunningServer> {
  return startServer({
    name: "versitygw",
    folder,
    command: (port) => [
      ...command,
      "--access",
      TEST_CREDENTIALS.accessKeyId,
      "--secret",
      TEST_CREDENTIALS.secretAccessKey,
      "--region",
      TEST_CREDENTIALS.region,
      "--port",
      `127.0.0.1:${port}`,
      "--quiet",
      "posix",
      ...(opaqueETags === true ? ["--data-integrity-etag"] : []),
      folder,
    ],
  });
}

function endpoint({ port }: RunningServer): S3Endpoint {
  return { url: `http://127.0.0.1:${port}`, ...TEST_CREDENTIALS };
}
