/** Where requests come from: conversations and traces, their salts, and that they are the same each time. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { seededRandom } from '@homing/base'
import { generatedRequests, parseGenerator, TRACE_BLOCK_TOKENS, traceText } from '@homing/trace'
import t, { type Test } from 'tap'
import {
  type ConversationOptions,
  conversationSource,
  type RequestSource,
  traceSource,
} from '../src/index.ts'

const CONVERSATIONS: ConversationOptions = {
  endpoint: 'chat',
  seed: 5,
  inputTokens: 20,
  outputTokens: 7,
  prefixTokens: 50,
  prefixes: 3,
  sessions: 4,
  turns: 3,
  ignoresEos: true,
}
const OPTIONS = {
  endpoint: 'completions',
  seed: 1,
  outputTokens: 9,
  ignoresEos: false,
  requestsMax: Number.POSITIVE_INFINITY,
  spanMsMax: Number.POSITIVE_INFINITY,
} as const

interface Chat {
  readonly messages: readonly { readonly role: string; readonly content: string }[]
}

async function bodies(source: RequestSource, count: number, block = 0, blocks = 1, salt = '') {
  const found: Readonly<Record<string, unknown>>[] = []
  if (count === 0) return found
  for await (const request of source.block(block, blocks)) {
    found.push(request.body(salt))
    if (found.length === count) break
  }
  return found
}

function fileOf(t: Test, text: string): string {
  const path = join(t.testdir({}), 'trace.jsonl')
  writeFileSync(path, text)
  return path
}

t.test('conversations share prefixes, grow by turns, and end', async t => {
  const chats = (await bodies(conversationSource(CONVERSATIONS), 200)) as unknown as readonly Chat[]
  const systems = new Set<string>()
  const before = new Set<string>()
  let grown = 0
  for (const { messages } of chats) {
    t.equal(messages[0]!.role, 'system')
    t.equal(messages[0]!.content.split(' ').length, 50)
    systems.add(messages[0]!.content)
    const users = messages.filter(({ role }) => role === 'user')
    t.ok(users.length <= 3 && messages.length === 2 * users.length)
    t.ok(users.every(({ content }) => content.split(' ').length === 20))
    if (users.length > 1) {
      t.ok(before.has(JSON.stringify(messages.slice(0, -2))), 'it goes on with what was sent before')
      grown++
    }
    before.add(JSON.stringify(messages))
  }
  t.equal(systems.size, 3)
  t.ok(grown > 100, `${grown} of 200 went on`)
  t.match(chats[0], { max_tokens: 7, ignore_eos: true })
})

t.test('the same seed and block give the same requests, others give others', async t => {
  const source = conversationSource(CONVERSATIONS)
  const first = await bodies(source, 30)
  t.strictSame(await bodies(source, 30), first)
  t.strictSame(await bodies(conversationSource(CONVERSATIONS), 30), first)
  t.strictNotSame(await bodies(source, 30, 1, 2), first)
  t.strictNotSame(await bodies(conversationSource({ ...CONVERSATIONS, seed: 6 }), 30), first)
})

t.test('without a prefix, and as completions', async t => {
  const [body] = await bodies(
    conversationSource({ ...CONVERSATIONS, prefixTokens: 0, endpoint: 'completions', ignoresEos: false }),
    1,
  )
  t.equal(String(body!['prompt']).split(' ').length, 20)
  t.notOk('ignore_eos' in body!)
})

t.test('a salt is in front of every prompt, whatever its form', async t => {
  const path = fileOf(
    t,
    [
      { messages: [{ role: 'user', content: 'hello' }] },
      {
        messages: [
          { role: 'user', content: [{ type: 'text', text: 'hello' }] },
          { role: 'user', content: 'x' },
        ],
      },
      { messages: [{ role: 'assistant', content: null, tool_calls: [] }] },
      { prompt: 'hello' },
      { prompt: [7, 8], temperature: 0 },
    ]
      .map(body => JSON.stringify(body))
      .join('\n'),
  )
  const source = await traceSource(path, OPTIONS)
  t.strictSame([source.hasTimes, source.count], [false, 5])
  t.strictSame((await bodies(source, 5)).slice(3), [{ prompt: 'hello' }, { prompt: [7, 8], temperature: 0 }])
  const salted = await bodies(source, 5, 0, 1, 'one two')
  t.match(salted, [
    { messages: [{ role: 'user', content: 'one two\n\nhello' }] },
    { messages: [{ content: [{ text: 'one two' }, { text: 'hello' }] }, { content: 'x' }] },
    { messages: [{ role: 'assistant', content: 'one two', tool_calls: [] }] },
    { prompt: 'one two\n\nhello' },
    { temperature: 0 },
  ])
  const ids = salted[4]!['prompt'] as readonly number[]
  t.strictSame(ids.slice(-2), [7, 8])
  t.ok(ids.length > 2 && ids.slice(0, -2).every(id => id >= 100 && id < 1000))
})

t.test('prompts of a trace begin alike exactly as far as their ids do', async t => {
  const random = seededRandom(9)
  for (const spec of ['sessions?requests=60&loop=open', 'groups?requests=40', 'rag?requests=40']) {
    const requests = [...generatedRequests(parseGenerator(spec), random.below(1000))]
    const path = fileOf(
      t,
      traceText(requests.map(each => ({ ...each, timestampMs: Math.round(each.timestampMs) }))),
    )
    const source = await traceSource(path, OPTIONS)
    t.strictSame([source.hasTimes, source.count], [true, requests.length])
    const prompts = (await bodies(source, requests.length)).map(body => String(body['prompt']).split(' '))
    for (const [i, { inputTokens, outputTokens }] of requests.entries()) {
      t.equal(prompts[i]!.length, inputTokens)
      t.equal((await bodies(source, 1))[0]!['max_tokens'], requests[0]!.outputTokens)
      if (outputTokens === 0) t.fail('a generated answer has tokens')
      const j = random.below(requests.length)
      const [a, b] = [requests[i]!.hashIds, requests[j]!.hashIds]
      let same = 0
      while (same < Math.min(a.length, b.length) && a[same] === b[same]) same++
      const words = prompts[i]!
      const others = prompts[j]!
      let alike = 0
      while (alike < Math.min(words.length, others.length) && words[alike] === others[alike]) alike++
      const shared = Math.min(same * TRACE_BLOCK_TOKENS, words.length, others.length)
      t.ok(alike >= shared, `${spec}: ${i} and ${j} share ${same} ids and ${alike} words`)
      // Words of different blocks are equal by chance now and then, not many in a row.
      t.ok(i === j || alike <= shared + 16, `${spec}: ${i} and ${j} share ${same} ids and ${alike} words`)
    }
  }
})

t.test('blocks of a trace have equal sizes and no request in common, and limits hold', async t => {
  const lines = Array.from({ length: 23 }, (_, i) =>
    JSON.stringify({ timestamp: 1000 + 100 * i, prompt: `p${i}` }),
  )
  const path = fileOf(t, lines.join('\n'))
  const source = await traceSource(path, OPTIONS)
  const all: unknown[] = []
  for (let block = 0; block < 4; block++) {
    const found = await bodies(source, 100, block, 4)
    t.equal(found.length, 5)
    all.push(...found.map(({ prompt }) => prompt))
  }
  t.strictSame(
    all,
    Array.from({ length: 20 }, (_, i) => `p${i}`),
  )
  t.equal((await traceSource(path, { ...OPTIONS, requestsMax: 7 })).count, 7)
  t.equal((await traceSource(path, { ...OPTIONS, spanMsMax: 500 })).count, 6)
})

t.test('a generator is a trace, and what cannot be read says so', async t => {
  const source = await traceSource('generator:sessions?requests=12', OPTIONS)
  t.strictSame([source.hasTimes, source.count], [true, 12])
  await t.rejects(traceSource('generator:nothing', OPTIONS), { code: 'HOMING_TRACE_BAD_GENERATOR' })
  await t.rejects(traceSource('/nowhere', OPTIONS), { code: 'HOMING_TRACE_UNREADABLE' })
  await t.rejects(traceSource(fileOf(t, 'no JSON'), OPTIONS), { code: 'HOMING_TRACE_MALFORMED' })
})
