import { brandedError, type ErrorBrand } from "@firstwrite/core";

const brand: ErrorBrand = brandedError("TaskGoneError");

/**
 * The task was made and confirmed, and its object is gone: something deleted it while its key lived (rule T6 says to
 * finish a task, never to delete it). It is not made again, for it may have been done.
 */
export class TaskGoneError extends Error {
  readonly code = "TASK_GONE";
  readonly taskId: string;

  constructor(taskId: string) {
    super(`the task ${taskId} was submitted before and its object is gone: finish tasks instead of deleting them`);
    this.taskId = taskId;
    brand.mark(this);
  }

  static is(this: void, x: unknown): x is TaskGoneError {
    return brand.has(x);
  }
}
