export { checkConformance, type ConformanceReport } from "./collecting-runner.ts";
export type { ConformanceRunner, HarnessFault, HarnessFaults, NotRun, StoreHarness } from "./harness.ts";
export { storeConformance } from "./store-conformance.ts";
export {
  checkLinearizability,
  describeHistory,
  type Linearizability,
  type RecordedCall,
  type RegisterCall,
} from "./linearizability.ts";
