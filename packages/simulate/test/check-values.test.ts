/** The check values of the profiles: a prompt alone, chunk by chunk, and single decode steps. */

import type { ProfileName } from '@homing/engine'
import t from 'tap'
import { type CellSpec, simulateCell } from '../src/index.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

const PREFILL_TOKENS = [128, 512, 2048, 8192, 12_035, 32_768, 131_072] as const
const PREFILL_MS: Readonly<Partial<Record<ProfileName, readonly number[]>>> = {
  'h100-8b': [6.5, 12.9, 50.1, 221.6, 348.3, 1273, 11_277],
  'h100-70b-tp4': [18.6, 37.0, 143.8, 599.3, 909.3, 2881, 19_253],
}
const DECODE_STEPS = [
  [1, 1024],
  [8, 4096],
  [32, 4096],
  [64, 8192],
  [256, 1024],
] as const
const DECODE_MS: Readonly<Partial<Record<ProfileName, readonly number[]>>> = {
  'h100-8b': [6.54, 7.88, 12.01, 28.52, 17.9],
  'h100-70b-tp4': [18.63, 19.47, 22.06, 32.44, 26.33],
}

for (const profile of ['h100-8b', 'h100-70b-tp4'] as const) {
  const spec: CellSpec = { ...REFERENCE_SPEC, workers: 1, profile }

  t.test(`${profile}: the prefill of one prompt alone takes what the constants say`, async t => {
    for (const [i, inputTokens] of PREFILL_TOKENS.entries()) {
      const hashIds = Array.from({ length: Math.ceil(inputTokens / 512) }, (_, id) => id)
      const { result } = await simulateCell(spec, [{ timestampMs: 5, inputTokens, outputTokens: 1, hashIds }])
      const expectedMs = PREFILL_MS[profile]![i]!
      const errorMs = Math.abs(result.ttftMs.mean - expectedMs)
      t.ok(
        errorMs <= 0.051 || errorMs / expectedMs < 5e-4,
        `${inputTokens}: ${result.ttftMs.mean} against ${expectedMs} ms`,
      )
    }
  })

  t.test(`${profile}: a decode step takes what the constants say`, async t => {
    for (const [i, [batch, context]] of DECODE_STEPS.entries()) {
      // Prompts that another request brought into the cache, so that all of them join in one step; each
      // answer has two tokens.
      const requests = Array.from({ length: batch }, (_, j) => ({
        timestampMs: 0,
        inputTokens: context - 1,
        outputTokens: 2,
        hashIds: Array.from({ length: Math.ceil((context - 1) / 512) }, (_, id) => j * 1000 + id),
      }))
      const { result } = await simulateCell(
        { ...spec, profile: { ...inline(profile), stepTokensMax: 10_000_000, kvCapacityTokens: 10_000_000 } },
        [{ timestampMs: 0, inputTokens: 1, outputTokens: 1, hashIds: [999_999] }, ...requests],
      )
      const expectedMs = DECODE_MS[profile]![i]!
      t.ok(
        Math.abs(result.gapMs.p99 - expectedMs) < 0.006 + expectedMs * 5e-4,
        `${batch} × ${context}: ${result.gapMs.p99} against ${expectedMs} ms`,
      )
    }
  })
}

function inline(profile: 'h100-8b' | 'h100-70b-tp4') {
  const constants =
    profile === 'h100-8b' ? [1, 5.5, 0.023, 0.96e-6, 42e-6] : [2, 16.6, 0.068, 1.2e-6, 26.4e-6]
  const [overheadMs, weightsMs, msPerToken, msPerTokenContext, msPerDecodeContext] = constants
  return {
    name: profile,
    overheadMs: overheadMs!,
    weightsMs: weightsMs!,
    msPerToken: msPerToken!,
    msPerTokenContext: msPerTokenContext!,
    msPerDecodeContext: msPerDecodeContext!,
    sequencesMax: 1024,
  }
}
