import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type DeliveredForm, DeliveredStream, eventsOf, UsageTap } from '../src/index.ts'

const HEAD = { id: 'c-1', created: 7, model: 'm' }

interface Piece {
  readonly text: string
  /** How the event is written: as others, with its members in another order, or as ASCII. */
  readonly manner: 'same' | 'other' | 'ascii'
}

const pieces = fc.array(
  fc.record({
    text: fc.oneof(
      fc.string({ maxLength: 6, unit: 'grapheme' }),
      fc.constantFrom(
        '',
        '"',
        '\\',
        '\\"',
        '\n',
        '"}]}',
        '"content":"',
        '"text":"',
        'é',
        '😀',
        '\u0000',
        '}',
      ),
    ),
    manner: fc.constantFrom('same', 'same', 'same', 'other', 'ascii'),
  }) as fc.Arbitrary<Piece>,
  { maxLength: 30 },
)

function chunkOf(form: DeliveredForm, text: string, manner: Piece['manner']): string {
  const said = form === 'chat' ? { delta: { content: text } } : { text }
  const choice = { index: 0, ...said, logprobs: null, finish_reason: null }
  const chunk = manner === 'other' ? { choices: [choice], ...HEAD } : { ...HEAD, choices: [choice] }
  const json = JSON.stringify(chunk)
  const escaped = (letter: string): string => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`
  return `data: ${manner === 'ascii' ? json.replace(/[^ -~]/g, escaped) : json}\n\n`
}

const UNBOUNDED = (): boolean => true

for (const form of ['chat', 'completions'] as const)
  t.test(`the text of a stream of ${form} is that of its events, however they are cut`, async t => {
    const property = fc.property(pieces, fc.infiniteStream(fc.nat(4)), (all, cuts) => {
      const role =
        form === 'chat' ? 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n' : ''
      const events = [
        role,
        ': a comment\n\n',
        ...all.map(({ text, manner }) => chunkOf(form, text, manner)),
      ].filter(event => event !== '')
      const stream = new DeliveredStream(form, UNBOUNDED)
      // In whole events, as they pass.
      while (events.length > 0) {
        const count = 1 + cuts.next().value
        stream.push(Buffer.from(events.splice(0, count).join('')))
      }
      t.equal(stream.unfit, undefined)
      const { text, isFinished, hasUsage } = stream.read()
      t.equal(text, all.map(piece => piece.text).join('')) || t.bailout('another text')
      t.notOk(isFinished || hasUsage)
    })
    fc.assert(property, { numRuns: 300 })
    t.end()
  })

for (const form of ['chat', 'completions'] as const)
  t.test(`where the texts of ${form} are need not be looked for where a tap has found them`, async t => {
    const said = (text: string) => (form === 'chat' ? { delta: { content: text } } : { text })
    const chunk = (members: object): string =>
      `data: ${JSON.stringify({ ...HEAD, choices: [{ index: 0, ...members }] })}\n\n`
    const others = fc.constantFrom(
      chunk({ ...said('end'), finish_reason: 'stop' }),
      chunk({ ...said('second'), index: 1 }),
      chunk({ ...said('ids'), token_ids: [5] }),
      chunk({ delta: { reasoning_content: 'because' } }),
      chunk({ delta: { reasoning_content: 'because', content: null } }),
      ': a comment\n\n',
      'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n',
      'data: {"error":{"message":"no"}}\n\n',
      'data: [DONE]\n\n',
    )
    const streams = fc.tuple(pieces, pieces, fc.array(others, { maxLength: 2 }), pieces)
    let alikeCount = 0
    const property = fc.property(
      streams,
      fc.infiniteStream(fc.nat(400)),
      fc.constantFrom(Number.POSITIVE_INFINITY, 0, 300),
      ([first, second, rare, third], cuts, bytesMax) => {
        const event = ({ text, manner }: Piece): string => chunkOf(form, text, manner)
        const text = [...first, ...second].map(event).join('') + rare.join('') + third.map(event).join('')
        const bytes = new TextEncoder().encode(text)
        const room = { tap: bytesMax, alone: bytesMax }
        const take = (whose: keyof typeof room) => (count: number) => {
          if (count > room[whose]) return false
          room[whose] -= count
          return true
        }
        const [tapped, alone] = [
          new DeliveredStream(form, take('tap')),
          new DeliveredStream(form, take('alone')),
        ]
        const tap = new UsageTap('sse')
        for (let at = 0; at < bytes.length; ) {
          // Mostly a whole event, as engines send them.
          const cut = cuts.next().value
          const eventEnd = bytes.findIndex((byte, i) => i > at && byte === 10 && bytes[i - 1] === 10) + 1
          const end = cut > 100 && eventEnd > 0 ? eventEnd : at + 1 + cut
          const piece = bytes.subarray(at, end)
          at = end
          const passing = tap.push(piece)
          const alike = passing === piece ? tap.alike : undefined
          if (alike !== undefined) alikeCount++
          tapped.push(passing, alike)
          alone.push(passing)
        }
        assertSame(tapped, alone)
      },
    )
    fc.assert(property, { numRuns: 500 })
    t.ok(alikeCount > 100, `${alikeCount} chunks were not looked at`)
  })

function assertSame(one: DeliveredStream, other: DeliveredStream): void {
  assert.deepEqual(
    [one.unfit, one.isFinished, one.isUnfinished],
    [other.unfit, other.isFinished, other.isUnfinished],
  )
  if (one.unfit === undefined) assert.deepEqual(one.read(), other.read())
}

t.test('only a parser can tell where the text of some events is', async t => {
  const streamOf = (...events: readonly string[]) => {
    const stream = new DeliveredStream('chat', UNBOUNDED)
    for (const event of events) stream.push(Buffer.from(`${event}\n\n`))
    return stream
  }
  const usual = (text: string) => `data: {"choices":[{"index":0,"delta":{"content":"${text}"}}]}`
  // A name twice, one with an escape, two lines of data, members before the list.
  const strange = [
    'data: {"choices":[{"index":0,"delta":{"content":"x","content":" b"}}]}',
    'data: {"choices":[{"index":0,"delta":{"content":"x","cont\\u0065nt":" b"}}]}',
    'data: {"choices":[{"index":0,"delta":\ndata: {"content":" b"}}]}',
    'event: chunk\ndata: {"choices":[{"index":0,"delta":{"content":" b"}}]}',
    'data: {"x":{"choices":[{"delta":{"content":"y"}}]},"choices":[{"index":0,"delta":{"content":" b"}}]}',
  ]
  for (const event of strange) {
    t.equal(streamOf(usual('a'), event, usual(' c'), usual(' d')).read().text, 'a b c d', event)
    t.equal(streamOf(event, event, usual(' c')).read().text, ' b b c', event)
  }
  t.equal(streamOf(usual('a'), 'data: {"choices":[{"index":1,"delta":{"content":"b"}}]}').unfit, 'choices')
  t.equal(
    streamOf(usual('a'), 'data: {"choices":[{"index":0,"delta":[{"content":"b"}]}]}').unfit,
    'other_content',
  )
})

t.test('events that are all different are parsed as they come, so that few of them are kept', async t => {
  const stream = new DeliveredStream('chat', UNBOUNDED)
  const event = (n: number) =>
    `data: {"created":${n},"choices":[{"index":0,"delta":{"content":" ${n}"}}]}\n\n`
  let text = ''
  for (let n = 0; n < 500; n++) {
    stream.push(Buffer.from(event(n)))
    text += ` ${n}`
  }
  t.equal(stream.read().text, text)
})

t.test(
  'of a stream with token ids these are kept, however they are cut and whatever text they have',
  async t => {
    const idLists = fc.array(
      fc.record({
        text: fc.constantFrom('', 'a', 'é'),
        ids: fc.array(fc.nat(0xffff_ffff), { maxLength: 3 }),
      }),
    )
    const property = fc.property(idLists, fc.infiniteStream(fc.nat(4)), (all, cuts) => {
      const events = all.map(({ text, ids }) => {
        // Text without ids of its own is that of ids before.
        const choice = { index: 0, text: ids.length === 0 ? '' : text, token_ids: ids, finish_reason: null }
        return `data: ${JSON.stringify({ ...HEAD, choices: [choice] })}\n\n`
      })
      const stream = new DeliveredStream('completions', UNBOUNDED)
      while (events.length > 0) stream.push(Buffer.from(events.splice(0, 1 + cuts.next().value).join('')))
      const expected = all.flatMap(({ ids }) => ids)
      const { text, ids } = stream.read()
      t.strictSame([...new Uint32Array(ids ?? [])], expected) || t.bailout('other ids')
      t.equal(text, '')
    })
    fc.assert(property, { numRuns: 200 })
  },
)

t.test('text without its ids, among others with them, is not continued', async t => {
  const unfit = (...choices: readonly object[]) => {
    const stream = new DeliveredStream('completions', UNBOUNDED)
    for (const choice of choices)
      stream.push(Buffer.from(`data: ${JSON.stringify({ choices: [{ index: 0, ...choice }] })}\n\n`))
    return stream.unfit
  }
  t.equal(unfit({ text: 'a', token_ids: [1] }, { text: 'b' }), 'ids')
  t.equal(unfit({ text: 'a' }, { text: 'b' }, { text: 'c', token_ids: [1] }), 'ids')
  t.equal(
    unfit({ text: '', token_ids: null }, { text: 'b', token_ids: [1] }, { text: 'c', token_ids: null }),
    'ids',
  )
  t.equal(unfit({ text: 'a', token_ids: null }, { text: 'b', token_ids: [1] }), 'ids')
  t.equal(unfit({ text: 'a', token_ids: [-1] }), 'ids')
  t.equal(unfit({ text: 'a', token_ids: ['1'] }), 'ids')
  t.equal(unfit({ text: 'a', token_ids: [1] }, { text: '' }, { text: 'b', token_ids: [] }), undefined)
})

t.test('characters that two events share are one', async t => {
  const stream = new DeliveredStream('chat', UNBOUNDED)
  for (const half of ['\\ud83d', '\\ude00'])
    stream.push(Buffer.from(`data: {"choices":[{"index":0,"delta":{"content":"${half}"}}]}\n\n`))
  t.equal(stream.read().text, '😀')
})

t.test('what cannot be continued is found out', async t => {
  const unfit = (form: DeliveredForm, ...chunks: readonly object[]) => {
    const stream = new DeliveredStream(form, UNBOUNDED)
    for (const chunk of chunks) stream.push(Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`))
    return stream.unfit
  }
  const delta = (members: object) => ({ choices: [{ index: 0, delta: members }] })
  t.equal(unfit('chat', delta({ content: 'a' })), undefined)
  t.equal(unfit('chat', delta({ content: 'a', reasoning_content: null, tool_calls: [] })), undefined)
  t.equal(unfit('chat', delta({ reasoning_content: 'a' })), 'other_content')
  t.equal(unfit('chat', delta({ reasoning: 'a' })), 'other_content')
  t.equal(unfit('chat', delta({ tool_calls: [{ index: 0 }] })), 'other_content')
  t.equal(unfit('chat', delta({ content: [{ type: 'text' }] })), 'other_content')
  t.equal(unfit('chat', { choices: [{ index: 1, delta: { content: 'a' } }] }), 'choices')
  t.equal(unfit('chat', { choices: [{ index: 0 }, { index: 1 }] }), 'choices')
  t.equal(unfit('chat', { choices: [{ index: 0, delta: { content: 'a' }, logprobs: {} }] }), 'logprobs')
  t.equal(unfit('chat', { choices: [{ index: 0, text: 'a' }] }), 'form')
  t.equal(unfit('completions', { choices: [{ index: 0, delta: {} }] }), 'form')
  t.equal(unfit('chat', { some: 'thing' }), 'form')
})

