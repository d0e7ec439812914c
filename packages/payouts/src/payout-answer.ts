/** A payout as its client is told of it, for good: the record holds the answer's bytes, and every retry gets those. */

import type { DeclineCode, Payout } from "./ledger/payout-ledger.ts";
import { formatAmount } from "./money.ts";

/** The durable answer, as the idempotency record has it: JSON, which an interface would not be taken for. */
export type PayoutAnswer = {
  readonly payoutId: string;
  readonly state: "paid" | "declined";
  readonly status: 201 | 402;
  readonly contentType: "application/json" | "application/problem+json";
  /** JSON text. As text, because a later version may write it otherwise, and a retry must not see that. */
  readonly body: string;
};

/** Follows from the payout alone: whoever finds it in the ledger gives the same bytes. */
export function answerOf(payout: Payout): PayoutAnswer {
  const { payoutId, decline } = payout;
  if (decline === undefined) {
    const body = JSON.stringify(viewOf(payout));
    return { payoutId, state: "paid", status: 201, contentType: "application/json", body };
  }
  const body = JSON.stringify({
    type: `urn:firstwrite:payouts:${decline}`,
    title: titles[decline],
    status: 402,
    detail: "Nothing was paid, and no retry of this key will pay. A new payout needs a new key.",
    retry: "new_key",
    decline_code: decline,
    payout_id: payoutId,
    operation_id: payout.operationId,
  });
  return { payoutId, state: "declined", status: 402, contentType: "application/problem+json", body };
}

/** What `GET` shows, and `POST` answers. */
export function viewOf(payout: Payout): Readonly<Record<string, string>> {
  const { payoutId, operationId, decline, amountMinor, currency, destination, createdAt } = payout;
  return {
    payout_id: payoutId,
    operation_id: operationId,
    state: decline === undefined ? "paid" : "declined",
    ...(decline !== undefined && { decline_code: decline }),
    amount: formatAmount(amountMinor, currency),
    currency,
    destination,
    created_at: new Date(createdAt).toISOString(),
  };
}

const titles: Readonly<Record<DeclineCode, string>> = {
  insufficient_funds: "The merchant's balance does not cover the payout",
  destination_closed: "The destination is closed",
  destination_unknown: "The destination takes no payouts in this currency",
};

/** A record may hold what a person settled with, too. */
export function isPayoutAnswer(value: unknown): value is PayoutAnswer {
  if (typeof value !== "object" || value === null) return false;
  if (!("payoutId" in value && "state" in value && "status" in value && "contentType" in value && "body" in value)) {
    return false;
  }
  const isPaid = value.state === "paid" && value.status === 201 && value.contentType === "application/json";
  const isDeclined =
    value.state === "declined" && value.status === 402 && value.contentType === "application/problem+json";
  return typeof value.payoutId === "string" && typeof value.body === "string" && (isPaid || isDeclined);
}
