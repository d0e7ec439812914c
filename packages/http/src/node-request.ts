import type { IncomingMessage } from "node:http";

import { InvalidArgumentError } from "@firstwrite/core";

import type { RequestBody } from "./request-body.ts";

/**
 * Reads the whole body of a request that nobody has read yet, and puts it back: whoever reads the request next finds it as it
 * came. `"too large"`: more than `bytesMax`, and the request is of no more use.
 *
 * The last bytes are put back in the tick in which they were taken out, before the stream could say that it has ended: a
 * stream takes bytes back until it has said so (https://nodejs.org/api/stream.html#readableunshiftchunk-encoding).
 *
 * @throws {InvalidArgumentError} for a request that somebody has begun to read.
 * @throws {Error} when the client goes away before its body is whole.
 */
export async function peekBody(request: IncomingMessage, bytesMax: number): Promise<RequestBody | "too large"> {
  if (request.readableEnded ? hasBody(request) : request.readableDidRead || request.readableEncoding !== null) {
    throw new InvalidArgumentError(
      "the request's body was read before its route came to it, and what it was is not known: put the route first, or a body " +
        "parser that leaves it in request.body",
    );
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  const { promise, resolve, reject } = Promise.withResolvers<RequestBody | "too large">();

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
    resolve({ kind: "bytes", bytes: body });
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

/** RFC 9112 §6.3. */
function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}
