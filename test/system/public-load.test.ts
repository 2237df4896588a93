/**
 * A load generator of others, autocannon of npm, against the router: every request is answered, and nothing
 * is left. HOMING_LOAD_SECONDS sets for how long (default 1).
 */

import { execFile } from 'node:child_process'
import process from 'node:process'
import { promisify } from 'node:util'
import t from 'tap'
import { startFleet } from './fleet.ts'

const SECONDS = Number(process.env['HOMING_LOAD_SECONDS'] ?? 1)
const GENERATOR = ['--yes', 'autocannon@8']
const CONNECTIONS = 16
const run = promisify(execFile)

const isThere = await run('npx', [...GENERATOR, '--version'], { timeout: 60_000 }).then(
  () => true,
  () => false,
)
const skip = isThere ? false : 'no registry that has autocannon'

for (const stream of [false, true])
  t.test(
    `${CONNECTIONS} clients for ${SECONDS} s, ${stream ? 'streams' : 'whole answers'}`,
    { skip },
    async t => {
      const fleet = await startFleet({ engines: [{}, {}] })
      t.teardown(() => fleet.stop())
      const messages = [{ role: 'user', content: 'tell me something' }]
      const body = JSON.stringify({ model: 'homing-sim', messages, max_tokens: 8, stream })
      const { stdout } = await run(
        'npx',
        [
          ...[...GENERATOR, '--json', '--connections', String(CONNECTIONS), '--duration', String(SECONDS)],
          ...['--method', 'POST', '--headers', 'content-type=application/json', '--body', body],
          `${fleet.url}/v1/chat/completions`,
        ],
        { timeout: (SECONDS + 120) * 1000, maxBuffer: 2 ** 24 },
      )
      const told = JSON.parse(stdout)
      t.match(told, { errors: 0, timeouts: 0, non2xx: 0 })
      t.ok(told['2xx'] > CONNECTIONS, `${told['2xx']} answers`)
      t.comment(`${told['2xx']} answers, ${told.requests.average} a second, p99 ${told.latency.p99} ms`)
      await fleet.drained()
    },
  )
