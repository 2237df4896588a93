/**
 * piscina: tasks of a pool of one worker. Every setting that matters is measured and named; the best one
 * counts.
 */

import { fileURLToPath } from 'node:url'
import type { Measure, Measures } from '../../harness.ts'
import type { Asked } from '../cross-ask-rows.ts'
import { crossAsk, crossAskSequential, load, type Rival, versionOf } from './rival.ts'

interface Pool {
  run(task: { a: number }, options: { name: 'add' }): Promise<{ answer: number }>
  run(task: object, options: { name: 'usage' }): Promise<number>
  destroy(): Promise<void>
}

interface Piscina {
  readonly Piscina: new (options: object) => Pool
}

export const piscina: Rival = {
  version: () => versionOf('piscina'),
  rows: {
    crossAsk: () => bestOf('crossAsk', crossAsk),
    crossAskSequential: () => bestOf('crossAskSequentialP50', crossAskSequential),
  },
}

/** The measures of the setting at which the one of that name is best, and that one at every setting. */
async function bestOf(name: string, measure: (asked: Asked) => Promise<Measures>): Promise<Measures> {
  const { Piscina } = (await load('piscina')) as Piscina
  let best: Measures | undefined
  const each: Record<string, Measure> = {}
  for (const atomics of ['sync', 'async'] as const) {
    for (const concurrentTasksPerWorker of [1, 16]) {
      const pool = new Piscina({
        filename: fileURLToPath(new URL('./task.ts', import.meta.url)),
        minThreads: 1,
        maxThreads: 1,
        execArgv: [],
        atomics,
        concurrentTasksPerWorker,
      })
      const measures = await measure({
        add: a => pool.run({ a }, { name: 'add' }).then(({ answer }) => answer),
        usageUs: () => pool.run({}, { name: 'usage' }),
      })
      await pool.destroy()
      each[`${name}, atomics ${atomics}, ${concurrentTasksPerWorker} tasks per worker`] = measures[name]!
      if (best === undefined || isBetter(measures[name]!, best[name]!)) best = measures
    }
  }
  return { ...best, ...each }
}

function isBetter(measure: Measure, than: Measure): boolean {
  return measure.unit.endsWith('/s') ? measure.value > than.value : measure.value < than.value
}
