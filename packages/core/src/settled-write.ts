import type { Version } from "./conditional-store.ts";
import { Backoff } from "./backoff.ts";
import { publish } from "./events.ts";
import { isFinal, type ConditionalWrite, type StoreSession, type TimedRead } from "./store-session.ts";

/** A write, and how its writer tells its own record from another's. */
export interface RecognisableWrite<Seen> extends ConditionalWrite {
  /** Decodes what a read found. `ours`: it is what this write wrote. Errors it throws end the write. */
  readonly inspect: (stored: TimedRead) => { readonly ours: boolean; readonly seen: Seen };
}

/** How a write ended, after everything that can be found out was. */
export type SettledWrite<Seen> =
  | Mine<Seen>
  /** Another record is there; ours is not the record now. */
  | { readonly kind: "other"; readonly seen: Seen; readonly stored: TimedRead }
  /** There is no record, and none of ours is under way. */
  | { readonly kind: "absent" };

/** Our record is the record. */
export interface Mine<Seen> {
  readonly kind: "mine";
  readonly version: Version;
  /** When it was written, by the store's clock, in epoch milliseconds. */
  readonly at: number;
  /** What a read found; `undefined` where the store's answer to the write said so itself. */
  readonly seen: Seen | undefined;
  /** At most this old by the store's clock… */
  readonly ageMs: number;
  /** … at this time by the writer's monotonic clock. */
  readonly asOfMs: number;
}

/**
 * Sends a conditional write until it is known whose the record is (rules U1 to U4). The same bytes are sent each time,
 * so that whichever copy lands is ours.
 *
 * @throws {StoreError} that no retry can mend. After an unknown outcome the write may have been done all the same.
 * @throws {SessionEnded} when the session ends first: the bytes may be stored now, later or never.
 */
export async function settleWrite<Seen>(
  session: StoreSession,
  write: RecognisableWrite<Seen>,
): Promise<SettledWrite<Seen>> {
  const backoff = new Backoff(session.runtime);
  // Once an answer was lost a copy may be under way, whatever later copies are told (U3).
  let underWay = false;

  for (;;) {
    const sentAtMs = session.runtime.monotonicMs();
    const outcome = await send(session, write);
    switch (outcome.kind) {
      case "written":
        if (underWay) resolved(session, true);
        return { kind: "mine", version: outcome.version, at: outcome.at, seen: undefined, ageMs: 0, asOfMs: sentAtMs };
      case "notSent":
        await session.pause(backoff);
        if (!underWay) continue;
        break;
      case "contended":
        // Reading before the next write leaves a rate-limited object's writes to whoever owns it.
        await session.pause(backoff);
        break;
      case "unknown":
        underWay = true;
        break;
      case "refused":
        break;
    }

    const found = await look(session, write);
    if (found.kind === "mine") {
      if (underWay) resolved(session, true);
      return found;
    }
    // Not proof while a copy may be under way: the same bytes again (U3). A missing record ends a replace, which can no
    // longer land.
    const undecided = found.kind === "unchanged" || (found.kind === "absent" && write.expected === undefined);
    if (undecided && (underWay || outcome.kind !== "refused")) {
      if (outcome.kind === "unknown" || outcome.kind === "refused") await session.pause(backoff);
      continue;
    }
    if (underWay) resolved(session, false);
    return found.kind === "unchanged" ? { ...found, kind: "other" } : found;
  }
}

async function send(
  session: StoreSession,
  write: ConditionalWrite,
): Promise<Awaited<ReturnType<StoreSession["write"]>> | { readonly kind: "notSent" }> {
  try {
    return await session.write(write);
  } catch (error) {
    session.throwIfEnded();
    if (isFinal(error)) throw error;
    return { kind: "notSent" };
  }
}

/** What is there now. `unchanged`: a replace found the record it expected. */
async function look<Seen>(
  session: StoreSession,
  { name, expected, inspect }: RecognisableWrite<Seen>,
): Promise<SettledWrite<Seen> | { readonly kind: "unchanged"; readonly seen: Seen; readonly stored: TimedRead }> {
  const stored = await session.read(name);
  if (stored === undefined) return { kind: "absent" };
  const { ours, seen } = inspect(stored);
  if (ours) {
    return {
      kind: "mine",
      version: stored.version,
      at: stored.modifiedAt,
      seen,
      ageMs: stored.readAt - stored.modifiedAt,
      asOfMs: stored.sentAtMs,
    };
  }
  return { kind: stored.version === expected ? "unchanged" : "other", seen, stored };
}

function resolved(session: StoreSession, mine: boolean): void {
  publish("firstwrite:unknown-resolved", () => ({ store: session.store.traits.name, mine }));
}
