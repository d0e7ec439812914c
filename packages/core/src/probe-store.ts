/**
 * Finds out by trying whether a store can be used: whether its service honours conditions, one at a time and in a race.
 * Some services ignore them, and some decide them one way for two writers at once; both answer every write with success
 * (https://github.com/seaweedfs/seaweedfs/issues/8800, https://github.com/fsouza/fake-gcs-server/issues/994).
 */

import { Backoff } from "./backoff.ts";
import type { ConditionalStore, RemoveOutcome, Version } from "./conditional-store.ts";
import { InvalidArgumentError } from "./errors.ts";
import { nodeRuntime, uuidV4, type Runtime } from "./runtime.ts";
import { settleWrite, type SettledWrite } from "./settled-write.ts";
import { SingleFlight } from "./single-flight.ts";
import { StoreError } from "./store-error.ts";
import { StoreSession, type TimedRead } from "./store-session.ts";

export interface ProbeOptions {
  /** How many races of creators, and as many of replacers; at least 8, the default. */
  readonly rounds?: number | undefined;
  /** How many write at once in a race; at least 2. Default 16. */
  readonly racers?: number | undefined;
  /** The most the probe takes, in milliseconds; under an hour. Default 60,000. */
  readonly deadlineMs?: number | undefined;
  readonly runtime?: Runtime | undefined;
}

/** One thing that was tried. */
export interface ProbeFinding {
  readonly check: ProbeCheck;
  readonly ok: boolean;
  /** What was found, in a sentence for people. */
  readonly sentence: string;
}

export type ProbeCheck =
  | "create"
  | "create existing"
  | "replace"
  | "replace stale"
  | "replace missing"
  | "rewrite at once"
  | "race of creators"
  | "race of replacers"
  | "times"
  /** A read was answered with what was never written, or with nothing a version can be made of. */
  | "reads"
  | "remove";

/** What {@link probeStore} found. */
export interface ProbeReport {
  /** Whether the store can be used. `remove` alone does not count: a store without it can. */
  readonly usable: boolean;
  /** Whether records can be removed on condition. */
  readonly removes: boolean;
  readonly findings: readonly ProbeFinding[];
}

const ROUNDS_MIN = 8;

/**
 * Tries a store, on names of its own below `firstwrite-probe/` that it removes again where the service honours that. With
 * the defaults it sends about 600 small requests, more where writes are contended.
 *
 * @throws {InvalidArgumentError} for too few rounds or racers.
 * @throws {StoreError} when the store cannot be reached, or denies access: then nothing was found out.
 */
export async function probeStore(store: ConditionalStore, options: ProbeOptions = {}): Promise<ProbeReport> {
  const { rounds = ROUNDS_MIN, racers = 16, deadlineMs = 60_000, runtime = nodeRuntime } = options;
  if (!Number.isSafeInteger(rounds) || rounds < ROUNDS_MIN) {
    throw new InvalidArgumentError(`rounds is ${String(rounds)}: give at least ${ROUNDS_MIN}; fewer can miss a race`);
  }
  if (!Number.isSafeInteger(racers) || racers < 2) {
    throw new InvalidArgumentError(`racers is ${String(racers)}: give at least 2`);
  }
  const flight = new SingleFlight<ProbeReport>(runtime, store.traits.name);
  const { result } = await flight.run("probe", { deadlineMs }, (life) =>
    new Probe(new StoreSession(store, { life, runtime, requestTimeoutMs: 10_000 })).run(rounds, racers),
  );
  return result;
}

/**
 * A start-up guard.
 *
 * @throws {StoreError} `UNSUPPORTED` with a sentence for everything that is wrong; and as {@link probeStore}.
 */
export async function verifyStore(store: ConditionalStore, options: ProbeOptions = {}): Promise<void> {
  const { usable, findings } = await probeStore(store, options);
  if (usable) return;
  const wrong = findings.filter(({ check, ok }) => !ok && check !== "remove").map(({ sentence }) => sentence);
  throw new StoreError("UNSUPPORTED", store.traits.name, `this service cannot be used: ${wrong.join("; ")}`);
}

