/**
 * Writes fixtures/small-trace.jsonl.gz: `pnpm exec node packages/engine/scripts/make-trace.ts`. The same
 * bytes each time.
 */

import { writeFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { traceText } from '@homing/trace'
import { makeTrace } from '../src/workloads.ts'

const SEED = 512
const REQUESTS = 1000

const text = traceText(makeTrace({ seed: SEED, requests: REQUESTS }))
const bytes = gzipSync(text, { level: 9 })
writeFileSync(new URL('../fixtures/small-trace.jsonl.gz', import.meta.url), bytes)
process.stderr.write(`${REQUESTS} requests, ${text.length} bytes, ${bytes.length} compressed\n`)
