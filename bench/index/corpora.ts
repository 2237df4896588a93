/**
 * The corpora by name, as files that are made once.
 *
 *   idx-small     conversation trace, 64 workers, blocks of 64 tokens, caches of 6,875 blocks: the everyday
 *                 run
 *   idx-16        the same with blocks of 16 tokens, caches of 27,500
 *   idx-main      20 copies, each id four blocks of 128 tokens, 128 workers, caches of 16,384: the main
 *                 figure
 *   idx-wide      tool-agent trace, 4 copies, 1,000 workers: hot prefixes on all of them
 *   idx-ballast   10 M memberships in chains of 128; idx-ballast-4 and -16: 40 M and 160 M
 *   synthetic     generated sessions, sizes by parameters: the smoke, and where no trace is found
 *
 * A file is written under another name, renamed when it is whole, and lies beside a description with its
 * totals, its digest and the digest of the trace. Its name has a digest of how it is made, so other ways do
 * not meet.
 */

import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { say } from '../harness.ts'
import { type ChainsOptions, writeChains } from './chains.ts'
import { type FleetOptions, writeFleet } from './fleet.ts'
import type { CorpusTotals } from './kvc1.ts'
import { findTrace, generateSessions, readTrace, type Trace } from './traces.ts'

const CONVERSATION = 'mooncake_conversation_trace.jsonl.gz'
const TOOL_AGENT = 'toolagent_like_trace.jsonl.gz'
/** Grows when files made in the same way would come out different. */
const FORM = 1
const CACHE_DIRECTORY = fileURLToPath(new URL('../../.cache/bench/corpora', import.meta.url))

export interface SessionsOptions {
  readonly requests: number
  readonly seed: number
}

type Recipe =
  | {
      readonly from: 'trace'
      readonly trace: string
      readonly isBinned: boolean
      readonly fleet: FleetOptions
    }
  | { readonly from: 'sessions'; readonly sessions: SessionsOptions; readonly fleet: FleetOptions }
  | { readonly from: 'chains'; readonly chains: ChainsOptions }

/** A corpus that is there. */
export interface CorpusFiles {
  readonly name: string
  /** The schedule. */
  readonly path: string
  /** What is alive at its end. */
  readonly livePath: string
  readonly totals: CorpusTotals
  readonly live: CorpusTotals
  readonly traceSha256: string
}

const small: FleetOptions = { workers: 64, blockTokens: 64, cacheBlocks: 6875, copies: 1, stretch: 0 }
const conversation = { from: 'trace', trace: CONVERSATION, isBinned: true } as const
const chains = (workers: number): Recipe => ({
  from: 'chains',
  chains: { workers, blocksPerWorker: 10_000_000, lookups: 20_000 },
})

const RECIPES: Readonly<Record<string, Recipe>> = {
  'idx-small': { ...conversation, fleet: small },
  'idx-16': { ...conversation, fleet: { ...small, blockTokens: 16, cacheBlocks: 27_500 } },
  'idx-main': {
    ...conversation,
    fleet: { workers: 128, blockTokens: 128, cacheBlocks: 16_384, copies: 20, stretch: 4 },
  },
  'idx-wide': {
    from: 'trace',
    trace: TOOL_AGENT,
    isBinned: false,
    fleet: { ...small, workers: 1000, copies: 4 },
  },
  'idx-ballast': chains(1),
  'idx-ballast-4': chains(4),
  'idx-ballast-16': chains(16),
}

/** Digests that another implementation found for the same recipe. */
const DIGESTS: Readonly<Record<string, string>> = {
  'idx-small': '3c3ea8aa9ee2f4c3',
  'idx-16': '362bad4641e41645',
  'idx-main': '3e4dc7ed7f0f3194',
}

export const SYNTHETIC = 'synthetic'
export const corpusNames: readonly string[] = [...Object.keys(RECIPES), SYNTHETIC]

