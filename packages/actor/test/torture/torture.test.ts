/**
 * Threads die in every way under load, and the promises of the runtime are checked by counts (driver.ts).
 * Each run is a process of its own, because one has a single CPU and one collects garbage all the time.
 */

import { spawn, spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import type { TortureResult } from './driver.ts'

const SECONDS = 4
/** On a machine that is busy a run goes on until then. */
const DEATHS_MIN = 3
const seeds = process.env['HOMING_SEED']?.split(',') ?? ['1', '2', '3']
const hasTaskset = spawnSync('taskset', ['-V']).status === 0

async function run(words: readonly string[], nodeOptions: readonly string[], parameters: readonly string[]) {
  const main = fileURLToPath(new URL('./main.ts', import.meta.url))
  const command = [
    ...words,
    process.execPath,
    '--max-old-space-size=1500',
    ...nodeOptions,
    main,
    ...parameters,
  ]
  const child = spawn(command[0]!, command.slice(1), { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  const limit = setTimeout(() => child.kill('SIGKILL'), 300_000)
  const code = await new Promise(resolve => child.on('close', resolve))
  clearTimeout(limit)
  return { code, result: output === '' ? undefined : (JSON.parse(output) as TortureResult) }
}

const kinds = [
  { title: 'on all CPUs', words: [], options: [], threads: 3, skip: false as const },
  {
    title: 'on one CPU',
    words: ['taskset', '-c', '0'],
    options: [],
    threads: 2,
    skip: hasTaskset ? (false as const) : 'taskset is not there',
  },
  {
    title: 'with much garbage collection',
    words: [],
    options: ['--max-semi-space-size=1'],
    threads: 4,
    skip: false as const,
  },
]

for (const [i, { title, words, options, threads, skip }] of kinds.entries()) {
  const seed = seeds[i % seeds.length]!
  t.test(
    `no promise is broken when threads die ${title}, seed ${seed}`,
    { skip, timeout: 600_000 },
    async t => {
      const { code, result } = await run(words, options, [
        `seed=${seed}`,
        `threads=${threads}`,
        'cycles=1000',
        `cyclesMin=${DEATHS_MIN}`,
        `limitMs=${SECONDS * 1000}`,
        'quietEvery=10',
      ])
      t.equal(code, 0, 'the run ends by itself')
      if (result === undefined) return
      const { cycles, sent, received, lost, windowMax, asks, watches, faults, threadRestarts } = result
      t.comment({ cycles, sent, received, lost, windowMax, asks, watches, faults, threadRestarts })
      t.strictSame(result.violations, [])
      t.ok(result.threadRestarts >= DEATHS_MIN, 'threads died')
      t.ok(result.received > 1000, 'and work went on')
    },
  )
}
