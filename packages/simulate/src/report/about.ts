/** Facts about a run, for its report. */
export interface ReportAbout {
  /** The command line that makes it again. */
  readonly command: string
  /** One sentence for people: fleet, profile, view. */
  readonly fleet: string
  readonly view: string
  readonly workloads: readonly WorkloadAbout[]
  readonly seeds: readonly number[]
  /** Share of the requests at the beginning that latencies leave out. */
  readonly warmupShare: number
}

export interface WorkloadAbout {
  readonly name: string
  /** File and hash, or the generator with its parameters. */
  readonly source: string
}
