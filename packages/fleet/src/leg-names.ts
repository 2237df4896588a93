/** Leg names: the words for what a worker takes of a request, and how its engine hands prompts over. */

export const WORKER_ROLES = ['prefill', 'decode', 'both'] as const
export type WorkerRole = (typeof WORKER_ROLES)[number]

export const HANDOVERS = ['kv_transfer', 'bootstrap'] as const
export type Handover = (typeof HANDOVERS)[number]

/** What a probe may find of it: engines of SGLang tell. */
export interface ProbedLegs {
  readonly role: WorkerRole | undefined
  readonly bootstrapPort: number | undefined
}
