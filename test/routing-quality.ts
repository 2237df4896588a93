/**
 * What exact events are worth: the same policy with different knowledge of the caches, on simulated engines and a virtual clock.
 * `pnpm exec node test/routing-quality.ts --write` writes the table of docs/routing-quality.md.
 *
 *   knowledge   exact        KV events
 *               approximate  --no-kv-events: what was sent where
 *               text         what was sent where, of the text: no engine tokenizes
 *               none         --no-kv-events with room for one block
 *               …, weight 4  the same, with cached blocks counting four times as much against load
 *               rival        another router: the policy of the best router that uses text alone (TextPolicy)
 *
 * Traffic: conversations of 1 to 6 turns, each turn the text of all before and more; one of eight system prompts at their
 * beginning. Turns begin by a Poisson process that is the same for every cell of a seed.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { type Random, seededRandom } from '@homing/clock'
import type { RouterSettings } from '@homing/config'
import { MODEL, SimulatedFleet } from './simulation/simulated-fleet.ts'
import { TextPolicy } from './text-policy.ts'

const PATH = join(import.meta.dirname, '..', 'docs', 'routing-quality.md')
const ENGINES = 4
const SEEDS = [1, 2, 3]
const CONVERSATIONS = 60
const CONVERSATION_MS = 180
const TURN_MS = 600
export const CACHES = { roomy: 1600, tight: 400, 'very tight': 160 } as const

/** What else goes on. */
interface Trouble {
  /** Share of the requests that another client sends to an engine of its own choice. */
  readonly pastShare: number
  /** One engine after the other is killed and started again so often; 0: never. */
  readonly restartMs: number
  /** 2: each request goes to one of two routers by chance, and neither knows of the other. */
  readonly routers: 1 | 2
}

export const TROUBLES: Readonly<Record<string, Trouble>> = {
  'router alone': { pastShare: 0, restartMs: 0, routers: 1 },
  '30 % past the router': { pastShare: 0.3, restartMs: 0, routers: 1 },
  'two routers': { pastShare: 0, restartMs: 0, routers: 2 },
  'engines restart': { pastShare: 0, restartMs: 3000, routers: 1 },
}

interface Knowledge {
  readonly settings: Partial<RouterSettings>
  readonly tokenizes: boolean
  /** TextPolicy chooses, and not the router. */
  readonly isRival?: true
}

export const KNOWLEDGE: Readonly<Record<string, Knowledge>> = {
  exact: { settings: {}, tokenizes: true },
  approximate: { settings: { kvEvents: false }, tokenizes: true },
  text: { settings: { kvEvents: false }, tokenizes: false },
  none: { settings: { kvEvents: false, guessBlocksMax: 1 }, tokenizes: true },
  'exact, weight 4': { settings: { overlapWeight: 4 }, tokenizes: true },
  'approximate, weight 4': { settings: { kvEvents: false, overlapWeight: 4 }, tokenizes: true },
  rival: { settings: {}, tokenizes: true, isRival: true },
}

export interface Outcome {
  readonly hitRate: number
  readonly meanMs: number
  readonly p99Ms: number
}

