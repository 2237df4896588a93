/** Requests for token ids and their answers are read as they were written, and nothing else is. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  encodeTokenLine,
  encodeTokenRequest,
  readTokenLine,
  readTokenRequest,
  TOKEN_LINE_BYTES_MAX,
  type TokenLine,
  TokenLines,
} from '../src/index.ts'

const REQUEST = {
  ...{ requestId: 'r', model: 'm', tokenIds: [9], resumedTokens: 1, eosTokenIds: [4] },
  stopConditions: { maxTokens: 5, minTokens: undefined, stop: ['x'], stopTokenIds: [], ignoreEos: true },
  ...{ samplingOptions: { temperature: 0.5 }, cacheSalt: 's', dpRank: 2 },
}

t.test('a request is read as it was written, ids of 32 bits included', async t => {
  const body = encodeTokenRequest(REQUEST, Int32Array.of(1, -1))
  t.strictSame(readTokenRequest(body), { ...REQUEST, tokenIds: [1, 0xffff_ffff, 9] })
})

t.test('a member that is wrong is named', async t => {
  for (const [body, message] of [
    ['[]', 'cannot read the request for token ids: the body must be a JSON object'],
    ['{"token_ids": [1.5]}', /token_ids must be a list of whole numbers from 0 to 4294967295/],
    ['{"token_ids": [1], "resumed_tokens": 2}', /resumed_tokens must be at most the 1 of token_ids/],
    ['{"token_ids": [1], "stop_conditions": {"stop": "x"}}', /stop_conditions.stop must be a list of texts/],
    ['{', /the body must be JSON/],
  ] as const)
    t.throws(() => readTokenRequest(Buffer.from(body)), {
      message,
      code: 'HOMING_PROTOCOL_BAD_TOKEN_REQUEST',
    })
})

t.test('lines are those that were written, however the bytes are cut', async t => {
  const output = fc.record({
    tokenIds: fc.array(fc.nat(0xffff_ffff), { maxLength: 5 }),
    finishReason: fc.option(fc.constantFrom('stop', 'length'), { nil: undefined }),
    cachedTokens: fc.option(fc.nat(99), { nil: undefined }),
  })
  const line = fc.oneof(output, fc.record({ error: fc.string({ unit: 'grapheme', maxLength: 20 }) }))
  const same = fc.property(
    fc.array(line, { maxLength: 6 }),
    fc.infiniteStream(fc.integer({ min: 1, max: 9 })),
    (given, cuts) => {
      const bytes = Buffer.from(given.map(encodeTokenLine).join(''))
      const lines = new TokenLines()
      const read: (TokenLine | undefined)[] = []
      for (let at = 0; at < bytes.length; ) {
        const length = cuts.next().value as number
        read.push(...lines.push(bytes.subarray(at, at + length)))
        at += length
      }
      assert.deepEqual(
        read,
        given.map(each => ({ ...each })),
      )
    },
  )
  t.doesNotThrow(() => fc.assert(same))
})

t.test('what is no output is none', async t => {
  for (const text of ['', '{', '[]', '{"token_ids": [-1]}', '{"token_ids": "x"}', '{"finish_reason": 3}'])
    t.equal(readTokenLine(text), undefined, text)
  t.throws(() => encodeTokenLine({ tokenIds: [1.5] }), { message: /token id 1.5 is no whole number/ })
  const lines = new TokenLines()
  t.strictSame(lines.push(Buffer.alloc(TOKEN_LINE_BYTES_MAX + 1, 0x20)), [undefined])
})
