/**
 * moto, AWS in memory: https://github.com/getmoto/moto. It checks no credentials and keeps nothing; it is here as a
 * second opinion on what S3 answers.
 */

import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { obtain, runInstaller, type Tool } from "./obtain.ts";
import { s3ServiceFromEnvironment, TEST_CREDENTIALS, type S3Service } from "./s3-endpoint.ts";
import { startServer } from "./start-server.ts";

const VERSION = "5.2.5";

const tool: Tool = {
  name: "moto",
  version: VERSION,
  // Not from PATH: moto-one-at-a-time.py has to be run by the Python that moto is installed for.
  program: undefined,
  installer: "python3",
  installTakes: "half a minute",
  async install(folder) {
    await runInstaller(["python3", "-m", "venv", folder]);
    const python = join(folder, "bin", "python");
    await runInstaller([python, "-m", "pip", "install", `moto[s3]==${VERSION}`, "flask", "flask-cors"]);
  },
  installed: (folder) => [
    join(folder, "bin", "python"),
    fileURLToPath(new URL("moto-one-at-a-time.py", import.meta.url)),
  ],
};

/** Starts moto, or takes the one that the environment variable `variable` names. */
export async function startMoto(variable: string): Promise<S3Service> {
  const running = s3ServiceFromEnvironment(variable);
  if (running !== undefined) return running;

  const command = await obtain(tool);
  const server = await startServer({
    name: "moto",
    command: (port) => [...command, "-H", "127.0.0.1", "-p", String(port)],
  });
  return {
    endpoints: [{ url: `http://127.0.0.1:${server.port}`, ...TEST_CREDENTIALS }],
    stop: () => server.stop(),
  };
}
