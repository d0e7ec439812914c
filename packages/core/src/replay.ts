/** A recorded result, given to whoever calls later. */

import { ResultGoneError } from "./errors.ts";
import { factsOf, type Execution, type Found } from "./execution.ts";
import type { ExecutionOutcome } from "./execution-flight.ts";
import type { OperationDefinition } from "./operation.ts";
import type { InlineResult, RecordResult } from "./record.ts";
import { decodeFailure, decodeValue, noteExecution, resultOfBytes, type ExecutionFacts } from "./result.ts";
import type { StoreSession } from "./store-session.ts";

/** The recorded result, as every later caller gets it. */
export async function replay(
  session: StoreSession,
  { operation, remember }: Execution,
  { record, stored }: Found,
  result: RecordResult,
): Promise<ExecutionOutcome> {
  const { operationId } = record;
  if (result.kind !== "offloaded") {
    remember(record, stored.readAt - stored.modifiedAt, stored.sentAtMs);
    return replayOf({ operationId, result }, operation);
  }
  const object = await session.read(result.object);
  const inline = object && resultOfBytes(result, object.bytes);
  if (inline === undefined) {
    const how = object === undefined ? "is missing" : "is not what was stored";
    throw new ResultGoneError(
      `the operation is done, and the object of its result ${how}: look it up by its operation ID; it is not run again`,
      factsOf(record),
    );
  }
  return replayOf({ operationId, result: inline }, operation);
}

/** A recorded result that is at hand. */
export function replayOf(
  { operationId, result }: { readonly operationId: string; readonly result: InlineResult },
  operation: Pick<OperationDefinition<never, unknown>, "deserializeError">,
): ExecutionOutcome {
  const facts = { operationId, replayed: true, recorded: true };
  return { ...facts, give: () => giveResult(result, operation, facts) };
}

/** Returns the value, or throws the failure, of a record. */
function giveResult(
  result: InlineResult,
  { deserializeError }: Pick<OperationDefinition<never, unknown>, "deserializeError">,
  facts: ExecutionFacts,
): unknown {
  if (result.kind === "value") return decodeValue(result);
  const error = decodeFailure(result, deserializeError);
  noteExecution(error, facts);
  throw error;
}
