import t from 'tap'
import { canAsk, type StreamForm, StreamFormLearner, UsageTap } from '../src/index.ts'

function learn(...events: readonly unknown[]): StreamForm | undefined {
  const learner = new StreamFormLearner()
  const tap = new UsageTap('sse', { observe: event => learner.observe(event) })
  const texts = events.map(event => (typeof event === 'string' ? event : `data: ${JSON.stringify(event)}`))
  for (const byte of Buffer.from(`${texts.join('\n\n')}\n\n`)) tap.push(Uint8Array.of(byte))
  return learner.form()
}

const choice = (finish_reason: string | null) => ({ index: 0, delta: {}, finish_reason })
const usage = { prompt_tokens: 1, completion_tokens: 2 }
const token = { id: 'a', choices: [choice(null)] }
const last = { id: 'a', choices: [choice('stop')] }

t.test('the members of the chunk that ends a choice are learned', async t => {
  const form = learn(token, { ...last, system_fingerprint: 'f', metrics: null }, 'data: [DONE]')
  t.strictSame(form, {
    sendsUsage: false,
    usage: 'absent',
    lastMembers: ['id', 'choices', 'system_fingerprint'],
  })
  t.equal(canAsk(form!), true)
})

t.test('usage that comes unasked is learned, wherever it stands: nobody need be asked', async t => {
  for (const events of [
    [token, last, { id: 'a', choices: [], usage }],
    [token, { ...last, usage }],
    [{ ...token, usage }, last],
    [
      { ...token, usage },
      { ...last, usage },
      { id: 'a', choices: [], usage },
    ],
  ]) {
    const form = learn(...events)
    t.equal(form?.sendsUsage, true)
    t.equal(canAsk(form!), false)
  }
})

t.test('usage that is null unasked is told from usage that is not there', async t => {
  const nulled = { usage: null }
  t.match(learn({ ...token, ...nulled }, { ...last, ...nulled }), { sendsUsage: false, usage: 'null' })
  const mixed = learn({ ...token, ...nulled }, last)!
  t.match(mixed, { sendsUsage: false, usage: undefined })
  t.equal(canAsk(mixed), false, 'no rule brings an asked stream back to that')
})

t.test('a stream without the end of a choice teaches nothing, nor do other events', async t => {
  t.equal(learn(token, token), undefined)
  t.equal(
    learn(': ping', 'event: x\ndata: {"choices":[{"finish_reason":"stop"}]}', 'data: {"choices":7}'),
    undefined,
  )
  t.equal(learn('data: not json', 'data: {"choices":[null]}', 'data: []'), undefined)
})
