import assert from "node:assert/strict";

import { rowId } from "../src/row.ts";
import { rows, selectRows } from "../src/rows.ts";

describe("the rows", () => {
  it("have ids of their own", () => {
    assert.equal(new Set(rows.map(rowId)).size, rows.length);
  });

  it("are all run when none is asked for", () => {
    assert.equal(selectRows(undefined), rows);
    assert.equal(selectRows(""), rows);
  });

  it("can be asked for by id", () => {
    const asked = selectRows("moto, versitygw-two-gateways");
    assert.deepEqual(
      asked.map((row) => row.name),
      ["moto", "versitygw, two gateways"],
    );
  });

  it("do not take an unknown name in silence", () => {
    assert.throws(() => selectRows("memory,mota"), /no row is called "mota": there are memory, sqlite, versitygw,/);
  });
});
