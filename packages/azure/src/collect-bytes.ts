/**
 * All that a stream gives, in an array of its own. `arrayBuffer` of `node:stream/consumers` goes by way of a Blob, which
 * for the few hundred bytes of a record takes longer than all else that is done with the answer.
 */
export function collectBytes(stream: NodeJS.ReadableStream): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const chunks: Uint8Array[] = [];
    stream.on("data", (chunk: Uint8Array) => chunks.push(chunk));
    stream.once("end", () => resolve(joined(chunks)));
    stream.once("error", reject);
    // After "end" or "error" this comes too late to count.
    stream.once("close", () => reject(new Error("the stream was closed before its end")));
  });
}

function joined(chunks: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(chunks.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.byteLength;
  }
  return all;
}
