export { MemoryStore, type Fault, type FaultTarget, type MemoryStoreOptions, type Operation } from "./memory-store.ts";
export { settle, VirtualClock } from "./virtual-clock.ts";
