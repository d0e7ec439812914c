export { startPayoutServer, type PayoutServer, type PayoutServerOptions } from "./server.ts";
export {
  defaultDeployment,
  defineCreatePayout,
  type CreatePayout,
  type CreatePayoutOptions,
  type Deployment,
  type PayoutInput,
} from "./create-payout.ts";
export { answerOf, type PayoutAnswer } from "./payout-answer.ts";
export { parsePayoutRequest, type ParsedPayoutRequest, type PayoutRequest } from "./payout-request.ts";
export {
  AMOUNT_MINOR_MAX,
  currencies,
  formatAmount,
  isCurrency,
  parseAmount,
  type Currency,
  type ParsedAmount,
} from "./money.ts";
export { signKeyTime } from "./payout-key.ts";
export { Merchants, parseMerchants, sha256Hex, type Merchant } from "./merchants.ts";
export { reconcile, type Reconciliation, type ReconcileOptions, type ReconcileReport } from "./reconcile.ts";
export { openOneDatabase, type OneDatabase } from "./one-database.ts";
export { openPlaces, type Places } from "./places.ts";
export { openLedger } from "./ledger/open-ledger.ts";
export { SqliteLedger, type SqliteLedgerOptions } from "./ledger/sqlite-ledger.ts";
export {
  FencedError,
  KeySpentError,
  LedgerUnavailableError,
  payoutIdOf,
  type AtPoint,
  type Balance,
  type DeclineCode,
  type LedgerAudit,
  type LedgerCall,
  type LedgerTimer,
  type Payout,
  type PayoutLedger,
  type PayoutOrder,
  type PayoutPoint,
  type RecordWrite,
} from "./ledger/payout-ledger.ts";
export { openApiDocument } from "./openapi.ts";
