/** What the broker and a producer say to each other. */

/** To a producer: deliver this webhook (by its place in `webhooks`). */
export interface Delivery {
  readonly delivery: number;
  readonly webhook: number;
}

/** From a producer: what became of a delivery. */
export interface Answer {
  readonly delivery: number;
  readonly outcome: "created" | "recovered" | "found" | "conflict" | "failed";
  /** Not of a conflict or a failure. */
  readonly taskId?: string;
  /** Requests to the store since this producer's last answer. */
  readonly requests: number;
  readonly error?: string;
}

export function isDelivery(message: unknown): message is Delivery {
  return typeof message === "object" && message !== null && "delivery" in message && "webhook" in message;
}

export function isAnswer(message: unknown): message is Answer {
  return typeof message === "object" && message !== null && "delivery" in message && "outcome" in message;
}
