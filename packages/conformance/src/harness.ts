import type { ConditionalStore } from "@firstwrite/core";

/**
 * What the suite needs of a test runner: mocha and `node:test` fit as they are; for vitest give `beforeAll` and
 * `afterAll` as `before` and `after`.
 */
export interface ConformanceRunner {
  describe(title: string, body: () => void): unknown;
  it(title: string, body: () => Promise<void>): unknown;
  before?(body: () => Promise<void>): unknown;
  /** Without it the stores are closed by a last test of the suite, which a filter on titles can leave out. */
  after?(body: () => Promise<void>): unknown;
  /** Where the tests that did not run are named, a line each, when the suite ends. By default `console.log`. */
  print?(line: string): void;
}

/** How the suite gets hold of the store under test, and of what is around it. */
export interface StoreHarness<S extends ConditionalStore = ConditionalStore> {
  /**
   * A store on a place the suite may write to. The place may hold other things: every name the suite uses is new, and
   * begins with `fw-` and a random run ID. What the suite wrote stays there, for the port cannot remove.
   *
   * Called once for nearly all tests, and once more by the test of `close`.
   */
  open(): Promise<S>;

  /**
   * A second client on the same place as `first`, best through another process or endpoint. Given, every race goes
   * across the two; without it caches cannot be seen, and the suite prints the tests that did not run.
   */
  openSecond?(first: S): Promise<ConditionalStore>;

  /** Closes what `open` or `openSecond` gave. By default its own `close`, where it has one. */
  close?(store: ConditionalStore): Promise<void>;

  /**
   * How many requests `store` has sent to its service so far, as counted by the service or a proxy before it. Given,
   * the suite proves P1 and that what is refused in advance sends nothing.
   */
  requests?(store: S): number | Promise<number>;

  /** Faults on the way between the store and its service, where the harness can make them. */
  readonly faults?: HarnessFaults<S>;

  /**
   * Tests (by title) which the *service* behind this harness is known not to pass, with the reason. They are run, shown
   * with their reason, and must fail: a gap that has closed is reported as well.
   */
  readonly gaps?: Readonly<Record<string, string>>;

  /** Replays the random histories of a failed run. By default `FIRSTWRITE_CONFORMANCE_SEED`, else a new one. */
  readonly seed?: number;

  /** How long the suite repeats what a service may put off: a `contended` write, a late listing. By default 15,000. */
  readonly patienceMs?: number;
}

/**
 * - `lostRequest`: the request never reaches the service.
 * - `lostReply`: the service does what it was asked, and its reply never reaches the store.
 * - `landsLate`: a write reaches the service only when {@link HarnessFaults.land} is called; no reply reaches the store.
 * - `contended`: the service answers a write in its own words for "another write is in flight", and does nothing.
 * - `hangs`: the service never answers, and does nothing.
 * - `denied`: the service answers in its own words for "access denied", and does nothing.
 * - `away`: the service cannot be reached, or says that it is unavailable, and does nothing.
 */
export type HarnessFault = "lostRequest" | "lostReply" | "landsLate" | "contended" | "hangs" | "denied" | "away";

export interface HarnessFaults<S extends ConditionalStore = ConditionalStore> {
  /** The tests of every fault that is not here are printed by name as not run. */
  readonly offers: readonly HarnessFault[];
  /** Makes the next request of `store` of that kind fail, and only that one. */
  inject(store: S, fault: HarnessFault, on: "write" | "read"): void | Promise<void>;
  /** Forgets every fault not used up. */
  heal(store: S): void | Promise<void>;
  /** Lets the oldest write held by `landsLate` reach the service, if one is held. Needed where `landsLate` is offered. */
  land?(store: S): void | Promise<void>;
}

/** A test of the suite that did not run, and why. Printed when the suite ends: nothing is left out in silence. */
export interface NotRun {
  readonly title: string;
  readonly why: string;
}
