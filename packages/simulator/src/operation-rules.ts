/**
 * What `docs/protocol.md` §7 promises of `execute`, checked at every write to the record, every start of an effect, every
 * row of the ledger, every end of a call, and at rest. The checks know nothing of the engine but its records.
 */

import {
  executionOf,
  IdempotencyConflictError,
  InProgressError,
  isJsonObject,
  KeyTooOldError,
  OperationHeldError,
  OutcomeUnknownError,
  parseJsonObject,
  StoreError,
  type ErrorMeaning,
  type Executed,
  type Json,
  type JsonObject,
  type OperationDefinition,
} from "@firstwrite/core";

import type { LedgerOptions, LedgerRow, LedgerState } from "./model-ledger.ts";
import type { Change, Ending, ModelRecord, Served, World } from "./scenario.ts";

/** What the code of a caller tells the rules of. */
export type OperationReport =
  | { readonly kind: "calls" }
  | {
      readonly kind: "runs" | "reconciles";
      readonly operationId: string;
      readonly attempt: number;
      /** As JSON text: what it was given. */
      readonly input: string;
    }
  | {
      readonly kind: "reconciled";
      readonly operationId: string;
      readonly attempt: number;
      readonly answer: "found" | "absent" | "unknown" | "threw";
    }
  | { readonly kind: "failed"; readonly operationId: string; readonly attempt: number; readonly meaning: ErrorMeaning }
  /** A moment after the caller's deadline, if its call goes on. */
  | { readonly kind: "outlivesItsDeadline" };

/** What the rules remember. */
export interface RulesState {
  readonly operations: Record<string, OperationState>;
  readonly calls: Record<number, CallState>;
}

/** One call. */
interface CallState {
  /** When it began, in epoch milliseconds. */
  readonly at: number;
  /** How often it has begun `run`, and `reconcile`. */
  runs: number;
  reconciles: number;
}

interface OperationState {
  readonly inputHash: string;
  readonly createdAt: string;
  readonly attempts: Record<number, AttemptState>;
  attempt: number;
  /** What was recorded, as JSON text. */
  result: string | undefined;
  held: boolean;
  /** It was released, and another input has the key. */
  replaced: boolean;
}

interface AttemptState {
  /** Who made its first write; `undefined`: it was there at the start. */
  readonly owner: number | undefined;
  readonly takeover: boolean;
  ran: boolean;
  /** Its owner has written how it ended. */
  settled: boolean;
  reconciled: string | undefined;
  meaning: ErrorMeaning | undefined;
}

export interface OperationModel {
  readonly ledger: LedgerState;
  readonly rules: RulesState;
}

type OperationWorld = World<OperationModel>;

/** What the rules know of the operation. */
export interface RuledOperation {
  readonly definition: Pick<OperationDefinition<never, Json>, "recovery" | "leaseMs" | "recoverAfterMs">;
  readonly ledger: LedgerOptions;
  /** The name of the record. */
  readonly name: string;
  readonly clockGranularityMs: number;
  /** By caller; the last is the retry's. */
  readonly inputHashes: readonly string[];
  /** As JSON text, by caller. */
  readonly inputs: readonly string[];
  readonly hasKeyTime: boolean;
  readonly deadlineMs: number;
}

/** A rule of `docs/protocol.md` §7. */
type Rule = 1 | 2 | 3 | 4 | 5 | 6 | 7;

export class OperationRules {
  readonly #of: RuledOperation;

  constructor(of: RuledOperation) {
    this.#of = of;
  }

  /** What is to be known of the records that are there at the start. */
  initial(records: readonly Uint8Array[]): RulesState {
    const state: RulesState = { operations: {}, calls: {} };
    for (const bytes of records) {
      const record = this.#decode({ bytes, modifiedAt: 0 });
      const operation = claimed(state, record);
      operation.attempts[record.attempt] = {
        ...newAttempt(record, undefined),
        // That nothing happened is taken on trust where a person said so: none but a person's carries both.
        ran: record.status !== "held" && !(record.status === "released" && record.takeover),
        meaning: record.status === "released" ? "retry" : undefined,
      };
      noteSettled(operation, record);
    }
    return state;
  }

