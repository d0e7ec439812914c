/**
 * An at-least-once stream: each webhook is sent one to four times, in any order, by four producer processes at once. One
 * of them is killed by SIGKILL in mid-stream, and its share is sent again by the others, what it had answered too: a
 * broker that lost the acknowledgements cannot know better.
 */

import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";

import { isAnswer, type Answer, type Delivery } from "./messages.ts";

/** What a stream came to. */
export interface StreamReport {
  /** Deliveries handed to a producer, those that a killed producer never answered included. */
  attempts: number;
  /** Of those, not answered: their producer was killed first. */
  unanswered: number;
  created: number;
  recovered: number;
  found: number;
  conflicts: number;
  failed: number;
  /** Requests to the store that were counted in answers. */
  requests: number;
  /** IDs of the tasks that producers said they had made. */
  readonly made: Set<string>;
  /** Webhooks (by their place in `webhooks`) whose producer was killed before it said whether it had made their task. */
  readonly cutOff: Set<number>;
  readonly errors: string[];
}

const PRODUCERS = 4;
/** Deliveries a producer has in hand at once. */
const WINDOW = 8;
/** The producer to kill, and after what part of its share. */
const VICTIM = 0;
const KILL_AFTER = 0.5;

/** Sends the stream of the first `count` webhooks; `random` gives numbers in [0, 1). `onProgress` is told after each answer. */
export async function sendStream(
  storeUrl: string,
  count: number,
  random: () => number,
  onProgress: (answered: number, expected: number) => void,
): Promise<StreamReport> {
  const shares = deal(count, random);
  const report: StreamReport = {
    attempts: 0,
    unanswered: 0,
    created: 0,
    recovered: 0,
    found: 0,
    conflicts: 0,
    failed: 0,
    requests: 0,
    made: new Set(),
    cutOff: new Set(),
    errors: [],
  };
  const producers = shares.map((share) => new Producer(storeUrl, share, report));
  try {
    await Promise.all(producers.map((producer) => producer.ready()));
    await deliver(producers, shares, onProgress);
  } finally {
    for (const producer of producers) producer.end();
  }
  return report;
}

async function deliver(
  producers: readonly Producer[],
  shares: readonly (readonly Delivery[])[],
  onProgress: (answered: number, expected: number) => void,
): Promise<void> {
  const progress = (): void => {
    const answered = producers.reduce((sum, { answered }) => sum + answered, 0);
    onProgress(answered, answered + producers.reduce((sum, producer) => sum + producer.left, 0));
  };
  const [victim, ...others] = [producers[VICTIM], ...producers.filter((_, index) => index !== VICTIM)];
  if (victim === undefined) throw new Error("there is no producer to kill");

  const killInMidStream = async (): Promise<void> => {
    const share = shares[VICTIM] ?? [];
    await victim.runUntil(Math.floor(share.length * KILL_AFTER), progress);
    await victim.kill();
    // Dealt out to the others, who are still at their own.
    share.forEach((delivery, index) => others[index % others.length]?.add(delivery));
    for (const other of others) other.last();
  };
  await Promise.all([killInMidStream(), ...others.map((producer) => producer.run(progress))]);
}

/** Every webhook one to four times, shuffled, in equal shares. */
function deal(count: number, random: () => number): Delivery[][] {
  const stream = Array.from({ length: count }, (_, webhook) =>
    Array.from({ length: 1 + Math.floor(random() * 4) }, () => webhook),
  ).flat();
  for (let last = stream.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    [stream[last], stream[other]] = [stream[other] ?? 0, stream[last] ?? 0];
  }
  const deliveries = stream.map((webhook, delivery) => ({ delivery, webhook }));
  return Array.from({ length: PRODUCERS }, (_, index) =>
    deliveries.filter(({ delivery }) => delivery % PRODUCERS === index),
  );
}

