import { existsSync } from 'node:fs'
import t, { type Test } from 'tap'
import {
  byteTokenizer,
  type EngineTokenizer,
  expectedOutput,
  loadEngineTokenizer,
  outputVocabulary,
} from '../src/index.ts'

const TINY = new URL('../../tokenization/fixtures/tiny', import.meta.url).pathname

function chat(tokenizer: EngineTokenizer, messages: readonly unknown[]): Int32Array {
  const body = { messages }
  return tokenizer.encodeChat(body, new TextEncoder().encode(JSON.stringify(body)))
}

async function nextTurnBeginsWithAnswer(t: Test, tokenizer: EngineTokenizer): Promise<void> {
  const vocabulary = outputVocabulary(tokenizer)
  const question = { role: 'user', content: 'Hello' }
  const prompt = chat(tokenizer, [question])
  const output = expectedOutput(prompt, 40, 3, vocabulary)
  const content = tokenizer.decode(Int32Array.from(output))
  const next = chat(tokenizer, [question, { role: 'assistant', content }, question])
  t.strictSame([...next.subarray(0, prompt.length + output.length)], [...prompt, ...output])
}

t.test('with the built-in tokenizer the next turn begins with prompt and answer, id for id', async t => {
  await nextTurnBeginsWithAnswer(t, byteTokenizer())
})

t.test(
  'so it does with a tokenizer directory',
  { skip: !existsSync(TINY) && 'no tokenizer fixture' },
  async t => {
    const tokenizer = await loadEngineTokenizer(TINY)
    await nextTurnBeginsWithAnswer(t, tokenizer)
    t.ok(
      chat(tokenizer, [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }])
        .length > 0,
    )
  },
)

t.test('a directory that is not there is an error of its own', async t => {
  await t.rejects(loadEngineTokenizer('/nonexistent'), { code: /^HOMING_TOKENIZATION/ })
})

t.test('text survives the built-in tokenizer', async t => {
  const tokenizer = byteTokenizer()
  for (const text of ['', 'plain', 'Hé 漢字 🙂', 'a bade fi gogo x', ' baba bababa']) {
    t.equal(tokenizer.decode(tokenizer.encodeText(text, true)), text)
  }
})