  onWritten({ name, before, after, caller }: Change, { now, model }: OperationWorld): void {
    if (name !== this.#of.name) return;
    const { rules } = model;
    const was = before && this.#decode(before);
    const is = this.#decode(after);
    must(
      3,
      is.inputHash === this.#of.inputHashes[caller],
      () => `caller ${caller} wrote a record of another input than its own`,
    );
    if (was === undefined || was.operationId !== is.operationId) {
      if (was !== undefined) {
        if (!this.#isStale(was, now)) this.#checkReplaced(was, is, model);
      }
      must(
        5,
        !(is.operationId in rules.operations),
        () => `${is.operationId} came back after its record was overwritten`,
      );
      must(5, is.status === "creating" && is.attempt === 1 && !is.takeover, () => `${shown(is)} is no first claim`);
      claimed(rules, is).attempts[1] = newAttempt(is, caller);
      return;
    }
    const operation = operationOf(rules, is.operationId);
    must(3, is.inputHash === was.inputHash, () => `${shown(is)} goes on with the operation of another input`);
    must(5, is.writeId !== was.writeId, () => `two writes have the write_id ${is.writeId}`);
    must(5, is.createdAt === operation.createdAt, () => "created_at changed within one operation");
    must(5, is.takeover || !was.takeover, () => "takeover was dropped");
    must(4, was.status !== "ready", () => `a ready record was overwritten by ${shown(is)} before it was stale`);
    must(2, was.status !== "held", () => `a held record was overwritten by ${shown(is)}, and no person did`);
    if (is.attempt !== was.attempt) this.#checkNextAttempt(was, is, now);
    else {
      const { owner } = attemptOf(operation, is.attempt);
      must(
        5,
        owner === caller,
        () =>
          `caller ${caller} wrote ${shown(is)}, an attempt that ${owner === undefined ? "nobody here" : `caller ${owner}`} began`,
      );
      must(5, was.status === "creating", () => `${shown(is)} was written over ${shown(was)} of the same attempt`);
      must(5, is.takeover === was.takeover, () => "takeover changed within one attempt");
    }
    const isRenewal = is.status === "creating" && is.leaseMs === this.#claimLeaseMs();
    must(5, is.attempt >= operation.attempt, () => `the attempt went back from ${operation.attempt} to ${is.attempt}`);
    operation.attempt = is.attempt;
    const attempt = (operation.attempts[is.attempt] ??= newAttempt(is, caller));
    if (!isRenewal) attempt.settled = true;
    this.#checkSettled(operation, is);
    noteSettled(operation, is);
  }

  onServed(_served: Served, { model: { ledger, rules } }: OperationWorld): void {
    checkReplacedRows(ledger, rules);
    if (this.#of.ledger.mayHaveTwoRows === true) return;
    const operations = ledger.rows.map(({ operationId }) => operationId);
    must(6, new Set(operations).size === operations.length, () => "an operation has two rows in the ledger");
  }

  onReported(report: OperationReport, caller: number, world: OperationWorld): void {
    const { rules } = world.model;
    if (report.kind === "calls") {
      rules.calls[caller] = { at: world.now, runs: 0, reconciles: 0 };
      return;
    }
    if (report.kind === "outlivesItsDeadline") {
      must(7, world.hasEnded(caller), () => `the call of caller ${caller} goes on after its deadline`);
      return;
    }
    const operation = operationOf(rules, report.operationId);
    const attempt = attemptOf(operation, report.attempt);
    const call = callOf(rules, caller);
    switch (report.kind) {
      case "reconciled":
        attempt.reconciled = report.answer;
        return;
      case "failed":
        attempt.meaning = report.meaning;
        return;
      case "reconciles":
        this.#checkBegins(report, caller, world);
        call.reconciles += 1;
        must(2, call.reconciles === 1, () => `one call began to reconcile twice`);
        must(2, attempt.takeover, () => `attempt ${report.attempt} reconciles, and did not come by a takeover`);
        return;
      case "runs":
        this.#checkBegins(report, caller, world);
        call.runs += 1;
        must(2, call.runs === 1, () => `one call started two effects`);
        this.#checkRunsAgain(operation, report.attempt);
        attempt.ran = true;
        return;
    }
  }

  onEnded(ending: Ending<Executed<Json>>, caller: number, { now, model: { rules } }: OperationWorld): void {
    const { at, runs, reconciles } = callOf(rules, caller);
    const isOver = now - at >= this.#of.deadlineMs;
    if (ending.kind === "returned") {
      const { value, operationId, recorded, replayed } = ending.result;
      this.#checkAnswer(
        { kind: "value", text: JSON.stringify(value ?? null) },
        { operationId, recorded, replayed },
        rules,
      );
      must(7, replayed || runs + reconciles > 0, () => `caller ${caller} was told of an effect that it did not start`);
      return;
    }
    const { error } = ending;
    const facts = executionOf(error);
    if (facts !== undefined) {
      const text = JSON.stringify(error instanceof Error ? error.message : String(error));
      this.#checkAnswer({ kind: "failure", text }, facts, rules);
      const isSettled = Object.values(operationOf(rules, facts.operationId).attempts).some(
        ({ owner, settled }) => owner === caller && settled,
      );
      must(
        7,
        facts.recorded || isSettled || isOver,
        () => `caller ${caller} was thrown its effect's error before its deadline, and its record does not say so`,
      );
      return;
    }
    const told = `caller ${caller} was told ${String(error)}`;
    if (IdempotencyConflictError.is(error)) {
      const operation = rules.operations[error.operationId ?? ""];
      must(3, operation !== undefined, () => `${told}, of an operation that never was`);
      must(3, operation?.inputHash !== this.#of.inputHashes[caller], () => `${told}, and its input is the same`);
      must(3, runs === 0, () => `${told} after its effect had started`);
    } else if (InProgressError.is(error)) {
      must(7, runs + reconciles === 0, () => `${told} after its effect had started`);
      must(
        7,
        error.operationId !== undefined && error.operationId in rules.operations,
        () => `${told}, of no operation`,
      );
      must(7, error.retryAfterMs > 0, () => `${told}, to try again at once`);
    } else if (OperationHeldError.is(error)) {
      must(7, rules.operations[error.operationId ?? ""]?.held === true, () => `${told}, and it is not held`);
    } else if (OutcomeUnknownError.is(error)) {
      must(7, runs + reconciles > 0, () => `${told} before any effect had started`);
    } else if (KeyTooOldError.is(error)) {
      must(7, this.#of.hasKeyTime && runs === 0, () => told);
    } else {
      must(
        7,
        StoreError.is(error) && error.code === "UNAVAILABLE",
        () => `${told}, which is no outcome of the protocol`,
      );
      must(7, runs + reconciles === 0, () => `${told} after its effect had started`);
    }
  }

  /** After a retry that had every lease over, and no fault. */
  atRest(retried: Ending<Executed<Json>>, { records, model }: OperationWorld): void {
    const stored = records.get(this.#of.name);
    must(6, stored !== undefined, () => "there is no record after a retry");
    if (stored === undefined) return;
    const record = this.#decode(stored);
    const isOther = record.inputHash !== this.#of.inputHashes.at(-1);
    must(
      7,
      !isOther || record.status !== "released" || record.takeover,
      () => `a retry of another input was refused for ${shown(record)}, in which nothing happened`,
    );
    const { ledger } = model;
    const rows = ledger.rows.filter(({ operationId }) => operationId === record.operationId);
    if (retried.kind === "threw" && executionOf(retried.error) === undefined) {
      const { error } = retried;
      if (isOther)
        must(6, IdempotencyConflictError.is(error), () => `a retry of another input was told ${String(error)}`);
      else must(6, OperationHeldError.is(error), () => `a retry without faults was told ${String(error)}`);
    } else {
      must(6, !isOther, () => "a retry of another input was answered");
    }
    if (record.status === "held" || isOther) return;
    this.#checkRows(record, rows);
  }

  #checkRows(record: DecodedRecord, rows: readonly LedgerRow[]): void {
    if (record.status !== "ready") {
      // What was thrown to the retry is an error that the operation's `onError` does not record.
      must(6, rows.length === 0, () => `the ledger has a row, and its record is ${shown(record)} after a retry`);
      return;
    }
    if (this.#of.ledger.mayHaveTwoRows === true) return;
    const isValue = record.result?.["kind"] === "value";
    must(
      6,
      rows.length === (isValue ? 1 : 0),
      () => `the record is a settled ${isValue ? "value" : "failure"}, and the ledger has ${rows.length} rows`,
    );
  }

  /** Run and reconcile start only while ownership is proved. */
  #checkBegins(
    { kind, operationId, attempt, input }: Extract<OperationReport, { kind: "runs" | "reconciles" }>,
    caller: number,
    { records }: OperationWorld,
  ): void {
    const what = `caller ${caller} ${kind} attempt ${attempt}`;
    must(3, input === this.#of.inputs[caller], () => `${what} with another input than its own`);
    const stored = records.get(this.#of.name);
    const record = stored && this.#decode(stored);
    must(
      5,
      record?.operationId === operationId && record.attempt === attempt && record.status === "creating",
      () => `${what}, and the record is ${record === undefined ? "gone" : shown(record)}`,
    );
    must(3, record?.inputHash === this.#of.inputHashes[caller], () => `${what} of another input's record`);
  }

  #checkRunsAgain({ attempts }: OperationState, attempt: number): void {
    const { recovery } = this.#of.definition;
    if (recovery === "rerun") return;
    // After "absent" nothing that went before matters.
    if (typeof recovery === "object" && attempts[attempt]?.reconciled === "absent") return;
    for (const [number, earlier] of Object.entries(attempts)) {
      if (!earlier.ran) continue;
      must(
        2,
        earlier.meaning === "retry" && !earlier.takeover,
        () =>
          `the effect was started again by attempt ${attempt}, and attempt ${number} may have had it: ` +
          `recovery is ${typeof recovery === "object" ? "reconcile" : recovery}`,
      );
    }
  }

  /**
   * A record that is not stale is overwritten by a new claim: of another input, where every attempt said of itself that it had
   * no effect, and none was taken over.
   */
  #checkReplaced(was: DecodedRecord, is: DecodedRecord, { rules, ledger }: OperationModel): void {
    const overwritten = (): string => `a record was overwritten by a new claim: ${shown(was)}`;
    must(4, was.status === "released", () => `${overwritten()} is not stale`);
    must(3, is.inputHash !== was.inputHash, () => `${overwritten()} was to go on for its own input`);
    must(3, !was.takeover, () => `${overwritten()} was taken over, and may have had its effect`);
    const operation = operationOf(rules, was.operationId);
    for (const [number, { ran, meaning, takeover }] of Object.entries(operation.attempts)) {
      must(
        3,
        !takeover && (!ran || meaning === "retry"),
        () => `${overwritten()}, and attempt ${number} may have had its effect`,
      );
    }
    operation.replaced = true;
    checkReplacedRows(ledger, rules);
  }

  #checkNextAttempt(was: DecodedRecord, is: DecodedRecord, now: number): void {
    must(5, is.attempt === was.attempt + 1, () => `attempt ${was.attempt} was followed by attempt ${is.attempt}`);
    if (was.status === "released") {
      must(5, is.status === "creating" && is.takeover === was.takeover, () => `${shown(is)} follows a released record`);
      return;
    }
    const ageMs = now - was.modifiedAt;
    must(
      5,
      was.leaseMs === 0 || ageMs > was.leaseMs + this.#of.clockGranularityMs,
      () => `${shown(was)} was taken over after ${ageMs} ms, while its lease was live`,
    );
    must(5, is.takeover, () => `${shown(is)} was a takeover, and does not say so`);
    const isHeld = is.status === "held";
    must(
      2,
      isHeld === (this.#of.definition.recovery === "hold") && (isHeld || is.status === "creating"),
      () => `a takeover wrote ${shown(is)}`,
    );
  }

  #checkSettled(operation: OperationState, is: DecodedRecord): void {
    const attempt = attemptOf(operation, is.attempt);
    const { recovery } = this.#of.definition;
    if (is.status === "released") {
      must(2, !is.takeover, () => `${shown(is)} was released, and an attempt before it may have had its effect`);
      must(2, attempt.meaning === "retry", () => `${shown(is)} was released without a "retry"`);
    }
    if (is.status === "ready") {
      must(1, operation.result === undefined, () => `${is.operationId} has two recorded results`);
      if (is.result?.["kind"] !== "failure") return;
      must(1, attempt.meaning === "replay", () => `a failure was recorded that is not final`);
      const isFinal =
        typeof recovery === "object" && recovery.absentIsFinal === true && attempt.reconciled === "absent";
      must(6, !is.takeover || isFinal, () => `a failure was recorded while an attempt before it may still commit`);
    }
  }

  #checkAnswer(
    answer: { readonly kind: "value" | "failure"; readonly text: string },
    { operationId, recorded, replayed }: Pick<Executed<Json>, "operationId" | "recorded" | "replayed">,
    rules: RulesState,
  ): void {
    const operation = rules.operations[operationId];
    must(1, operation !== undefined, () => `an answer names ${operationId}, which was never claimed`);
    if (!recorded) {
      must(1, !replayed, () => `an answer of ${operationId} is replayed, and not recorded`);
      return;
    }
    const told = `${answer.kind} ${answer.text}`;
    must(
      1,
      operation?.result === told,
      () => `a caller was told ${told}; recorded is ${operation?.result ?? "nothing"}`,
    );
  }

  #claimLeaseMs(): number {
    const { leaseMs, recoverAfterMs } = this.#of.definition;
    return leaseMs + recoverAfterMs;
  }

  #isStale({ status, modifiedAt, ttlMs }: DecodedRecord, now: number): boolean {
    const mayBe = status === "ready" || status === "released";
    return mayBe && now - modifiedAt > ttlMs + this.#of.clockGranularityMs;
  }

  #decode({ bytes, modifiedAt }: ModelRecord): DecodedRecord {
    const json = parseJsonObject(bytes) ?? {};
    const text = (name: string): string => textOf(json[name]);
    const count = (name: string): number => Number(json[name] ?? 0);
    const { result } = json;
    return {
      modifiedAt,
      operationId: text("operation_id"),
      inputHash: text("input_hash"),
      createdAt: text("created_at"),
      writeId: text("write_id"),
      status: text("status"),
      attempt: count("attempt"),
      takeover: json["takeover"] === true,
      leaseMs: count("lease_ms"),
      ttlMs: count("ttl_ms"),
      result: isJsonObject(result) ? result : undefined,
    };
  }
}

