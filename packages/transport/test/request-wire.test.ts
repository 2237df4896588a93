/** Frames at a broker: what a stranger puts into them is read in time, or not at all. */

import t from 'tap'
import { faultOfAnswerHead } from '../src/answer-head.ts'
import { jsonFrame, readJsonFrame } from '../src/nats/request-wire.ts'
import { headersOf } from '../src/requests/frames.ts'

t.test('names that differ in case alone are one header, without copying its values for each', async t => {
  const spellings = 1 << 15
  const word = Object.fromEntries(
    Array.from({ length: spellings }, (_, i) => [
      [...'x'.repeat(15)].map((letter, bit) => ((i >> bit) & 1 ? letter.toUpperCase() : letter)).join(''),
      String(i),
    ]),
  )
  const values = headersOf(readJsonFrame(jsonFrame(word)))?.['x'.repeat(15)]
  t.equal(values?.length, spellings)
  t.equal(values?.[spellings - 1], String(spellings - 1), 'in their order')
  const mixed = { A: ['1', '2'], a: '3', b: '4' }
  t.strictSame({ ...headersOf(mixed) }, { a: ['1', '2', '3'], b: '4' })
  t.strictSame(mixed.A, ['1', '2'], 'what was given is unchanged')
})

t.test('a deep frame is none, and a strange status is shown in a few words', async t => {
  const deep = `{"status":${'['.repeat(20_000)}${']'.repeat(20_000)}}`
  t.equal(readJsonFrame(Buffer.from(deep)), undefined)
  t.ok(faultOfAnswerHead(['x'.repeat(10_000)], {})!.length < 200)
})
