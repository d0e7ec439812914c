import { StoreError } from "@firstwrite/core";
import { openStore } from "@firstwrite/stores";
import { Tasks } from "@firstwrite/tasks";

export const DEFAULT_STORE = "sqlite:.firstwrite/store.db";

/** Opens the store of `--store`, `FIRSTWRITE_STORE` or the default, for as long as `use` takes. */
export async function withTasks<Result>(
  url: string | undefined,
  use: (tasks: Tasks) => Promise<Result>,
): Promise<Result> {
  const store = await openStore(url ?? (process.env["FIRSTWRITE_STORE"] || DEFAULT_STORE));
  try {
    return await use(new Tasks({ store }));
  } finally {
    await store.close?.();
  }
}

/** A failure in one line, with the advice its message carries; a bug keeps its stack. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = "code" in error && typeof error.code === "string" ? ` (${error.code})` : "";
  if (code === " (ENOENT)" && "path" in error) return `there is no file ${String(error.path)}`;
  const cause = StoreError.is(error) && error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return code === "" ? (error.stack ?? error.message) : `${error.message}${code}${cause}`;
}
