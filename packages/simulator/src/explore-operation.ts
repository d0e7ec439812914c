import {
  fingerprintOf,
  Idempotency,
  recordAddress,
  type EffectContext,
  type ExecuteRequest,
  type Executed,
  type Json,
  type OperationDefinition,
  type Reconciled,
  type Recovery,
  type Runtime,
} from "@firstwrite/core";

import { explore, type Explored } from "./explore.ts";
import { DeclinedError, emptyLedger, ledgerClient, type LedgerClient, type LedgerOptions } from "./model-ledger.ts";
import { OperationRules, showRecord, type OperationModel, type OperationReport } from "./operation-rules.ts";
import { TRAITS, type CallerSetup, type Checks, type Fault, type Scenario } from "./scenario.ts";

/** Callers of one operation, all with the same key, and what may happen to them. */
export interface OperationPlan<Input, Value extends Json> extends Pick<
  Scenario<Executed<Json>, OperationModel>,
  | "callers"
  | "faultsMax"
  | "beginLate"
  | "records"
  | "removedAfterMs"
  | "jumpsMs"
  | "clockJumpsMs"
  | "awayFor"
  | "inFlightMsMax"
  | "traits"
> {
  /** Defines the operation for one caller, whose effects go to `ledger`. It may use nothing else that changes. */
  readonly operation: (given: OperationSetup) => OperationDefinition<Input, Value>;
  /** By caller; further ones have the first, and so has the retry at rest. */
  readonly inputs: readonly [Input, ...Input[]];
  /** Members of each caller's request. */
  readonly request?: Omit<Partial<ExecuteRequest>, "scope" | "key" | "signal">;
  /** What the ledger refuses; and how long one of its requests may be in flight, in milliseconds, which is by default the
   * operation's `recoverAfterMs`, or an hour where that is 0. */
  readonly ledger: LedgerOptions & { readonly inFlightMsMax?: number; readonly faults?: readonly Fault[] };
  /** By default all but `declined`; of the ledger's requests `repeatedLater` only where it is unique. */
  readonly faults?: readonly Fault[];
  /** Checks beside those of the protocol's §7. */
  readonly checks?: Checks<Executed<Json>, OperationModel>;
}

/** What an operation under test is made of. */
export interface OperationSetup {
  readonly ledger: LedgerClient;
  /** 0, 1, …; the retry at rest is one more. */
  readonly caller: number;
  readonly runtime: Runtime;
}

/**
 * Plays every schedule of a few callers of `Idempotency.execute` for one key, with the real engine: every order of their
 * requests to the store and to the ledger, with every fault at every request. What the protocol promises of every
 * operation (`docs/protocol.md` §7) is checked at every step.
 *
 * @throws {Violation} for the first schedule that breaks a rule: of the engine, or of the operation's author.
 */
export async function exploreOperation<Input, Value extends Json>(
  plan: OperationPlan<Input, Value>,
): Promise<Explored> {
  return explore(operationScenario(plan));
}

