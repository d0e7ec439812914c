import type { ConditionalStore } from "@firstwrite/core";

import { BenchKeeper, type Bench } from "./bench.ts";
import type { ConformanceRunner, HarnessFault, NotRun, StoreHarness } from "./harness.ts";

/** What a test needs of its harness beyond a store. */
export type Need = "second" | "requests" | HarnessFault;

/** The runner as the rules see it: tests that get a bench, and that say what they need. */
export class Suite<S extends ConditionalStore> {
  readonly #runner: ConformanceRunner;
  readonly #harness: StoreHarness<S>;
  readonly #keeper: BenchKeeper<S>;
  readonly #gaps: Map<string, string>;
  #registered: { readonly title: string; readonly run: () => Promise<void> }[] = [];
  readonly notRun: NotRun[] = [];

  constructor(runner: ConformanceRunner, harness: StoreHarness<S>) {
    this.#runner = runner;
    this.#harness = harness;
    this.#keeper = new BenchKeeper(harness);
    this.#gaps = new Map(Object.entries(harness.gaps ?? {}));
  }

  /** A group of which no test is registered is left out: some runners take an empty one for a mistake. */
  group(title: string, body: () => void): void {
    this.#registered = [];
    body();
    const tests = this.#registered;
    if (tests.length === 0) return;
    this.#runner.describe(title, () => {
      for (const { title, run } of tests) this.#runner.it(title, run);
    });
  }

  /** A test of the group. One that needs something the harness does not offer is not registered, and is printed by name at the end. */
  test(title: string, body: (bench: Bench) => Promise<void>, needs: readonly Need[] = []): void {
    const missing = needs.filter((need) => !this.#offers(need));
    const gap = this.#gaps.get(title);
    this.#gaps.delete(title);
    if (missing.length > 0) {
      this.notRun.push({ title, why: `the harness offers no ${missing.map(where).join(", no ")}` });
      return;
    }
    const run = async (): Promise<void> => {
      const bench = await this.#keeper.bench((why) => this.notRun.push({ title, why }));
      try {
        await body(bench);
      } finally {
        await bench.heal();
      }
    };
    this.#registered.push(
      gap === undefined ? { title, run } : { title: `${title} (known gap: ${gap})`, run: () => mustFail(title, run) },
    );
  }

  /** Called when every test is registered. */
  finish(): void {
    const [unknownGap] = this.#gaps.keys();
    if (unknownGap !== undefined)
      throw new Error(`the harness names a gap that is no test: ${JSON.stringify(unknownGap)}`);
    const end = async (): Promise<void> => {
      for (const { title, why } of this.notRun) {
        const line = `not run: "${title}": ${why}`;
        if (this.#runner.print === undefined) console.log(line);
        else this.#runner.print(line);
      }
      await this.#keeper.close();
    };
    if (this.#runner.after === undefined) this.#runner.it("ends: what was opened can be closed", end);
    else this.#runner.after(end);
  }

  /** Called before the first test, so that a harness that cannot open fails there and not in each test. */
  begin(): void {
    this.#runner.before?.(async () => {
      await this.#keeper.bench(() => undefined);
    });
  }

  #offers(need: Need): boolean {
    switch (need) {
      case "second":
        return this.#harness.openSecond !== undefined;
      case "requests":
        return this.#harness.requests !== undefined;
      case "landsLate":
        return this.#harness.faults?.offers.includes(need) === true && this.#harness.faults.land !== undefined;
      case "lostRequest":
      case "lostReply":
      case "contended":
      case "hangs":
      case "denied":
      case "away":
        return this.#harness.faults?.offers.includes(need) === true;
    }
  }
}

function where(need: Need): string {
  if (need === "second") return "openSecond()";
  return need === "requests" ? "requests()" : `fault "${need}"`;
}

async function mustFail(title: string, run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch {
    return;
  }
  throw new Error(`"${title}" passes: take it out of the harness's gaps`);
}
