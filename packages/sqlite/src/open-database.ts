import { existsSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";

/**
 * A connection as `SqliteStore` wants it, to a file that is made if it is not there, and its folder, too. Locks are waited for by who
 * uses it: SQLite's own waiting would hold up the event loop.
 *
 * @throws what Node throws for a file that cannot be opened.
 */
export function openDatabase(path: string): DatabaseSync {
  makeFolder(dirname(path));
  return new DatabaseSync(path, { timeout: 0 });
}

/**
 * The path that `sqlite:PATH` names: what follows the colon as it is, nothing decoded; `sqlite:///abs` is `/abs`. `undefined` for another
 * URL, and for one with options after `?`, which there are none of.
 */
export function sqlitePath(url: string): string | undefined {
  return /^sqlite:(?:\/\/)?(?<path>[^?]+)$/.exec(url)?.groups?.["path"];
}

/** Not `recursive: true`, which below a folder that takes none, such as /proc, never returns. */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  try {
    mkdirSync(folder);
  } catch (error) {
    // Another process may have made it meanwhile.
    if (!existsSync(folder)) throw error;
  }
}
