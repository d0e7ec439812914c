import assert from "node:assert/strict";

import type { ConditionalStore } from "@firstwrite/core";

import { mustRead, mustWrite, send } from "../answers.ts";
import { newBody, newBodyWith } from "../bench.ts";
import type { Suite } from "../suite.ts";

/** P4: bytes are copied on the way in and out, and are bytes and not text. */
export function byteRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("bytes are bytes (P4)", () => {
    for (const [title, bytes] of bodies) {
      suite.test(`${title} comes back as it was`, async (bench) => {
        const { store } = bench;
        const created = { store, name: bench.name(), bytes: newBodyWith(bytes) };
        const { version } = await mustWrite(bench, created);
        await mustRead(store, created.name, created.bytes);
        await mustRead(bench.second, created.name, created.bytes);
        // The other way round, for a store that looks at how a body begins; and by the other operation.
        const replaced = { ...created, expected: version, bytes: Buffer.concat([bytes, newBody()]) };
        await mustWrite(bench, replaced);
        await mustRead(store, created.name, replaced.bytes);
      });
    }

    suite.test("an empty record is a record", async (bench) => {
      const { store } = bench;
      const empty = { store, name: bench.name(), bytes: new Uint8Array() };
      const { version } = await mustWrite(bench, empty);
      const record = await mustRead(store, empty.name, empty.bytes);
      const full = newBody();
      await mustWrite(bench, { ...empty, expected: record.version, bytes: full });
      await mustRead(store, empty.name, full);
      assert.notEqual(record.version, "", "an empty record has a version too");
      assert.notEqual(version, "", "an empty record has a version too");
    });

    suite.test("a record of one byte, and an empty one that replaces it", async (bench) => {
      const { store } = bench;
      const one = { store, name: bench.name(), bytes: Uint8Array.of(0) };
      const { version } = await mustWrite(bench, one);
      await mustRead(store, one.name, one.bytes);
      await mustWrite(bench, { ...one, expected: version, bytes: new Uint8Array() });
      await mustRead(store, one.name, new Uint8Array());
    });

    suite.test("a record of more than 1 MiB, or the longest the store takes, comes back as it was", async (bench) => {
      const { store } = bench;
      const length = Math.min(store.traits.recordBytesMax, 1024 * 1024 + 4_097);
      const created = { store, name: bench.name(), bytes: patterned(length) };
      const { version } = await mustWrite(bench, created);
      await mustRead(store, created.name, created.bytes);
      const replaced = { ...created, expected: version, bytes: patterned(length) };
      await mustWrite(bench, replaced);
      await mustRead(store, created.name, replaced.bytes);
    });

    for (const [title, make] of buffers) {
      suite.test(`the caller may change ${title} as soon as it has called`, async (bench) => {
        const { store } = bench;
        const name = bench.name();
        const given = make(newBody(64));
        const created = Uint8Array.from(given);
        const creating = send({ store, name, bytes: given });
        given.fill(0);
        const outcome = await creating;
        given.fill(1);
        // A write that was not answered is sent again as it was meant; whichever landed must be as it was meant.
        const { version } =
          outcome.kind === "written" ? outcome : await mustWrite(bench, { store, name, bytes: created });
        await mustRead(store, name, created);

        const next = make(newBody(64));
        const replaced = Uint8Array.from(next);
        const replacing = send({ store, name, expected: version, bytes: next });
        next.fill(2);
        const second = await replacing;
        next.fill(3);
        if (second.kind !== "written") await mustWrite(bench, { store, name, expected: version, bytes: replaced });
        await mustRead(store, name, replaced);
      });
    }

    suite.test("a view on a larger buffer is written, and not the buffer around it", async (bench) => {
      const { store } = bench;
      const around = new Uint8Array(96).fill(0xee);
      around.set(newBody(), 32);
      const view = around.subarray(32, 64);
      const write = { store, name: bench.name(), bytes: view };
      await mustWrite(bench, write);
      await mustRead(store, write.name, view);
    });

    suite.test("what a read returned is the caller's to change", async (bench) => {
      const { store } = bench;
      const write = { store, name: bench.name(), bytes: newBody() };
      await mustWrite(bench, write);
      const first = await mustRead(store, write.name, write.bytes);
      first.bytes.fill(0);
      const second = await mustRead(store, write.name, write.bytes);
      const [third, fourth] = await Promise.all([store.read(write.name), store.read(write.name)]);
      third?.bytes.fill(7);
      assert.ok(fourth !== undefined, "the record is there");
      assert.deepEqual(Uint8Array.from(fourth.bytes), write.bytes, "two reads share one buffer");
      assert.deepEqual(Uint8Array.from(second.bytes), write.bytes, "two reads share one buffer");
    });

    suite.test("what was written is the caller's to change afterwards", async (bench) => {
      const { store } = bench;
      const bytes = newBody();
      const kept = Uint8Array.from(bytes);
      const write = { store, name: bench.name(), bytes };
      await mustWrite(bench, write);
      bytes.fill(0);
      await mustRead(store, write.name, kept);
    });
  });
}

const text = (content: string): Uint8Array => new TextEncoder().encode(content);

const bodies: readonly (readonly [string, Uint8Array])[] = [
  ["every byte value", Uint8Array.from({ length: 256 }, (_, index) => index)],
  ["invalid UTF-8", Uint8Array.of(0xff, 0xfe, 0xc0, 0x80, 0xed, 0xa0, 0x80, 0xf8, 0x88, 0x80, 0xe2, 0x82)],
  ["a byte order mark", Uint8Array.of(0xef, 0xbb, 0xbf, 0x7b, 0x7d)],
  ["a UTF-16 byte order mark", Uint8Array.of(0xff, 0xfe, 0x7b, 0x00)],
  ["a body with CR, LF and both", text("\r\n\n\r\r\n a \n\r\n")],
  ["a body with NULs at both ends", text("\0\0a\0b\0\0")],
  ["a body that looks like gzip", Uint8Array.of(0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03)],
  ["a body that looks like aws-chunked", text("5;chunk-signature=00\r\nhello\r\n0;chunk-signature=00\r\n\r\n")],
  ["decomposed and composed Unicode", text("e\u0301 \u00e9 \u{1f984}")],
];

/** A Node Buffer from the pool is a view on memory that others use, and its `slice` does not copy. */
const buffers: readonly (readonly [string, (body: Uint8Array) => Uint8Array])[] = [
  ["the Uint8Array it gave", (body) => body],
  ["the Node Buffer it gave", (body) => Buffer.from(body)],
  [
    "the view on a larger buffer it gave",
    (body) => new Uint8Array(Buffer.concat([body, body])).subarray(0, body.length),
  ],
];

/** Unlike in every part, so that a lost, doubled or moved block shows. */
function patterned(length: number): Uint8Array {
  const body = newBody(length);
  for (let index = 32; index < length; index += 1)
    body[index] = (index * 31 + (index >>> 8) * 17 + (index >>> 16)) & 0xff;
  return body;
}
