/**
 * Preloaded by `node --import`: while a module of the engine is loaded, one line of it becomes the mutant's, so that the
 * shipped code has no switches. `FIRSTWRITE_MUTANT` names the mutant.
 */

import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";

import { mutants, sourceOf } from "./mutants.ts";

const mutant = mutants.find(({ name }) => name === process.env["FIRSTWRITE_MUTANT"]);
if (mutant === undefined) throw new Error(`no mutant is called ${process.env["FIRSTWRITE_MUTANT"]}`);
const path = fileURLToPath(sourceOf(mutant));

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    if (!url.startsWith("file:") || fileURLToPath(new URL(url)) !== path) return loaded;
    const source = readFileSync(path, "utf8");
    if (source.split(mutant.line).length !== 2) throw new Error(`the mutant ${mutant.name} does not fit its file`);
    return { ...loaded, source: source.replace(mutant.line, () => mutant.becomes) };
  },
});
