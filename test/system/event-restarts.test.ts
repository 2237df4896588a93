/**
 * Event threads and engines that end and begin again: the index ends up equal to the caches, and requests go
 * on meanwhile.
 */

import t from 'tap'
import { assertIndexEqualsCaches, startFleet, until } from './fleet.ts'
import { complete, MODEL, pin, promptOf } from './pinned-prompts.ts'

t.test(
  'an event thread that dies is replaced, its part of the index rebuilt, and requests go on',
  async t => {
    const fleet = await startFleet({
      engines: [{}, {}, {}, {}],
      router: ['--router-event-threads', '2', '--log-level', 'silent'],
    })
    t.teardown(() => fleet.stop())
    for (let seed = 0; seed < 12; seed++) await complete(fleet, promptOf(seed), await pin(fleet, seed % 4))
    await fleet.caughtUp(fleet.engines)
    const shards = new Set(
      (await fleet.workers()).flatMap(worker => worker.worker_keys.map(({ events }) => events!.shard)),
    )
    t.equal(shards.size, 2)

    let isDone = false
    let completed = 0
    const load = Promise.all(
      [0, 1, 2].map(async client => {
        for (let seed = client; !isDone; seed += 3) {
          await complete(fleet, promptOf(seed % 24))
          completed++
        }
      }),
    )
    load.catch(() => {})
    t.teardown(() => {
      isDone = true
    })
    const progress = async () => {
      const wanted = completed + 20
      await Promise.race([load, until('requests go on', () => (completed >= wanted ? true : undefined))])
    }
    await progress()
    for (const thread of ['events-0', 'events-1', 'events-0']) {
      const killedAt = performance.now()
      await fleet.router.system.killThread(thread)
      await progress()
      await fleet.trusted()
      t.comment(`${thread}: trusted again after ${(performance.now() - killedAt).toFixed(0)} ms`)
    }
    await progress()
    isDone = true
    await load
    await fleet.caughtUp(fleet.engines)
    await fleet.trusted()
    await assertIndexEqualsCaches(fleet, fleet.engines)
    t.pass('the index equals the caches')
    t.ok(Number((await complete(fleet, promptOf(3))).headers['x-homing-overlap-blocks']) > 0)
    await fleet.drained()
  },
)

t.test(
  'an engine that restarts within a probe interval loses its blocks and its sequence, and is followed',
  async t => {
    const fleet = await startFleet({ engines: [{}, {}], router: ['--log-level', 'silent'] })
    t.teardown(() => fleet.stop())
    for (let round = 0; round < 3; round++) {
      for (let seed = 0; seed < 4; seed++)
        await complete(fleet, promptOf(seed + round), await pin(fleet, seed % 2))
      await fleet.caughtUp(fleet.engines)
      await fleet.engines[0]!.restart()
      // The first words of its new life may be the first that is heard of its end; until then it may be
      // credited.
      await until('the new life is known', async () => {
        await fleet.send('/v1/completions', {
          body: { model: MODEL, prompt: promptOf(100 + round), max_tokens: 1, ...(await pin(fleet, 0)) },
        })
        const held = (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!.blocks_held
        return held === (await fleet.engines[0]!.state()).ranks[0]!.cachedBlocks ? true : undefined
      })
      await fleet.caughtUp(fleet.engines)
      await fleet.trusted()
      await assertIndexEqualsCaches(fleet, fleet.engines)
    }
    t.pass('the index equals the caches after each restart')
    await fleet.drained()
  },
)
