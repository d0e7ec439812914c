import type { ConditionalStore } from "@firstwrite/core";

import type { ConformanceRunner, NotRun, StoreHarness } from "./harness.ts";
import { storeConformance } from "./store-conformance.ts";

export interface ConformanceReport {
  /** Titles, in the order they ran; a title is given without its group. */
  readonly passed: readonly string[];
  readonly failed: readonly { readonly title: string; readonly error: unknown }[];
  readonly notRun: readonly NotRun[];
}

/**
 * Runs the suite without a test runner and gives its results: for a program that must know whether a store can be
 * trusted, and for tests of the suite itself.
 *
 * @param options.only Runs these titles alone.
 */
export async function checkConformance<S extends ConditionalStore>(
  harness: StoreHarness<S>,
  options: { readonly only?: readonly string[] } = {},
): Promise<ConformanceReport> {
  const { runner, tests, befores, afters } = collectingRunner();
  const notRun = storeConformance(runner, harness);
  const passed: string[] = [];
  const failed: { title: string; error: unknown }[] = [];
  for (const before of befores) await before();
  for (const { title, body } of tests) {
    if (options.only !== undefined && !options.only.includes(title)) continue;
    try {
      await body();
      passed.push(title);
    } catch (error) {
      failed.push({ title, error });
    }
  }
  for (const after of afters) await after();
  return { passed, failed, notRun };
}

interface Collected {
  readonly runner: ConformanceRunner;
  readonly tests: { readonly title: string; readonly body: () => Promise<void> }[];
  readonly befores: (() => Promise<void>)[];
  readonly afters: (() => Promise<void>)[];
}

function collectingRunner(): Collected {
  const tests: Collected["tests"] = [];
  const befores: Collected["befores"] = [];
  const afters: Collected["afters"] = [];
  const runner: ConformanceRunner = {
    describe: (_, body) => body(),
    it: (title, body) => tests.push({ title, body }),
    before: (body) => befores.push(body),
    after: (body) => afters.push(body),
    print: () => undefined,
  };
  return { runner, tests, befores, afters };
}
