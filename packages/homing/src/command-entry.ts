/** A command, as the command line runs it. */
export interface CommandEntry {
  /** One sentence for the overview. */
  readonly summary: string
  /** Runs until it is done; answers the exit code. */
  readonly run: (argv: readonly string[]) => Promise<number>
}
