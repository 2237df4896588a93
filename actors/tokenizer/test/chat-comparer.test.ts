/** One chat that every engine tokenizes, compared with this router. */

import { PromptTokenizer } from '@homing/tokenization'
import t from 'tap'
import { adapter, model } from './fleet.ts'
import { HeardPrompts, start, TINY, untilTrue } from './tokenizer-world.ts'

const ENGINE = {
  origin: 'http://10.0.0.1:8001',
  canTokenize: true,
  models: [model('m'), adapter('poet', 'm')],
}

t.test(
  'an engine with another template is told once, again as another process, and when it agrees',
  async t => {
    const heard = new HeardPrompts()
    const tiny = await PromptTokenizer.load(TINY)
    const settings = { tokenizers: [TINY], directory: heard.ref }
    const { system, serve, tellFleet } = await start(t, settings, { ...ENGINE, canTokenize: false })
    const asked: { model: string; messages: unknown }[] = []
    let added: number[] = []
    await serve(async exchange => {
      const body = JSON.parse(Buffer.from(await exchange.readBody(1e6)).toString())
      asked.push(body)
      const answer = tiny.encodeChat(JSON.stringify(body))
      const tokens = answer.kind === 'tokens' ? [...answer.tokens, ...added] : []
      exchange.writeHead(200, {})
      exchange.end(Buffer.from(JSON.stringify({ tokens })))
    })
    const until = (questions: number) => untilTrue(system, async () => asked.length === questions)
    const told = () => heard.messages.map(({ promptsEpoch, verdict }) => [promptsEpoch, verdict])

    tellFleet(ENGINE)
    await until(1)
    t.match(asked, [{ model: 'm', messages: [{ role: 'user' }] }])
    added = [1, 2]
    tellFleet(ENGINE)
    tellFleet({ ...ENGINE, promptsEpoch: 1 })
    await until(2)
    await system.settle()
    t.match(heard.messages, [
      { type: 'prompts', workerId: 'worker-0', promptsEpoch: 1, model: 'm', route: 'chat', by: 'router' },
    ])
    t.strictSame(told(), [[1, 'differs']], 'one that agreed from the start is no news')
    await system.advance('60s')
    await until(3)
    added = []
    await system.advance('60s')
    await until(4)
    await system.settle()
    t.strictSame(told(), [
      [1, 'differs'],
      [1, 'agrees'],
    ])
    await system.advance('10m')
    t.equal(asked.length, 4, 'one that agrees is not asked again')
  },
)

t.test('an engine that does not answer is asked a few times, and nothing is told', async t => {
  const heard = new HeardPrompts()
  const settings = { tokenizers: [TINY], directory: heard.ref }
  const { system, serve, tellFleet } = await start(t, settings, { ...ENGINE, canTokenize: false })
  let questions = 0
  await serve(exchange => {
    questions++
    exchange.writeHead(404, {})
    exchange.end(Buffer.from('{}'))
  })
  tellFleet(ENGINE)
  for (let asked = 1; asked <= 3; asked++) {
    await untilTrue(system, async () => questions === asked)
    await system.advance('10s')
  }
  tellFleet(ENGINE)
  await system.advance('10m')
  t.strictSame([questions, heard.messages], [3, []])
})
