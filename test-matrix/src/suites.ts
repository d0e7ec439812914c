/** What is run on every row. */

import type { ConditionalStore } from "@firstwrite/core";

import type { Provisioned, Row } from "./row.ts";
import { conformance } from "./suites/conformance.ts";
import { storm } from "./suites/storm.ts";
import { tasks } from "./suites/tasks.ts";
import { conformanceThroughProxy, tasksThroughProxy } from "./suites/through-proxy.ts";
import { url } from "./suites/url.ts";
import { webhooks } from "./suites/webhooks.ts";

/** A row as a suite gets it, before it is provisioned: what opens works once the suite's tests run. */
export interface RowHarness {
  readonly row: Row;
  readonly open: () => Promise<ConditionalStore>;
  /** Only where the row has a second client. */
  readonly openSecond?: () => Promise<ConditionalStore>;
  /** What was provisioned, once tests run. */
  readonly place: () => Provisioned;
}

export interface MatrixSuite {
  /** The column of the table, and the title of its tests' `describe`. */
  readonly name: string;
  /** Registers its tests with mocha's globals. */
  register(harness: RowHarness): void;
}

export const suites: readonly MatrixSuite[] = [
  conformance,
  tasks,
  conformanceThroughProxy,
  tasksThroughProxy,
  url,
  webhooks,
  storm,
];