/** One cell of one seed: time to first byte and cached tokens of every request. */
async function runOnce(
  seed: number,
  blocks: number,
  knowledge: Knowledge,
  trouble: Trouble,
): Promise<Sample> {
  const engines = Array.from({ length: ENGINES }, () => ({ blocks, speed: 1 }))
  const settings = {
    ...knowledge.settings,
    openRequestsMax: 1024,
    requestTimeoutMs: 0,
    silenceTimeoutMs: 600_000,
  }
  const fleet = await SimulatedFleet.start({ seed, engines, settings })
  if (!knowledge.tokenizes)
    fleet.network.faults.http = ({ path }) => (path === '/tokenize' ? 'refuse' : 'deliver')
  const origins = [undefined, ...(trouble.routers === 2 ? [await fleet.startSecondRouter()] : [])]
  const policies = origins.map(() => new TextPolicy(ENGINES))
  const instances = await instanceIds(fleet)
  const { clock } = fleet.simulation
  const random = seededRandom(seed)
  const systems = Array.from({ length: 8 }, () => text(random, 600))
  let open = 0
  let atMs = 0
  for (let conversation = 0; conversation < CONVERSATIONS; conversation++) {
    atMs += -Math.log(1 - random.next()) * CONVERSATION_MS
    const turns = 1 + random.below(6)
    let prompt = systems[random.below(systems.length)]!
    for (let turn = 0; turn < turns; turn++) {
      prompt += text(random, 50 + random.below(150))
      const stream_options = { include_usage: true }
      const request = { model: MODEL, prompt, max_tokens: 8, stream: true, stream_options }
      const isPast = random.next() < trouble.pastShare
      const engine = fleet.engines[random.below(ENGINES)]!.url
      const router = random.below(origins.length)
      open++
      clock.after(atMs + turn * TURN_MS * (0.5 + random.next()), () => {
        const isPlaced = knowledge.isRival === true && !isPast
        const worker = isPlaced ? policies[router]!.place(request.prompt) : 0
        // One that an engine loses when it restarts has ended, too.
        const ended = () => {
          open--
          if (isPlaced) policies[router]!.ended(worker)
        }
        const origin = isPast ? engine : origins[router]
        const nvext = { backend_instance_id: instances[worker] }
        const body = isPlaced ? { ...request, nvext } : request
        fleet.send(origin === undefined ? {} : { origin }, body, 600_000).then(ended, ended)
      })
    }
  }
  for (let kills = 1; trouble.restartMs > 0 && kills * trouble.restartMs < atMs; kills++) {
    clock.after(kills * trouble.restartMs, () => void fleet.engines[kills % ENGINES]!.engine.restart(200))
  }
  const outcome = await fleet.simulation.run(() => open === 0, { within: 600_000 })
  if (outcome !== 'reached') throw new Error(`${open} requests did not end: ${outcome}`)
  const decisions: ReceiptView[] = []
  for (const origin of origins) {
    const view = await fleet.view('/decisions?limit=1000', origin)
    decisions.push(...(view as { decisions: readonly ReceiptView[] }).decisions)
  }
  await fleet.stop()
  const sample: Sample = { timesMs: [], promptTokens: 0, cachedTokens: 0 }
  for (const { delivered } of decisions) {
    if (delivered?.outcome !== 'ok') continue
    sample.timesMs.push(delivered.time_to_first_byte_ms!)
    sample.promptTokens += delivered.prompt_tokens!
    sample.cachedTokens += delivered.cached_tokens ?? 0
  }
  return sample
}

/** By engine. */
async function instanceIds(fleet: SimulatedFleet): Promise<readonly number[]> {
  const workers = await fleet.workers()
  return fleet.engines.map(engine => workers.find(({ url }) => url === engine.url)!.instance_id)
}

interface Sample {
  readonly timesMs: number[]
  promptTokens: number
  cachedTokens: number
}

interface ReceiptView {
  readonly delivered: {
    readonly outcome: string
    readonly time_to_first_byte_ms: number | null
    readonly prompt_tokens: number | null
    readonly cached_tokens: number | null
  } | null
}

function text(random: Random, length: number): string {
  return String.fromCharCode(...Array.from({ length }, () => 97 + random.below(26)))
}

export async function runCell(blocks: number, knowledge: Knowledge, trouble: Trouble): Promise<Outcome> {
  const samples: Sample[] = []
  for (const seed of SEEDS) samples.push(await runOnce(seed, blocks, knowledge, trouble))
  const timesMs = samples.flatMap(sample => sample.timesMs).sort((a, b) => a - b)
  const sum = (of: (sample: Sample) => number) => samples.reduce((total, sample) => total + of(sample), 0)
  return {
    hitRate: sum(({ cachedTokens }) => cachedTokens) / sum(({ promptTokens }) => promptTokens),
    meanMs: timesMs.reduce((total, ms) => total + ms, 0) / timesMs.length,
    p99Ms: timesMs[Math.floor(timesMs.length * 0.99)]!,
  }
}

if (import.meta.main) {
  const rows = [
    `| | cache | ${Object.keys(KNOWLEDGE).join(' | ')} |`,
    `|---|---|${'---|'.repeat(Object.keys(KNOWLEDGE).length)}`,
  ]
  for (const [name, trouble] of Object.entries(TROUBLES)) {
    for (const [cache, blocks] of Object.entries(CACHES)) {
      const cells: string[] = []
      for (const knowledge of Object.values(KNOWLEDGE)) {
        const { hitRate, meanMs, p99Ms } = await runCell(blocks, knowledge, trouble)
        cells.push(`${(hitRate * 100).toFixed(1)} % · ${meanMs.toFixed(1)} ms · ${p99Ms.toFixed(0)} ms`)
      }
      rows.push(`| ${name} | ${cache} (${blocks} blocks) | ${cells.join(' | ')} |`)
      process.stderr.write(`${rows.at(-1)}\n`)
    }
  }
  if (process.argv.includes('--write')) {
    const [begin, end] = ['<!-- routing quality: begin -->', '<!-- routing quality: end -->']
    const page = readFileSync(PATH, 'utf8')
    const before = page.slice(0, page.indexOf(begin) + begin.length)
    writeFileSync(PATH, `${before}\n${rows.join('\n')}\n${page.slice(page.indexOf(end))}`)
  }
}
