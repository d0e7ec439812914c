import { checkFunction, checkObject } from "./check-argument.ts";
import { InvalidArgumentError } from "./errors.ts";
import { fingerprintOf } from "./fingerprint.ts";
import type { ExecuteRequest, Idempotency } from "./idempotency.ts";
import { defineOperation, type OperationOptions, type RunContext } from "./operation.ts";

/** What {@link idempotent} takes beside the function: an operation's policy, and where its keys come from. */
export interface IdempotentOptions<Input, Value> extends Omit<OperationOptions<Input, Value>, "run"> {
  readonly idempotency: Pick<Idempotency, "execute">;
  /** Whose keys they are. Default: the operation's name. */
  readonly scope?: string | ((input: Input) => string);
  /** The key, of the input. By default the hash of its fingerprint: the same input is the same operation. */
  readonly key?: (input: Input) => string;
}

/**
 * A plain function that runs at most once per key, and returns the same value to every call of it.
 *
 * The key comes from the call's second argument, from `key`, or else from the input itself. Everything else is as
 * `Idempotency.execute`, whose errors it throws.
 *
 * @throws {InvalidArgumentError} as `defineOperation`.
 */
export function idempotent<Input, Value>(
  run: (input: Input, context: RunContext) => Value | PromiseLike<Value>,
  options: IdempotentOptions<Input, Value>,
): (input: Input, request?: Partial<ExecuteRequest>) => Promise<Value> {
  checkObject(options, "what idempotent takes beside the function");
  const { idempotency, scope = options.name, key, ...policy } = options;
  if (typeof idempotency?.execute !== "function") {
    throw new InvalidArgumentError("idempotency must be an Idempotency: new Idempotency({ store })");
  }
  if (key !== undefined) checkFunction(key, "key, where it is given,");
  const operation = defineOperation<Input, Value>({ ...policy, run });
  return async (input, request = {}) => {
    const { value } = await idempotency.execute(
      operation,
      {
        ...request,
        scope: request.scope ?? (typeof scope === "function" ? scope(input) : scope),
        key: request.key ?? (key === undefined ? fingerprintOf(operation.fingerprint(input)) : key(input)),
      },
      input,
    );
    return value;
  };
}
