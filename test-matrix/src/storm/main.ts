/** `pnpm storm ROW [OPERATIONS]`: the storm on one row of the matrix, with as many operations as asked; 5,000 by default. */

import { rowId } from "../row.ts";
import { rows } from "../rows.ts";
import { storm } from "./storm.ts";

const [asked, count = "5000"] = process.argv.slice(2);
const operations = Number(count);
const candidates = rows.filter(({ second }) => second);
const row = candidates.find((row) => rowId(row) === asked);
if (row === undefined || !Number.isSafeInteger(operations) || operations < 1) {
  console.error(`usage: pnpm storm ROW [OPERATIONS], where ROW is one of ${candidates.map(rowId).join(", ")}`);
  process.exitCode = 2;
} else {
  const place = await row.provision();
  try {
    const { url = "", env = {} } = place;
    console.table([{ row: row.name, ...(await storm({ url, env, operations, withinMs: 3_600_000 })) }]);
  } finally {
    await place.close();
  }
}
