/**
 * Dynamo: runs the prefix indexes of the Rust crate dynamo-kv-router on the same corpus files, in processes
 * of its own (bench/peers/dynamo). Built by cargo on first use; where cargo is not installed the peer is
 * skipped.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type Measures, say } from '../harness.ts'
import { openCorpus } from './corpora.ts'
import { choice } from './parameters.ts'

const MANIFEST = fileURLToPath(new URL('../peers/dynamo/Cargo.toml', import.meta.url))
const TARGET_DIRECTORY = fileURLToPath(new URL('../../.cache/bench/dynamo', import.meta.url))
const BINARY = `${TARGET_DIRECTORY}/release/homing-bench-dynamo`
/** Lines of cargo that say what is wrong. */
const ERROR_LINES_MAX = 12

interface Percentiles {
  readonly p50: number
  readonly p99: number
}

interface SingleLine {
  readonly mixedBlockOpsPerS: number
  readonly mixedCpuNs: number
  readonly eventCpuUs: number
  readonly fullLookupCpuUs: number
  readonly eventBlocksPerS: number
  readonly storedBlocksPerS: number
  readonly removedBlocksPerS: number
  readonly failedEvents: number
  readonly fullLookupsPerS: number
  readonly fullLookupUs: Percentiles
  readonly fullScoreSum: number
}

interface PoolLine {
  readonly blockOpsPerS: number
  readonly eventThreadCpuNs: number
  readonly lookupUs: Percentiles
}

interface MemoryLine {
  readonly memberships: number
  readonly rssBytes: number
  readonly sweptRssBytes: number
  readonly emptiedRssBytes: number
}

/** Builds the peer. Its version; undefined without cargo. Throws when cargo cannot build it. */
export function dynamoVersion(): string | undefined {
  if (spawnSync('cargo', ['--version']).status !== 0) return undefined
  const build = (...more: readonly string[]) =>
    spawnSync('cargo', ['build', '--release', '--locked', '--quiet', '--manifest-path', MANIFEST, ...more], {
      env: { ...process.env, CARGO_TARGET_DIR: TARGET_DIRECTORY },
      encoding: 'utf8',
    })
  // Without the network first: with the crates at hand it is not needed, and without it cargo waits long.
  let result = build('--offline')
  if (result.status !== 0) {
    say('  building dynamo-kv-router, some minutes once …')
    result = build()
  }
  if (result.status !== 0) {
    const lines = result.stderr.trim().split('\n').slice(-ERROR_LINES_MAX)
    throw new Error(
      `cannot build the peer dynamo; the first build needs the network for its crates:\n${lines.join('\n')}`,
    )
  }
  const [, version] = /name = "dynamo-kv-router"\nversion = "([^"]+)"/.exec(
    readFileSync(MANIFEST.replace(/toml$/, 'lock'), 'utf8'),
  )!
  return version
}

/** The loops that it can do. */
export const dynamoParts: readonly string[] = ['A', 'C', 'F']

export function runDynamo(part: string): Measures {
  const { path, livePath } = openCorpus(choice)
  switch (part) {
    case 'A': {
      const tree = run<SingleLine>('st', 'rt', path)
      const compressed = run<SingleLine>('st', 'crtc', path)
      if (tree.failedEvents > 0) throw new Error(`dynamo refused ${tree.failedEvents} events`)
      if (tree.fullScoreSum !== compressed.fullScoreSum) {
        throw new Error(`the trees of dynamo differ: ${tree.fullScoreSum}, ${compressed.fullScoreSum}`)
      }
      return {
        mixed: { value: tree.mixedBlockOpsPerS, unit: 'block op/s' },
        mixedCpu: { value: tree.mixedCpuNs, unit: 'ns CPU' },
        eventCpu: { value: compressed.eventCpuUs, unit: 'µs CPU' },
        lookupCpu: { value: compressed.fullLookupCpuUs, unit: 'µs CPU' },
        events: { value: compressed.eventBlocksPerS, unit: 'block/s' },
        stored: { value: tree.storedBlocksPerS, unit: 'block/s' },
        removed: { value: tree.removedBlocksPerS, unit: 'block/s' },
        lookupsFirstPass: { value: compressed.fullLookupsPerS, unit: 'lookup/s' },
        lookupP50: { value: compressed.fullLookupUs.p50, unit: 'µs' },
        lookupP99: { value: compressed.fullLookupUs.p99, unit: 'µs' },
        scoreSum: { value: compressed.fullScoreSum, unit: 'blocks' },
      }
    }
    case 'C': {
      const { blockOpsPerS, eventThreadCpuNs, lookupUs } = run<PoolLine>('pool', path, '1')
      return {
        poolDrained: { value: blockOpsPerS, unit: 'block op/s' },
        poolWriterCpu: { value: eventThreadCpuNs, unit: 'ns CPU' },
        poolLookupP50: { value: lookupUs.p50, unit: 'µs' },
        poolLookupP99: { value: lookupUs.p99, unit: 'µs' },
      }
    }
    default: {
      const live = run<MemoryLine>('mem', livePath, livePath)
      const schedule = run<MemoryLine>('mem', path, livePath)
      return {
        rssLive: { value: live.rssBytes, unit: 'B' },
        rssPerMembership: { value: live.rssBytes / live.memberships, unit: 'B' },
        rssAfterSchedule: { value: schedule.rssBytes, unit: 'B' },
        rssAfterScheduleShare: { value: schedule.rssBytes / live.rssBytes, unit: '× live' },
        rssEmptiedShare: { value: schedule.emptiedRssBytes / live.rssBytes, unit: '× live' },
        rssAfterCleanUp: { value: schedule.sweptRssBytes, unit: 'B' },
      }
    }
  }
}

function run<T>(...words: readonly string[]): T {
  return JSON.parse(
    execFileSync(BINARY, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }),
  ) as T
}
