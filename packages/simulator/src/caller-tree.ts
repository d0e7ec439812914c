/**
 * What one caller's code does, as a tree: each edge is something it was told, each node the state that this leaves it in.
 *
 * The code is deterministic in what it is told, so a node stands for its state in every schedule in which it was told the
 * same, and its behaviour has to be run once, however many schedules share it. An exploration of millions of states runs
 * the code some thousands of times. To grow an edge a live process is told what is new; where the node's process has gone
 * on elsewhere, another is told all that led to the node, and must do all the same.
 */

import { isDeepStrictEqual } from "node:util";

import { CallerProcess, type Action, type Step, type Told, type Waits } from "./caller-process.ts";
import type { Interners } from "./interner.ts";
import { textOf, type Request } from "./request.ts";
import type { Scenario } from "./scenario.ts";

export interface CallerNode<Result, Model> {
  /** Of no other node of any caller. */
  readonly id: number;
  readonly waits: Waits<Model>;
  /** The last it was told, if that was the answer to a question; and what it does since is but to ask again. */
  readonly poll: Poll<Result, Model> | undefined;
  readonly origin: { readonly parent: CallerNode<Result, Model>; readonly told: Told } | undefined;
  readonly edges: Map<string, Edge<Result, Model>>;
}

export interface Edge<Result, Model> {
  readonly node: CallerNode<Result, Model>;
  readonly actions: readonly Action<Result, Model>[];
}

/**
 * A caller that polls asks, sleeps, and asks the same again. With jitter zero it can do so without end while time stands
 * still, so the same answer, after nothing but the wake from that sleep, leads back to where it was after the first: if
 * the code then waits for the same. Code that counts what it asked, and does another thing only after a third time, would
 * be misjudged.
 */
interface Poll<Result, Model> {
  readonly request: number;
  readonly answer: string;
  readonly at: number;
  /** Where it slept until it asked again; `undefined`: in this very node, or it has not. */
  readonly start: CallerNode<Result, Model> | undefined;
  /** It has slept since, for no time at all. */
  readonly woken: boolean;
}

/** Live processes are kept for so many nodes, the latest; to tell one anew all that it was told costs a little time. */
const LIVE_MAX = 2_000;

export class CallerTree<Result, Model> {
  readonly root: CallerNode<Result, Model>;
  readonly #newProcess: () => CallerProcess<Result, Model>;
  readonly #interners: Interners;
  readonly #live = new Map<CallerNode<Result, Model>, CallerProcess<Result, Model>>();

  constructor(scenario: Scenario<Result, Model>, index: number, startAt: number, interners: Interners) {
    this.#newProcess = () => new CallerProcess(scenario, index, startAt, interners);
    this.#interners = interners;
    this.root = {
      id: interners.nextNode(),
      waits: { store: undefined, service: undefined, timers: [] },
      poll: undefined,
      origin: undefined,
      edges: new Map(),
    };
  }

  /** What the code does in `node` when it is told `told`. */
  async tell(node: CallerNode<Result, Model>, told: Told): Promise<Edge<Result, Model>> {
    const key = keyOf(told);
    const known = node.edges.get(key);
    if (known !== undefined) return known;
    const process = this.#live.get(node) ?? (await this.#resume(node));
    this.#live.delete(node);
    const step = await process.tell(told);
    const edge = this.#edge(node, told, step);
    node.edges.set(key, edge);
    // A process that was led back to an earlier node has been told more than what leads there: it is not kept.
    if (edge.node.origin?.parent === node) this.#keep(edge.node, process);
    return edge;
  }

  #edge(parent: CallerNode<Result, Model>, told: Told, step: Step<Result, Model>): Edge<Result, Model> {
    const asked = told.kind === "answer" ? parent.waits[told.channel] : undefined;
    if (told.kind === "answer" && asked !== undefined && repeats(parent, asked, textOf(told.answer), told.at)) {
      const start = parent.poll?.start;
      if (start !== undefined && step.actions.length === 0 && sameWaits(step.waits, start.waits)) {
        return { node: start, actions: [] };
      }
    }
    const node: CallerNode<Result, Model> = {
      id: this.#interners.nextNode(),
      waits: step.waits,
      poll: pollAfter(parent, told, step, asked),
      origin: { parent, told },
      edges: new Map(),
    };
    return { node, actions: step.actions };
  }

  /** @throws {Error} when the code does something else than it did when it was told the same before. */
  async #resume(node: CallerNode<Result, Model>): Promise<CallerProcess<Result, Model>> {
    const way: CallerNode<Result, Model>[] = [];
    for (let at = node; at.origin !== undefined; at = at.origin.parent) way.push(at);
    const process = this.#newProcess();
    for (const { origin, waits } of way.toReversed()) {
      if (origin === undefined) continue;
      const step = await process.tell(origin.told);
      if (!sameWaits(step.waits, waits)) {
        throw new Error(
          `told the same again (${keyOf(origin.told)}), the code did something else: it may depend on nothing but its store, service and runtime`,
        );
      }
    }
    return process;
  }

  #keep(node: CallerNode<Result, Model>, process: CallerProcess<Result, Model>): void {
    this.#live.set(node, process);
    if (this.#live.size <= LIVE_MAX) return;
    for (const oldest of this.#live.keys()) {
      this.#live.delete(oldest);
      return;
    }
  }
}

/** Whether `answer` to `asked` is what the caller was told when it last asked that, before a sleep of no time. */
export function repeats<Result, Model>(
  { poll }: CallerNode<Result, Model>,
  asked: Request<Model>,
  answer: string,
  now: number,
): boolean {
  return (
    poll !== undefined &&
    poll.woken &&
    poll.request === asked.id &&
    poll.at === now &&
    asked.sentAt === now &&
    poll.answer === answer
  );
}

function pollAfter<Result, Model>(
  parent: CallerNode<Result, Model>,
  told: Told,
  step: Step<Result, Model>,
  asked: Request<Model> | undefined,
): Poll<Result, Model> | undefined {
  if (told.kind === "answer" && asked?.readOnly === true) {
    return { request: asked.id, answer: textOf(told.answer), at: told.at, start: undefined, woken: false };
  }
  const { poll } = parent;
  if (told.kind !== "wake" || poll === undefined || step.drew || step.actions.length > 0) return undefined;
  return parent.waits.timers[0]?.setAt === told.at ? { ...poll, start: parent, woken: true } : undefined;
}

function sameWaits<Model>(one: Waits<Model>, other: Waits<Model>): boolean {
  return (
    sameRequest(one.store, other.store) &&
    sameRequest(one.service, other.service) &&
    isDeepStrictEqual(one.timers, other.timers)
  );
}

function sameRequest<Model>(one: Request<Model> | undefined, other: Request<Model> | undefined): boolean {
  return one?.id === other?.id && one?.sentAt === other?.sentAt;
}

function keyOf(told: Told): string {
  switch (told.kind) {
    case "begin":
    case "wake":
      return `${told.kind} at ${told.at}`;
    case "clock":
      return `clock ${told.ms}`;
    case "answer":
      return `${told.channel} at ${told.at}: ${textOf(told.answer)}`;
  }
}
