/**
 * A small engine that a router serves exactly: it publishes what its KV cache holds.
 *
 *   node engine.ts [PORT]         prints the line that starts a router over it
 *
 * The model is a toy (a token is a byte, and it says the alphabet), the cache is not: full blocks are kept by
 * the hash of all tokens up to their end, the least recently used go first, and every change is published.
 */

import { createHash } from 'node:crypto'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import process from 'node:process'
import { createPublisher } from '@homing/publisher'

const MODEL = 'toy'
const BLOCK = 16
const CACHE_BLOCKS = 256
const CONTEXT = 2048

interface Body {
  readonly prompt?: string | readonly number[]
  readonly messages?: readonly { readonly role: string; readonly content: string }[]
  readonly max_tokens?: number
  readonly max_completion_tokens?: number
  readonly return_token_ids?: boolean
  readonly stream?: boolean
  readonly stream_options?: { readonly include_usage?: boolean }
}

const ANY = 'tcp://127.0.0.1:0'
const publisher = await createPublisher({ eventsEndpoint: ANY, replayEndpoint: ANY, blockSizeTokens: BLOCK })
/** Blocks that are held, the least recently used first. */
const held = new Set<bigint>()

/** Of each full block and all before it; of no other engine the same. */
function hashesOf(tokens: readonly number[]): readonly bigint[] {
  const state = createHash('sha256').update('toy')
  return Array.from({ length: Math.floor(tokens.length / BLOCK) }, (_, i) =>
    state
      .update(String(tokens.slice(i * BLOCK, (i + 1) * BLOCK)))
      .copy()
      .digest()
      .readBigUInt64BE(),
  )
}

/** Tokens of a beginning that was held. All full blocks are held afterwards. */
function use(tokens: readonly number[]): number {
  const hashes = hashesOf(tokens)
  const missing = hashes.findIndex(hash => !held.has(hash))
  const hit = missing < 0 ? hashes.length : missing
  // The end of a prompt is older than its beginning: it goes first.
  for (const hash of hashes.toReversed()) {
    held.delete(hash)
    held.add(hash)
  }
  const blocks = hashes.slice(hit).map((hash, i) => ({
    hash,
    tokens: tokens.slice((hit + i) * BLOCK, (hit + i + 1) * BLOCK),
  }))
  publisher.stored(hashes[hit - 1], blocks)
  const gone = [...held].slice(0, Math.max(0, held.size - CACHE_BLOCKS))
  for (const hash of gone) held.delete(hash)
  if (gone.length > 0) publisher.removed(gone)
  // The last token of a prompt is always computed.
  return Math.min(hit, Math.floor((tokens.length - 1) / BLOCK)) * BLOCK
}

function tokensOf({ prompt, messages }: Body): readonly number[] {
  const chat = messages?.map(({ role, content }) => `${role}: ${content}\n`).concat('assistant: ')
  const tokens = typeof prompt === 'object' ? prompt : [...Buffer.from(prompt ?? chat?.join('') ?? '')]
  if (tokens.length > 0 && tokens.length < CONTEXT) return tokens
  throw new Error(`the prompt has ${tokens.length} tokens: send 1 to ${CONTEXT - 1}`)
}

function generate(to: ServerResponse, body: Body, tokens: readonly number[], isChat: boolean): void {
  const cached = use(tokens)
  const wanted = body.max_tokens ?? body.max_completion_tokens ?? 16
  const count = Math.min(wanted, CONTEXT - tokens.length)
  const output = Array.from({ length: count }, (_, i) => 97 + (i % 26))
  use([...tokens, ...output])
  const usage = {
    prompt_tokens: tokens.length,
    completion_tokens: count,
    total_tokens: tokens.length + count,
    prompt_tokens_details: { cached_tokens: cached },
  }
  const object = isChat ? 'chat.completion' : 'text_completion'
  const head = { id: `toy-${process.hrtime.bigint()}`, created: Math.floor(Date.now() / 1000), model: MODEL }
  const choice = (ids: readonly number[], reason: string | null, part: string) => {
    const text = Buffer.from(ids).toString()
    const said = isChat ? { [part]: { role: 'assistant', content: text } } : { text }
    return [{ index: 0, finish_reason: reason, ...said, ...(body.return_token_ids && { token_ids: ids }) }]
  }
  if (body.stream !== true) {
    answer(to, 200, { ...head, object, choices: choice(output, 'length', 'message'), usage })
    return
  }
  to.writeHead(200, { 'content-type': 'text/event-stream' })
  const event = (data: object): boolean =>
    to.write(`data: ${JSON.stringify({ ...head, object: isChat ? `${object}.chunk` : object, ...data })}\n\n`)
  for (const [i, token] of output.entries())
    event({ choices: choice([token], i + 1 === count ? 'length' : null, 'delta') })
  if (body.stream_options?.include_usage) event({ choices: [], usage })
  to.end('data: [DONE]\n\n')
}

function answer(to: ServerResponse, status: number, data: object): void {
  to.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(data))
}

const server = createServer((from, to) => {
  if (from.url === '/health') return answer(to, 200, {})
  const models = [{ id: MODEL, object: 'model', max_model_len: CONTEXT }]
  if (from.url === '/v1/models') return answer(to, 200, { object: 'list', data: models })
  const chunks: Buffer[] = []
  from.on('data', chunk => chunks.push(chunk))
  from.on('end', () => {
    try {
      const body = JSON.parse(Buffer.concat(chunks).toString()) as Body
      const tokens = tokensOf(body)
      if (from.url === '/tokenize')
        return answer(to, 200, { tokens, count: tokens.length, max_model_len: CONTEXT })
      if (from.url === '/v1/completions') return generate(to, body, tokens, false)
      if (from.url === '/v1/chat/completions') return generate(to, body, tokens, true)
      return answer(to, 404, {})
    } catch (thrown) {
      const { message } = thrown as Error
      return answer(to, 400, { error: { message, type: 'invalid_request_error' } })
    }
  })
})
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => {
  const [events, replay] = [publisher.endpoint, publisher.replayEndpoint!].map(each => each.split(':').at(-1))
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}?events=${events}&replay=${replay}&block_size=${BLOCK}`
  console.log(`homing router --worker '${url}'`)
})
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => void publisher.close(1000).then(() => process.exit(0)))
