/** Traffic of the tables in this folder: three traces, by the names of their columns. */

import { parseWorkload, type Workload } from '@homing/simulate'
import { findTrace } from '../index/traces.ts'

export const TRACES = {
  conversation: 'mooncake_conversation_trace.jsonl.gz',
  synthetic: 'mooncake_synthetic_trace.jsonl.gz',
  toolagent_like: 'toolagent_like_trace.jsonl.gz',
} as const

export type TraceName = keyof typeof TRACES

/** Throws if the file is in neither place. `requestsMax`: only this many, from the beginning. */
export async function traceWorkload(name: TraceName, requestsMax?: number): Promise<Workload> {
  const file = TRACES[name]
  const path = findTrace(file, '')
  if (path === undefined)
    throw new Error(`cannot run: ${file} is neither in HOMING_TRACES nor in ../shared/traces`)
  return { ...(await parseWorkload(path, requestsMax)), name }
}
