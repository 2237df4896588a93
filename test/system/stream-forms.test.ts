/**
 * Engines that write their event streams in each form that the standard allows, and of which one dies in the
 * middle: clients over HTTP and programs get each token once.
 */

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { KvRouter } from 'homing'
import t, { type Test } from 'tap'
import { RouterClient, startTestRouter } from './fleet.ts'

const MODEL = 'forms'
const PROMPT = [1, 2, 3]
const TOKENS = 6
const DIES_AFTER = 3
const IDS = Array.from({ length: TOKENS }, (_, i) => 100 + i)
const TEXT = IDS.map(id => `t${id} `).join('')
const MARK = '\ufeff'

interface Form {
  readonly mark?: string
  readonly event: (json: string) => string
}

const FORMS: Readonly<Record<string, Form>> = {
  'line feeds': { event: json => `data: ${json}\n\n` },
  'CR LF': { event: json => `data: ${json}\r\n\r\n` },
  'carriage returns': { event: json => `data:${json}\r\r` },
  'data over several lines': { event: json => `id: 1\ndata: ${json.replaceAll(',"', ',\ndata: "')}\n\n` },
  'comments between': { event: json => `: so\n\nretry: 5\ndata: ${json}\n\n: so far\n\n` },
  'a byte order mark': { mark: MARK, event: json => `data: ${json}\n\n` },
}

/** Engines whose token after n tokens behind the prompt is 100 + n; `wasCut` once one has died. */
async function startEngines(t: Test, { mark = '', event }: Form) {
  const state = { wasCut: false }
  const engine = async (): Promise<string> => {
    const server = createServer(async (request, response) => {
      if (request.url === '/v1/models') {
        response.setHeader('content-type', 'application/json')
        response.end(JSON.stringify({ object: 'list', data: [{ id: MODEL, max_model_len: 4096 }] }))
        return
      }
      if (request.url !== '/v1/completions') {
        response.writeHead(request.url === '/health' ? 200 : 404).end()
        return
      }
      const pieces: Uint8Array[] = []
      for await (const piece of request) pieces.push(piece)
      const { prompt, max_tokens: count } = JSON.parse(Buffer.concat(pieces).toString())
      const given = prompt.length - PROMPT.length
      response.setHeader('content-type', 'text/event-stream')
      if (mark !== '') response.write(mark)
      for (let i = 0; i < count; i++) {
        if (!state.wasCut && i === DIES_AFTER) {
          state.wasCut = true
          response.socket?.destroy()
          return
        }
        const id = 100 + given + i
        const finish_reason = i === count - 1 ? 'length' : null
        const choice = { index: 0, text: `t${id} `, token_ids: [id], finish_reason }
        await new Promise(resolve => response.write(event(JSON.stringify({ choices: [choice] })), resolve))
      }
      response.end(event('[DONE]'))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => void server.close())
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }
  return { state, urls: await Promise.all([engine(), engine()]) }
}

for (const [name, form] of Object.entries(FORMS)) {
  t.test(`a program has each token once: ${name}`, async t => {
    const { state, urls } = await startEngines(t, form)
    const router = await KvRouter.start({ workers: urls, model: MODEL })
    t.teardown(() => router.close())
    const got: number[] = []
    let text = ''
    const reasons: string[] = []
    for await (const output of router.generate({ tokenIds: PROMPT, stopConditions: { maxTokens: TOKENS } })) {
      got.push(...output.tokenIds)
      text += output.text
      if (output.finishReason !== undefined) reasons.push(output.finishReason)
    }
    t.strictSame([got, text, reasons, state.wasCut], [IDS, TEXT, ['length'], true])
  })
}

t.test('a client has no byte order mark in its stream, not of either worker', async t => {
  const { state, urls } = await startEngines(t, FORMS['a byte order mark']!)
  const router = await startTestRouter(urls, [])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  const body = { model: MODEL, prompt: PROMPT, max_tokens: TOKENS, stream: true, return_token_ids: true }
  const { text } = await client.send('/v1/completions', { body })
  t.equal(text.includes(MARK), false)
  const events = text.split('\n\n').filter(event => event.startsWith('data: {'))
  const choices = events.flatMap(event => JSON.parse(event.slice('data: '.length)).choices)
  t.strictSame([choices.map(({ text }) => text).join(''), state.wasCut], [TEXT, true])
})