interface DecodedRecord {
  readonly modifiedAt: number;
  readonly operationId: string;
  readonly inputHash: string;
  readonly createdAt: string;
  readonly writeId: string;
  readonly status: string;
  readonly attempt: number;
  readonly takeover: boolean;
  readonly leaseMs: number;
  readonly ttlMs: number;
  readonly result: JsonObject | undefined;
}

/** A string as it is, anything else as JSON. */
function textOf(value: Json | undefined): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}

/** Shows a record in a trace. */
export function showRecord(bytes: Uint8Array): string {
  const json = parseJsonObject(bytes);
  if (json === undefined) return `${bytes.length} bytes`;
  const { status, attempt, takeover, lease_ms: leaseMs, result } = json;
  const parts = [
    `${textOf(status)}, attempt ${textOf(attempt)}`,
    takeover === true ? "by takeover" : undefined,
    leaseMs === undefined ? undefined : `lease ${textOf(leaseMs)} ms`,
    isJsonObject(result) ? `${textOf(result["kind"])} ${JSON.stringify(result["body"] ?? null)}` : undefined,
  ];
  return `{ ${parts.filter((part) => part !== undefined).join(", ")} }`;
}

function must(rule: Rule, holds: boolean, why: () => string): void {
  if (!holds) throw new Error(`protocol §7, rule ${rule}: ${why()}`);
}

