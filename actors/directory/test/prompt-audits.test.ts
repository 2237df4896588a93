/** Engines that make other tokens of prompts than the router: who tokenizes then, and the trust. */

import t from 'tap'
import type { PromptsMessage } from '../src/index.ts'
import { type EngineAnswers, EVENTS, world } from './directory-world.ts'

const HOSTS = ['10.0.0.1', '10.0.0.2', '10.0.0.3'] as const

async function fleet(t: Parameters<typeof world>[0], count: number, answers: EngineAnswers = {}) {
  const w = await world(t)
  const hosts = HOSTS.slice(0, count)
  for (const host of hosts) {
    await w.engine(host, { events: EVENTS, ...answers })
    await w.publisher(`tcp://${host}:5557`)
    await w.replaySocket(`tcp://${host}:5558`)
  }
  await w.begin(hosts.map(host => `http://${host}:8000`))
  const said = async (position: number, fields: Partial<PromptsMessage> = {}) => {
    const { id: workerId, promptsEpoch = 0 } = w.worker(position)
    const verdict = { by: 'router', verdict: 'differs', reason: '4 answers' } as const
    w.ref.tell({ type: 'prompts', workerId, promptsEpoch, model: 'm', route: 'chat', ...verdict, ...fields })
    await w.system.settle()
  }
  const trusts = () => w.fleet.workers.map(({ keys }) => keys[0]!.trust)
  const asked = () => w.fleet.engineTokenized?.map(({ route, workerIds }) => [route, ...workerIds])
  return { w, said, trusts, asked }
}

t.test('an engine that makes other tokens is asked for them, until it restarts', async t => {
  const { w, said, trusts, asked } = await fleet(t, 1)
  t.strictSame([trusts(), asked()], [['exact'], []])
  await said(0)
  t.strictSame(asked(), [['chat', '10.0.0.1:8000']])
  t.match(w.fleet.engineTokenized, [{ model: 'm', reason: '10.0.0.1:8000: 4 answers' }])
  t.strictSame(trusts(), ['exact'], 'its own tokens are found in its cache')
  await said(0)
  t.equal(w.log.lines.filter(({ text }) => text.includes('have other tokens')).length, 1)
  await said(0, { route: 'completions', promptsEpoch: 9 })
  t.equal(asked()?.length, 1, 'a verdict on another process says nothing')

  await said(0, { by: 'engine' })
  t.strictSame(trusts(), ['partial'])
  t.match(w.worker().keys[0]?.trustReason, /prompts of m \(chat\) have other tokens.*4 answers.*--tokenizer/)
  await said(0, { by: 'engine', verdict: 'agrees' })
  t.strictSame(trusts(), ['exact'])

  w.answers.set('10.0.0.1', { events: EVENTS, startSeconds: 2000 })
  w.ref.tell({ type: 'lookAgain', workerId: '10.0.0.1:8000' })
  await w.system.settle()
  t.strictSame(asked(), [])
  t.equal(w.worker().promptsEpoch, 1)
})

t.test('it comes back when the engine agrees', async t => {
  const { said, asked } = await fleet(t, 1)
  await said(0)
  await said(0, { verdict: 'agrees' })
  t.strictSame(asked(), [])
  await said(0, { by: 'engine' })
  t.strictSame(asked(), [], 'verdicts on tokens by engines count only while they are asked')
})

t.test('the majority of the workers decides; who differs from the tokens in use is not exact', async t => {
  const { w, said, trusts, asked } = await fleet(t, 3)
  await said(1)
  t.strictSame([asked(), trusts()], [[], ['exact', 'partial', 'exact']])
  await said(2)
  t.strictSame(
    [asked(), trusts()],
    [[['chat', '10.0.0.2:8000', '10.0.0.3:8000']], ['exact', 'exact', 'exact']],
  )
  await said(0, { by: 'engine' })
  t.strictSame(trusts(), ['partial', 'exact', 'exact'])
  const removed = w.ref.ask({ type: 'removeWorker', workerId: '10.0.0.3:8000' }, { timeout: 1000 })
  await w.system.settle()
  await removed
  t.strictSame([asked(), trusts()], [[], ['exact', 'partial']])
})

t.test('where no worker can be asked, texts must do, and it is not exact', async t => {
  const { w, said, trusts, asked } = await fleet(t, 1, { canTokenize: false })
  await said(0)
  t.strictSame([asked(), trusts()], [[['chat']], ['partial']])
  t.match(w.worker().keys[0]?.trustReason, /known only as text/)
})
