/**
 * The same as trace.test.ts on the trace of packages/engine instead of a recorded workload: runs everywhere,
 * and quickly.
 */

import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readTrace } from '@homing/trace'
import t from 'tap'
import { compare } from './compare-modes.ts'

const SMALL = join(
  dirname(fileURLToPath(import.meta.resolve('@homing/engine'))),
  '..',
  'fixtures',
  'small-trace.jsonl.gz',
)

t.test(
  'on the small trace kv reuses more than round-robin, as predicted, and the index is exact',
  async t => {
    await compare(t, 4, readTrace(SMALL).slice(0, 200), 100)
  },
)
