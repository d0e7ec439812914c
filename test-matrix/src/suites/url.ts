import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { openStore } from "@firstwrite/stores";

import type { MatrixSuite } from "../suites.ts";

/** That a URL, all that a program's configuration has, leads to the same records as the store made by hand. */
export const url: MatrixSuite = {
  name: "url",
  register({ row, open, place }) {
    if (!row.second) return;

    it("opens the same records", async () => {
      const { url, env = {} } = place();
      assert.ok(url !== undefined);
      const name = `url/${randomUUID()}`;
      const byHand = await open();
      const written = await byHand.create(name, new TextEncoder().encode("{}"));

      const before = Object.keys(env).map((variable) => [variable, process.env[variable]] as const);
      Object.assign(process.env, env);
      try {
        const byUrl = await openStore(url);
        const found = await byUrl.read(name);
        assert.ok(written.kind === "written" && found !== undefined);
        assert.equal(found.version, written.version);
        await byUrl.close?.();
      } finally {
        for (const [variable, value] of before) {
          if (value === undefined) delete process.env[variable];
          else process.env[variable] = value;
        }
        await byHand.close?.();
      }
    });
  },
};
