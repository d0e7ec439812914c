import { brokenAnswers } from "./answers.ts";
import { brokenArguments } from "./arguments.ts";
import type { BrokenStore } from "./broken-store.ts";
import { brokenConditions } from "./conditions.ts";
import { brokenContents } from "./contents.ts";
import { brokenListings } from "./listings.ts";
import { brokenRemovals } from "./removals.ts";
import { brokenNames } from "./names.ts";
import { brokenReads } from "./reads.ts";
import { brokenTimes } from "./times.ts";

export { type BrokenStore, type FullStore, soundClient } from "./broken-store.ts";
export { memoryHarness } from "./harness.ts";
export { lossyStore, oddStores, type OddStore } from "./odd.ts";

/** Stores that are each wrong in one way, for the proof that a suite would notice. */
export const brokenStores: readonly BrokenStore[] = [
  ...brokenConditions,
  ...brokenAnswers,
  ...brokenContents,
  ...brokenNames,
  ...brokenArguments,
  ...brokenReads,
  ...brokenTimes,
  ...brokenListings,
  ...brokenRemovals,
];
