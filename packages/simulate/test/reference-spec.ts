/**
 * The cell of the reference values: no delays, nothing lost, no warm-up cut, blocks of 512 tokens, known
 * lengths.
 */

import type { CellSpec } from '../src/index.ts'

export const REFERENCE_SPEC: CellSpec = {
  workers: 8,
  profile: 'h100-8b',
  blockTokens: 512,
  routers: 1,
  view: { kind: 'exact', eventDelayMs: 0, signalDelayMs: 0, credit: 'full' },
  selection: { mode: 'kv', policy: 'linear' },
  loadCounts: 'tokens',
  knowsOutput: true,
  speed: 1,
  copies: 1,
  stretch: 1,
  seed: 1,
  warmupShare: 0,
}
