export {
  explore,
  replay,
  Violation,
  type CallerSetup,
  type Checks,
  type Ending,
  type Explored,
  type Scenario,
} from "./explore.ts";
export type { Change, Fault, ModelRecord, StartingRecord, World } from "./world.ts";
