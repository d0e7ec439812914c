export { SqliteStore, type SqliteStoreOptions } from "./sqlite-store.ts";
export { openDatabase, sqlitePath } from "./open-database.ts";
