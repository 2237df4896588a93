/**
 * The promise of the project on a recorded workload: prefixes are found, predicted exactly, and nothing is
 * left behind.
 *
 * Workload  the Mooncake conversation trace, from the folder HOMING_TRACES, or ../shared/traces beside the
 *           repository. small-trace.test.ts does the same with a trace in the repository.
 *           HOMING_TRACE_REQUESTS sets how many requests (300; `.ci/run` takes 600).
 */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { readTrace } from '@homing/trace'
import t from 'tap'
import { compare } from './compare-modes.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const MOONCAKE = join(
  process.env['HOMING_TRACES'] ?? join(ROOT, '..', 'shared', 'traces'),
  'mooncake_conversation_trace.jsonl.gz',
)

const REQUESTS = Number(process.env['HOMING_TRACE_REQUESTS'] ?? 300)

t.test(
  `on ${REQUESTS} requests of the Mooncake trace kv reuses more than round-robin does, as predicted, and the index is exact`,
  { skip: existsSync(MOONCAKE) ? false : 'the Mooncake trace is not here (HOMING_TRACES)' },
  async t => {
    await compare(t, 8, readTrace(MOONCAKE).slice(0, REQUESTS), REQUESTS)
  },
)
