import { draft, stripe, type Case } from "./cases.ts";
import { integrations } from "./integrations.ts";
import { peers } from "./peer-cases.ts";
import { Bench } from "./setup.ts";

const tables: Readonly<Record<string, readonly Case[]>> = {
  "draft-ietf-httpapi-idempotency-key-header-07": draft,
  "what payment clients are used to": stripe,
  "what users of other libraries ran into": peers,
};

for (const [table, cases] of Object.entries(tables)) {
  describe(table, () => {
    for (const integration of integrations) {
      describe(integration.name, () => {
        const benches: Bench[] = [];
        afterEach(() => Promise.all(benches.splice(0).map((bench) => bench.close())));
        const make = (options?: { readonly virtual?: boolean }): Bench => {
          const bench = new Bench(integration, options);
          benches.push(bench);
          return bench;
        };
        for (const { id, title, na, run } of cases) {
          const reason = na?.[integration.name];
          if (reason === undefined) it(`${id} ${title}`, () => run(make));
          else console.log(`    ${integration.name} ${id}: not applicable, ${reason}`);
        }
      });
    }
  });
}
