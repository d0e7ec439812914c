import type { ConditionalStore } from "@firstwrite/core";

import { mustRead, mustRefuse, mustWrite } from "../answers.ts";
import { newBody, type Bench } from "../bench.ts";
import type { Suite } from "../suite.ts";

/** Names that a URL, a header, a file system or a database could take for one another are records of their own. */
export function nameRules<S extends ConditionalStore>(suite: Suite<S>): void {
  suite.group("a name is its own record", () => {
    for (const [title, tails] of alike) {
      suite.test(`names that differ ${title}`, async (bench) => {
        // A folder of its own, so that no two tests share a name even where a store mixes the tails.
        const folder = bench.name("/");
        await eachItsOwn(
          bench,
          tails.map((tail) => `${folder}${tail}`),
        );
      });
    }

    suite.test("names that differ only in a folder", async (bench) => {
      const folder = bench.name();
      await eachItsOwn(bench, [
        `${folder}/a/record`,
        `${folder}/A/record`,
        `${folder}/a./record`,
        `${folder}/a b/record`,
      ]);
    });

    suite.test("names as long as the store takes", async (bench) => {
      const name = longName(bench, bench.store.traits.nameBytesMax);
      await eachItsOwn(bench, [`${name.slice(0, -1)}x`, `${name.slice(0, -1)}y`]);
    });

    suite.test("names as long as the store takes, counted in bytes of UTF-8", async (bench) => {
      const { nameBytesMax } = bench.store.traits;
      const plain = longName(bench, nameBytesMax - 4);
      await eachItsOwn(bench, [`${plain}\u{1f984}`, `${plain}\u{1f985}`]);
    });
  });
}

/** Creates all, then reads all, then replaces each: a name that is another's shows as refused, or as another's body. */
async function eachItsOwn(bench: Bench, names: readonly string[]): Promise<void> {
  const { store, second } = bench;
  const records = await Promise.all(
    names.map(async (name) => {
      const bytes = newBody();
      const { version } = await mustWrite(bench, { store, name, bytes });
      return { name, bytes, version };
    }),
  );
  for (const { name, bytes } of records) await mustRead(store, name, bytes);
  for (const record of records) {
    await mustRefuse(bench, { store: second, name: record.name, bytes: newBody() }, record.bytes);
    const next = newBody();
    await mustWrite(bench, { store, name: record.name, expected: record.version, bytes: next });
    record.bytes = next;
    for (const { name, bytes } of records) await mustRead(second, name, bytes);
  }
}

const alike: readonly (readonly [string, readonly string[]])[] = [
  ["by case", ["record", "Record", "RECORD"]],
  ["by case outside ASCII", ["é", "É", "ß", "ẞ", "ı", "i"]],
  ["by a trailing dot", ["record", "record.", "record.."]],
  ["by a leading dot", ["record", ".record", "..record"]],
  ["by percent-encoding", ["A", "%41", "%2541"]],
  ["by an encoded slash", ["a%2Fb", "a%2fb", "a/b"]],
  ["by an encoded dot", ["%2E%2E", "%2e%2e", "%2E"]],
  ["by a percent sign that encodes nothing", ["%", "%%", "%zz", "%2"]],
  ["by a plus sign and a space", ["a+b", "a b", "a%20b", "a%2Bb"]],
  ["by spaces at their ends", ["a", "a ", " a", "a  "]],
  ["after a question mark", ["a", "a?", "a?b", "a?versionId=null"]],
  ["after a hash", ["a", "a#", "a#b"]],
  ["after an ampersand or an equals sign", ["a", "a&b", "a=b", "a&b=c", "a&amp;b"]],
  ["by a colon, a semicolon or a comma", ["a", "a:b", "a;b", "a,b", "a:"]],
  ["by quotes", ['a"b', "a'b", "a`b", "ab", 'a""b', "a''b"]],
  ["by a backslash, a pipe, brackets or a star", ["a\\b", "a|b", "a<b>", "a[b]", "a{b}", "a*b", "a~b", "a^b"]],
  ["by an at sign, a dollar sign or an exclamation mark", ["a@b", "a$b", "a!b", "a(b)", "$(a)"]],
  ["by Unicode normalisation", ["caf\u00e9", "cafe\u0301"]],
  ["by compatibility normalisation", ["ﬁ", "fi", "①", "1"]],
  ["by an emoji, a joiner or a variation selector", ["\u{1f468}\u200d\u{1f469}", "\u{1f468}\u{1f469}", "☎", "☎\ufe0f"]],
  ["by a letter that looks alike", ["a", "а"]],
  ["by an ending", ["a", "aa", "a.json", "a.jso", "a-", "a_"]],
  ["by leading zeros", ["1", "01", "001", "1.0", "1e0"]],
  ["by a word that means something elsewhere", ["__proto__", "constructor", "null", "undefined", "NUL", "con"]],
];

/** A name of exactly that many bytes, in segments that a file system takes too. */
function longName(bench: Bench, bytes: number): string {
  const start = bench.name("/");
  if (start.length + 2 > bytes) throw new Error(`nameBytesMax is ${bytes}: too short for any name of this suite`);
  let name = start;
  while (name.length < bytes) {
    const left = bytes - name.length;
    // A slash that would be the last character is a letter.
    name += left > 200 ? `${"n".repeat(left === 201 ? 198 : 199)}/` : "n".repeat(left);
  }
  return name;
}
