/**
 * Found worker: what a source of workers says of one of them, as its URL and a state. Plain data: the
 * directory compares the last finding with the fleet.
 */

/**
 * ready     takes requests
 * unready   takes no new ones for now, and keeps those that it has
 * leaving   takes no new ones, and leaves with its last one
 * doubtful  the source has been silent too long: it stays while it answers
 */
export type FoundState = 'ready' | 'unready' | 'leaving' | 'doubtful'

export interface FoundWorker {
  /** As for `--worker`, without `id` and keys. */
  readonly url: string
  readonly state: FoundState
  /** Another one at the same URL is another process: the uid of a pod, or '' where nothing tells. */
  readonly life: string
  /** For people, why it is in this state. */
  readonly reason: string
}

/** Something that cannot be used, for the log; told once while it stays so. */
export interface FoundFault {
  /** What it is about: a pod, a name. */
  readonly what: string
  readonly reason: string
}

/** All that a source says now. */
export interface FoundList {
  readonly workers: readonly FoundWorker[]
  /** False: there may be more, so nothing is gone that is not in it. */
  readonly isWhole: boolean
  readonly faults: readonly FoundFault[]
}

/** What becomes of a worker that the source does not name any more. */
export type Absence = 'leaves at once' | 'drains'

/** A source of workers. It calls `changed` after each change, and never before it has been asked once. */
export interface WorkerSource {
  /** Undefined: not known yet, so nothing is to change. */
  finding(): FoundList | undefined
  readonly absence: Absence
  close(): void
}

/** What a source tells while it runs. */
export interface SourceHandler {
  /** The finding may have changed. */
  changed(): void
  /** The place where it asks does not answer; once for each reason, until it does. */
  failed(reason: string): void
  /** It answers again. */
  recovered(): void
}
