/**
 * Does simulation find bugs? Plants one at a time, by changing one place of a source file as it is loaded, and counts
 * the seeds until a checker objects. Prints a table; fails when a bug stays hidden, or nothing was planted.
 *
 *   node test/simulation/find-bugs.ts [SEEDS_MAX]      default 1000
 */

import { spawnSync } from 'node:child_process'
import { registerHooks } from 'node:module'
import { argv, execPath, exit, stdout } from 'node:process'
import { fileURLToPath } from 'node:url'
import { isMainThread } from 'node:worker_threads'
import { PLANTED_BUGS, type PlantedBug } from './planted-bugs.ts'

type Run = (seed: number) => Promise<{ readonly violations: readonly string[] }>

/** Loaded once the bug is planted. */
const RUNS: Readonly<Record<PlantedBug['scenario'], () => Promise<Run>>> = {
  toys: async () => (await import('../../packages/actor/test/simulation/scenario.ts')).runToys,
  'key routers': async () => (await import('../../packages/actor/test/simulation/routers.ts')).runRouters,
  router: async () => (await import('./router-world.ts')).runRouterSeed,
}

interface Finding {
  /** Undefined: no seed found it. */
  readonly seed: number | undefined
  readonly ms: number
  readonly why: string
}

async function hunt(bug: PlantedBug, seedsMax: number): Promise<Finding> {
  let planted = 0
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context)
      if (!url.endsWith(bug.file)) return loaded
      const source = Buffer.from(loaded.source as Uint8Array).toString()
      const pieces = source.split(bug.right)
      if (pieces.length !== 2)
        throw new Error(`cannot plant "${bug.what}": ${pieces.length - 1} places in ${url}`)
      planted++
      return { ...loaded, source: pieces.join(bug.wrong) }
    },
  })
  const run = await RUNS[bug.scenario]()
  const startMs = performance.now()
  if (planted !== 1) throw new Error(`cannot plant "${bug.what}": ${bug.file} was loaded ${planted} times`)
  for (let seed = 1; seed <= seedsMax; seed++) {
    const why = await run(seed).then(
      ({ violations }) => violations[0],
      (error: unknown) => String(error),
    )
    if (why !== undefined) return { seed, ms: performance.now() - startMs, why }
  }
  return { seed: undefined, ms: performance.now() - startMs, why: 'not found' }
}

function main(seedsMax: number): boolean {
  stdout.write('| planted | scenario | seeds | time | first word of a checker |\n|---|---|---:|---:|---|\n')
  let isComplete = true
  for (const [number, bug] of PLANTED_BUGS.entries()) {
    // A process of its own: a module is loaded once.
    const child = spawnSync(
      execPath,
      [fileURLToPath(import.meta.url), '--bug', String(number), String(seedsMax)],
      {
        encoding: 'utf8',
        timeout: 300_000,
      },
    )
    const last = child.stdout.trim().split('\n').at(-1) ?? ''
    if (child.status !== 0) throw new Error(`cannot hunt "${bug.what}": ${child.stderr.slice(0, 2000)}`)
    const { seed, ms, why } = JSON.parse(last) as Finding
    if (seed === undefined) isComplete = false
    const text = why.replaceAll('|', '/').replaceAll('\n', ' ').slice(0, 110)
    stdout.write(
      `| ${bug.what} | ${bug.scenario} | ${seed ?? `> ${seedsMax}`} | ${(ms / 1000).toFixed(1)} s | ${text} |\n`,
    )
  }
  return isComplete
}

if (isMainThread && argv[2] === '--bug') {
  const finding = await hunt(PLANTED_BUGS[Number(argv[3])]!, Number(argv[4]))
  stdout.write(`${JSON.stringify(finding)}\n`)
  exit(0)
} else if (!main(Number(argv[2] ?? 1000))) exit(1)
