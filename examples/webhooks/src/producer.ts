/** One producer process: submits each webhook it is handed, and says what became of it. */

import { IdempotencyConflictError, onEvent } from "@firstwrite/core";
import { openStore } from "@firstwrite/stores";
import { Tasks } from "@firstwrite/tasks";

import { isDelivery, type Answer, type Delivery } from "./messages.ts";
import { submitOptions, webhooks } from "./webhooks.ts";

const [, , storeUrl = ""] = process.argv;
const store = await openStore(storeUrl);
const tasks = new Tasks({ store });

let requests = 0;
onEvent("firstwrite:store-request", () => {
  requests += 1;
});

process.on("message", (message) => {
  if (isDelivery(message)) void deliver(message);
});
process.on("disconnect", () => {
  void store.close?.();
});
process.send?.("ready");

async function deliver({ delivery, webhook: index }: Delivery): Promise<void> {
  const became = await submit(index);
  const answer: Answer = { delivery, ...became, requests };
  requests = 0;
  if (process.connected) process.send?.(answer);
}

async function submit(index: number): Promise<Pick<Answer, "outcome" | "taskId" | "error">> {
  const webhook = webhooks[index];
  if (webhook === undefined) return { outcome: "failed", error: `there is no webhook ${index}` };
  try {
    const { task, created, recovered } = await tasks.submit(webhook.taskType, webhook.payload, {
      ...submitOptions,
      idempotencyKey: webhook.key,
    });
    return { outcome: created ? "created" : recovered ? "recovered" : "found", taskId: task.taskId };
  } catch (error) {
    return { outcome: IdempotencyConflictError.is(error) ? "conflict" : "failed", error: String(error) };
  }
}
