/** The real input: the example payloads of GitHub's webhooks. */

import { createRequire } from "node:module";

import type { SubmitOptions } from "@firstwrite/tasks";
import { v5 as uuidV5 } from "uuid";

// The package is one JSON file; its types describe another form of it.
const examples: readonly { readonly name: string; readonly examples: readonly unknown[] }[] = createRequire(
  import.meta.url,
)("@octokit/webhooks-examples");

/** One webhook, and the task it must become. */
export interface Webhook {
  readonly taskType: string;
  readonly payload: unknown;
  /**
   * The payloads carry no delivery GUID and five are equal, so the key is a UUID of version 5 (RFC 9562 §5.5) made of the
   * event's name and the payload's place among its examples.
   */
  readonly key: string;
}

/** Any fixed UUID; this one was drawn once for this example. */
const NAMESPACE = "3f0e3a9e-6c0d-4b39-9a3c-5f0a6a0a7f52";

export const TASK_TYPE_PREFIX = "github.";

/** Kept for ten years, so that a second run makes no new task however much later it is. */
export const submitOptions = { ttlDays: 3650 } satisfies SubmitOptions;

export const webhooks: readonly Webhook[] = examples.flatMap(({ name, examples: payloads }) =>
  payloads.map((payload, index) => ({
    taskType: `${TASK_TYPE_PREFIX}${name}`,
    payload,
    key: uuidV5(`${name} ${index}`, NAMESPACE),
  })),
);
