import { draft, stripe, type Case } from "./cases.ts";
import { integrations, type Integration } from "./integrations.ts";
import { peers } from "./peer-cases.ts";
import { operationIntegrations } from "./operation-integrations.ts";
import { Bench } from "./setup.ts";

const tables: Readonly<Record<string, readonly Case[]>> = {
  "draft-ietf-httpapi-idempotency-key-header-07": draft,
  "what payment clients are used to": stripe,
  "what users of other libraries ran into": peers,
};

for (const [table, cases] of Object.entries(tables)) {
  describe(table, () => {
    for (const integration of integrations) {
      describe(integration.name, () => runCases(integration, cases, ({ na }) => na?.[integration.name]));
    }
    for (const integration of operationIntegrations) {
      describe(`${integration.name}, an operation`, () =>
        runCases(integration, cases, ({ na, notOfOperations }) => notOfOperations ?? na?.[integration.name]));
    }
  });
}

function runCases(integration: Integration, cases: readonly Case[], reasonNot: (of: Case) => string | undefined): void {
  const benches: Bench[] = [];
  afterEach(() => Promise.all(benches.splice(0).map((bench) => bench.close())));
  const make = (options?: { readonly virtual?: boolean }): Bench => {
    const bench = new Bench(integration, options);
    benches.push(bench);
    return bench;
  };
  for (const one of cases) {
    const reason = reasonNot(one);
    if (reason === undefined) it(`${one.id} ${one.title}`, () => one.run(make));
    else console.log(`    ${integration.name} ${one.id}: not applicable, ${reason}`);
  }
}
