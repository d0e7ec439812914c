import type { ConditionalStore } from "@firstwrite/core";

import type { ConformanceRunner, NotRun, StoreHarness } from "./harness.ts";
import { argumentRules } from "./rules/arguments.ts";
import { byteRules } from "./rules/bytes.ts";
import { closingRules } from "./rules/closing.ts";
import { faultRules } from "./rules/faults.ts";
import { freshnessRules } from "./rules/freshness.ts";
import { historyRules } from "./rules/histories.ts";
import { listingRules } from "./rules/listing.ts";
import { removingRules } from "./rules/removing.ts";
import { nameRules } from "./rules/names.ts";
import { raceRules } from "./rules/races.ts";
import { requestRules } from "./rules/requests.ts";
import { signalRules } from "./rules/signals.ts";
import { timeRules } from "./rules/times.ts";
import { writeRules } from "./rules/writes.ts";
import { Suite } from "./suite.ts";

/**
 * Registers the tests that every `ConditionalStore` must pass, with the runner's own `describe` and `it`.
 *
 * What a store can do is taken from its `traits` and its optional methods, never from flags; what a harness cannot
 * offer leaves tests out, and those are printed by name when the suite ends, and are in what is returned.
 */
export function storeConformance<S extends ConditionalStore>(
  runner: ConformanceRunner,
  harness: StoreHarness<S>,
): readonly NotRun[] {
  const suite = new Suite(runner, harness);
  suite.begin();
  writeRules(suite);
  byteRules(suite);
  nameRules(suite);
  argumentRules(suite);
  signalRules(suite);
  timeRules(suite);
  freshnessRules(suite);
  listingRules(suite);
  removingRules(suite);
  closingRules(suite);
  requestRules(suite);
  faultRules(suite);
  raceRules(suite);
  historyRules(suite);
  suite.finish();
  return suite.notRun;
}
