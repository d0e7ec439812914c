import type { Task } from "@firstwrite/tasks";

/** A task as the command line shows it, with the field names of its object. */
export function viewTask(task: Task): Record<string, unknown> {
  return {
    task_id: task.taskId,
    task_type: task.taskType,
    task_key: task.taskKey,
    state: task.state,
    created_at: task.createdAt,
    finished_at: task.finishedAt,
    options: Object.keys(task.options).length === 0 ? undefined : task.options,
    input: task.input,
  };
}
