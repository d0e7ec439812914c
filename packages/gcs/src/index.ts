export { GcsStore, type GcsStoreOptions } from "./gcs-store.ts";
