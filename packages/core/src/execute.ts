/** At most one effect per key, within one flight. */

import { Attempt } from "./attempt.ts";
import { claim } from "./claim.ts";
import { look, type Execution, type Found } from "./execution.ts";
import type { ExecutionOutcome } from "./execution-flight.ts";
import { replay } from "./replay.ts";

/**
 * Claims the key, runs the effect and settles; or answers with what another attempt recorded.
 *
 * @throws {IdempotencyConflictError}
 * @throws {OperationHeldError}
 * @throws {KeyTooOldError}
 * @throws {ResultGoneError}
 * @throws {OutcomeUnknownError}
 * @throws {UnsupportedRecordError}
 * @throws {StoreError}
 * @throws {SessionEnded}
 */
export async function executeIn(execution: Execution): Promise<ExecutionOutcome> {
  const session = execution.openSession();
  for (let found: Found | undefined; ;) {
    const claimed = await claim(session, execution, found);
    if (claimed.kind === "settled") return replay(session, execution, claimed.found, claimed.result);
    const attempt = new Attempt(execution, claimed);
    try {
      const outcome = await attempt.go();
      if (outcome !== undefined) return outcome;
      // Ownership was lost before anything began: as if the claim had been refused.
      found = await look(session, execution);
    } finally {
      await attempt.lease.stop();
    }
  }
}
