import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createInterface } from "node:readline";

import { InvalidArgumentError } from "@firstwrite/core";

/** One line of a batch file. */
export interface BatchLine {
  /** Counted from 1. */
  readonly number: number;
  readonly type: string;
  readonly input: unknown;
  readonly key: string;
  readonly scope: string | undefined;
  readonly ttlDays: number | undefined;
}

const FIELDS = new Set(["type", "input", "key", "scope", "ttl_days"]);
const FAULTS_SHOWN = 10;

/**
 * The lines of a JSON-lines file, one at a time; blank ones are passed over. Each is
 * `{"type": …, "input": …, "key": …}`, with `"scope"` and `"ttl_days"` where wanted. The key is not optional: a file
 * that is run again would otherwise make its tasks again.
 *
 * @throws {InvalidArgumentError} at the first line that is not so.
 */
export async function* readBatch(path: string): AsyncGenerator<BatchLine, void, void> {
  let number = 0;
  for await (const line of createInterface({ input: createReadStream(path, "utf8"), crlfDelay: Infinity })) {
    number += 1;
    if (line.trim() !== "") yield parseLine(line, number);
  }
}

/**
 * How many lines the file has, each of them good; `check` throws for one whose parts cannot be submitted.
 *
 * @throws {InvalidArgumentError} naming the first lines that are not, or for what is no file: it is read twice.
 */
export async function checkBatch(path: string, check: (line: BatchLine) => void): Promise<number> {
  const kind = await stat(path);
  if (!kind.isFile() && !kind.isDirectory()) {
    throw new InvalidArgumentError(
      `${path} is a pipe or a device, which can be read only once: save it to a file first`,
    );
  }
  const faults: string[] = [];
  let number = 0;
  let good = 0;
  for await (const line of createInterface({ input: createReadStream(path, "utf8"), crlfDelay: Infinity })) {
    number += 1;
    if (line.trim() === "") continue;
    try {
      check(parseLine(line, number));
      good += 1;
    } catch (error) {
      if (!InvalidArgumentError.is(error)) throw error;
      faults.push(error.message.startsWith("line ") ? error.message : `line ${number}: ${error.message}`);
    }
  }
  if (faults.length === 0) return good;
  const more = faults.length > FAULTS_SHOWN ? `\n… and ${faults.length - FAULTS_SHOWN} more` : "";
  throw new InvalidArgumentError(`nothing was sent:\n${faults.slice(0, FAULTS_SHOWN).join("\n")}${more}`);
}

function parseLine(line: string, number: number): BatchLine {
  const refuse = (why: string): InvalidArgumentError => new InvalidArgumentError(`line ${number} ${why}`);
  let json: unknown;
  try {
    json = JSON.parse(line);
  } catch {
    throw refuse("is not JSON");
  }
  if (typeof json !== "object" || json === null || Array.isArray(json)) throw refuse("is not a JSON object");
  const strange = Object.keys(json).find((name) => !FIELDS.has(name));
  if (strange !== undefined)
    throw refuse(`has a field ${JSON.stringify(strange)}; known are ${[...FIELDS].join(", ")}`);
  const field = (name: string): unknown => Object.entries(json).find(([own]) => own === name)?.[1];
  const [type, input, key, scope, ttlDays] = [...FIELDS].map(field);
  if (typeof type !== "string") throw refuse('has no "type"');
  if (input === undefined) throw refuse('has no "input"');
  if (typeof key !== "string") throw refuse('has no "key": without one a second run would make the task again');
  if (scope !== undefined && typeof scope !== "string") throw refuse('has a "scope" that is not a string');
  if (ttlDays !== undefined && typeof ttlDays !== "number") throw refuse('has a "ttl_days" that is not a number');
  return { number, type, input, key, scope, ttlDays };
}
