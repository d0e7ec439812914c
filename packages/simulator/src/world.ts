/**
 * The world a schedule is played in: one store, one service that has effects, one time, and a few callers, each of whose
 * requests waits until the schedule says what becomes of it. It is data, of which a copy is made for each choice; what
 * the callers' code does is looked up in their trees.
 *
 * Time stands still but for the schedule's jumps, and passes by itself (`pass`) when nobody has anything to do but wait.
 * A sleeping caller wakes when the schedule says so: jitter is zero, so that no backoff hides an order of events. A
 * request is in flight for a bounded time; what has not arrived by then never does, which is what the protocol assumes of
 * a network (rules P9, T5, and E3 for the effect).
 */

import { toVersion, type Version, type WriteOutcome } from "@firstwrite/core";

import type { Action, Told } from "./caller-process.ts";
import { CallerTree, repeats, type CallerNode } from "./caller-tree.ts";
import { bytesText, Interners } from "./interner.ts";
import {
  channels,
  textOf,
  type Answer,
  type Channel,
  type Content,
  type Request,
  type ServiceRequest,
  type StoreRequest,
} from "./request.ts";
import type { Checks, Ending, Fault, ModelRecord, Scenario, SharedDatabase, World } from "./scenario.ts";

const START_AT: number = Date.UTC(2026, 0, 1);
const HOUR_MS = 3_600_000;

/** What all worlds of one exploration share. */
export class Setting<Result, Model> {
  readonly scenario: Scenario<Result, Model>;
  readonly interners: Interners = new Interners();
  /** One more for the retry at the end. */
  readonly trees: readonly CallerTree<Result, Model>[];
  readonly trace: ((line: string) => void) | undefined;

  constructor(scenario: Scenario<Result, Model>, trace?: (line: string) => void) {
    this.scenario = scenario;
    this.trace = trace;
    this.trees = Array.from(
      { length: scenario.callers + 1 },
      (_, index) => new CallerTree(scenario, index, START_AT, this.interners),
    );
  }
}

/** A check failed, or the code did what cannot be played. */
export class Broken extends Error {
  constructor(cause: unknown) {
    super("a rule was broken", { cause });
  }
}

interface Caller<Result, Model> {
  /** What its code has been told, and does. */
  readonly node: CallerNode<Result, Model>;
  /** What its requests were answered, where the answer is under way. */
  readonly held: { readonly [Each in Channel]?: Answer | undefined };
  readonly begun: boolean;
  readonly crashed: boolean;
  /** How its call ended, and in words. */
  readonly ended: { readonly ending: Ending<Result>; readonly text: string } | undefined;
  /** How many of its next requests the store is away for. */
  readonly away: number;
}

interface StoredContent extends ModelRecord, Content {}

export class PlayedWorld<Result, Model> implements World<Model> {
  readonly #setting: Setting<Result, Model>;
  readonly #checks: Checks<Result, Model>;
  readonly #records: Map<string, StoredContent>;
  readonly #callers: Caller<Result, Model>[];
  #late: readonly Request<Model>[] = [];
  #now = START_AT;
  #event = "";
  /** As text, and as data once somebody has asked for it. */
  #modelText: string | undefined;
  #model: { readonly value: Model } | undefined;

