/** One attempt at an operation, from its claim to its settling write: rules E3 to E9. */

import { AsyncLocalStorage } from "node:async_hooks";

import { Backoff } from "./backoff.ts";
import type { Claimed } from "./claim.ts";
import type { ConditionalStore } from "./conditional-store.ts";
import {
  InvalidArgumentError,
  OperationHeldError,
  OutcomeUnknownError,
  ResultGoneError,
  UnsupportedRecordError,
  type OperationFacts,
} from "./errors.ts";
import { publish } from "./events.ts";
import { factsOf, held, look, type Execution, type Found, type KnownFacts } from "./execution.ts";
import type { ExecutionOutcome } from "./execution-flight.ts";
import { sha256, type Digest } from "./fingerprint.ts";
import { isTooOld, keyTooOld } from "./key-age.ts";
import { Lease, readyRecord } from "./lease.ts";
import type { RecordAddress } from "./object-name.ts";
import type { EffectContext, ErrorMeaning, OperationDefinition, Reconciled, SettlingWrite } from "./operation.ts";
import type { InlineResult, OffloadedResult, RecordResult, WritableRecord } from "./record.ts";
import { replay } from "./replay.ts";
import { decodeValue, encodeFailure, encodeValue, noteExecution, resultBytes } from "./result.ts";
import { settleWrite } from "./settled-write.ts";
import { StoreError } from "./store-error.ts";
import { SessionEnded } from "./store-session.ts";

/** An effect that is going on. What it leaves behind, such as a timer, may still be told it was inside of it. */
interface Going {
  readonly execution: Execution;
  ended: boolean;
}

/** The effects this code is inside of. */
const within = new AsyncLocalStorage<readonly Going[]>();

/** @throws {InvalidArgumentError} for a call from inside its own effect, which would wait for itself. */
export function checkNotWithin(store: ConditionalStore, address: RecordAddress, inputHash: Digest): void {
  const self = within
    .getStore()
    ?.some(
      ({ ended, execution }) =>
        !ended &&
        execution.store === store &&
        execution.address.name === address.name &&
        execution.inputHash === inputHash,
    );
  if (self !== true) return;
  throw new InvalidArgumentError(
    "execute was called from inside its own run, with the same scope, key and input: give the inner operation a key of its own",
  );
}

/** In place of what an effect came to, when another owner was found first. */
const ownershipLost = Symbol("ownership lost");

/** One attempt that this process owns, from its claim to its settling write. */
export class Attempt {
  readonly lease: Lease;
  readonly #execution: Execution;
  readonly #claimed: Extract<Claimed, { kind: "mine" }>;
  readonly #lost = Promise.withResolvers<typeof ownershipLost>();
  /** This attempt's own `reconcile` found that no earlier one happened or can happen any more (rule E7). */
  #earlierAreShutOut = false;
  #toldUnrecorded = false;

  constructor(execution: Execution, claimed: Extract<Claimed, { kind: "mine" }>) {
    const { operation, address, flight, openSession } = execution;
    this.#execution = execution;
    this.#claimed = claimed;
    const { runtime } = openSession();
    const lease = new Lease({
      runtime,
      openSession,
      address,
      record: claimed.record,
      version: claimed.mine.version,
      firstSentAtMs: claimed.firstSentAtMs,
      leaseMs: operation.leaseMs,
      maxRunMs: operation.maxRunMs,
      onLost: () => this.#loses(),
      onGivenUp: () => flight.givesUp(),
    });
    this.lease = lease;
    flight.onCancel = (reason) => lease.cancel(reason);
  }