/** What {@link exploreOperation} explores, for `walk` and `replay`. */
export function operationScenario<Input, Value extends Json>(
  plan: OperationPlan<Input, Value>,
): Scenario<Executed<Json>, OperationModel> {
  const { callers, inputs, ledger, request = {}, records = [], checks = {}, faults = ALL_FAULTS } = plan;
  const inputOf = (caller: number): Input => inputs[caller] ?? inputs[0];
  const scope = "explored";
  const key = "key";
  const { name } = recordAddress("idempotency/", scope, key);
  const definition = plan.operation({ ledger: nobodysLedger, caller: callers, runtime: nobodysRuntime });
  const allCallers = Array.from({ length: callers + 1 }, (_, caller) => caller);
  const deadlineMs = request.deadlineMs ?? 30_000;
  const rules = new OperationRules({
    definition,
    ledger,
    name,
    clockGranularityMs: plan.traits?.clockGranularityMs ?? TRAITS.clockGranularityMs,
    inputHashes: allCallers.map((caller) => fingerprintOf([definition.name, definition.fingerprint(inputOf(caller))])),
    inputs: allCallers.map((caller) => JSON.stringify(inputOf(caller))),
    deadlineMs,
    hasKeyTime: definition.keyTime || request.issuedAt !== undefined,
  });

  async function start(caller: CallerSetup<OperationModel>): Promise<Executed<Json>> {
    const { index, store, runtime, service } = caller;
    const report = (given: OperationReport): void => caller.report(given);
    const operation = plan.operation({ ledger: ledgerClient(ledger, service), caller: index, runtime });
    report({ kind: "calls" });
    const cancelTimer = runtime.setTimer(deadlineMs + 1, () => report({ kind: "outlivesItsDeadline" }));
    try {
      return await new Idempotency({ store, runtime }).execute(
        observed(operation, report),
        { ...request, scope, key, deadlineMs },
        inputOf(index),
      );
    } finally {
      cancelTimer();
    }
  }

  return {
    ...plan,
    interchangeable: inputs.length === 1,
    faults,
    records,
    model: () => ({
      ledger: emptyLedger(),
      rules: rules.initial(records.filter((record) => record.name === name).map(({ bytes }) => bytes)),
    }),
    service: {
      inFlightMsMax: ledger.inFlightMsMax ?? (definition.recoverAfterMs || HOUR_MS),
      faults: ledger.faults ?? faults.filter((fault) => ledger.unique === true || fault !== "repeatedLater"),
      decline: () => new DeclinedError(),
    },
    start,
    show: showRecord,
    checks: {
      onWritten(change, world) {
        rules.onWritten(change, world);
        checks.onWritten?.(change, world);
      },
      onServed(served, world) {
        rules.onServed(served, world);
        checks.onServed?.(served, world);
      },
      onReported(report, caller, world) {
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- `start`, above, reports nothing else
        rules.onReported(report as OperationReport, caller, world);
        checks.onReported?.(report, caller, world);
      },
      onEnded(ending, caller, world) {
        rules.onEnded(ending, caller, world);
        checks.onEnded?.(ending, caller, world);
      },
      async atRest(retry, world) {
        rules.atRest(await retry(definition.leaseMs + definition.recoverAfterMs + 1), world);
        await checks.atRest?.(retry, world);
      },
    },
  };
}

const HOUR_MS = 3_600_000;

const ALL_FAULTS: readonly Fault[] = [
  "lostRequest",
  "lostReply",
  "landsLate",
  "repeatedLater",
  "heldReply",
  "crashBefore",
  "crashAfter",
  "contended",
  "away",
];

/** The same operation, which tells what it does. */
function observed<Input, Value extends Json>(
  definition: OperationDefinition<Input, Value>,
  report: (report: OperationReport) => void,
): OperationDefinition<Input, Json> {
  const { run, recovery, onError } = definition;
  let last = { operationId: "", attempt: 0 };
  const begins = (kind: "runs" | "reconciles", input: Input, { operationId, attempt }: EffectContext): void => {
    last = { operationId, attempt };
    report({ kind, operationId, attempt, input: JSON.stringify(input) });
  };
  return {
    ...definition,
    run(input, context) {
      begins("runs", input, context);
      return run(input, context);
    },
    onError(error) {
      const meaning = onError(error);
      report({ kind: "failed", ...last, meaning });
      return meaning;
    },
    recovery: typeof recovery === "string" ? recovery : observedRecovery(recovery, begins, report),
  };
}

function observedRecovery<Input, Value extends Json>(
  { reconcile, absentIsFinal }: Exclude<Recovery<Input, Value>, string>,
  begins: (kind: "reconciles", input: Input, context: EffectContext) => void,
  report: (report: OperationReport) => void,
): Recovery<Input, Json> {
  return {
    async reconcile(input, context) {
      begins("reconciles", input, context);
      const { operationId, attempt } = context;
      let answer: Reconciled<Value>;
      try {
        answer = await reconcile(input, context);
      } catch (error) {
        report({ kind: "reconciled", operationId, attempt, answer: "threw" });
        throw error;
      }
      report({ kind: "reconciled", operationId, attempt, answer: typeof answer === "string" ? answer : "found" });
      return answer;
    },
    ...(absentIsFinal === undefined ? {} : { absentIsFinal }),
  };
}

/** For the definition that only its options are read of. */
function nothingSent(): never {
  throw new Error("the operation must send nothing before it is run");
}
const nobodysLedger: LedgerClient = { insert: nothingSent, find: nothingSent, fence: nothingSent };
const nobodysRuntime: Runtime = {
  now: nothingSent,
  monotonicMs: nothingSent,
  random: nothingSent,
  randomBytes: nothingSent,
  setTimer: nothingSent,
};
