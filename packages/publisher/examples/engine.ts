/**
 * A small engine that a router serves exactly: it publishes what its KV cache holds.
 *
 *   node engine.ts [PORT]         prints the line that starts a router over it
 *
 * The model is a toy (a token is a byte, and it says the alphabet), the cache is not: full blocks are kept by
 * the hash of all tokens up to their end, the least recently used go first, and every change is published.
 */

import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import process from 'node:process'
import { text } from 'node:stream/consumers'
import { createPublisher } from '@homing/publisher'

const MODEL = 'toy'
const [BLOCK, CACHE_BLOCKS, CONTEXT] = [16, 256, 2048] as const
const ANY = 'tcp://127.0.0.1:0'
const publisher = await createPublisher({ eventsEndpoint: ANY, replayEndpoint: ANY, blockSizeTokens: BLOCK })
/** Blocks that are held, the least recently used first. */
const held = new Set<bigint>()

/** Full blocks; a hash is of its block and all before it, and of no other engine the same. */
function blocksOf(tokens: readonly number[]) {
  const state = createHash('sha256').update('toy')
  return Array.from({ length: Math.floor(tokens.length / BLOCK) }, (_, i) => {
    const own = tokens.slice(i * BLOCK, (i + 1) * BLOCK)
    return { tokens: own, hash: state.update(`${own},`).copy().digest().readBigUInt64BE() }
  })
}

/** How many blocks of a beginning were held. All full blocks are held afterwards. */
function use(tokens: readonly number[]): number {
  const blocks = blocksOf(tokens)
  const missing = blocks.findIndex(({ hash }) => !held.has(hash))
  const hit = missing < 0 ? blocks.length : missing
  // The end of a prompt is older than its beginning: it goes first.
  for (const { hash } of blocks.toReversed()) {
    held.delete(hash)
    held.add(hash)
  }
  publisher.stored(blocks[hit - 1]?.hash, blocks.slice(hit))
  const gone = [...held].slice(0, Math.max(0, held.size - CACHE_BLOCKS))
  for (const hash of gone) held.delete(hash)
  publisher.removed(gone)
  return hit
}

function reset(): object {
  held.clear()
  publisher.cleared()
  return {}
}

interface Body {
  readonly prompt?: string | readonly number[]
  readonly messages?: readonly { readonly role: string; readonly content: string }[]
  readonly max_tokens?: number
  readonly max_completion_tokens?: number
  readonly return_token_ids?: boolean
  readonly stream?: boolean
  readonly stream_options?: { readonly include_usage?: boolean }
}

function tokensOf({ messages = [], prompt }: Body): readonly number[] {
  const said = messages.map(({ role, content }) => `${role}: ${content}\n`).join('')
  return typeof prompt === 'object' ? prompt : [...Buffer.from(prompt ?? `${said}assistant: `)]
}

/** The object of an answer, or those of a stream. */
function generate(body: Body, tokens: readonly number[], isChat: boolean): object | readonly object[] {
  // The last token of a prompt is always computed.
  const cached = Math.min(use(tokens), Math.floor((tokens.length - 1) / BLOCK)) * BLOCK
  const count = Math.min(body.max_tokens ?? body.max_completion_tokens ?? 16, CONTEXT - tokens.length)
  const output = Array.from({ length: count }, (_, i) => 97 + (i % 26))
  use([...tokens, ...output])
  const sums = { prompt_tokens: tokens.length, completion_tokens: count, total_tokens: tokens.length + count }
  const usage = { ...sums, prompt_tokens_details: { cached_tokens: cached } }
  const { stream = false, return_token_ids: wantsIds = false } = body
  const object = !isChat ? 'text_completion' : stream ? 'chat.completion.chunk' : 'chat.completion'
  const id = `toy-${process.hrtime.bigint()}`
  const part = (ids: readonly number[], reason: string | null) => {
    const content = Buffer.from(ids).toString()
    const said = isChat
      ? { [stream ? 'delta' : 'message']: { role: 'assistant', content } }
      : { text: content }
    const choice = { index: 0, finish_reason: reason, ...said, ...(wantsIds && { token_ids: ids }) }
    return { id, object, created: Math.floor(Date.now() / 1000), model: MODEL, choices: [choice] }
  }
  if (!stream) return { ...part(output, 'length'), usage }
  const parts = output.map((token, i) => part([token], i + 1 === count ? 'length' : null))
  return body.stream_options?.include_usage ? [...parts, { ...parts[0], choices: [], usage }] : parts
}

type Answer = readonly [status: number, said: object]

function answer(path: string, body: Body): Answer {
  if (path === '/health') return [200, {}]
  const models = [{ id: MODEL, object: 'model', max_model_len: CONTEXT }]
  if (path === '/v1/models') return [200, { object: 'list', data: models }]
  if (path === '/reset_prefix_cache') return [200, reset()]
  const isChat = path === '/v1/chat/completions'
  if (!isChat && path !== '/v1/completions' && path !== '/tokenize') return [404, {}]
  const tokens = tokensOf(body)
  if (tokens.length === 0 || tokens.length >= CONTEXT) throw new Error(`send 1 to ${CONTEXT - 1} tokens`)
  if (path !== '/tokenize') return [200, generate(body, tokens, isChat)]
  return [200, { tokens, count: tokens.length, max_model_len: CONTEXT }]
}

function refusal({ message }: Error): Answer {
  return [400, { error: { message, type: 'invalid_request_error' } }]
}

const server = createServer(async (from, to) => {
  const asked = text(from).then(body => answer(from.url!, JSON.parse(body || '{}')))
  const [status, said] = await asked.catch(refusal)
  const events = Array.isArray(said) ? [...said.map(each => JSON.stringify(each)), '[DONE]'] : undefined
  to.writeHead(status, { 'content-type': events ? 'text/event-stream' : 'application/json' })
  to.end(events?.map(each => `data: ${each}\n\n`).join('') ?? JSON.stringify(said))
})
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => {
  const [events, replay] = [publisher.endpoint, publisher.replayEndpoint!].map(each => each.split(':').at(-1))
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}?events=${events}&replay=${replay}&block_size=${BLOCK}`
  console.log(`homing router --worker '${url}'`)
})
process.once('SIGINT', () => void publisher.close(1000).then(() => process.exit(0)))
