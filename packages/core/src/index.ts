export {
  toVersion,
  type CallOptions,
  type ConditionalStore,
  type ListedObject,
  type StoredRecord,
  type StoreTraits,
  type Version,
  type WriteOutcome,
} from "./conditional-store.ts";
export { StoreError, type StoreErrorCode } from "./store-error.ts";
export { checkObjectName, checkWrite } from "./store-arguments.ts";
export { nodeRuntime, uuidV4, type Runtime } from "./runtime.ts";
