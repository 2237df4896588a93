/** A token call has one head and one end, whatever its worker answers, and leaves no worker generating. */

import { fileURLToPath } from 'node:url'
import { SimulatedClock } from '@homing/base'
import type { TokenWishes } from '@homing/openai'
import { loadDecoder, TokenTexts } from '@homing/tokenization'
import type { HttpHeaders, HttpResponseHandler } from '@homing/transport'
import t from 'tap'
import { TokenCall } from '../../src/tokens/token-call.ts'
import { TokenPrompt } from '../../src/tokens/token-prompt.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
const texts = new TokenTexts(await loadDecoder(TINY))
const LINES = { 'content-type': 'application/x-ndjson' }
const WISHES: TokenWishes = {
  ...{ form: 'chat', model: 'm', isStream: true, wantsUsage: false, wantsIds: true, cacheSalt: undefined },
  ...{ maxTokens: 5, minTokens: 0, stop: [], stopTokenIds: [9], ignoresEos: false },
  ...{ includesStop: false, skipsSpecial: true, sampling: {} },
}

function callWith(wishes: Partial<TokenWishes> = {}, prompt?: TokenPrompt) {
  const told: string[] = []
  const endings: string[] = []
  const worker = { body: '', aborted: 0, path: '' }
  let upstream: HttpResponseHandler | undefined
  const clock = new SimulatedClock()
  const http = {
    call({ body, path }: { body?: Uint8Array; path: string }, handler: HttpResponseHandler) {
      worker.body = Buffer.from(body!).toString()
      worker.path = path
      upstream = handler
      return { abort: () => void worker.aborted++, pause() {}, resume() {}, usesBody: false }
    },
  }
  const given =
    prompt ??
    new TokenPrompt({
      ...{ model: 'm', ids: Int32Array.of(1, 2), wishes: { ...WISHES, ...wishes }, texts, maxTokens: 5 },
      ...{ take: () => true, isForAll: true },
    })
  const call = new TokenCall(
    { http, clock, ended: ending => endings.push(ending) },
    { origin: 'http://w:1', method: 'POST', path: '/v1/chat/completions', headers: {} },
    given,
    { requestId: 'r', wantsUsage: false },
    {
      head: (status, headers) => told.push(`head ${status} ${headers['content-type']}`),
      data: bytes => told.push(Buffer.from(bytes).toString()),
      end: how => told.push(`end ${how}`),
      failed: ({ message }) => told.push(`failed ${message}`),
    },
  )
  const answer = (status: number, headers: HttpHeaders, ...lines: readonly object[]) => {
    upstream!.head(status, headers)
    for (const line of lines) upstream!.data(Buffer.from(`${JSON.stringify(line)}\n`))
  }
  return { call, told, endings, worker, answer, end: () => upstream!.end('framed'), prompt: given, clock }
}

t.test('an end that the router finds aborts the worker, one of the worker does not', async t => {
  const found = callWith()
  found.answer(200, LINES, { token_ids: [5] }, { token_ids: [9, 7, 7] }, { token_ids: [7] })
  t.equal(found.worker.aborted, 1)
  t.strictSame(found.endings, ['stop_id'])
  t.equal(found.told.at(-1), 'end framed')
  t.equal(found.told.filter(text => text.startsWith('head')).length, 1)
  const own = callWith()
  own.answer(200, LINES, { token_ids: [5] }, { token_ids: [], finish_reason: 'stop' })
  own.end()
  own.call.abort()
  t.strictSame([own.endings, own.told.at(-1)], [['worker'], 'end framed'])
})

t.test('what is no answer of token ids has failed, once, and passes nothing', async t => {
  for (const [headers, lines, reason] of [
    [{ 'content-type': 'text/html' }, [], /answered 200 with text\/html, not application\/x-ndjson/],
    [LINES, [{ token_ids: 'x' }], /a line that is no output of token ids/],
    [LINES, [{ error: 'out of memory' }], /said: out of memory/],
    [LINES, [{ token_ids: [], finish_reason: 'error' }], /said: it gave up the request/],
    [LINES, [], /ended without a finish_reason/],
  ] as const) {
    const broken = callWith()
    broken.answer(200, headers, ...lines)
    broken.end()
    t.equal(broken.told.length, 1)
    t.match(broken.told[0], reason)
    t.strictSame(broken.endings, ['failed'])
  }
})

t.test('a refusal of the worker is passed as it is', async t => {
  const { told, answer, end } = callWith()
  answer(503, { 'content-type': 'application/json' }, { error: 'full' })
  end()
  t.strictSame(told, ['head 503 application/json', '{"error":"full"}\n', 'end framed'])
})

t.test('another worker goes on behind the ids that there are, in the same stream', async t => {
  const first = callWith({ minTokens: 3 })
  first.answer(200, LINES, { token_ids: [5, 6] })
  const rest = callWith({}, first.prompt.rest())
  const { token_ids, resumed_tokens, stop_conditions } = JSON.parse(rest.worker.body)
  t.strictSame([token_ids, resumed_tokens], [[1, 2, 5, 6], 2])
  t.match(stop_conditions, { max_tokens: 3, min_tokens: 1 })
  rest.answer(200, LINES, { token_ids: [7, 8, 8, 8] })
  t.notMatch(rest.told.join(''), /"role"/, 'whose turn it is was said before')
  t.match(rest.told.join(''), /"finish_reason":"length"/)
  const idOf = (texts: readonly string[]) => /"id":"[^"]+"/.exec(texts.join(''))?.[0]
  t.equal(idOf(rest.told), idOf(first.told))
})
