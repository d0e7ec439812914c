/** The operation: at most one payout per merchant and key. */

import {
  days,
  defineOperation,
  InvalidArgumentError,
  type EffectContext,
  type ErrorMeaning,
  type OperationDefinition,
  type Reconciled,
  type RecordedFailure,
  type Retention,
} from "@firstwrite/core";

import {
  KeySpentError,
  type AtPoint,
  type LedgerCall,
  type Payout,
  type PayoutLedger,
  type PayoutOrder,
  type RecordWrite,
} from "./ledger/payout-ledger.ts";
import { answerOf, type PayoutAnswer } from "./payout-answer.ts";
import type { PayoutRequest } from "./payout-request.ts";

/** A request, and whose it is. */
export interface PayoutInput extends PayoutRequest {
  readonly merchantId: string;
  /** Of the idempotency key, as the record has it: the ledger is unique on it, too. */
  readonly keyHash: string;
}

/** The numbers of the deployment that say how long a key has to be remembered, in milliseconds. */
export interface Deployment {
  /** The longest after its first sending that a client still retries. */
  readonly clientRetryMs: number;
  /** The longest a queue in between can hold a copy back. */
  readonly brokerDelayMs: number;
  /** How long an auditor must find the record. */
  readonly auditMs: number;
  /** How long the record is kept. By default as long as the rest asks for. */
  readonly ttlMs?: number;
  /** How long a process that says nothing is taken to be alive, and a retry after a crash told to wait. Default 5,000. */
  readonly leaseMs?: number;
}

export const defaultDeployment: Deployment = { clientRetryMs: days(7), brokerDelayMs: days(1), auditMs: days(90) };

/**
 * What a key is remembered for. `defineOperation` refuses a `ttlMs` that is too short for the rest.
 *
 * @throws {InvalidArgumentError}
 */
function retentionOf({ clientRetryMs, brokerDelayMs, auditMs, ttlMs }: Deployment): Required<Retention> {
  if (!(Number.isSafeInteger(clientRetryMs) && clientRetryMs > 0)) {
    throw new InvalidArgumentError(
      `clientRetryMs is ${String(clientRetryMs)}: give the whole milliseconds for which clients retry; a key older than that, ` +
        "and what brokers add, is refused",
    );
  }
  const needed = Math.max(clientRetryMs + brokerDelayMs, auditMs) + days(1);
  return { retryWindowMs: clientRetryMs, brokerDelayMs, auditMs, ttlMs: ttlMs ?? needed };
}

const NAME = "payout.create";
const LEASE_MS = 5_000;

/**
 * For whoever is about to open a store and a ledger: nothing is opened for numbers that {@link defineCreatePayout} refuses.
 *
 * @throws {InvalidArgumentError} for numbers that contradict each other, saying what to write.
 */
export function checkDeployment(deployment: Deployment): void {
  defineOperation({ name: NAME, run: () => {}, recovery: "hold", ...policyOf(deployment) });
}

function policyOf(deployment: Deployment): { readonly retention: Required<Retention>; readonly leaseMs: number } {
  return { retention: retentionOf(deployment), leaseMs: deployment.leaseMs ?? LEASE_MS };
}

export interface CreatePayoutOptions {
  readonly ledger: PayoutLedger;
  readonly deployment?: Deployment;
  /** Epoch milliseconds: the time a payout is dated by. */
  readonly now?: () => number;
  readonly atPoint?: AtPoint;
}

export type CreatePayout = OperationDefinition<PayoutInput, PayoutAnswer>;

/** @throws {InvalidArgumentError} for numbers that contradict each other, saying what to write. */
export function defineCreatePayout(options: CreatePayoutOptions): CreatePayout {
  const { ledger, deployment = defaultDeployment, now = Date.now, atPoint = () => {} } = options;
  return defineOperation<PayoutInput, PayoutAnswer>({
    name: NAME,
    fingerprint: ({ amountMinor, currency, destination }) => [amountMinor, currency, destination],
    ...policyOf(deployment),
    // A key may be an order number, or a person's name.
    storeKey: false,
    // Nothing that a dead process sent can do harm: the ledger is unique on the operation, and fenced by the attempt.
    recoverAfterMs: 0,
    async run(input, context) {
      atPoint("claimed");
      const order = orderOf(input, context, now());
      if (ledger.commitAndSettle === undefined) return answerOf(await ledger.commit(order, callOf(context)));
      const { name, expected, encode } = await context.settlingWrite();
      const settle = (payout: Payout): RecordWrite => ({ name, expected, bytes: encode(answerOf(payout)) });
      return answerOf(await ledger.commitAndSettle(order, callOf(context), settle));
    },
    recovery: {
      absentIsFinal: true,
      async reconcile(_input, context): Promise<Reconciled<PayoutAnswer>> {
        const payout = await ledger.shutOut(context.operationId, context.attempt, callOf(context));
        return payout === undefined ? "absent" : { found: answerOf(payout) };
      },
    },
    onError: meaningOf,
    serializeError: (error) => (KeySpentError.is(error) ? { earlierOperationId: error.earlierOperationId } : {}),
    deserializeError: errorOf,
  });
}

function orderOf(input: PayoutInput, { operationId, attempt }: EffectContext, createdAt: number): PayoutOrder {
  return { ...input, operationId, attempt, createdAt };
}

function callOf({ signal, remainingMs }: EffectContext): LedgerCall {
  // A run may go on after its callers have gone; it is not given up then, for it would only be begun again.
  return { signal, remainingMs: Math.max(remainingMs, LEDGER_MS_MIN) };
}

const LEDGER_MS_MIN = 1_000;

/** Declines are no errors: they are in the ledger, as payouts are. A ledger that is away leaves it open what happened. */
function meaningOf(error: unknown): ErrorMeaning {
  return KeySpentError.is(error) ? "replay" : "recover";
}

function errorOf({ message, details }: RecordedFailure): unknown {
  const earlier = details?.["earlierOperationId"];
  return typeof earlier === "string" ? new KeySpentError(earlier) : new Error(message);
}
