/**
 * Whether a history of concurrent calls could have come from one register per name: the search of Wing and Gong ("Testing
 * and verifying concurrent objects", 1993) with the memoisation of Lowe ("Testing for linearizability", 2017). Names are
 * independent, so each is searched alone.
 *
 * The model, and why:
 * - A value is written by one call only (P8), so a read says which write it saw.
 * - A call takes effect at one instant between its invocation and its answer. An `unknown` write has no answer to bound
 *   it: it may take effect at any time after its invocation, or never. It takes effect **once** at most (P1), and only
 *   where its condition holds at that instant, which it cannot twice: its own value has gone since.
 * - `contended` and rejected writes changed nothing (P2). They are left out of a history, and a read that sees the value
 *   of one fits nothing.
 * - A replace that is `written` names the value it replaced, so a body paired with a newer version shows. Paired with an
 *   *older* version the replace is refused, which the port allows (P3): a `refused` replace whose version came from a read
 *   says nothing about the register, and one whose version came from `written` says that the register had moved on.
 */

/** One call of a history. Times are counted in events of the history, not in milliseconds. */
export type RecordedCall = {
  readonly worker: number;
  readonly name: string;
  readonly invokedAt: number;
  /** Not looked at for a write whose outcome is `unknown`. */
  readonly answeredAt: number;
} & RegisterCall;

export type RegisterCall =
  | { readonly kind: "create"; readonly value: string; readonly outcome: WriteAnswer }
  | {
      readonly kind: "replace";
      /** The value that was the record at the version given. */
      readonly expected: string;
      readonly versionFrom: "written" | "read";
      readonly value: string;
      readonly outcome: WriteAnswer;
    }
  /** `value` is `undefined` where there was no record. */
  | { readonly kind: "read"; readonly value: string | undefined };

type WriteAnswer = "written" | "refused" | "unknown";

export type Linearizability =
  | { readonly kind: "linearizable" }
  | {
      readonly kind: "impossible";
      readonly name: string;
      /** The calls on that name, in the order they were invoked. */
      readonly calls: readonly RecordedCall[];
      /** The longest order found that fits, as far as it goes. */
      readonly fits: readonly RecordedCall[];
    };

/** Looks for an order of all calls that one register per name could have answered like this. */
export function checkLinearizability(history: readonly RecordedCall[]): Linearizability {
  for (const [name, calls] of Map.groupBy(history, ({ name }) => name)) {
    const inOrder = calls.toSorted((a, b) => a.invokedAt - b.invokedAt);
    const fits = search(inOrder);
    if (fits !== undefined) return { kind: "impossible", name, calls: inOrder, fits };
  }
  return { kind: "linearizable" };
}

/** A history for people, one call a line. */
export function describeHistory(calls: readonly RecordedCall[]): string {
  return calls.map(describeCall).join("\n");
}

/** `undefined` when an order was found, else the longest prefix of one. */
function search(calls: readonly RecordedCall[]): readonly RecordedCall[] | undefined {
  const seen = new Set<string>();
  const order: RecordedCall[] = [];
  let longest: readonly RecordedCall[] = [];

  const goOn = (done: bigint, state: string | undefined): boolean => {
    if (order.length > longest.length) longest = [...order];
    const configuration = `${done}|${state ?? ""}`;
    if (seen.has(configuration)) return false;
    seen.add(configuration);

    const left = calls
      .map((call, index) => ({ call, bit: 1n << BigInt(index) }))
      .filter(({ bit }) => (done & bit) === 0n);
    // A call that must take effect before anything that was invoked after its answer.
    const bound = Math.min(...left.map(({ call }) => endOf(call)));
    // Only calls without an answer are left, and those may never take effect.
    if (bound === Infinity) return true;

    const next = left
      .filter(({ call }) => call.invokedAt < bound)
      .map((candidate) => ({ ...candidate, effect: effectOf(candidate.call, state) }))
      .filter(({ effect }) => effect.kind !== "impossible");
    // What fits here and changes nothing may be taken at once: any order that has it later has one with it here.
    const idle = next.filter(({ effect }) => effect.kind === "none").slice(0, 1);
    for (const { call, bit, effect } of idle.length > 0 ? idle : next) {
      order.push(call);
      if (goOn(done | bit, effect.kind === "sets" ? effect.value : state)) return true;
      order.pop();
    }
    return false;
  };
  return goOn(0n, undefined) ? undefined : longest;
}

function endOf(call: RecordedCall): number {
  return call.kind !== "read" && call.outcome === "unknown" ? Infinity : call.answeredAt;
}

type Effect =
  | { readonly kind: "sets"; readonly value: string }
  | { readonly kind: "none" }
  | { readonly kind: "impossible" };

const none: Effect = { kind: "none" };
const impossible: Effect = { kind: "impossible" };

/** What the call does to a register in this state, if it can have been answered like this there. */
function effectOf(call: RegisterCall, state: string | undefined): Effect {
  switch (call.kind) {
    case "read":
      return call.value === state ? none : impossible;
    case "create":
      return effectOfWrite(call.outcome, call.value, state === undefined, true);
    case "replace":
      return effectOfWrite(call.outcome, call.value, state === call.expected, call.versionFrom === "written");
  }
}

function effectOfWrite(outcome: WriteAnswer, value: string, holds: boolean, refusalTells: boolean): Effect {
  switch (outcome) {
    case "written":
      return holds ? { kind: "sets", value } : impossible;
    case "refused":
      return holds && refusalTells ? impossible : none;
    case "unknown":
      // Where the condition is false it would change nothing, which is the same as not having taken effect yet.
      return holds ? { kind: "sets", value } : impossible;
  }
}

function describeCall(call: RecordedCall): string {
  const when = `${call.invokedAt}..${endOf(call) === Infinity ? "" : call.answeredAt}`.padEnd(9);
  const who = `${when} worker ${call.worker}:`;
  switch (call.kind) {
    case "read":
      return `${who} read -> ${short(call.value)}`;
    case "create":
      return `${who} create ${short(call.value)} -> ${call.outcome}`;
    case "replace":
      return `${who} replace ${short(call.expected)} (from ${call.versionFrom}) by ${short(call.value)} -> ${call.outcome}`;
  }
}

function short(value: string | undefined): string {
  return value?.slice(0, 6) ?? "none";
}
