import type { ConditionalStore } from "@firstwrite/core";

import { mustWrite } from "./answers.ts";
import { newBody, type Bench } from "./bench.ts";

/** More than a page of any listing, and enough writes for a store that loses one in a thousand to lose one. */
export const thousand = 1_024;

export interface ThousandRecords {
  readonly prefix: string;
  readonly bodies: ReadonlyMap<string, Uint8Array>;
}

const recordsOf = new WeakMap<ConditionalStore, Promise<ThousandRecords>>();

/** Writes them once for all the tests that look at them. */
export function thousandRecords(bench: Bench): Promise<ThousandRecords> {
  const known = recordsOf.get(bench.store) ?? write(bench);
  recordsOf.set(bench.store, known);
  return known;
}

async function write(bench: Bench): Promise<ThousandRecords> {
  const prefix = bench.name("/");
  const bodies = new Map<string, Uint8Array>();
  await inParallel(32, thousand, async (index) => {
    const write = { store: bench.store, name: `${prefix}${index}`, bytes: newBody() };
    await mustWrite(bench, write);
    bodies.set(write.name, write.bytes);
  });
  return { prefix, bodies };
}

/** Runs `run(0)` to `run(count - 1)`, up to `width` of them at once. */
export async function inParallel(width: number, count: number, run: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      next += 1;
      await run(next - 1);
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
}
