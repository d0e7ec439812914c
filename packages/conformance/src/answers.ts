/**
 * What a test may conclude from an answer. A real service answers `contended` when it likes and a real network loses a
 * reply now and then, so a test that wants a decision repeats the call as the port allows; and a store that never
 * decides must not pass for one that does.
 */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import {
  StoreError,
  type ConditionalStore,
  type StoredRecord,
  type Version,
  type WriteOutcome,
} from "@firstwrite/core";

import { newBody, nonceOf, type Bench } from "./bench.ts";

/** One conditional write, as data, so that it can be sent again as it was. */
export interface Write {
  readonly store: ConditionalStore;
  readonly name: string;
  readonly bytes: Uint8Array;
  /** The version to replace at; without it the write is a `create`. */
  readonly expected?: Version;
}

export interface Written {
  readonly version: Version;
  readonly at: number;
}

const unknownMax = 3;

export function send(write: Write, signal?: AbortSignal): Promise<WriteOutcome> {
  const { store, name, bytes, expected } = write;
  return expected === undefined
    ? store.create(name, bytes, { signal })
    : store.replace(name, expected, bytes, { signal });
}

/** The write's outcome once it is not `contended`: the same call again, with backoff and full jitter. */
export async function sendUntilTaken(
  bench: Bench,
  write: Write,
): Promise<Exclude<WriteOutcome, { kind: "contended" }>> {
  const patience = new Patience(bench);
  for (;;) {
    const outcome = checkedOutcome(await send(write));
    if (outcome.kind !== "contended") return outcome;
    await patience.pause(() => `a write to ${write.name} was still \`contended\` after ${bench.patienceMs} ms`);
  }
}

/** The write brought to an end where nobody else writes to its name: an `unknown` is settled by a read or a repeat. */
async function decide(bench: Bench, write: Write): Promise<({ kind: "written" } & Written) | { kind: "refused" }> {
  for (let unknowns = 0; unknowns < unknownMax; unknowns += 1) {
    const outcome = await sendUntilTaken(bench, write);
    if (outcome.kind === "written") return outcome;
    const record = outcome.kind === "refused" && unknowns === 0 ? undefined : await readOf(write.store, write.name);
    if (record !== undefined && sameBytes(record.bytes, write.bytes)) {
      return { kind: "written", version: record.version, at: record.modifiedAt };
    }
    if (outcome.kind === "refused") return outcome;
  }
  return assert.fail(
    `${calling(write)} was answered \`unknown\` ${unknownMax} times in a row, with nothing in its way`,
  );
}

export async function mustWrite(bench: Bench, write: Write): Promise<Written> {
  const outcome = await decide(bench, write);
  assert.equal(outcome.kind, "written", `${calling(write)} was ${outcome.kind}, though its condition holds`);
  assert.ok(outcome.kind === "written");
  assert.ok(typeof outcome.version === "string" && outcome.version !== "", "`written` comes with a version");
  return outcome;
}

/** A new record, known to be written. */
export async function newRecord(
  bench: Bench,
): Promise<{ readonly name: string; readonly bytes: Uint8Array; readonly version: Version }> {
  const write = { store: bench.store, name: bench.name(), bytes: newBody() };
  const { version } = await mustWrite(bench, write);
  return { name: write.name, bytes: write.bytes, version };
}

/** The write is refused, and a read finds the record as `before` (`undefined`: none). */
export async function mustRefuse(bench: Bench, write: Write, before: Uint8Array | undefined): Promise<void> {
  const outcome = await decide(bench, write);
  assert.equal(outcome.kind, "refused", `${calling(write)} was ${outcome.kind}, though its condition is false`);
  await mustRead(write.store, write.name, before);
}

