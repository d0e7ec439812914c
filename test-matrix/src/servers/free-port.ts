import { once } from "node:events";
import { createServer } from "node:net";

/**
 * A port of 127.0.0.1 that was free a moment ago. Somebody else can take it before it is used, so whoever binds it must
 * be ready to ask again.
 */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("a TCP server has no port");
  return address.port;
}
