/**
 * Workers as they were set at run time outlive the directory, which has them, and the console, which takes
 * changes in.
 */

import t from 'tap'
import { SimulatedFleet } from './simulated-fleet.ts'

const REST_MS = 2000

t.test(
  'who was removed, added and drained is so after every failure of the actors that know of it',
  async t => {
    const fleet = await SimulatedFleet.start({ seed: 5, engines: [{}, {}, {}] })
    const { simulation } = fleet
    const workers = async () => {
      const view = (await fleet.view('/workers')) as { workers: { id: string; state: string }[] }
      return view.workers.map(({ id, state }) => `${id} ${state}`)
    }
    const [first, second, third] = (await workers()).map(line => line.split(' ')[0]!)
    const ids = async () => (await workers()).map(line => line.split(' ')[0])
    t.equal((await fleet.ask({ path: `/workers/${second}`, method: 'DELETE' })).status, 200)
    t.strictSame(await ids(), [first, third])
    const fail = async (victim: string) => {
      t.ok(simulation.fail(victim))
      await simulation.run(undefined, { within: REST_MS })
    }
    for (const victim of ['directory', 'console', 'directory']) {
      await fail(victim)
      t.strictSame(await ids(), [first, third], `after ${victim}`)
    }
    t.equal((await fleet.ask({ path: '/workers', method: 'POST' }, { url: `http://${second}` })).status, 201)
    t.equal((await fleet.ask({ path: `/workers/${first}`, method: 'DELETE' })).status, 200)
    await fail('directory')
    t.strictSame(await workers(), [`${third} up`, `${second} up`])
    await fleet.stop()
    t.strictSame(simulation.violations, [])
  },
)
