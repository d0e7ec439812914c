export { idempotentHandler, type IdempotentHandler } from "./fetch.ts";
export { idempotencyOf, type IdempotencyContext } from "./context.ts";
export { idempotencyScope, type HttpRecovery, type IdempotentOptions } from "./options.ts";
export type { KeyOptions } from "./key.ts";
export type { AnswerFacts, Fate, RecordPolicy } from "./policy.ts";
export type { Field, FingerprintOption, RequestBody } from "./request-body.ts";
export { recordedResponse, type RecordedResponse } from "./recorded-response.ts";
export { UnrecordableAnswerError } from "./answer.ts";
