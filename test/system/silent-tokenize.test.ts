/** Engines that are asked to tokenize and do not answer, over real sockets: what requests wait for. */

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { RouterClient, startTestRouter, until } from './fleet.ts'

const MODEL = 'm'
const REQUESTS = 24

interface Engine {
  readonly url: string
  /** `/tokenize` takes requests and says nothing. */
  isSilent: boolean
  /** Questions that it got while it was silent. */
  unanswered: number
}

async function startEngine(t: Test): Promise<Engine> {
  const server = createServer((request, response) => {
    request.resume()
    request.on('end', () => {
      const isTokenize = request.url === '/tokenize'
      if (isTokenize && engine.isSilent) return void engine.unanswered++
      const body = isTokenize ? { count: 4, tokens: [1, 2, 3, 4] } : { data: [{ id: MODEL }] }
      const isKnown = isTokenize || request.url === '/v1/models' || request.url === '/health'
      response.writeHead(isKnown ? 200 : 404, { 'content-type': 'application/json' })
      response.end(JSON.stringify(body))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const engine = { url: `http://127.0.0.1:${port}`, isSilent: false, unanswered: 0 }
  return engine
}

t.test('of three engines one whose /tokenize is silent costs no request its tokens', async t => {
  const engines = [await startEngine(t), await startEngine(t), await startEngine(t)]
  const running = await startTestRouter(
    engines.map(({ url }) => url),
    ['--log-level', 'silent', '--router-policy', 'linear'],
  )
  t.teardown(() => running.stop(0))
  const router = new RouterClient(running.url)
  await until('all engines can be asked', async () => {
    const { workers } = (await router.send('/workers')).json
    return workers.filter((worker: { tokenize: boolean }) => worker.tokenize).length === 3 || undefined
  })
  const [sick] = engines
  sick!.isSilent = true
  const route = async (count: number) => {
    const by = new Map<string, number>()
    for (let i = 0; i < count; i++) {
      const body = { model: MODEL, prompt: `hello ${i}` }
      const { tokenized_by: who } = (await router.send('/route', { body })).json
      by.set(who, (by.get(who) ?? 0) + 1)
    }
    return [...by]
  }
  t.strictSame(
    await route(REQUESTS),
    [['engine', REQUESTS]],
    'no request waits until the question is given up',
  )
  const metrics = (await router.send('/metrics')).text
  t.match(metrics, /^homing_tokenizer_hedges_total [1-9]/m)
  t.match(metrics, /^homing_tokenizer_silent_state\{worker="[^"]+"\} 1$/m)
  t.ok(sick!.unanswered < REQUESTS / 3, `it was asked ${sick!.unanswered} times, its share would be 8`)

  sick!.isSilent = false
  await until('it is asked again', async () => {
    await route(1)
    const { text } = await router.send('/metrics')
    return text.includes('homing_tokenizer_silent_state{') ? undefined : true
  })
})
