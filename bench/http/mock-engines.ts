/**
 * Engines that answer at once: for what a router costs, where engines that compute would be the limit.
 * `mock-engines.ts OPTIONS` (JSON, see below): prints one line with their URLs when all serve, and ends when
 * its standard input does.
 *
 * The answer to a request is "answer N", N being the `seed` of its body, and " tok" for each further token; a
 * stream brings one token each `chunkMs`. Bodies are looked at, not parsed. /tokenize is refused: ids that
 * are made up would take a model off the encoder of a router. With `events` an engine publishes, before it
 * answers, the blocks of the prompt that it did not have; those frames are encoded before the load comes
 * (but where a router sends a conversation to another engine than before). Nothing is evicted.
 */

import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { FramePublisher, prepareBodies } from './mock-frames.ts'
import { BLOCK_TOKENS, type OpenWorkload } from './prompts.ts'
import { fieldOf, MessageReader } from './wire.ts'

export interface MockEngineOptions {
  readonly count: number
  readonly tokenizer: string
  readonly model: string
  readonly workload: OpenWorkload
  readonly hasEvents: boolean
  readonly chunkMs: number
}

const options = JSON.parse(process.argv[2]!) as MockEngineOptions
/** What an engine says it can cache. */
const BLOCKS = 4_000_000
/** Parameters stand at the end of a body, in this many bytes. */
const TAIL_BYTES = 400
const SEED = '"seed":'

/** Resolves with its URL. */
async function serve(): Promise<string> {
  const publisher = options.hasEvents ? await FramePublisher.open() : undefined
  const server = createServer({ noDelay: true }, socket => new Connection(socket, publisher))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

class Connection {
  readonly #socket: Socket
  readonly #publisher: FramePublisher | undefined
  #head = ''
  #pieces: Buffer[] = []

  constructor(socket: Socket, publisher: FramePublisher | undefined) {
    this.#socket = socket
    this.#publisher = publisher
    const reader = new MessageReader({
      head: head => {
        this.#head = head
      },
      body: piece => this.#pieces.push(Buffer.from(piece)),
      end: () => this.#answer(),
    })
    socket.on('data', bytes => reader.push(bytes))
    socket.on('error', () => socket.destroy())
  }

  #answer(): void {
    const [method, path] = this.#head.split(' ', 2)
    const body = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces)
    this.#pieces = []
    if (method === 'POST' && path === '/v1/chat/completions') this.#complete(body)
    else this.#reply(...describe(`${method} ${path}`, this.#publisher))
  }

  #complete(body: Buffer): void {
    const tail = body.toString('latin1', Math.max(0, body.length - TAIL_BYTES))
    const parameters = tail.includes(SEED) ? tail : body.toString()
    const seed = /"seed":\s*(\d+)/.exec(parameters)?.[1] ?? ''
    const tokens = Number(/"max_tokens":\s*(\d+)/.exec(parameters)?.[1] ?? 1)
    const known = seed === '' ? undefined : prepared[Number(seed)]
    if (known !== undefined) this.#publisher?.publish(known)
    const promptTokens = known?.promptTokens ?? 1
    const usage = `{"prompt_tokens":${promptTokens},"completion_tokens":${tokens},"total_tokens":${promptTokens + tokens}}`
    const head = `"created":1700000000,"model":"${options.model}"`
    if (!/"stream":\s*true/.test(parameters)) {
      const text = `answer ${seed}${' tok'.repeat(tokens - 1)}`
      this.#reply(
        `{"id":"chatcmpl-${seed}","object":"chat.completion",${head},"choices":[{"index":0,"message":{"role":"assistant","content":"${text}"},"logprobs":null,"finish_reason":"length"}],"usage":${usage}}`,
      )
      return
    }
    const chunk = (choices: string): string =>
      `data: {"id":"chatcmpl-${seed}","object":"chat.completion.chunk",${head},"choices":[${choices}]}\n\n`
    const content = (text: string): string =>
      chunk(`{"index":0,"delta":{"content":"${text}"},"logprobs":null,"finish_reason":null}`)
    const last =
      chunk('{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}') +
      (/"include_usage":\s*true/.test(parameters)
        ? chunk('').replace(/\}\n\n$/, `,"usage":${usage}}\n\n`)
        : '') +
      'data: [DONE]\n\n'
    this.#stream([content(`answer ${seed}`), ...Array<string>(tokens - 1).fill(content(' tok')), last])
  }

  /** The last of the chunks goes with the one before. */
  #stream(chunks: readonly string[]): void {
    const socket = this.#socket
    const framed = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`
    let sent = 0
    const startMs = performance.now()
    socket.write(
      'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n' +
        framed(chunks[sent++]!),
    )
    const more = (): void => {
      if (socket.destroyed) return
      const isLast = sent === chunks.length - 2
      socket.write(
        isLast ? `${framed(chunks[sent]!)}${framed(chunks[sent + 1]!)}0\r\n\r\n` : framed(chunks[sent]!),
      )
      sent++
      if (!isLast) setTimeout(more, startMs + sent * options.chunkMs - performance.now())
    }
    setTimeout(more, options.chunkMs)
  }

  #reply(text: string, status = 200, type = 'application/json'): void {
    const keeps = fieldOf(this.#head, 'connection')?.toLowerCase() !== 'close'
    this.#socket.write(
      `HTTP/1.1 ${status} ${status === 200 ? 'OK' : 'Not Found'}\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(text)}\r\n${keeps ? '' : 'connection: close\r\n'}\r\n${text}`,
    )
    if (!keeps) this.#socket.end()
  }
}

/** What an engine says of itself: a text, its status and its type. */
function describe(
  what: string,
  publisher: FramePublisher | undefined,
): [text: string, status?: number, type?: string] {
  switch (what) {
    case 'GET /health':
    case 'GET /health_generate':
      return ['', 200, 'text/plain']
    case 'GET /v1/models':
      return [JSON.stringify({ object: 'list', data: [modelCard()] })]
    case 'GET /version':
      return ['{"version":"0.20.0"}']
    case 'GET /metrics':
      return [metricsText(), 200, 'text/plain; version=0.0.4']
    case 'GET /kv_event_sources':
      if (publisher !== undefined) return [JSON.stringify(publisher.sources)]
  }
  return ['{"detail":"Not Found"}', 404]
}

function modelCard(): object {
  const { model, tokenizer } = options
  return {
    ...{ id: model, object: 'model', created: 1_700_000_000, owned_by: 'vllm', root: tokenizer },
    ...{ parent: null, max_model_len: 262_144 },
  }
}

function metricsText(): string {
  const labels = `engine="0",model_name="${options.model}"`
  return [
    `vllm:num_requests_running{${labels}} 0.0`,
    `vllm:num_requests_waiting{${labels}} 0.0`,
    `vllm:kv_cache_usage_perc{${labels}} 0.1`,
    `vllm:cache_config_info{block_size="${BLOCK_TOKENS}",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="${BLOCKS * BLOCK_TOKENS}",num_gpu_blocks="${BLOCKS}"} 1.0`,
    'process_start_time_seconds 1700000000.0',
    '',
  ].join('\n')
}

const prepared = await prepareBodies(options)
const engines = await Promise.all(Array.from({ length: options.count }, serve))
process.stdout.write(`engines ready on ${engines.join(' ')} (pid ${process.pid})\n`)
process.stdin.resume().on('end', () => process.exit())
