/** `pnpm matrix:serve ROW`: makes the place of one row, with its server, for people to use by hand, until Ctrl-C. */

import { rowId } from "./row.ts";
import { rows } from "./rows.ts";

const [asked] = process.argv.slice(2);
const row = rows.find((row) => rowId(row) === asked);
if (row === undefined) {
  console.error(`usage: pnpm matrix:serve ROW, where ROW is one of ${rows.map(rowId).join(", ")}`);
  process.exitCode = 2;
} else {
  const provisioned = await row.provision();
  const { url, env } = provisioned;
  if (url === undefined) {
    console.error(`${row.name} has no URL: its records are for the process that opens it`);
    process.exitCode = 2;
  } else {
    const exports = Object.entries(env ?? {}).map(([name, value]) => `export ${name}=${value}`);
    console.log([`${row.name} is at`, "", `  ${url}`, "", ...exports, "", "Ctrl-C ends it."].join("\n"));
    await interrupted();
  }
  await provisioned.close();
}

function interrupted(): Promise<void> {
  return new Promise((resolve) => {
    const keepsRunning = setInterval(() => undefined, 60_000);
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
      process.once(signal, () => {
        clearInterval(keepsRunning);
        resolve();
      });
    }
  });
}
