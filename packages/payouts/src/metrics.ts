/** What the service counts, in the text format of Prometheus. Nothing in it names a merchant, a key or an amount. */

import { parts, spent, type Part, type Times } from "./request-times.ts";

/** What a look at all of store and ledger found; it costs a read for each record, so that it is not done for each scrape. */
export interface Sweep {
  readonly unresolved: number;
  readonly oldestUnresolvedMs: number;
  readonly paymentsPerOperation: ReadonlyMap<number, number>;
  readonly ledgerFaults: number;
}

export class Metrics {
  readonly #requests = new Map<string, number>();
  readonly #partMs = new Map<Part, number>(parts.map((part) => [part, 0]));
  #timed = 0;
  #sweep: Sweep | undefined;
  #suppressed = 0;
  #mismatches = 0;
  #takenOver = 0;
  #notRecorded = 0;

  /** @param route the template, never the path */
  request(method: string, route: string, status: number): void {
    const labels = `method="${method}",route="${route}",status="${status}"`;
    this.#requests.set(labels, (this.#requests.get(labels) ?? 0) + 1);
  }

  /** Of one `POST /v1/payouts`. */
  time(totalMs: number, times: Times): void {
    this.#timed += 1;
    for (const part of parts) {
      const ms = part === "own" ? Math.max(0, totalMs - spent(times)) : times[part];
      this.#partMs.set(part, (this.#partMs.get(part) ?? 0) + ms);
    }
  }

  /** A request got the answer of an earlier one. */
  duplicateSuppressed(): void {
    this.#suppressed += 1;
  }

  /** A key came with another request than its first. */
  mismatch(): void {
    this.#mismatches += 1;
  }

  /** An attempt whose process was gone was taken over. */
  takenOver(): void {
    this.#takenOver += 1;
  }

  /** A payout was decided, and its record could not be settled in time. */
  notRecorded(): void {
    this.#notRecorded += 1;
  }

  swept(sweep: Sweep): void {
    this.#sweep = sweep;
  }

  text(): string {
    const lines: string[] = [];
    const family = (name: string, type: string, help: string, samples: readonly string[]): void => {
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...samples);
    };
    const counter = (name: string, help: string, value: number): void =>
      family(name, "counter", help, [`${name} ${value}`]);

    family(
      "payouts_http_requests_total",
      "counter",
      "Requests by route and status.",
      [...this.#requests].map(([labels, count]) => `payouts_http_requests_total{${labels}} ${count}`),
    );
    counter(
      "payouts_duplicates_suppressed_total",
      "Requests answered with the outcome of an earlier one.",
      this.#suppressed,
    );
    counter("payouts_mismatches_total", "Keys that came again with another request.", this.#mismatches);
    counter(
      "payouts_taken_over_total",
      "Operations whose process was gone, and that another one took over.",
      this.#takenOver,
    );
    counter("payouts_not_recorded_total", "Decisions whose record could not be settled in time.", this.#notRecorded);
    family(
      "payouts_request_part_seconds",
      "summary",
      "Where the time of a POST /v1/payouts went.",
      parts.flatMap((part) => [
        `payouts_request_part_seconds_sum{part="${part}"} ${seconds(this.#partMs.get(part) ?? 0)}`,
        `payouts_request_part_seconds_count{part="${part}"} ${this.#timed}`,
      ]),
    );
    if (this.#sweep !== undefined) this.#sweepFamilies(this.#sweep, family);
    return `${lines.join("\n")}\n`;
  }

  #sweepFamilies(
    { unresolved, oldestUnresolvedMs, paymentsPerOperation, ledgerFaults }: Sweep,
    family: (name: string, type: string, help: string, samples: readonly string[]) => void,
  ): void {
    const gauge = (name: string, help: string, value: number): void =>
      family(name, "gauge", help, [`${name} ${value}`]);
    gauge("payouts_unresolved", "Operations that are in progress, or held for a person.", unresolved);
    gauge("payouts_unresolved_oldest_seconds", "The age of the oldest of them.", seconds(oldestUnresolvedMs));
    gauge("payouts_ledger_faults", "What an audit of the ledger found wrong.", ledgerFaults);
    const counts = [...paymentsPerOperation];
    const upTo = (most: number): number =>
      counts.reduce((sum, [payments, operations]) => (payments <= most ? sum + operations : sum), 0);
    family(
      "payouts_per_operation",
      "histogram",
      "Payments of each operation that was paid. Anything but 1 is a fault.",
      [
        `payouts_per_operation_bucket{le="0"} ${upTo(0)}`,
        `payouts_per_operation_bucket{le="1"} ${upTo(1)}`,
        `payouts_per_operation_bucket{le="+Inf"} ${upTo(Infinity)}`,
        `payouts_per_operation_sum ${counts.reduce((sum, [payments, operations]) => sum + payments * operations, 0)}`,
        `payouts_per_operation_count ${upTo(Infinity)}`,
      ],
    );
  }
}

function seconds(ms: number): number {
  return ms / 1_000;
}
