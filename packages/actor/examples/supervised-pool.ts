/**
 * Supervised pool: four workers on two threads. One job fails its worker, which is restarted; the ask of that
 * job ends at its deadline, because the foreman handed its reply on, and the others are answered.
 */

import { createActorSystem } from '@homing/actor'
import { foreman } from './pool-foreman.ts'

const system = await createActorSystem({ pools: { core: { count: 2 } }, logLevel: 'silent' })
const ref = system.spawn(foreman, { name: 'foreman', args: { workers: 4 } })

const double = (n: number): Promise<number> => ref.ask({ type: 'double', n }, { timeout: '2s' })
// The first jobs wait until the workers have started.
await Promise.all([1, 2, 3, 4].map(n => ref.ask({ type: 'double', n }, { timeout: '30s' })))
const jobs = Array.from({ length: 20 }, (_, n) => double(n))
const outcomes = await Promise.allSettled(jobs)
const answered = outcomes.filter(outcome => outcome.status === 'fulfilled')
console.log(`answered: ${answered.length} of ${outcomes.length}`)
console.log(`sum: ${answered.reduce((sum, { value }) => sum + value, 0)}`)
console.log(`restarts: ${(await system.stats()).restarts}`)

await system.shutdown()