t.test('the end and the usage are noted', async t => {
  const stream = new DeliveredStream('completions', UNBOUNDED)
  stream.push(Buffer.from('data: {"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}\n\n'))
  t.match(stream.read(), { text: 'a', isFinished: true, hasUsage: false })
  stream.push(Buffer.from('data: {"choices":[],"usage":{"prompt_tokens":1}}\n\ndata: [DONE]\n\n'))
  t.match(stream.read(), { text: 'a', isFinished: true, hasUsage: true })
})

t.test('whether the end is missing is known of what cannot be continued, too', async t => {
  const choice = (index: number, delta: object, reason: string | null = null) => ({
    choices: [{ index, delta, finish_reason: reason }],
  })
  const tool = (index: number) => ({
    tool_calls: [{ index, function: { arguments: '"finish_reason":"stop"' } }],
  })
  const [text, stop] = [{ content: 'a' }, 'stop']
  const cases: Readonly<Record<string, readonly [before: readonly object[], last: object]>> = {
    text: [[choice(0, text)], choice(0, {}, stop)],
    reasoning: [[choice(0, { reasoning: 'a' }), choice(0, text)], choice(0, {}, stop)],
    'calls of tools': [[choice(0, tool(0)), choice(0, tool(1))], choice(0, {}, 'tool_calls')],
    'a call of a tool in one piece': [[choice(0, text)], choice(0, tool(0), 'tool_calls')],
    logprobs: [[{ choices: [{ index: 0, delta: text, logprobs: {} }] }], choice(0, {}, stop)],
    'two answers': [
      [choice(0, text), choice(1, text), choice(1, {}, stop), choice(0, text)],
      choice(0, {}, stop),
    ],
    'two answers, one after the other': [
      [choice(0, text), choice(0, {}, stop), choice(1, text)],
      choice(1, {}, stop),
    ],
    'another form': [[choice(0, text), { some: 'thing' }, choice(0, text)], choice(0, {}, stop)],
  }
  for (const [what, [before, last]] of Object.entries(cases))
    for (const take of [UNBOUNDED, () => false]) {
      const stream = new DeliveredStream('chat', take)
      const push = (chunk: object) => stream.push(Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`))
      for (const chunk of before) push(chunk)
      t.ok(stream.isUnfinished, `${what}: the end is missing`)
      push(last)
      t.notOk(stream.isUnfinished, `${what}: the end has passed`)
    }
  const foreign = new DeliveredStream('chat', UNBOUNDED)
  foreign.push(Buffer.from('data: {"some":"thing"}\n\n'))
  t.notOk(foreign.isUnfinished, 'what is no completion has no such end')
})

t.test('the memory is that of the text, is asked for, and is given back', async t => {
  let taken = 0
  const bytesMax = 4096
  const take = (bytes: number): boolean => {
    if (taken + bytes > bytesMax) return false
    taken += bytes
    return true
  }
  const stream = new DeliveredStream('chat', take)
  let length = 0
  for (; stream.unfit === undefined; length += 10) {
    t.ok(taken <= Math.max(256, 2 * length), `${taken} bytes for ${length}`)
    stream.push(Buffer.from(chunkOf('chat', 'ten letter', 'same')))
  }
  t.equal(stream.unfit, 'memory')
  t.ok(length > bytesMax - 10 && length <= bytesMax + 10, `${length} letters`)
  stream.close()
  t.equal(taken, 0)
})

t.test('events end with an empty line of any kind', async t => {
  for (const end of ['\n\n', '\r\n\r\n', '\r\r']) {
    const text = `data: 1${end}: 2${end}data: 3${end}data: 4`
    const found = [...eventsOf(Buffer.from(text))].map(event => Buffer.from(event).toString())
    t.equal(found.join(''), text)
    t.equal(found.length, 4)
  }
})