  /** `undefined`: ownership was lost before anything began. */
  async go(): Promise<ExecutionOutcome | undefined> {
    const { operation } = this.#execution;
    const { recovery } = operation;
    if (this.#claimed.recovers && typeof recovery === "object") {
      if (!(await this.#begins())) return undefined;
      return this.#reconcile(recovery);
    }
    if (this.#isTooOld()) return this.#giveBack();
    if (!(await this.#begins())) return undefined;
    return this.#run();
  }

  /** False: ownership was lost. There is no pause between this and what begins. */
  async #begins(): Promise<boolean> {
    const { flight, openSession } = this.#execution;
    if (!this.lease.isProved() && !(await this.lease.prove())) return false;
    openSession().throwIfEnded();
    flight.begins(this.#facts());
    return true;
  }

  async #reconcile({
    reconcile,
    absentIsFinal,
  }: Exclude<OperationDefinition<unknown, unknown>["recovery"], string>): Promise<ExecutionOutcome> {
    const { operation, input } = this.#execution;
    let answer: Reconciled<unknown> | typeof ownershipLost;
    try {
      answer = await this.#inside(() => reconcile(operation.copyInput(input), this.#begin()));
    } catch (error) {
      return this.#recover(error);
    }
    if (answer === ownershipLost) return this.#awaitOthers();
    if (answer === "absent") {
      this.#earlierAreShutOut = absentIsFinal === true;
      if (this.#isTooOld()) {
        this.#execution.flight.settles(undefined);
        return this.#giveBack();
      }
      // Nothing was run: as by `retry`.
      if (this.lease.cancelled !== undefined) return this.#throwUnresolved(this.lease.cancelled.reason, 0);
      // `reconcile` may have taken longer than the lease.
      if (!(await this.lease.prove())) return this.#awaitOthers();
      return this.#run();
    }
    if (typeof answer === "object" && answer !== null && "found" in answer) return this.#settleValue(answer.found);
    if (answer === "unknown") return this.#hold(undefined);
    return this.#recover(
      new InvalidArgumentError(
        'reconcile must answer { found: value }, "absent" or "unknown": nothing else says what to do',
      ),
    );
  }

  async #run(): Promise<ExecutionOutcome> {
    const { operation, input } = this.#execution;
    let value: unknown;
    try {
      value = await this.#inside(() =>
        operation.run(input, Object.assign(this.#begin(), { settlingWrite: () => this.#settlingWrite() })),
      );
    } catch (error) {
      return this.#fail(error);
    }
    if (value === ownershipLost) return this.#awaitOthers();
    if (this.lease.mayBeSettled) return this.#settledWithEffect(value);
    return this.#settleValue(value);
  }

  async #settlingWrite(): Promise<SettlingWrite> {
    const { address, operation, openSession } = this.#execution;
    const bytesMax = Math.min(operation.inlineBytesMax, openSession().store.traits.recordBytesMax);
    const expected = await this.lease.prepare();
    return {
      name: address.name,
      expected,
      encode: (value) => this.lease.encodeReady(encodeValue(value), bytesMax),
    };
  }

  /**
   * `run` says that its transaction was committed. Where the record does not say so, nobody knows: to write the value after all
   * would be in the way of a transaction that `run` did not wait for.
   */
  async #settledWithEffect(value: unknown): Promise<ExecutionOutcome> {
    const given = { ...this.#unrecorded(), give: () => value };
    const settled = await this.#settleUnresolved(given, this.#execution.operation.recoverAfterMs);
    if (settled === given) {
      this.#publishUnrecorded("not recordable", "run returned, and the record is not what it was given to write");
    }
    return settled;
  }

  /** What an effect that begins now is told. */
  #begin(): EffectContext {
    const { flight, openSession } = this.#execution;
    const { runtime } = openSession();
    const { operationId, attempt } = this.#claimed.record;
    return {
      operationId,
      attempt,
      signal: this.lease.begin(),
      get remainingMs() {
        return Math.max(0, flight.deadlineAtMs - runtime.monotonicMs());
      },
    };
  }

  /** Not longer than ownership lasts: what an effect comes to after that is nobody's answer. */
  async #inside<Result>(effect: () => Result | PromiseLike<Result>): Promise<Result | typeof ownershipLost> {
    const going: Going = { execution: this.#execution, ended: false };
    const ends = within.run([...(within.getStore() ?? []), going], async () => {
      try {
        return await effect();
      } finally {
        going.ended = true;
      }
    });
    return Promise.race([ends, this.#lost.promise]);
  }

  async #settleValue(value: unknown): Promise<ExecutionOutcome> {
    let result: InlineResult;
    try {
      result = encodeValue(value);
    } catch (error) {
      return this.#hold({ ...this.#unrecorded(), give: () => value }, error);
    }
    return this.#settleResult(result, { ...this.#unrecorded(), give: () => decodeValue(result) });
  }

  /** Rule E7. */
  async #fail(error: unknown): Promise<ExecutionOutcome> {
    const { takeover } = this.lease.record;
    switch (this.#meaningOf(error)) {
      case "recover":
        return this.#recover(error);
      case "retry":
        // It speaks for this attempt alone: one before it may still commit, so that the next asks again.
        return takeover ? this.#throwUnresolved(error, 0) : this.#release(error);
      case "replay": {
        // An owner before may still commit, and its row would contradict a recorded failure.
        if (takeover && !this.#earlierAreShutOut) return this.#recover(error);
        const unrecorded = { ...this.#unrecorded(), give: () => this.#rethrow(error, false) };
        let result: InlineResult;
        try {
          result = encodeFailure(error, this.#execution.operation.serializeError);
        } catch (cause) {
          return this.#hold(unrecorded, cause);
        }
        return this.#settleResult(result, unrecorded, () => this.#rethrow(error, true));
      }
    }
  }

  /** Once the signal has aborted, the error may be about that alone: nobody knows what it means. */
  #meaningOf(error: unknown): ErrorMeaning {
    if (this.lease.isOver()) return "recover";
    try {
      const meaning = this.#execution.operation.onError(error);
      return meaning === "replay" || meaning === "retry" ? meaning : "recover";
    } catch {
      return "recover";
    }
  }

  #recover(error: unknown): Promise<ExecutionOutcome> {
    return this.#throwUnresolved(error, this.#execution.operation.recoverAfterMs);
  }

  #throwUnresolved(error: unknown, leaseMs: number): Promise<ExecutionOutcome> {
    return this.#settleUnresolved({ ...this.#unrecorded(), give: () => this.#rethrow(error, false) }, leaseMs);
  }

