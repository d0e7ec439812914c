export { AzureStore, type AzureStoreOptions } from "./azure-store.ts";