/** The broker's side of one producer process. */
class Producer {
  readonly #process: ChildProcess;
  readonly #queue: Delivery[];
  readonly #report: StreamReport;
  /** What it was sent and has not answered, by `delivery`. */
  readonly #inHand = new Map<number, Delivery>();
  #isLast = false;
  /** Its end is this broker's doing. */
  #isEnding = false;
  answered = 0;
  #onAnswer: () => void = () => {};
  readonly #failed = Promise.withResolvers<never>();

  constructor(storeUrl: string, share: readonly Delivery[], report: StreamReport) {
    // A forked process gets this one's Node options, and with them the condition by which it finds the sources.
    this.#process = fork(new URL("producer.ts", import.meta.url), [storeUrl], { execArgv: process.execArgv });
    this.#queue = [...share];
    this.#report = report;
    // Whoever waits for this producer hears of it; nobody may be waiting.
    this.#failed.promise.catch(() => {});
    this.#process.on("message", (message) => {
      if (isAnswer(message)) this.#note(message);
    });
    this.#process.on("error", this.#failed.reject);
    this.#process.on("exit", (code, signal) => {
      if (!this.#isEnding)
        this.#failed.reject(new Error(`a producer ended by itself (${String(code ?? signal)}); what it said is above`));
    });
  }

  /** Resolves when it has opened the store. */
  async ready(): Promise<void> {
    await Promise.race([once(this.#process, "message"), this.#failed.promise]);
  }

  /** Ends what is left of it, whatever it is at. */
  end(): void {
    this.#isEnding = true;
    if (this.#process.exitCode === null && this.#process.signalCode === null) this.#process.kill("SIGKILL");
  }

  /** Deliveries not answered yet. */
  get left(): number {
    return this.#queue.length + this.#inHand.size;
  }

  add(delivery: Delivery): void {
    this.#queue.push(delivery);
    this.#send();
  }

  /** Nothing will be added any more. */
  last(): void {
    this.#isLast = true;
    this.#onAnswer();
  }

  /** Sends everything; resolves when all is answered and nothing can be added. */
  async run(progress: () => void): Promise<void> {
    await this.#until(() => this.#isLast && this.left === 0, progress);
    this.#isEnding = true;
    this.#process.disconnect();
    await once(this.#process, "exit");
  }

  /** Sends until `count` deliveries are answered. */
  async runUntil(count: number, progress: () => void): Promise<void> {
    await this.#until(() => this.answered >= count, progress);
  }

  async kill(): Promise<void> {
    // Answers sent before the kill are still to be read after the exit.
    this.#isEnding = true;
    const gone = Promise.all([once(this.#process, "exit"), once(this.#process, "disconnect")]);
    this.#process.kill("SIGKILL");
    await gone;
    this.#report.unanswered += this.#inHand.size;
    for (const { webhook } of this.#inHand.values()) this.#report.cutOff.add(webhook);
    this.#queue.length = 0;
    this.#inHand.clear();
  }

  #until(done: () => boolean, progress: () => void): Promise<void> {
    const reached = new Promise<void>((resolve) => {
      this.#onAnswer = () => {
        progress();
        // Also when done: whoever is killed then has its hands full.
        this.#send();
        if (done()) resolve();
      };
      this.#onAnswer();
    });
    return Promise.race([reached, this.#failed.promise]);
  }

  #send(): void {
    while (this.#inHand.size < WINDOW) {
      const delivery = this.#queue.shift();
      if (delivery === undefined) return;
      this.#inHand.set(delivery.delivery, delivery);
      this.#report.attempts += 1;
      this.#process.send(delivery);
    }
  }

  #note({ delivery, outcome, taskId, requests, error }: Answer): void {
    const report = this.#report;
    this.#inHand.delete(delivery);
    this.answered += 1;
    report.requests += requests;
    if (error !== undefined) report.errors.push(error);
    if (taskId !== undefined && outcome !== "found") report.made.add(taskId);
    if (outcome === "conflict") report.conflicts += 1;
    else report[outcome] += 1;
    this.#onAnswer();
  }
}
