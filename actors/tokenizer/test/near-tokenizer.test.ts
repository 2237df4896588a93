/** Near tokenizers: short bodies are read on the thread of a gateway, as the tokenizer would read them. */

import t, { type Test } from 'tap'
import { type NearTokenizerArgs, nearTokenizer } from '../src/index.ts'
import { ASK, start, TINY, untilTrue, utf8 } from './tokenizer-world.ts'

const CHAT = { model: 'm', messages: [{ role: 'user', content: 'hello hello' }] }
const PROMPT = { model: 'm', prompt: 'hello hello' }

async function world(t: Test, args: Partial<NearTokenizerArgs> = {}) {
  const tokenizer = await start(t, { tokenizers: [TINY], inlineBodyBytesMax: 1024 }, {})
  const near = tokenizer.system.spawn(nearTokenizer, {
    name: 'tokenizer-0',
    supervision: {
      directive: 'restart',
      max: 1,
      within: '1m',
      backoff: { min: '1ms', max: '1ms', jitter: 0 },
    },
    args: {
      tokenizer: tokenizer.ref,
      inlineBodyBytesMax: 1024,
      promptCacheBytes: 1e6,
      wordTableBytes: 2 ** 20,
      checkEvery: 0,
      ...args,
    },
  })
  const readNear = (body: object, promptIds?: Int32Array) =>
    near.ask(
      {
        type: 'read',
        route: 'messages' in body ? 'chat' : 'completions',
        body: utf8(JSON.stringify(body)),
        promptIds,
        headers: {},
        wantTokenIds: true,
      },
      ASK,
    )
  /** Resolves once it reads by itself. The thread that loads for all has started before time passes. */
  const configured = () => untilTrue(tokenizer.system, async () => (await readNear(PROMPT)).kind === 'read')
  return { ...tokenizer, near, readNear, configured }
}

t.test('it reads what the tokenizer reads, and with the same result', async t => {
  const { read, readNear, configured } = await world(t)
  t.strictSame(await readNear(PROMPT), { kind: 'elsewhere' }, 'before it knows how')
  await configured()
  for (const body of [PROMPT, CHAT, { model: 'other', prompt: 'a' }, { model: 'm', messages: 'no list' }])
    t.strictSame(await readNear(body), await read(body))
})

t.test('what is long is read elsewhere', async t => {
  const { readNear, configured } = await world(t)
  await configured()
  t.strictSame(await readNear({ ...PROMPT, prompt: 'long '.repeat(300) }), { kind: 'elsewhere' })
  t.match(await readNear({ model: 'm' }, new Int32Array(4000)), { request: { promptTokens: 4000 } })
  t.strictSame(await readNear({ model: 'm' }, new Int32Array(4096)), { kind: 'elsewhere' })
})

t.test('what it remembers counts with the tokenizer, which follows the fleet for both', async t => {
  const { system, ref, readNear, configured, tellFleet } = await world(t)
  await configured()
  await system.advance('2s')
  t.ok((await ref.ask({ type: 'tokenizers' }, ASK)).wordTableBytes > 0)
  tellFleet({ blockSizeTokens: 8 })
  await untilTrue(system, async () => {
    const result = await readNear(PROMPT)
    return result.kind === 'read' && result.request.blockSizeTokens === 8
  })
})