type Settled = SettledWrite<string>;

class Probe {
  readonly #session: StoreSession;
  readonly #folder: string;
  readonly #findings: ProbeFinding[] = [];
  readonly #names = new Set<string>();

  constructor(session: StoreSession) {
    this.#session = session;
    this.#folder = `firstwrite-probe/${uuidV4(session.runtime)}`;
  }

  async run(rounds: number, racers: number): Promise<ProbeReport> {
    try {
      if (await this.#conditions()) {
        await this.#race("race of creators", rounds, racers);
        await this.#race("race of replacers", rounds, racers);
      }
    } catch (error) {
      // A service that mixes two bodies up while it is raced has been found out, not failed to answer.
      if (!StoreError.is(error) || (error.code !== "CORRUPT" && error.code !== "UNSUPPORTED")) throw error;
      this.#note("reads", false, `a record could not be used: ${error.message}`);
    }
    const usable = this.#findings.every(({ ok }) => ok);
    const removes = usable && (await this.#remove());
    if (removes) await this.#cleanUp();
    return { usable, removes, findings: this.#findings };
  }

  /** One condition at a time. False as soon as one is not honoured: a race would say no more. */
  async #conditions(): Promise<boolean> {
    const name = this.#name("conditions");
    const first = await this.#write(name, undefined);
    const created = first.kind === "mine";
    this.#note("create", created, created ? "a new record is created" : "a new record was not created");
    if (!created) return false;
    this.#times(await this.#session.read(name));

    const again = await this.#write(name, undefined);
    const kept = again.kind === "other";
    this.#note(
      "create existing",
      kept,
      kept ? "a create of an existing record is refused" : "a create overwrote a record",
    );
    if (!kept) return false;

    const second = await this.#write(name, first.version);
    const replaced = second.kind === "mine";
    this.#note(
      "replace",
      replaced,
      replaced
        ? "a replace at the record's version is done"
        : "a replace at the very version of the record is refused: look for an option of the adapter that changes how " +
            "versions are sent, such as unquotedIfMatch of S3Store",
    );
    if (!replaced) return false;