/** Reads, and finds exactly these bytes (`undefined`: no record). */
export async function mustRead(store: ConditionalStore, name: string, bytes: undefined): Promise<undefined>;
export async function mustRead(store: ConditionalStore, name: string, bytes: Uint8Array): Promise<StoredRecord>;
export async function mustRead(
  store: ConditionalStore,
  name: string,
  bytes: Uint8Array | undefined,
): Promise<StoredRecord | undefined>;
export async function mustRead(
  store: ConditionalStore,
  name: string,
  bytes: Uint8Array | undefined,
): Promise<StoredRecord | undefined> {
  const record = await readOf(store, name);
  if (bytes === undefined) {
    assert.ok(record === undefined, `there is a record ${JSON.stringify(name)}, and should be none`);
    return undefined;
  }
  assert.ok(record !== undefined, `there is no record ${JSON.stringify(name)}, though it was written`);
  assert.ok(record.bytes instanceof Uint8Array, "`bytes` is a Uint8Array");
  if (!sameBytes(record.bytes, bytes)) {
    const how = difference(record.bytes, bytes);
    assert.fail(`the record ${JSON.stringify(name)} is not what was written: ${how}`);
  }
  return record;
}

/** A read, tried again when the service was away: one failed read is no fault of the store. */
export async function readOf(store: ConditionalStore, name: string): Promise<StoredRecord | undefined> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await store.read(name);
    } catch (error) {
      if (!StoreError.is(error) || error.code !== "UNAVAILABLE" || tries === unknownMax) throw error;
    }
  }
}

/** The promise rejects, and with a `StoreError` of this store (P7). */
export async function rejection(
  store: ConditionalStore,
  doing: string,
  promise: Promise<unknown>,
): Promise<StoreError> {
  const settled = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if ("value" in settled) {
    const { value } = settled;
    const shown = typeof value === "object" && value !== null && "kind" in value ? value.kind : value;
    assert.fail(`${doing} should be rejected; it was answered ${String(shown)}`);
  }
  const { error } = settled;
  assert.ok(StoreError.is(error), `${doing} was rejected with ${String(error)}, which is no StoreError`);
  assert.equal(error.store, store.traits.name, `the StoreError of ${doing} names its store`);
  return error;
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

/**
 * Lets `ms` milliseconds pass in short steps, so that what is due meanwhile happens before the last of them even where
 * something holds the event loop up: of two timers that are both late, Node may fire the later first.
 */
export async function letPass(ms: number): Promise<void> {
  const stepMs = 10;
  for (let left = ms; left > 0; left -= stepMs) await sleep(Math.min(stepMs, left));
}

/** Pauses that grow, up to the harness's patience: what a service may put off it may not put off for ever. */
export class Patience {
  readonly #until: number;
  readonly #pauseMaxMs: number;
  #pauseMs = 2;

  constructor(bench: Bench, pauseMaxMs: number = 1_000) {
    this.#until = performance.now() + bench.patienceMs;
    this.#pauseMaxMs = pauseMaxMs;
  }

  async pause(complaint: () => string): Promise<void> {
    if (performance.now() > this.#until) assert.fail(complaint());
    await sleep(Math.random() * this.#pauseMs);
    this.#pauseMs = Math.min(this.#pauseMs * 2, this.#pauseMaxMs);
  }
}

function checkedOutcome(outcome: WriteOutcome): WriteOutcome {
  const kinds: readonly unknown[] = ["written", "refused", "contended", "unknown"];
  assert.ok(kinds.includes(outcome?.kind), `a write was answered ${JSON.stringify(outcome)}, which is no WriteOutcome`);
  return outcome;
}

function calling({ name, expected }: Write): string {
  return expected === undefined ? `create(${JSON.stringify(name)})` : `replace(${JSON.stringify(name)}, ${expected})`;
}

function difference(found: Uint8Array, written: Uint8Array): string {
  if (found.byteLength !== written.byteLength) return `${found.byteLength} bytes instead of ${written.byteLength}`;
  const at = written.findIndex((byte, index) => found[index] !== byte);
  return at < 32 && nonceOf(found) !== nonceOf(written)
    ? "another body"
    : `byte ${at} is ${found[at]} instead of ${written[at]}`;
}
