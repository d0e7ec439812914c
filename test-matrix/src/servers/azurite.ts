/**
 * Azurite, Azure Blob Storage in memory, by Microsoft: https://github.com/Azure/Azurite. It checks signatures, and kept
 * every condition under concurrency.
 */

import { join } from "node:path";

import { obtain, runInstaller, type Tool } from "./obtain.ts";
import { startServer } from "./start-server.ts";

const VERSION = "3.37.0";

/** The account and key of every Azurite, no secret: https://learn.microsoft.com/en-us/azure/storage/common/storage-use-azurite */
const ACCOUNT = "devstoreaccount1";
const KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/** An account of a blob service as its clients need to know it, and what ends the service. */
export interface AzureService {
  /** `http://127.0.0.1:PORT/ACCOUNT` */
  readonly endpoint: string;
  readonly account: string;
  readonly key: string;
  stop(): Promise<void>;
}

const tool: Tool = {
  name: "azurite",
  version: VERSION,
  // Not from PATH, where it is any version's.
  program: undefined,
  installer: "npm",
  installTakes: "half a minute",
  install: (folder) => runInstaller(["npm", "install", "--prefix", folder, `azurite@${VERSION}`]),
  installed: (folder) => [process.execPath, join(folder, "node_modules", "azurite", "dist", "src", "blob", "main.js")],
};

/** Starts Azurite, or takes the one whose URL is in the environment variable `variable`. */
export async function startAzurite(variable: string): Promise<AzureService> {
  const running = process.env[variable];
  if (running !== undefined && running !== "") {
    return { ...account(running.replace(/\/$/, "")), stop: () => Promise.resolve() };
  }
  const command = await obtain(tool);
  const server = await startServer({
    name: "azurite",
    command: (port) => [
      ...command,
      "--inMemoryPersistence",
      // The SDK may know a later version of the protocol.
      "--skipApiVersionCheck",
      "--blobHost",
      "127.0.0.1",
      "--blobPort",
      String(port),
      "--silent",
      "--disableTelemetry",
    ],
  });
  return { ...account(`http://127.0.0.1:${server.port}`), stop: () => server.stop() };
}

function account(url: string): Omit<AzureService, "stop"> {
  return { endpoint: `${url}/${ACCOUNT}`, account: ACCOUNT, key: KEY };
}
