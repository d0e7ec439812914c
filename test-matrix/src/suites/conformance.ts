import { storeConformance } from "@firstwrite/conformance";

import type { MatrixSuite } from "../suites.ts";

/** The contract that every store must keep, as `@firstwrite/core` states it at `ConditionalStore`. */
export const conformance: MatrixSuite = {
  name: "conformance",
  register({ row, open, openSecond }) {
    storeConformance(
      { describe, it, before, after },
      { open, ...(openSecond && { openSecond }), gaps: row.gaps ?? {} },
    );
  },
};
