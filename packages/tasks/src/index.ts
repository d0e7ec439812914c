export { Tasks, type Submission, type SubmitOptions, type TasksOptions } from "./tasks.ts";
export { TaskGoneError } from "./task-gone-error.ts";
export type { Task } from "./task.ts";
