/**
 * Simulated engines in a process of their own. `engines.ts COUNT SPEED TOKENIZER [PLANES [NATS [ROLES]]]`:
 * prints one line when all serve, with their URLs, and ends when its standard input does. PLANES has the
 * request plane of each, with commas between them; without it all are called over HTTP. Over NATS, at the
 * broker NATS, the process relays to its engines. ROLES has the part of a request that each takes; without it
 * all take whole ones.
 */

import { createActorSystem } from '@homing/actor'
import { type EngineRole, engine } from '@homing/engine'
import { register, requestSubjectOf } from '@homing/publisher'

const START_MS_MAX = 60_000
const [count, speed] = process.argv.slice(2, 4).map(Number) as [number, number]
const tokenizer = process.argv[4]!

const system = await createActorSystem({ name: 'engines', logLevel: 'error' })
const planes = (process.argv[5] ?? '').split(',')
const nats = process.argv[6] ?? ''
const roles = (process.argv[7] ?? '').split(',') as readonly (EngineRole | '')[]
const refs = Array.from({ length: count }, (_, number) =>
  system.spawn(engine, {
    name: `engine-${number}`,
    args: {
      ...{ port: 0, eventsPort: 0, replayPort: 0, tokenizer, speed },
      ...(planes[number] === 'tcp' ? { requestPlane: 'tcp' as const } : {}),
      role: roles[number] || 'both',
    },
  }),
)
const engines = await Promise.all(refs.map(ref => ref.ask({ type: 'describe' }, { timeout: START_MS_MAX })))
const urls = await Promise.all(
  engines.map(async ({ url, requests }, number) => {
    if (requests !== undefined) return `${url}?requests=${requests}`
    if (planes[number] !== 'nats') return url
    // Of a namespace that no router has: they are told the URL.
    const subject = requestSubjectOf(new URL(url).host)
    const told = `${url}?requests=${subject}`
    await register({ url: told, nats: [nats], namespace: 'bench', serve: { engine: url } }).ready
    return told
  }),
)
process.stdout.write(`engines ready on ${urls.join(' ')} (pid ${process.pid})\n`)
process.stdin.resume().on('end', () => process.exit())
