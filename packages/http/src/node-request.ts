import type { IncomingMessage } from "node:http";

/**
 * Reads the whole body of a request that nobody has read yet, and puts it back: whoever reads the request next finds it as it
 * came. `"too large"`: more than `bytesMax`, and the request is of no more use.
 *
 * The last bytes are put back in the tick in which they were taken out, before the stream could say that it has ended: a
 * stream takes bytes back until it has said so (https://nodejs.org/api/stream.html#readableunshiftchunk-encoding).
 *
 * @throws {Error} when the client goes away before its body is whole.
 */
export function peekBody(request: IncomingMessage, bytesMax: number): Promise<Buffer | "too large"> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const { promise, resolve, reject } = Promise.withResolvers<Buffer | "too large">();

  const take = (): boolean => {
    // Not of an empty stream: that would let it end.
    while (request.readableLength > 0) {
      const chunk: unknown = request.read();
      if (!Buffer.isBuffer(chunk)) break;
      chunks.push(chunk);
      bytes += chunk.byteLength;
    }
    if (bytes > bytesMax) {
      resolve("too large");
      return true;
    }
    if (!request.complete) return false;
    const body = Buffer.concat(chunks);
    if (body.byteLength > 0) request.unshift(body);
    resolve(body);
    return true;
  };
  const fail = (): void => reject(new Error("the client went away before its request was whole"));

  if (take()) return promise;
  if (request.destroyed) fail();
  const onReadable = (): void => {
    if (take()) stop();
  };
  const stop = (): void => {
    request.off("readable", onReadable).off("close", fail).off("error", fail);
  };
  request.on("readable", onReadable).on("close", fail).on("error", fail);
  return promise.finally(stop);
}