  constructor(setting: Setting<Result, Model>, from?: PlayedWorld<Result, Model>) {
    this.#setting = setting;
    this.#checks = setting.scenario.checks;
    if (from !== undefined) {
      this.#records = new Map(from.#records);
      this.#callers = from.#callers.slice();
      this.#late = from.#late;
      this.#now = from.#now;
      this.#modelText = from.#freezeModel();
      return;
    }
    const { records = [], model } = setting.scenario;
    this.#records = new Map(
      records.map(({ name, bytes, ageMs }) => [name, { ...this.#content(bytes), modifiedAt: START_AT - ageMs }]),
    );
    this.#callers = setting.trees.map(({ root }) => ({
      node: root,
      held: {},
      begun: false,
      crashed: false,
      ended: undefined,
      away: 0,
    }));
    this.#modelText = model && JSON.stringify(model());
  }

  copy(): PlayedWorld<Result, Model> {
    return new PlayedWorld(this.#setting, this);
  }

  get now(): number {
    return this.#now;
  }

  get records(): ReadonlyMap<string, ModelRecord> {
    return this.#records;
  }

  get model(): Model {
    if (this.#model === undefined) {
      if (this.#modelText === undefined) throw new Error("the scenario has no model");
      this.#model = { value: JSON.parse(this.#modelText) };
    }
    return this.#model.value;
  }

  isCrashed(index: number): boolean {
    return this.#caller(index).crashed;
  }

  hasEnded(index: number): boolean {
    return this.#caller(index).ended !== undefined;
  }

  /** How the call of caller `index` ended. @throws {Error} when it has not. */
  endingOf(index: number): Ending<Result> {
    const { ended } = this.#caller(index);
    if (ended === undefined) throw new Error(`the call of caller ${index} goes on`);
    return ended.ending;
  }

  hasBegun(index: number): boolean {
    return this.#caller(index).begun;
  }

  /** Whether anything can still happen to caller `index`. */
  isLive(index: number): boolean {
    const caller = this.#caller(index);
    return !caller.crashed && (caller.ended === undefined || !isQuiet(caller));
  }

  /**
   * What can happen next to caller `index`, without a fault. Nothing, where all it can do is to ask once more what it
   * knows: the same answer would put it back to where it is.
   */
  moves(index: number): string[] {
    const caller = this.#caller(index);
    if (caller.crashed) return [];
    if (!caller.begun) return [`begin ${index}`];
    const moves: string[] = [];
    for (const channel of channels) {
      const pending = caller.node.waits[channel];
      if (pending === undefined) continue;
      if (caller.held[channel] !== undefined) moves.push(eventOf("reply", index, channel));
      else if (this.#tooLate(pending)) moves.push(eventOf("expire", index, channel));
      else if (channel === "store" && caller.away > 0) moves.push(eventOf("reject", index, channel));
      else if (!this.#isPoll(caller, pending)) moves.push(eventOf("apply", index, channel));
    }
    if (isDue(caller, this.#now)) moves.push(`wake ${index}`);
    return moves;
  }

  /** Whether time can pass: somebody waits for a time to come, or asks again and again. */
  mayPass(): boolean {
    return this.#nextTimerAt() !== undefined || this.#polls().length > 0;
  }

  #polls(): { readonly index: number; readonly pending: Request<Model> }[] {
    return this.#callers.flatMap((caller, index) =>
      channels.flatMap((channel) => {
        const pending = caller.crashed ? undefined : caller.node.waits[channel];
        return pending !== undefined && this.#isPoll(caller, pending) ? [{ index, pending }] : [];
      }),
    );
  }

  /** When the next timer is due that is not due yet, in epoch milliseconds; `undefined`: there is none. */
  #nextTimerAt(): number | undefined {
    let next: number | undefined;
    for (const { node, crashed } of this.#callers) {
      if (crashed) continue;
      const at = node.waits.timers.find((timer) => timer.at > this.#now)?.at;
      if (at !== undefined && (next === undefined || at < next)) next = at;
    }
    return next;
  }

  /** Which of the scenario's faults can happen to what caller `index` has sent. */
  faults(index: number): string[] {
    const caller = this.#caller(index);
    if (caller.crashed) return [];
    const { faults, service } = this.#setting.scenario;
    const events: string[] = [];
    for (const channel of channels) {
      const pending = caller.node.waits[channel];
      if (pending === undefined || caller.held[channel] !== undefined) continue;
      const offered = channel === "service" ? (service?.faults ?? faults) : faults;
      for (const fault of offered) {
        if (this.#canHave(pending, fault, offered)) events.push(eventOf(fault, index, channel));
      }
    }
    return events;
  }

  /** Writes in flight that no caller waits for. */
  landings(): string[] {
    return this.#late.map((_, index) => `land ${index}`);
  }

  /** Records that a lifecycle rule may remove now. */
  removals(): string[] {
    const { removedAfterMs = Infinity } = this.#setting.scenario;
    return Array.from(this.#records.values()).flatMap(({ modifiedAt }, index) =>
      this.#now - modifiedAt > removedAfterMs ? [`remove ${index}`] : [],
    );
  }

  /** Plays one event of a schedule. @throws {Broken} @throws {Error} for one that cannot happen now. */
  async play(event: string): Promise<void> {
    this.#event = event;
    const [what = "", of = "", more = ""] = event.split(" ");
    const index = Number(of);
    switch (what) {
      case "jump":
        this.#passTo(this.#now + index);
        return;
      case "pass":
        await this.#pass();
        return;
      case "land": {
        const request = this.#late[index];
        if (request === undefined) throw new Error(`nothing to land: ${event}`);
        this.#late = this.#late.toSpliced(index, 1);
        this.#show(request, this.#apply(request));
        return;
      }
      case "remove": {
        const name = Array.from(this.#records.keys())[index];
        if (name === undefined) throw new Error(`nothing to remove: ${event}`);
        this.#records.delete(name);
        this.#trace(`${name} is removed`);
        return;
      }
      case "begin":
        this.#trace(`caller ${index} begins`);
        this.#change(index, { begun: true });
        await this.#tell(index, { kind: "begin", at: this.#now });
        return;
      case "wake":
        if (!isDue(this.#caller(index), this.#now)) throw new Error(`nobody to wake: ${event}`);
        this.#trace(`caller ${index}: a timer fires`);
        await this.#tell(index, { kind: "wake", at: this.#now });
        return;
      case "clock":
        this.#trace(`caller ${index}: its wall clock is set by ${more} ms`);
        await this.#tell(index, { kind: "clock", ms: Number(more) });
        return;
      default:
        await this.#playRequest(what, index, more === "service" ? "service" : "store");
    }
  }

  /** Equal for two worlds that cannot be told apart from here on. */
  fingerprint(): string {
    const { contents } = this.#setting.interners;
    const parts = [`${this.#now - START_AT}`];
    const records: string[] = [];
    for (const [name, { id, modifiedAt }] of this.#records) {
      records.push(`${contents.id(name)}:${id}@${modifiedAt - START_AT}`);
    }
    parts.push(records.length > 1 ? records.toSorted().join(" ") : (records[0] ?? ""));
    if (this.#late.length > 0) {
      const late = this.#late.map(({ id, caller, sentAt }) => `${id}.${caller}@${sentAt - START_AT}`);
      parts.push(`late ${late.toSorted().join(" ")}`);
    }
    for (const caller of this.#callers) parts.push(this.#fingerprintOf(caller));
    const model = this.#freezeModel();
    if (model !== undefined) parts.push(`m${contents.id(model)}`);
    return parts.join(";");
  }

  #fingerprintOf(caller: Caller<Result, Model>): string {
    const { node, held, crashed, ended, away } = caller;
    if (crashed) return "x";
    const { contents } = this.#setting.interners;
    // A call that is over, with nothing of it left, can do nothing any more, whatever it was told.
    if (ended !== undefined && isQuiet(caller)) return `e${contents.id(ended.text)}`;
    let text = `${node.id}`;
    for (const channel of channels) {
      const answer = held[channel];
      if (answer !== undefined) text += `${channel === "store" ? "h" : "s"}${contents.id(textOf(answer))}`;
    }
    return away === 0 ? text : `${text}a${away}`;
  }

  /** Everybody waits: whoever polls asks a last time and sleeps, and the next timer is due. */
  async #pass(): Promise<void> {
    for (const { index, pending } of this.#polls()) {
      const { start } = this.#caller(index).node.poll ?? {};
      await this.#answer(index, pending, this.#apply(pending));
      // It did not ask for nothing: it goes on after so many of the same answers, and there is something to do.
      if (this.#caller(index).node !== start) return;
    }
    const next = this.#nextTimerAt();
    if (next === undefined) throw new Broken(new Error("a call asks for the same again and again, and never ends"));
    this.#passTo(next);
  }

  async #playRequest(what: string, index: number, channel: Channel): Promise<void> {
    const { node, held, away } = this.#caller(index);
    const request = node.waits[channel];
    if (request === undefined) throw new Error(`nothing was sent: ${this.#event}`);
    const lost = unanswered(request);
    const reply = held[channel];
    if ((what === "reply") !== (reply !== undefined)) throw new Error(`a reply is held, or none: ${this.#event}`);
    switch (what) {
      case "reply":
        await this.#answer(index, request, reply ?? lost);
        return;
      case "apply":
        await this.#answer(index, request, this.#apply(request));
        return;
      case "reject":
      case "away":
        this.#change(index, { away: what === "away" ? (this.#setting.scenario.awayFor ?? 1) - 1 : away - 1 });
        await this.#answer(index, request, { kind: "unavailable", why: "the store is away" });
        return;
      case "expire":
      case "lostRequest":
        await this.#answer(index, request, lost);
        return;
      case "lostReply":
        this.#apply(request);
        await this.#answer(index, request, lost);
        return;
      case "landsLate":
        this.#late = [...this.#late, request];
        await this.#answer(index, request, lost);
        return;
      case "repeatedLater": {
        const answer = this.#apply(request);
        this.#late = [...this.#late, request];
        await this.#answer(index, request, answer);
        return;
      }
      case "heldReply": {
        const answer = this.#apply(request);
        this.#change(index, { held: { ...held, [channel]: answer } });
        this.#show(request, answer, "under way");
        return;
      }
      case "contended":
        await this.#answer(index, request, { kind: "outcome", outcome: { kind: "contended" } });
        return;
      case "declined": {
        const label = request.channel === "service" ? request.label : "";
        const error = this.#setting.scenario.service?.decline?.(label) ?? new Error("declined");
        await this.#answer(index, request, { kind: "error", error });
        return;
      }
      case "crashAfter":
      case "crashBefore":
        if (what === "crashAfter") this.#apply(request);
        if (this.#setting.trace !== undefined)
          this.#trace(`caller ${index}: ${this.#labelOf(request)} → its process ends`);
        for (const other of channels) if (other !== channel) this.#abandon(index, node.waits[other]);
        this.#change(index, { crashed: true, held: {} });
        return;
      default:
        throw new Error(`no such event: ${this.#event}`);
    }
  }

  async #answer(index: number, request: Request<Model>, answer: Answer): Promise<void> {
    this.#show(request, answer);
    const { channel } = request;
    await this.#tell(index, { kind: "answer", channel, answer, at: this.#now });
  }

  async #tell(index: number, told: Told): Promise<void> {
    const tree = this.#setting.trees[index];
    const before = this.#caller(index);
    if (tree === undefined) throw new Error(`there is no caller ${index}`);
    const { node, actions } = await tree.tell(before.node, told);
    for (const action of actions) this.#act(index, action);
    const held = { ...this.#caller(index).held };
    for (const channel of channels) {
      // Not the same object, maybe, where another process was told all that the first was.
      if (node.waits[channel]?.nth !== before.node.waits[channel]?.nth) held[channel] = undefined;
    }
    this.#change(index, { node, held });
  }

  #act(index: number, action: Action<Result, Model>): void {
    switch (action.kind) {
      case "abandons":
        this.#abandon(index, action.request);
        return;
      case "misuses":
        throw new Broken(new Error(action.why));
      case "reports":
        this.#check(() => this.#checks.onReported?.(action.report, index, this));
        return;
      case "ends":
        this.#change(index, { ended: action });
        this.#setting.trace?.(`${" ".repeat(22)} caller ${index} ${action.text}`);
        this.#check(() => this.#checks.onEnded?.(action.ending, index, this));
        return;
    }
  }

  /** Runs a check. @throws {Broken} when it throws. */
  #check(check: () => void): void {
    try {
      check();
    } catch (error) {
      throw new Broken(error);
    }
  }

  #apply(request: Request<Model>): Answer {
    try {
      return this.#applyAndCheck(request);
    } catch (error) {
      this.#trace(`caller ${request.caller}: ${this.#labelOf(request)} → breaks a rule`);
      throw error;
    }
  }

  /** @throws {Broken} when a check fails. */
  #applyAndCheck(request: Request<Model>): Answer {
    if (request.channel === "store") return this.#applyToStore(request);
    const replaced: { name: string; content: Content }[] = [];
    const answer = applyToModel(request, this.model, {
      replace: (name, expected, bytes) => {
        if (replaced.length > 0) throw new Error("one request replaces one record");
        if (!this.#isAt(name, expected)) return false;
        replaced.push({ name, content: this.#content(Uint8Array.from(bytes)) });
        return true;
      },
    });
    if (answer.kind === "value") {
      for (const { name, content } of replaced) this.#put(name, content, request.caller);
    }
    if (!request.readOnly) {
      const { label, caller } = request;
      this.#check(() => this.#checks.onServed?.({ label, caller, event: this.#event }, this));
    }
    return answer;
  }

  #applyToStore(request: StoreRequest): Answer {
    const { operation, name, expected, content, caller } = request;
    const before = this.#records.get(name);
    if (operation === "read" || content === undefined) {
      const record = before && {
        bytes: before.bytes,
        version: versionOf(before),
        modifiedAt: before.modifiedAt,
        readAt: this.#now,
      };
      return { kind: "record", record };
    }
    const holds = operation === "create" ? before === undefined : this.#isAt(name, expected);
    if (!holds) return { kind: "outcome", outcome: { kind: "refused" } };
    const outcome: WriteOutcome = { kind: "written", version: this.#put(name, content, caller), at: this.#now };
    return { kind: "outcome", outcome };
  }

  #isAt(name: string, expected: Version | undefined): boolean {
    const there = this.#records.get(name);
    return there !== undefined && versionOf(there) === expected;
  }

  /** @throws {Broken} when a check fails. */
  #put(name: string, content: Content, caller: number): Version {
    const before = this.#records.get(name);
    const after: StoredContent = { ...content, modifiedAt: this.#now };
    this.#records.set(name, after);
    this.#check(() => this.#checks.onWritten?.({ name, before, after, caller, event: this.#event }, this));
    return versionOf(after);
  }

  /** Whether `pending` asks for what its caller knows. */
  #isPoll({ node, held, away }: Caller<Result, Model>, pending: Request<Model>): boolean {
    if (!pending.readOnly || node.poll === undefined || held[pending.channel] !== undefined || away > 0) return false;
    // A read changes nothing, so that its answer can be had in advance.
    return repeats(node, pending, textOf(this.#apply(pending)), this.#now);
  }

  #canHave(pending: Request<Model>, fault: Fault, offered: readonly Fault[]): boolean {
    if (this.#tooLate(pending)) return fault === "crashBefore";
    switch (fault) {
      case "lostRequest":
      case "heldReply":
      case "crashBefore":
        return true;
      case "away":
        // For a read, one that is lost is the same.
        return (
          pending.channel === "store" &&
          !(pending.readOnly && (this.#setting.scenario.awayFor ?? 1) === 1 && offered.includes("lostRequest"))
        );
      case "contended":
        return pending.channel === "store" && !pending.readOnly;
      case "declined":
        return pending.channel === "service" && !pending.readOnly;
      case "lostReply":
      case "landsLate":
      case "repeatedLater":
      case "crashAfter":
        // A lost read is one fault however it was lost, and a crash after a read is a crash before the next request.
        return !pending.readOnly;
    }
  }

  #tooLate({ channel, readOnly, sentAt }: Request<Model>): boolean {
    const { inFlightMsMax, service } = this.#setting.scenario;
    const mostMs = (channel === "store" ? inFlightMsMax : service?.inFlightMsMax) ?? HOUR_MS;
    return !readOnly && this.#now - sentAt > mostMs;
  }

  #passTo(time: number): void {
    this.#trace(`${time - this.#now} ms pass`);
    this.#now = time;
    this.#late = this.#late.filter((request) => !this.#tooLate(request));
  }

  /** The caller waits for it no longer; what becomes of it does not concern the caller, but it may be under way. */
  #abandon(index: number, request: Request<Model> | undefined): void {
    if (request === undefined || request.readOnly || this.#tooLate(request)) return;
    if (this.#caller(index).held[request.channel] === undefined) this.#late = [...this.#late, request];
  }

  #change(index: number, changed: Partial<Caller<Result, Model>>): void {
    this.#callers[index] = { ...this.#caller(index), ...changed };
  }

  #caller(index: number): Caller<Result, Model> {
    const caller = this.#callers[index];
    if (caller === undefined) throw new Error(`there is no caller ${index}`);
    return caller;
  }

  #content(bytes: Uint8Array): Content {
    return { bytes, id: this.#setting.interners.contents.id(bytesText(bytes)) };
  }

  /** The model as text; whoever changes it from here on changes it after a copy was taken. */
  #freezeModel(): string | undefined {
    if (this.#model !== undefined) {
      this.#modelText = JSON.stringify(this.#model.value);
      this.#model = undefined;
    }
    return this.#modelText;
  }

  #show(request: Request<Model>, answer: Answer, how = ""): void {
    if (this.#setting.trace === undefined) return;
    this.#trace(
      `caller ${request.caller}: ${this.#labelOf(request)} → ${this.#shown(request, answer)}${how && ` (${how})`}`,
    );
  }

  #trace(line: string): void {
    this.#setting.trace?.(`${this.#event.padEnd(22)} ${line}`);
  }

  #labelOf(request: Request<Model>): string {
    if (request.channel === "service") return request.label;
    const { operation, name, expected, content } = request;
    // A hash is not read to its end.
    const place = name.replace(/([0-9a-f]{8})[0-9a-f]{24,}/, "$1…");
    const shown = content && this.#shownBytes(content.bytes);
    return [operation, place, expected && `at ${expected}`, shown].filter((part) => part !== undefined).join(" ");
  }

  #shown({ readOnly }: Request<Model>, answer: Answer): string {
    if (answer.kind === "value") return JSON.stringify(answer.value) ?? (readOnly ? "nothing" : "done");
    if (answer.kind === "unavailable") return answer.why;
    if (answer.kind === "outcome" && answer.outcome.kind === "written") return `written ${answer.outcome.version}`;
    if (answer.kind !== "record" || answer.record === undefined) return textOf(answer);
    const { version, bytes, modifiedAt, readAt } = answer.record;
    return `${version} ${this.#shownBytes(bytes)}, ${readAt - modifiedAt} ms old`;
  }

  #shownBytes(bytes: Uint8Array): string {
    return this.#setting.scenario.show?.(bytes) ?? `${bytes.length} bytes`;
  }
}

