/** The console fails while requests run: they are not affected, and no total is lost. */

import t from 'tap'
import { BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from './simulated-fleet.ts'

const ADMIN_PORT = 9000
const ADMIN = `http://127.0.0.1:${ADMIN_PORT}`
const REQUESTS = 20
/** Longer than the longest pause before a restart. */
const REST_MS = 7000

for (const origin of [undefined, ADMIN]) {
  const where = origin === undefined ? 'on the port of the API' : 'on a port of its own'
  t.test(`a console ${where} that fails again and again disturbs no request`, async t => {
    const settings = origin === undefined ? {} : { adminPort: ADMIN_PORT }
    const fleet = await SimulatedFleet.start({ seed: 7, engines: [{}, {}], settings })
    const { simulation } = fleet
    const views = { method: 'GET', ...(origin === undefined ? {} : { origin }) }
    const figures = async (): Promise<readonly string[]> => {
      const reply = await fleet.ask({ ...views, path: '/metrics' })
      t.equal(reply.status, 200)
      const lines = Buffer.from(reply.body).toString().split('\n')
      // Of the rest, what passes meanwhile counts too: probes, messages, the process.
      return lines.filter(line => /^homing_(gateway|router|audit|index|tracker|directory)_/.test(line))
    }

    const seen = new Map<string, number>()
    const count = (what: string): void => void seen.set(what, (seen.get(what) ?? 0) + 1)
    const open: Promise<void>[] = []
    let deaths = 0
    for (let request = 0; request < REQUESTS; request++) {
      const prompt = Array.from({ length: 3 * BLOCK_SIZE_TOKENS }, (_, at) => 40 + ((request + at) % 9))
      const body = { model: MODEL, prompt, max_tokens: 10, stream: request % 2 === 0 }
      open.push(fleet.send({}, body, 20_000).then(({ status }) => count(`request ${status}`)))
      open.push(
        fleet.send({ ...views, path: '/workers' }, undefined, 20_000).then(
          ({ status }) => count(`view ${status}`),
          () => count('view refused'),
        ),
      )
      if (simulation.fail('console')) deaths++
      await simulation.run(undefined, { within: 100 })
    }
    await simulation.settle(Promise.all(open), { within: 30_000 })
    t.ok(deaths > 3, `${deaths} deaths`)
    t.equal(seen.get('request 200'), REQUESTS)
    t.comment(`${deaths} deaths: ${[...seen].join('; ')}`)
    for (const outcome of seen.keys())
      t.ok(['request 200', 'view 200', 'view 503', 'view 504', 'view refused'].includes(outcome), outcome)
    if (origin === undefined) t.notOk(seen.has('view refused'), 'the gateway answers for the console')

    await simulation.run(undefined, { within: REST_MS })
    const before = await figures()
    t.ok(before.includes(`homing_gateway_requests_total{route="completions",status="200"} ${REQUESTS}`))
    t.ok(simulation.fail('console'))
    await simulation.run(undefined, { within: REST_MS })
    t.strictSame(await figures(), before, 'the next life shows the same totals')
    t.strictSame(await fleet.stop(), [])
    t.strictSame(simulation.violations, [])
  })
}
