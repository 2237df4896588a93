/** Facts about a run, for its reports. */
export interface LoadAbout {
  /** The command line that makes it again; keys are in files and variables, never in it. */
  readonly command: string
  readonly startedAt: string
  readonly versions: Readonly<Record<string, string>>
  readonly machine: string
  readonly seed: number
  readonly model: string
  /** How requests were sent, one sentence each without full stops. */
  readonly pace: string
  readonly requests: string
  /** Every setting by its name. */
  readonly settings: Readonly<Record<string, unknown>>
}