function shown({ status, attempt, operationId, takeover }: DecodedRecord): string {
  return `attempt ${attempt} of ${operationId} (${status}${takeover ? ", by takeover" : ""})`;
}

function claimed(rules: RulesState, { operationId, inputHash, createdAt, attempt }: DecodedRecord): OperationState {
  const operation: OperationState = {
    inputHash,
    createdAt,
    attempts: {},
    attempt,
    result: undefined,
    held: false,
    replaced: false,
  };
  rules.operations[operationId] = operation;
  return operation;
}

function newAttempt({ takeover }: DecodedRecord, owner: number | undefined): AttemptState {
  return { owner, takeover, ran: false, settled: false, reconciled: undefined, meaning: undefined };
}

function noteSettled(operation: OperationState, { status, result }: DecodedRecord): void {
  if (status === "held") operation.held = true;
  if (status !== "ready" || result === undefined) return;
  const { kind, body } = result;
  const text = kind === "failure" && isJsonObject(body) ? body["message"] : body;
  operation.result = `${textOf(kind)} ${JSON.stringify(text ?? null)}`;
}

/** Whoever has the key now may have its effect; one whose key was given away for nothing having happened has none, ever. */
function checkReplacedRows({ rows }: LedgerState, { operations }: RulesState): void {
  for (const { operationId } of rows) {
    must(
      6,
      operations[operationId]?.replaced !== true,
      () => `the ledger has a row of ${operationId}, which was released, and whose key another input has`,
    );
  }
}

function callOf({ calls }: RulesState, caller: number): CallState {
  const call = calls[caller];
  if (call === undefined) throw new Error(`caller ${caller} has not begun its call`);
  return call;
}

function operationOf({ operations }: RulesState, operationId: string): OperationState {
  const operation = operations[operationId];
  if (operation === undefined) throw new Error(`protocol §7, rule 5: ${operationId} was never claimed`);
  return operation;
}

function attemptOf({ attempts }: OperationState, attempt: number): AttemptState {
  const known = attempts[attempt];
  if (known === undefined) throw new Error(`protocol §7, rule 5: attempt ${attempt} was never claimed`);
  return known;
}
