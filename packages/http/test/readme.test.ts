import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { problems } from "../src/problem.ts";
import { fateOf } from "../src/policy.ts";
import { draft, stripe, type Case } from "./cases.ts";
import { integrations } from "./integrations.ts";
import { peers } from "./peer-cases.ts";

const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
/** A row as it is meant, however wide its columns are. */
const cells = (row: string): readonly string[] =>
  row
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim());

const tables: Readonly<Record<string, readonly (readonly string[])[]>> = {
  answers: [
    ["status", "`type`'s last part", "title", "`retry`"],
    ...Object.entries(problems).map(([name, { status, title, retry }]) => [
      `${status}`,
      `\`${name}\``,
      title,
      `\`${retry}\``,
    ]),
  ],
  cases: [["case", ...integrations.map(({ name }) => name), "operations"], ...[...draft, ...stripe].map(rowOf)],
  faults: [["fault", ...integrations.map(({ name }) => name), "operations"], ...peers.map(rowOf)],
};

/** Whatever runs passes, or the suite fails. */
function rowOf({ id, title, na, notOfOperations }: Case): readonly string[] {
  const cell = (reason: string | undefined): string => (reason === undefined ? "✓" : `n/a: ${reason}`);
  return [`${id} ${title}`, ...integrations.map(({ name }) => cell(na?.[name])), cell(notOfOperations)];
}

describe("README.md", () => {
  for (const [name, rows] of Object.entries(tables)) {
    it(`has the table of ${name} as the code has it`, () => {
      const place = new RegExp(`<!-- table: ${name} -->\n\n(.*?)\n\n<!-- end -->`, "s");
      const [, found = ""] = place.exec(readme) ?? [];
      const [head = [], , ...body] = found.split("\n").map(cells);
      const [first = [], ...others] = rows;
      const table = [first, first.map(() => "---"), ...others].map((row) => `| ${row.join(" | ")} |`).join("\n");
      assert.deepEqual([head, ...body], rows, `write it so, and format it:\n\n${table}\n`);
    });
  }

  it("has the policies as the code has them", () => {
    const rows = readme.split("\n").filter((line) => /^\| (\dxx|400, |other 4xx|throws)/.test(line));
    const statuses: Readonly<Record<string, readonly number[]>> = {
      "2xx": [200, 201, 204, 299],
      "3xx": [300, 303, 307],
      "400, 401, 403, 413, 415, 422, 429": [400, 401, 403, 413, 415, 422, 429],
      "other 4xx": [402, 404, 405, 408, 409, 410, 412, 414, 418, 423, 425, 428, 431, 451, 499],
      "5xx": [500, 502, 503, 599],
      throws: [500],
    };
    assert.equal(rows.length, Object.keys(statuses).length);
    for (const row of rows) {
      const [of = "", stripePolicy, successPolicy] = cells(row);
      for (const status of statuses[of] ?? []) {
        const answer = {
          status,
          headers: [],
          body: new Uint8Array(),
          inherited: new Set<string>(),
          ...(of === "throws" && { thrown: { error: new Error("x") } }),
        };
        assert.equal(fateOf("stripe", answer), stripePolicy, row);
        assert.equal(fateOf("success", answer), successPolicy, row);
      }
    }
  });

  it("names every option", () => {
    for (const [file, section] of [
      ["options.ts", "Options"],
      ["operation-options.ts", "An operation"],
    ] as const) {
      const source = readFileSync(new URL(`../src/${file}`, import.meta.url), "utf8");
      const [, list = ""] = /const NAMES: .*? = \[(.*?)\];/s.exec(source) ?? [];
      const names = [...list.matchAll(/"(\w+)"/g)].map(([, name]) => name ?? "");
      assert.ok(names.length > 14);
      const [, text = ""] = new RegExp(`\n## ${section}[^\n]*\n(.*?)\n## `, "s").exec(readme) ?? [];
      for (const name of names) assert.ok(text.includes(`\`${name}\``), `${name} in ${section}`);
    }
  });
});