    const stale = await this.#write(name, first.version);
    const refused = stale.kind === "other";
    this.#note(
      "replace stale",
      refused,
      refused ? "a replace at an old version is refused" : "a replace at an old version overwrote a record",
    );
    if (!refused) return false;

    const missing = this.#name("missing");
    const nothing = await this.#write(missing, second.version);
    const absent = nothing.kind === "absent" && (await this.#session.read(missing)) === undefined;
    this.#note(
      "replace missing",
      absent,
      absent ? "a replace of a missing record is refused" : "a replace made a record that was not there",
    );
    return absent && (await this.#rewriteAtOnce(name, second.version));
  }

  /** Bodies of one size, in one tick of the service's clock: a version made of size and time would not change. */
  async #rewriteAtOnce(name: string, at: Version): Promise<boolean> {
    const versions = [at];
    for (let write = 0; write < 4; write += 1) {
      const settled = await this.#write(name, versions.at(-1));
      if (settled.kind !== "mine") break;
      versions.push(settled.version);
    }
    const distinct = versions.length === 5 && new Set(versions).size === 5;
    const back = distinct ? await this.#write(name, versions[1]) : undefined;
    const ok = distinct && back?.kind === "other";
    this.#note(
      "rewrite at once",
      ok,
      ok
        ? "bodies of one size, written at once, have versions of their own"
        : "bodies of one size, written at once, share a version",
    );
    return ok;
  }

  #times(record: TimedRead | undefined): void {
    const granularityMs = this.#session.store.traits.clockGranularityMs;
    const ageMs = record === undefined ? Number.NaN : record.readAt - record.modifiedAt;
    // A minute is far more than any service's skew, and far less than a wrong unit or a wrong clock.
    const ok = ageMs >= -granularityMs && ageMs <= 60_000;
    this.#note(
      "times",
      ok,
      ok ? "the times of a read fit each other" : `a record just written is ${ageMs} ms old by the service's times`,
    );
  }

  /** Everyone writes at once, on one condition that holds for one of them. */
  async #race(check: "race of creators" | "race of replacers", rounds: number, racers: number): Promise<void> {
    for (let round = 1; round <= rounds; round += 1) {
      const name = this.#name(`${check.replaceAll(" ", "-")}-${round}`);
      let at: Version | undefined;
      if (check === "race of replacers") {
        const base = await this.#write(name, undefined);
        if (base.kind === "mine") at = base.version;
      }
      const settled = await Promise.all(Array.from({ length: racers }, () => this.#write(name, at)));
      const winners = settled.filter(({ kind }) => kind === "mine").length;
      if (winners === 1) continue;
      this.#note(check, false, `of ${racers} writers at once, on one condition, ${winners} were told that they won`);
      return;
    }
    this.#note(
      check,
      true,
      `${rounds} races of ${racers} ${check === "race of creators" ? "creators" : "replacers"} had one winner each`,
    );
  }

  async #remove(): Promise<boolean> {
    const honoured = await removeHonoured(this.#session, this.#name("remove"));
    this.#note("remove", honoured === true, removeSentence(honoured));
    return honoured === true;
  }

  async #cleanUp(): Promise<void> {
    for (const name of this.#names) {
      const record = await this.#session.read(name);
      if (record !== undefined) await this.#session.remove(name, record.version);
    }
  }

  #write(name: string, expected: Version | undefined): Promise<Settled> {
    return writeNonce(this.#session, name, expected);
  }

  #name(what: string): string {
    const name = `${this.#folder}/${what}.json`;
    this.#names.add(name);
    return name;
  }

  #note(check: ProbeCheck, ok: boolean, sentence: string): void {
    this.#findings.push({ check, ok, sentence });
  }
}

/**
 * Whether the service deletes on condition: true, false for one that ignores the condition, `undefined` where it has no
 * conditional delete. Leaves no record of `name` behind where it can.
 */
export async function removeHonoured(session: StoreSession, name: string): Promise<boolean | undefined> {
  if (session.store.remove === undefined) return undefined;
  const first = await writeNonce(session, name, undefined);
  const second = first.kind === "mine" ? await writeNonce(session, name, first.version) : first;
  if (first.kind !== "mine" || second.kind !== "mine") return false;
  try {
    const stale = await removeUntilDecided(session, name, first.version);
    if (stale.kind === "removed" || (await session.read(name)) === undefined) return false;
    const right = await removeUntilDecided(session, name, second.version);
    return right.kind !== "refused" && (await session.read(name)) === undefined;
  } catch (error) {
    if (StoreError.is(error) && error.code === "UNSUPPORTED") return undefined;
    throw error;
  }
}

async function removeUntilDecided(session: StoreSession, name: string, at: Version): Promise<RemoveOutcome> {
  const backoff = new Backoff(session.runtime);
  for (;;) {
    const outcome = await session.remove(name, at);
    if (outcome.kind !== "contended") return outcome;
    await session.pause(backoff);
  }
}

function removeSentence(honoured: boolean | undefined): string {
  if (honoured === true) return "a remove at an old version is refused, and one at the record's version is done";
  if (honoured === false)
    return "a remove at an old version deleted the record, so records cannot be removed on condition";
  return "the service has no conditional delete, so records cannot be removed on condition";
}

/** A write that recognises itself by a body that nobody else writes; all of one size. */
function writeNonce(session: StoreSession, name: string, expected: Version | undefined): Promise<Settled> {
  const nonce = uuidV4(session.runtime);
  return settleWrite(session, {
    name,
    expected,
    bytes: new TextEncoder().encode(JSON.stringify({ probe: nonce })),
    inspect(stored) {
      const seen = new TextDecoder().decode(stored.bytes);
      return { ours: seen.includes(nonce), seen };
    },
  });
}
