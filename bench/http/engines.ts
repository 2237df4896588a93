/**
 * Simulated engines in a process of their own. `engines.ts COUNT SPEED TOKENIZER`: prints one line when all
 * serve, with their URLs, and ends when its standard input does.
 */

import { createActorSystem } from '@homing/actor'
import { engine } from '@homing/engine'

const START_MS_MAX = 60_000
const [count, speed] = process.argv.slice(2, 4).map(Number) as [number, number]
const tokenizer = process.argv[4]!

const system = await createActorSystem({ name: 'engines', logLevel: 'error' })
const refs = Array.from({ length: count }, (_, number) =>
  system.spawn(engine, {
    name: `engine-${number}`,
    args: { port: 0, eventsPort: 0, replayPort: 0, tokenizer, speed },
  }),
)
const engines = await Promise.all(refs.map(ref => ref.ask({ type: 'describe' }, { timeout: START_MS_MAX })))
process.stdout.write(`engines ready on ${engines.map(({ url }) => url).join(' ')} (pid ${process.pid})\n`)
process.stdin.resume().on('end', () => process.exit())
