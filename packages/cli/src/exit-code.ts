/** What the program ends with. Listed in `firstwrite --help`. */
export const exitCode = {
  /** The task is there, whether new or found; of a batch: every line was answered, conflicts too. */
  ok: 0,
  /** A line or a call failed; with a key it is safe to run it again. */
  failed: 1,
  /** The command line, or a line of the batch, is wrong. Nothing was sent. */
  usage: 2,
  /** The key was used for something else. An answer, not a failure: nothing was written. */
  conflict: 3,
  /** There is no task of that ID. */
  notFound: 4,
  /** Stopped by Ctrl-C or SIGTERM after what was under way had ended; run it again to go on. */
  interrupted: 130,
} as const;

export type ExitCode = (typeof exitCode)[keyof typeof exitCode];
