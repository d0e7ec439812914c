/**
 * Mistakes that one line of the engine can make, one for every rule of docs/protocol.md that one line can break, and for
 * each of those marked †. A mutant that lives shows a rule that nothing checks.
 */

import { readFileSync } from "node:fs";

export interface Mutant {
  readonly name: string;
  /** Of docs/protocol.md. */
  readonly rule: string;
  /** Of packages/core/src. */
  readonly file: string;
  /** What stands there, once. */
  readonly line: string;
  readonly becomes: string;
  /** Test files, which fail for it. */
  readonly tests: string;
}

/** The core's own tests, which are quick, then the explorer's small plans. */
const TESTS =
  "packages/core/test/*.test.ts packages/simulator/test/execute.test.ts packages/simulator/test/settling-write.test.ts";

export const mutants: readonly Mutant[] = [
  mutant("E2.1 †", "a record is stale before the store's clock can be sure", "classify.ts", {
    line: "lifeLeftMs(record, stored) + clockGranularityMs < 0",
    becomes: "lifeLeftMs(record, stored) < 0",
  }),
  mutant("E2.1 †", "staleness goes by the clock of whoever wrote the record", "classify.ts", {
    line: "if (record.ttlMs !== undefined) return",
    becomes: "if (record.ttlMs === undefined) return",
  }),
  mutant("E2.1", "a claim goes stale", "classify.ts", {
    line: 'const canGoStale = record.status === "ready"',
    becomes: 'const canGoStale = record.status === "creating" || record.status === "ready"',
  }),
  mutant("E2.1", "a held record goes stale", "classify.ts", {
    line: 'const canGoStale = record.status === "ready"',
    becomes: 'const canGoStale = record.status === "held" || record.status === "ready"',
  }),
  mutant("E2.1", "a stale record is overwritten as the same operation", "claim.ts", {
    line: "      refuseTooOld();\n      return fresh();",
    becomes:
      '      refuseTooOld();\n      return { kind: "write", record: nextAttempt(session, execution, record, {}), recovers: false };',
  }),
  mutant("E2.2", "the fingerprint is not compared", "classify.ts", {
    line: "if (record.inputHash !== inputHash || isReservationFirstPhase(record))",
    becomes: "if (isReservationFirstPhase(record))",
  }),
  mutant("E2.2 †", "what a person released is free for another input", "classify.ts", {
    line: 'return status === "released" && !takeover;',
    becomes: 'return status === "released";',
  }),
  mutant("E2.2", "what is going on is free for another input", "classify.ts", {
    line: 'return status === "released" && !takeover;',
    becomes: 'return (status === "released" || status === "creating") && !takeover;',
  }),
  mutant("E2.2", "what is held is free for another input", "classify.ts", {
    line: 'return status === "released" && !takeover;',
    becomes: 'return (status === "released" || status === "held") && !takeover;',
  }),
  mutant("E2.2", "what was released is a conflict to another input", "classify.ts", {
    line: 'if (record.inputHash !== inputHash && isFree(record)) return { kind: "free" };',
    becomes: "",
  }),
  mutant("E2.2 †", "another input goes on with the operation that was released", "classify.ts", {
    line: 'if (record.inputHash !== inputHash && isFree(record)) return { kind: "free" };',
    becomes: 'if (record.inputHash !== inputHash && isFree(record)) return { kind: "released" };',
  }),
  mutant("E2.2 †", "another input's claim has the ID of the operation that was released", "claim.ts", {
    line: '    case "free":\n      refuseTooOld();\n      return fresh();',
    becomes:
      '      refuseTooOld();\n      return fresh();\n    case "free":\n      refuseTooOld();\n' +
      '      return { kind: "write", record: { ...freshClaim(session, execution), operationId: record.operationId }, recovers: false };',
  }),
  mutant("E2.4", "what was released begins anew for its own input", "classify.ts", {
    line: 'if (record.inputHash !== inputHash && isFree(record)) return { kind: "free" };',
    becomes: 'if (isFree(record)) return { kind: "free" };',
  }),
  mutant("E2.2 †", "a reservation goes on with the operation of another input", "reserve.ts", {
    line: 'found !== undefined && verdictOn(session, attempt, found) === "released" ?',
    becomes: 'found !== undefined && verdictOn(session, attempt, found) !== "stale" ?',
  }),
  mutant("E8 †", "what a reservation gave back is free for another input", "reserve.ts", {
    line: "    takeover: true,\n",
    becomes: "",
  }),
  mutant("E8", "an old key overwrites what another input released", "claim.ts", {
    line: '    case "free":\n      refuseTooOld();\n',
    becomes: '      refuseTooOld();\n      return fresh();\n    case "free":\n',
  }),
  mutant("E2.2 †", "the fingerprint is not the operation's", "idempotency.ts", {
    line: 'return sha256(kind === "operation" ? `[${of}]` : `["reserve",${of}]`);',
    becomes: "return sha256(`[${identity}]`);",
  }),
  mutant("§2", "a reservation is taken for an operation of its name", "idempotency.ts", {
    line: 'return sha256(kind === "operation" ? `[${of}]` : `["reserve",${of}]`);',
    becomes: "return sha256(`[${of}]`);",
  }),
  mutant("E2.6", "a takeover starts a new operation", "claim.ts", {
    line: "    attempt: record.attempt + 1,\n",
    becomes: "    attempt: record.attempt + 1,\n    operationId: uuidV4(session.runtime),\n",
  }),
  mutant("E2.6", "a takeover has the attempt of the one before", "claim.ts", {
    line: "    attempt: record.attempt + 1,\n",
    becomes: "    attempt: record.attempt,\n",
  }),
  mutant("E2.6", "a takeover is not marked", "claim.ts", {
    line: "const changes = { takeover: true,",
    becomes: "const changes = { takeover: record.takeover,",
  }),
  mutant("E2.6 †", "a record held by takeover is not marked", "claim.ts", {
    line: "const changes = { takeover: true,",
    becomes: "const changes = { takeover: !holds || record.takeover,",
  }),
  mutant("E2.6", "the mark of a takeover is dropped at the next attempt", "claim.ts", {
    line: "    result: undefined,\n    ...changes,",
    becomes: "    result: undefined,\n    takeover: false,\n    ...changes,",
  }),
  mutant("E2.6", "hold runs again", "claim.ts", {
    line: 'const holds = operation.recovery === "hold";',
    becomes: "const holds = false;",
  }),
  mutant("E2.7", "a held operation is taken over", "classify.ts", {
    line: '    case "released":\n    case "held":\n      return { kind: record.status };',
    becomes: '    case "released":\n    case "held":\n      return { kind: "over" };',
  }),
  mutant("E3", "a lease is over before the store's clock can be sure", "classify.ts", {
    line: "const leftMs = leaseMs + clockGranularityMs - (readAt - modifiedAt);",
    becomes: "const leftMs = leaseMs - (readAt - modifiedAt);",
  }),
  mutant("E3", "a lease of nobody is waited for", "classify.ts", {
    line: "return leaseMs === 0 || leftMs < 0 ? undefined : leftMs;",
    becomes: "return leftMs < 0 ? undefined : leftMs;",
  }),
  mutant("E3 †", "the owner counts its claim's lease from the answer", "lease.ts", {
    line: "this.#ownedUntilMs = options.firstSentAtMs + options.leaseMs;",
    becomes: "this.#ownedUntilMs = options.runtime.monotonicMs() + options.leaseMs;",
  }),
  mutant("E3 †", "the owner counts a renewal from the answer", "lease.ts", {
    line: "this.#ownedUntilMs = firstSentAtMs + leaseMs;",
    becomes: "this.#ownedUntilMs = runtime.monotonicMs() + leaseMs;",
  }),
  mutant("E3 †", "a claim leaves no time for what its effect sent", "claim.ts", {
    line: "    takeover: false,\n    leaseMs: operation.leaseMs + operation.recoverAfterMs,",
    becomes: "    takeover: false,\n    leaseMs: operation.leaseMs,",
  }),
  mutant("E3 †", "a takeover leaves no time for what its effect sent", "claim.ts", {
    line: "    leaseMs: operation.leaseMs + operation.recoverAfterMs,\n    result: undefined,\n    ...changes,",
    becomes: "    leaseMs: operation.leaseMs,\n    result: undefined,\n    ...changes,",
  }),
  mutant("E3", "the owner lives as long as others take it to", "attempt.ts", {
    line: "      leaseMs: operation.leaseMs,\n      maxRunMs",
    becomes: "      leaseMs: operation.leaseMs + operation.recoverAfterMs,\n      maxRunMs",
  }),
  mutant("E3 †", "the settling write does not wait for a renewal", "lease.ts", {
    line: "    await this.stop();\n    const session = this.#options.openSession();",
    becomes: "    void this.stop();\n    const session = this.#options.openSession();",
  }),
  mutant("E3", "the lease is never renewed", "lease.ts", {
    line: "if (renewAtMs < firstSentAtMs + maxRunMs) this.#setTimer",
    becomes: "if (false) this.#setTimer",
  }),
  mutant("E3", "a run that hangs is renewed for ever", "lease.ts", {
    line: "if (renewAtMs < firstSentAtMs + maxRunMs) this.#setTimer",
    becomes: "if (true) this.#setTimer",
  }),
  mutant("E3 †", "run starts though the lease is over", "attempt.ts", {
    line: "if (!this.lease.isProved() && !(await this.lease.prove())) return false;",
    becomes: "",
  }),
  mutant("E3 †", "run starts though the lease is over after reconcile", "attempt.ts", {
    line: "if (!(await this.lease.prove())) return this.#awaitOthers();",
    becomes: "",
  }),
  mutant("E3", "run starts after everybody has left", "attempt.ts", {
    line: "    openSession().throwIfEnded();\n    flight.begins",
    becomes: "    flight.begins",
  }),
  mutant("E3", "the signal does not tell that ownership is lost", "lease.ts", {
    line: '    this.#abort.abort(new Error("another process',
    becomes: '    void (new Error("another process',
  }),
  mutant("E3", "the signal does not tell that ownership cannot be proved", "lease.ts", {
    line: '    this.#abort.abort(new Error("the lease could',
    becomes: '    void (new Error("the lease could',
  }),
  mutant("E4", "the effect gets the caller's own input", "idempotency.ts", {
    line: "const copy = copyOfInput(definition, input);",
    becomes: "const copy = input;",
  }),
  mutant("E4", "a call may wait for itself", "idempotency.ts", {
    line: "checkNotWithin(this.store, address, inputHash);",
    becomes: "",
  }),
  mutant("E5 †", "an earlier write of this attempt is taken for the settling one", "lease.ts", {
    line: "const settled = await this.#write(session, write, this.#settlingIds);",
    becomes: "const settled = await this.#write(session, write, [...this.#settlingIds, ...this.#leaseIds]);",
  }),
  mutant("E5", "a renewal whose reply was lost is taken for another owner's", "lease.ts", {
    line: "found?.record.writeId !== undefined && this.#leaseIds.includes(found.record.writeId)",
    becomes: "found?.record.writeId !== undefined && found.record.writeId === this.#record.writeId",
  }),
  mutant("E5", "an owner that lost settles all the same", "lease.ts", {
    line: "found?.record.writeId !== undefined && this.#leaseIds.includes(found.record.writeId)",
    becomes: "found?.record.writeId !== undefined",
  }),
  mutant("E5", "the value of an owner that lost is returned", "attempt.ts", {
    line: "    return this.#awaitOthers();\n  }\n\n  #notRecorded",
    becomes: "    return unrecorded;\n  }\n\n  #notRecorded",
  }),
  mutant("E5", "what is not recorded is said to be", "attempt.ts", {
    line: "replayed: false, recorded: false };",
    becomes: "replayed: false, recorded: true };",
  }),
  mutant("E5", "what the effect was given to settle with is not known again", "lease.ts", {
    line: "    this.#effectsIds.push(record.writeId);\n",
    becomes: "",
  }),
  mutant("E5", "what the effect has settled is overlooked between the look and the write", "lease.ts", {
    line: "if (byEffect !== undefined) return byEffect;",
    becomes: "",
  }),
  mutant("E5", "a value is recorded in front of its own transaction", "attempt.ts", {
    line: "if (this.lease.mayBeSettled) return this.#settledWithEffect(value);",
    becomes: "",
  }),
  mutant("E5", "an effect that settles has its lease renewed under it", "lease.ts", {
    line: "this.#checkGoingOn();\n    this.#scheduleEnd();",
    becomes: "this.#checkGoingOn();",
  }),
  mutant("E5", "an effect that settles does so at the version before a renewal", "lease.ts", {
    line: "if (this.#renewal !== undefined) await Promise.race([this.#renewal.done, abortOf(signal)]);",
    becomes: "",
  }),
  mutant("E5", "a transaction that run left behind is given a settling write", "lease.ts", {
    line: "if (!this.#stopped) return;",
    becomes: "return;",
  }),
  mutant("E5", "an effect that settles is begun though the lease is over", "lease.ts", {
    line: "if (this.isOver()) throw signal.reason;\n",
    becomes: "",
  }),
  mutant("E6", "reconcile cannot tell, and it is run", "attempt.ts", {
    line: 'if (answer === "unknown") return this.#hold(undefined);',
    becomes: 'if (answer === "unknown") return this.#run();',
  }),
  mutant("E6", "what reconcile found is run again", "attempt.ts", {
    line: 'if (typeof answer === "object" && answer !== null && "found" in answer) return this.#settleValue(answer.found);',
    becomes: 'if (typeof answer === "object" && answer !== null && "found" in answer) return this.#run();',
  }),
  mutant("E6", "a takeover does not reconcile", "attempt.ts", {
    line: 'if (this.#claimed.recovers && typeof recovery === "object") {',
    becomes: 'if (!this.#claimed.recovers && typeof recovery === "object" && recovery.absentIsFinal === undefined) {',
  }),
  mutant("E7 †", "a failure after a takeover is final", "attempt.ts", {
    line: "if (takeover && !this.#earlierAreShutOut) return this.#recover(error);",
    becomes: "",
  }),
  mutant("E7 †", "absent is final though nobody said so", "attempt.ts", {
    line: "this.#earlierAreShutOut = absentIsFinal === true;",
    becomes: "this.#earlierAreShutOut = true;",
  }),
  mutant("E7 †", "retry speaks for the attempts before", "attempt.ts", {
    line: "return takeover ? this.#throwUnresolved(error, 0) : this.#release(error);",
    becomes: "return this.#release(error);",
  }),
  mutant("E7", "an error after a takeover speaks for the attempts before", "attempt.ts", {
    line: "const earlierMaySucceed = !recorded && this.lease.record.takeover && !this.#earlierAreShutOut;",
    becomes: "const earlierMaySucceed = false;",
  }),
  mutant("E7 †", "an error leaves no time for what its effect sent", "attempt.ts", {
    line: "return this.#throwUnresolved(error, this.#execution.operation.recoverAfterMs);",
    becomes: "return this.#throwUnresolved(error, 0);",
  }),
  mutant("E7 †", "onError is asked about an abort", "attempt.ts", {
    line: 'if (this.lease.isOver()) return "recover";',
    becomes: "",
  }),
  mutant("E7 †", "a value that cannot be recorded is run again", "attempt.ts", {
    line: "return this.#hold({ ...this.#unrecorded(), give: () => value }, error);",
    becomes: "return this.#throwUnresolved(error, 0);",
  }),
  mutant("E8", "the local clock alone says how old a key is", "idempotency.ts", {
    line: "const nowMs = this.#clock.now();",
    becomes: "const nowMs = this.runtime.now();",
  }),
  mutant("E8", "an old key overwrites a stale record", "claim.ts", {
    line: "      refuseTooOld();\n      return fresh();",
    becomes: "      return fresh();",
  }),
  mutant("E8 †", "an old key runs where its record was pruned", "attempt.ts", {
    line: "    if (this.#isTooOld()) return this.#giveBack();\n",
    becomes: "",
  }),
  mutant("E8 †", "an old key's takeover is given back as if nothing had happened", "attempt.ts", {
    line: "(takeover ? { ...record, leaseMs: 0 } : released(record))",
    becomes: "released(record)",
  }),
  mutant("E9", "a large result is not compared with its digest", "result.ts", {
    line: "if (bytes.byteLength !== offloaded.bytes || sha256(bytes) !== offloaded.sha256) return undefined;",
    becomes: "",
  }),
  mutant("E9", "a large result that is gone is run again", "replay.ts", {
    line: "  if (inline === undefined) {\n    const how",
    becomes: "  if (inline === undefined && object !== undefined) {\n    const how",
  }),
  mutant("E10 †", "a person's write is not marked", "operator.ts", {
    line: "    takeover: true,\n    fields",
    becomes: "    takeover: record.takeover,\n    fields",
  }),
  mutant("E10", "a person acts on a living owner", "operator.ts", {
    line: 'if (verdict.kind === "held" || verdict.kind === "over") return;',
    becomes: 'if (verdict.kind === "held" || verdict.kind === "over" || verdict.kind === "live") return;',
  }),
  mutant("E10", "a person's write has the attempt of the one before", "operator.ts", {
    line: "const attempt = record.attempt + 1;",
    becomes: "const { attempt } = record;",
  }),
  mutant("U1", "a record whose writer lost the reply is another's", "settled-record.ts", {
    line: "return { ours: seen.writeId === record.writeId, seen };",
    becomes: "return { ours: false, seen };",
  }),
  mutant("U3", "a write whose reply was lost is done with when it is not there", "settled-write.ts", {
    line: 'if (undecided && (underWay || outcome.kind !== "refused")) {',
    becomes: 'if (undecided && outcome.kind === "contended") {',
  }),
  mutant("U3", "a refused repeat of a lost write is believed", "settled-write.ts", {
    line: 'if (undecided && (underWay || outcome.kind !== "refused")) {',
    becomes: 'if (undecided && outcome.kind !== "refused") {',
  }),
  mutant("U4", "a read that fails ends the call", "store-session.ts", {
    line: "if (isFinal(error) || corrupt >= CORRUPT_READS_MAX) throw error;",
    becomes: "throw error;",
  }),
  mutant("P8", "two writes carry equal bytes", "record.ts", {
    line: 'writeId: Buffer.from(runtime.randomBytes(16)).toString("hex"),',
    becomes: 'writeId: "0",',
  }),
  mutant("§2", "a record of a later format is read", "record.ts", {
    line: "if (format > FORMAT) {",
    becomes: "if (format > FORMAT + 1) {",
  }),
  mutant("I1", "calls of two inputs share one flight", "idempotency.ts", {
    line: "const flightKey = `${address.name} ${inputHash} ${keyAge?.issuedAt}`;",
    becomes: "const flightKey = `${address.name} ${keyAge?.issuedAt}`;",
  }),
  mutant("I1", "a flight that lost ownership takes new callers", "execution-flight.ts", {
    line: 'return this.#phase !== "lost" && ',
    becomes: "return ",
  }),
  mutant("I1", "the effect's signal aborts when its last caller's deadline passes", "execution-flight.ts", {
    line: "if (cancelled === undefined) return;",
    becomes: "cancelled ??= { reason: undefined };",
  }),
  mutant("I1", "a call joins what everybody has cancelled", "execution-flight.ts", {
    line: "      this.#givenUp = true;\n      this.onCancel",
    becomes: "      this.onCancel",
  }),
  mutant("I2", "the cache answers another input", "replay-cache.ts", {
    line: "return entry.inputHash === inputHash ? entry : undefined;",
    becomes: "return entry;",
  }),
  mutant("I2 †", "the cache answers up to the TTL itself", "replay-cache.ts", {
    line: "const untilMs = asOfMs + ttlMs - ageMs - this.#clockGranularityMs;",
    becomes: "const untilMs = asOfMs + ttlMs - ageMs;",
  }),
  mutant("I2", "the cache forgets how old a record was when it was read", "replay-cache.ts", {
    line: "const untilMs = asOfMs + ttlMs - ageMs - this.#clockGranularityMs;",
    becomes: "const untilMs = asOfMs + ttlMs - this.#clockGranularityMs;",
  }),
];

/** How often its line stands in its file: once, or it is no mutant any more. */
export function countLines(mutant: Mutant): number {
  return readFileSync(sourceOf(mutant), "utf8").split(mutant.line).length - 1;
}

export function sourceOf({ file }: Mutant): URL {
  return new URL(`../../packages/core/src/${file}`, import.meta.url);
}

function mutant(
  rule: string,
  name: string,
  file: string,
  { line, becomes, tests = TESTS }: Pick<Mutant, "line" | "becomes"> & { readonly tests?: string },
): Mutant {
  return { name, rule, file, line, becomes, tests };
}
