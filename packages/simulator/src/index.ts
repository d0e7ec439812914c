export { explore, replay, walk, type Explored, type Walked, type WalkOptions } from "./explore.ts";
export {
  NoAnswerError,
  type CallerSetup,
  type Change,
  type Checks,
  type Ending,
  type Fault,
  type ModelRecord,
  type Scenario,
  type Served,
  type ServiceClient,
  type ServiceOptions,
  type SharedDatabase,
  type StartingRecord,
  type World,
} from "./scenario.ts";
export { Violation } from "./violation.ts";
export { exploreOperation, operationScenario, type OperationPlan, type OperationSetup } from "./explore-operation.ts";
export {
  DeclinedError,
  DuplicateRowError,
  FencedError,
  RecordMovedError,
  type LedgerClient,
  type LedgerOptions,
  type LedgerRow,
  type LedgerState,
  type RequestOptions,
  type Settling,
} from "./model-ledger.ts";
export type { OperationModel } from "./operation-rules.ts";
