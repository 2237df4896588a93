/** The parameters of the index bench, and the corpus that they choose. */

import { parameter, usage } from '../harness.ts'
import { type CorpusChoice, corpusNames, SYNTHETIC } from './corpora.ts'
import type { FleetOptions } from './fleet.ts'

export const corpusName = parameter('corpus', { smoke: SYNTHETIC, full: 'idx-small' })
if (!corpusNames.includes(corpusName)) {
  usage(`corpus=${corpusName}: unknown corpus; known: ${corpusNames.join(', ')}`)
}

/** Which loops run: A, B, C, D, E, F, S, churn. */
export const loops = parameter('loops', { smoke: 'A,C,D,E,F,S,churn', full: 'A,C,F,S' }).split(',')

const trace = parameter('trace', { smoke: '', full: '' })
const directory = parameter('corpusDir', { smoke: '', full: '' })
// Of the corpus `synthetic` only.
const requests = parameter('requests', { smoke: 300, full: 12_000 })
const seed = parameter('seed', { smoke: 1, full: 1 })
const fleet: FleetOptions = {
  workers: parameter('workers', { smoke: 8, full: 64 }),
  blockTokens: parameter('blockTokens', { smoke: 64, full: 64 }),
  cacheBlocks: parameter('cacheBlocks', { smoke: 800, full: 6875 }),
  copies: 1,
  stretch: 0,
}

export const choice: CorpusChoice = {
  name: corpusName,
  synthetic: { sessions: { requests, seed }, fleet },
  trace,
  directory,
}

/** Replayed before the clock starts, so that the optimising compiler has settled. */
export const warmUpChoice: CorpusChoice = {
  name: SYNTHETIC,
  synthetic: {
    sessions: { requests: parameter('warmUpRequests', { smoke: 150, full: 1500 }), seed: seed + 1 },
    fleet: { ...fleet, cacheBlocks: Math.min(fleet.cacheBlocks, 2000) },
  },
  trace: '',
  directory,
}

/** One sampled lookup in this many is compared with the reference. */
export const sampleEvery = parameter('sampleEvery', { smoke: 10, full: 1000 })

/** The index must hold the corpus without dropping anything. */
const CAPACITY_MB: Readonly<Record<string, number>> = {
  'idx-small': 14,
  'idx-16': 56,
  'idx-main': 64,
  'idx-wide': 256,
  'idx-ballast': 384,
  'idx-ballast-4': 1536,
  'idx-ballast-16': 3840,
}
export const capacityMb = parameter('capacityMb', { smoke: 2, full: CAPACITY_MB[corpusName] ?? 14 })

/** Loop A: batches of passes over the events alone; the best counts. */
export const eventBatches = parameter('eventBatches', { smoke: 3, full: corpusName === 'idx-main' ? 1 : 3 })
/** Slots of the ring to the writer thread, each for an event of up to 128 stored or 256 removed blocks. */
export const ringSlots = parameter('ringSlots', { smoke: 256, full: 4096 })
/** Loops B and D: the offered rates, in block ops a second. */
export const offeredMin = parameter('offeredMin', { smoke: 200_000, full: 2_000_000 })
export const offeredMax = parameter('offeredMax', { smoke: 2_000_000, full: 32_000_000 })
/** Loop S: passes over all lookups that count. */
export const shardRounds = parameter('shardRounds', { smoke: 3, full: 7 })
/** Loop E: the largest index, in memberships. */
export const microMemberships = parameter('microMemberships', { smoke: 10_000, full: 10_000_000 })
/** Loop churn. */
export const churnMinutes = parameter('minutes', { smoke: 0.04, full: 30 })
export const churnBlocksPerS = parameter('churnBlocksPerS', { smoke: 64_000, full: 64_000 })
/** Where loop churn writes NAME.csv and NAME.svg; '' for nowhere. */
export const churnOut = parameter('churnOut', { smoke: '', full: '' })

/** A slowdown on purpose, to see that --check finds it: 'lookup' looks twice, 'event' waits 6 µs. */
export const plant = parameter('plant', { smoke: '', full: '' })
if (!['', 'lookup', 'event'].includes(plant)) usage(`plant=${plant}: not lookup or event`)
