import { createActorSystem } from '@homing/actor'
import { silentLog, systemClock } from '@homing/base'
import { systemTransport } from '@homing/transport'
import t from 'tap'
import { engine } from '../src/index.ts'
import { QUICK, send } from './engine-client.ts'

t.test('engines run on threads of their own, answer, and end when they are told', async t => {
  const system = await createActorSystem({ logLevel: 'silent' })
  t.teardown(() => system.shutdown({ deadline: '5s' }))
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  const engines = [0, 1].map(i =>
    system.spawn(engine, { name: `engine-${i}`, thread: 'dedicated', args: { ...QUICK, model: `m${i}` } }),
  )
  const urls: string[] = []
  for (const ref of engines) {
    const description = await ref.ask({ type: 'describe' }, { timeout: '1m' })
    urls.push(description.url)
    t.equal(description.ranks.length, 1)
  }
  t.not(urls[0], urls[1])
  const answer = await send(transport, urls[1]!, 'POST', '/v1/completions', { prompt: 'abc', max_tokens: 2 })
  t.equal(answer.json.model, 'm1')

  t.match(await engines[1]!.ask({ type: 'state' }, { timeout: '1m' }), { requestsTaken: 1, epoch: 1 })
  t.match(await engines[1]!.ask({ type: 'faults', body: { no: 1 } }, { timeout: '1m' }), /unknown fault no/)
  await engines[1]!.ask({ type: 'restart' }, { timeout: '1m' })
  t.match(await engines[1]!.ask({ type: 'state' }, { timeout: '1m' }), { epoch: 2 })

  const ended = system.whenTerminated(engines[0]!)
  await send(transport, urls[0]!, 'POST', '/admin/kill', {}).catch(() => undefined)
  t.equal((await ended).reason, 'stopped')
  await t.rejects(send(transport, urls[0]!, 'GET', '/health'))
  await system.stop(engines[1]!)
  await t.rejects(send(transport, urls[1]!, 'GET', '/health'))
})

t.test('an engine whose port is taken fails', async t => {
  const system = await createActorSystem({ logLevel: 'silent' })
  t.teardown(() => system.shutdown({ deadline: '5s' }))
  const first = system.spawn(engine, { name: 'first', args: QUICK })
  const { port } = await first.ask({ type: 'describe' }, { timeout: '1m' })
  const second = system.spawn(engine, { name: 'second', args: { ...QUICK, port } })
  const ended = await system.whenTerminated(second)
  t.equal(ended.reason, 'failed')
  t.equal(ended.error?.code, 'HOMING_TRANSPORT_LISTEN')
})