function applyToModel<Model>(
  { apply }: Pick<ServiceRequest<Model>, "apply">,
  model: Model,
  database: SharedDatabase,
): Extract<Answer, { kind: "value" | "error" }> {
  try {
    return { kind: "value", value: structuredClone(apply(model, database)) };
  } catch (error) {
    return { kind: "error", error };
  }
}

function unanswered<Model>({ channel, readOnly }: Request<Model>): Answer {
  if (channel === "service") return { kind: "unavailable", why: "no answer" };
  if (readOnly) return { kind: "unavailable", why: "the read was lost" };
  return { kind: "outcome", outcome: { kind: "unknown", cause: undefined } };
}

/** By content, as S3's ETags are: equal bytes bring an old version back (rule P8). */
function versionOf({ id }: Content): Version {
  return toVersion(`v${id}`);
}

function eventOf(what: string, caller: number, channel: Channel): string {
  return channel === "store" ? `${what} ${caller}` : `${what} ${caller} service`;
}

function isDue<Result, Model>({ node }: Caller<Result, Model>, now: number): boolean {
  const [first] = node.waits.timers;
  return first !== undefined && first.at <= now;
}

function isQuiet<Result, Model>({ node }: Caller<Result, Model>): boolean {
  const { store, service, timers } = node.waits;
  return store === undefined && service === undefined && timers.length === 0;
}