export interface CorpusChoice {
  readonly name: string
  /** Of `synthetic`. */
  readonly synthetic: { readonly sessions: SessionsOptions; readonly fleet: FleetOptions }
  /** The trace file, instead of those that are looked for; '' for none. */
  readonly trace: string
  /** Where the files are; '' for the cache of the benches. */
  readonly directory: string
}

/** The files of a corpus, made if they are not there. */
export function openCorpus({ name, synthetic, trace: given, directory }: CorpusChoice): CorpusFiles {
  const folder = directory === '' ? CACHE_DIRECTORY : directory
  let recipe: Recipe = RECIPES[name] ?? { from: 'sessions', ...synthetic }
  let path: string | undefined
  if (recipe.from === 'trace') {
    path = findTrace(recipe.trace, given)
    if (path === undefined) {
      say(`  no ${recipe.trace} found (trace=FILE or HOMING_TRACES=DIRECTORY): generated sessions instead`)
      recipe = { from: 'sessions', ...synthetic }
    }
  }
  const actualName = recipe.from === 'sessions' ? SYNTHETIC : name
  const key = createHash('sha256')
    .update(JSON.stringify([FORM, recipe, given]))
    .digest('hex')
    .slice(0, 8)
  const base = `${folder}/${actualName}-${key}`
  const description = `${base}.json`
  if (!existsSync(description)) {
    mkdirSync(folder, { recursive: true })
    write(actualName, recipe, path, base, description)
  }
  const files = JSON.parse(readFileSync(description, 'utf8')) as CorpusFiles
  return { ...files, path: `${base}.kvc1`, livePath: `${base}-live.kvc1` }
}

/** Throws unless the file holds what its description says. */
export function requireTotals({ path, totals }: CorpusFiles, found: CorpusTotals): void {
  if (JSON.stringify(totals) !== JSON.stringify(found)) {
    throw new Error(
      `${path} is not what was written: ${JSON.stringify(found)}, not ${JSON.stringify(totals)}`,
    )
  }
}

function write(
  name: string,
  recipe: Recipe,
  path: string | undefined,
  base: string,
  description: string,
): void {
  say(`  making the corpus ${name} …`)
  const fromMs = performance.now()
  // Two benches may make the same file at once: each writes its own and the last one is kept.
  const mark = `${process.pid}.part`
  const [schedule, live] = [`${base}.kvc1`, `${base}-live.kvc1`]
  const trace: Trace | undefined =
    recipe.from === 'trace'
      ? readTrace(path!, recipe.isBinned)
      : recipe.from === 'sessions'
        ? generateSessions(recipe.sessions.requests, recipe.sessions.seed)
        : undefined
  const made =
    recipe.from === 'chains'
      ? writeChains(recipe.chains, `${schedule}.${mark}`, `${live}.${mark}`)
      : writeFleet(trace!, recipe.fleet, `${schedule}.${mark}`, `${live}.${mark}`)
  const expected = recipe.from === 'trace' ? DIGESTS[name] : undefined
  if (expected !== undefined && made.totals.digest !== expected && isPublishedTrace(trace!)) {
    throw new Error(`the digest of ${name} is ${made.totals.digest}, not ${expected}`)
  }
  renameSync(`${schedule}.${mark}`, schedule)
  renameSync(`${live}.${mark}`, live)
  const text = JSON.stringify({ name, ...made, traceSha256: trace?.sha256 ?? 'generated' }, null, 1)
  writeFileSync(`${description}.${mark}`, `${text}\n`)
  renameSync(`${description}.${mark}`, description)
  const { totals } = made
  say(
    `  ${name}: ${totals.lookups} lookups (${totals.lookupBlocks} blocks), ${totals.storedBlocks} blocks stored in ` +
      `${totals.storedEvents} events, ${totals.removedBlocks} removed in ${totals.removedEvents}; digest ` +
      `${totals.digest}; ${((performance.now() - fromMs) / 1000).toFixed(1)} s`,
  )
}

/** Other traces make other corpora: only those of the published one are known. */
function isPublishedTrace({ requests }: Trace): boolean {
  return requests.length === 12_031
}