  /** The next call recovers, once what this attempt sent has landed or died. */
  #settleUnresolved(outcome: ExecutionOutcome, leaseMs: number): Promise<ExecutionOutcome> {
    return this.#settle(outcome, (record) => ({ ...record, leaseMs }));
  }

  #release(error: unknown): Promise<ExecutionOutcome> {
    return this.#settle({ ...this.#unrecorded(), give: () => this.#rethrow(error, false) }, released);
  }

  /** `outcome`: what this attempt's own callers get all the same; the error of a held operation where it is left out. */
  async #hold(outcome: ExecutionOutcome | undefined, cause?: unknown): Promise<ExecutionOutcome> {
    const { operation } = this.#execution;
    const given = outcome ?? {
      ...this.#unrecorded(),
      give: () => {
        throw held(operation.name, this.lease.record);
      },
    };
    const settled = await this.#settle(given, (record) => ({ ...record, status: "held", leaseMs: undefined }));
    if (outcome !== undefined && settled === given) this.#publishUnrecorded("not recordable", cause);
    return settled;
  }

  async #settleResult(
    inline: InlineResult,
    unrecorded: ExecutionOutcome,
    give: () => unknown = unrecorded.give,
  ): Promise<ExecutionOutcome> {
    const { operation, flight, openSession, remember } = this.#execution;
    const { recordBytesMax } = openSession().store.traits;
    const settle = (result: RecordResult, bytesMax: number): Promise<ExecutionOutcome | undefined> =>
      this.#settleWithin(
        bytesMax,
        unrecorded,
        (record) => readyRecord(record, result),
        (record, firstSentAtMs) => {
          remember(record, 0, firstSentAtMs);
          return { ...unrecorded, recorded: true, give };
        },
      );
    const settled = await settle(inline, Math.min(operation.inlineBytesMax, recordBytesMax));
    if (settled !== undefined) return settled;
    const bytes = resultBytes(inline);
    if (bytes.byteLength > recordBytesMax) {
      return this.#hold(unrecorded, `the result is ${bytes.byteLength} bytes long; the store takes ${recordBytesMax}`);
    }
    flight.settles(unrecorded);
    let offloaded: OffloadedResult;
    try {
      offloaded = await this.#offload(inline, bytes);
    } catch (error) {
      return this.lease.lost ? this.#awaitOthers() : this.#notRecorded(unrecorded, error);
    }
    return (await settle(offloaded, Infinity)) ?? unrecorded;
  }

  /** Rule E9: confirmed before the record points to it. The lease is renewed meanwhile. */
  async #offload({ kind: of, encoding }: InlineResult, bytes: Uint8Array): Promise<OffloadedResult> {
    const { address, openSession } = this.#execution;
    const session = openSession();
    const { operationId, attempt } = this.#claimed.record;
    const random = Buffer.from(session.runtime.randomBytes(8)).toString("hex");
    const object = `${address.name.replace(/\.json$/, "")}.${operationId}.${attempt}.${random}.result`;
    const offloaded: OffloadedResult = {
      kind: "offloaded",
      of,
      encoding,
      object,
      sha256: sha256(bytes),
      bytes: bytes.byteLength,
    };
    const settled = await settleWrite(session, {
      name: object,
      bytes,
      inspect: (stored) => ({ ours: sha256(stored.bytes) === offloaded.sha256, seen: undefined }),
    });
    if (settled.kind === "mine") return offloaded;
    throw new StoreError("CORRUPT", session.store.traits.name, "the object of a large result is not what was written");
  }

  /** Rule E5. `unrecorded`: what the callers get when it cannot be recorded in time, or is not a result. */
  async #settle(
    unrecorded: ExecutionOutcome,
    make: (record: WritableRecord) => WritableRecord,
  ): Promise<ExecutionOutcome> {
    return (await this.#settleWithin(Infinity, unrecorded, make, () => unrecorded)) ?? unrecorded;
  }

  /** `undefined`: the record would be larger than `bytesMax`, and nothing was written. */
  async #settleWithin(
    bytesMax: number,
    unrecorded: ExecutionOutcome,
    make: (record: WritableRecord) => WritableRecord,
    settled: (record: WritableRecord, firstSentAtMs: number) => ExecutionOutcome,
  ): Promise<ExecutionOutcome | undefined> {
    const { flight, openSession } = this.#execution;
    flight.settles(unrecorded);
    try {
      const settlement = await this.lease.settle(make, bytesMax);
      if (settlement.kind === "tooLarge") return undefined;
      if (settlement.kind === "written") return settled(settlement.record, settlement.firstSentAtMs);
      if (settlement.kind === "withEffect") {
        const { found, result } = settlement;
        return { ...(await replay(openSession(), this.#execution, found, result)), replayed: false };
      }
    } catch (error) {
      if (!UnsupportedRecordError.is(error)) return this.#notRecorded(unrecorded, error);
      // Written by a later version, so by another owner.
      this.#loses();
    }
    return this.#awaitOthers();
  }

  #notRecorded(unrecorded: ExecutionOutcome, cause: unknown): ExecutionOutcome {
    this.#publishUnrecorded("store", cause instanceof SessionEnded ? cause.trouble : cause);
    return unrecorded;
  }

  /**
   * Another owner has the record: what it says in the end is the answer, and never what this attempt's effect came to.
   *
   * @throws {OutcomeUnknownError} when nothing can be recorded any more, {@link SessionEnded} at the deadline.
   */
  async #awaitOthers(): Promise<ExecutionOutcome> {
    const { flight, openSession, operation } = this.#execution;
    flight.loses();
    const session = openSession();
    const backoff = new Backoff(session.runtime);
    for (;;) {
      let found: Found | undefined;
      try {
        found = await look(session, this.#execution);
        if (found?.record.operationId === this.#claimed.record.operationId) {
          const { status, result } = found.record;
          if (status === "ready" && result !== undefined) return await replay(session, this.#execution, found, result);
          if (status === "held") throw held(operation.name, found.record);
          await session.pause(backoff);
          continue;
        }
      } catch (error) {
        if (error instanceof SessionEnded || OperationHeldError.is(error) || ResultGoneError.is(error)) throw error;
        throw unknownOutcome(this.#facts(), error);
      }
      throw unknownOutcome(this.#facts(), undefined);
    }
  }

  #loses(): void {
    const { flight, operation } = this.#execution;
    publish("firstwrite:ownership-lost", () => ({
      operation: operation.name,
      ...this.#facts(),
      attempt: this.lease.record.attempt,
    }));
    flight.loses();
    this.#lost.resolve(ownershipLost);
  }

  /** By the store's time of the claim: a caller whose clock is behind, and a record that was pruned (rule E8). */
  #isTooOld(): boolean {
    const { keyAge } = this.#execution;
    return keyAge !== undefined && isTooOld(keyAge, this.#claimed.mine.at);
  }

  /** As by `retry`, since nothing was run. */
  async #giveBack(): Promise<never> {
    const { keyAge, address } = this.#execution;
    const { takeover, operationId } = this.lease.record;
    try {
      await this.lease.settle((record) => (takeover ? { ...record, leaseMs: 0 } : released(record)));
    } catch (error) {
      // The claim's lease ends by itself.
      if (!(error instanceof SessionEnded) && !StoreError.is(error)) throw error;
    }
    throw keyTooOld(keyAge ?? { issuedAt: 0, windowMs: 0 }, { operationId, keyHash: address.keyHash });
  }

  #facts(): KnownFacts {
    return factsOf(this.lease.record);
  }

  #unrecorded(): Pick<ExecutionOutcome, "operationId" | "replayed" | "recorded"> {
    return { operationId: this.#claimed.record.operationId, replayed: false, recorded: false };
  }

  #rethrow(error: unknown, recorded: boolean): never {
    const earlierMaySucceed = !recorded && this.lease.record.takeover && !this.#earlierAreShutOut;
    noteExecution(error, { ...this.#unrecorded(), recorded, ...(earlierMaySucceed && { earlierMaySucceed }) });
    throw error;
  }

  /** Once: what could not even be held was told as the store's failure. */
  #publishUnrecorded(reason: "store" | "not recordable", cause: unknown): void {
    if (this.#toldUnrecorded) return;
    this.#toldUnrecorded = true;
    publish("firstwrite:not-recorded", () => ({
      operation: this.#execution.operation.name,
      ...this.#facts(),
      reason,
      cause,
    }));
  }
}

function released(record: WritableRecord): WritableRecord {
  return { ...record, status: "released", leaseMs: undefined };
}

function unknownOutcome(facts: OperationFacts, cause: unknown): OutcomeUnknownError {
  return new OutcomeUnknownError(
    "the operation's record is another's by now, and nothing tells what came of its effect: send it again with the same key",
    facts,
    cause === undefined ? {} : { cause },
  );
}
