/**
 * Loaded before a test that draws its cases with fast-check: it draws those of HOMING_SEED, without it of 1.
 * So a run that passed passes again; `pnpm test --draw` tries other cases.
 */

import process from 'node:process'
import { isMainThread } from 'node:worker_threads'

if (isMainThread) {
  const { default: fc } = await import('fast-check')
  fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: Number(process.env['HOMING_SEED'] ?? 1) })
}
