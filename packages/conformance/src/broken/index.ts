export { brokenStores, type BrokenStore } from "./broken-stores.ts";
