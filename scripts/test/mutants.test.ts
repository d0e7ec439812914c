import assert from "node:assert/strict";

import { countLines, mutants } from "../mutants/mutants.ts";

describe("the mutants of pnpm test:mutants", () => {
  it("each change one line that is there, and each have a name of their own", () => {
    const unfit = mutants.filter((mutant) => countLines(mutant) !== 1 || mutant.line === mutant.becomes);
    assert.deepEqual(
      unfit.map(({ name, line }) => `${name}: ${line}`),
      [],
    );
    assert.equal(new Set(mutants.map(({ name }) => name)).size, mutants.length);
  });
});
