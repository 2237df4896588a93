/**
 * Does simulation find bugs? Plants one at a time, by changing places of source files as they are loaded, and
 * counts the seeds until a checker objects, from 1 or the bug's own on. Prints a table; fails when a bug
 * stays hidden, or nothing was planted.
 *
 *   pnpm exec node bench/simulation/find-bugs.ts [SEEDS_MAX [SCENARIO]]      default 1000, all scenarios
 */

import { spawnSync } from 'node:child_process'
import { registerHooks } from 'node:module'
import { argv, execPath, exit, stdout } from 'node:process'
import { fileURLToPath } from 'node:url'
import { isMainThread } from 'node:worker_threads'
import { changesOf, PLANTED_BUGS, type PlantedBug } from './planted-bugs.ts'

type Run = (seed: number) => Promise<{ readonly violations: readonly string[] }>

/** Loaded once the bug is planted. */
const RUNS: Readonly<Record<PlantedBug['scenario'], () => Promise<Run>>> = {
  toys: async () => (await import('../../packages/actor/test/simulation/scenario.ts')).runToys,
  router: async () => (await import('../../test/simulation/router-world.ts')).runRouterSeed,
  queue: async () => (await import('../../test/simulation/queue-world.ts')).runQueueSeed,
  lives: async () => {
    const { runLife } = await import('../../test/faults/life-history.ts')
    const { drawScript, NOT_YET, without } = await import('../../test/faults/life-script.ts')
    return async seed => {
      const { violations } = await runLife(without(drawScript(seed), new Set(NOT_YET)))
      return { violations: violations.map(({ text }) => text) }
    }
  },
}

interface Finding {
  /** Undefined: no seed found it. */
  readonly seed: number | undefined
  readonly ms: number
  readonly why: string
}

async function hunt(bug: PlantedBug, seedsMax: number): Promise<Finding> {
  const changes = changesOf(bug)
  const planted = new Set<string>()
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context)
      const here = changes.filter(({ file }) => url.endsWith(`/${file}`))
      if (here.length === 0) return loaded
      let source = Buffer.from(loaded.source as Uint8Array).toString()
      for (const { right, wrong, file } of here) {
        const pieces = source.split(right)
        if (pieces.length !== 2)
          throw new Error(`cannot plant "${bug.what}": ${pieces.length - 1} places in ${url}`)
        source = pieces.join(wrong)
        planted.add(file)
      }
      return { ...loaded, source }
    },
  })
  const run = await RUNS[bug.scenario]()
  const startMs = performance.now()
  for (const { file } of changes) {
    if (!planted.has(file)) throw new Error(`cannot plant "${bug.what}": ${file} was not loaded`)
  }
  const { from = 1 } = bug
  for (let seed = from; seed < from + seedsMax; seed++) {
    const why = await run(seed).then(
      ({ violations }) => violations[0],
      (error: unknown) => String(error),
    )
    if (why !== undefined) return { seed, ms: performance.now() - startMs, why }
  }
  return { seed: undefined, ms: performance.now() - startMs, why: 'not found' }
}

function main(seedsMax: number, scenario: string | undefined): boolean {
  stdout.write('| planted | scenario | seeds | time | first word of a checker |\n|---|---|---:|---:|---|\n')
  let isComplete = true
  for (const [number, bug] of PLANTED_BUGS.entries()) {
    if (scenario !== undefined && bug.scenario !== scenario) continue
    // A process of its own: a module is loaded once.
    const child = spawnSync(
      execPath,
      [fileURLToPath(import.meta.url), '--bug', String(number), String(seedsMax)],
      {
        encoding: 'utf8',
        timeout: 900_000,
      },
    )
    const last = child.stdout.trim().split('\n').at(-1) ?? ''
    if (child.status !== 0) throw new Error(`cannot hunt "${bug.what}": ${child.stderr.slice(0, 2000)}`)
    const { seed, ms, why } = JSON.parse(last) as Finding
    if (seed === undefined) isComplete = false
    const { from = 1 } = bug
    const text = why.replaceAll('|', '/').replaceAll('\n', ' ').slice(0, 110)
    stdout.write(
      `| ${bug.what} | ${bug.scenario} | ${seed === undefined ? `> ${seedsMax}` : `${seed - from + 1}${from > 1 ? ` from ${from} on` : ''}`} | ${(ms / 1000).toFixed(1)} s | ${text} |\n`,
    )
  }
  return isComplete
}

if (isMainThread && argv[2] === '--bug') {
  const finding = await hunt(PLANTED_BUGS[Number(argv[3])]!, Number(argv[4]))
  stdout.write(`${JSON.stringify(finding)}\n`)
  exit(0)
} else if (!main(Number(argv[2] ?? 1000), argv[3])) exit(1)
