/**
 * Warm-up router: a second set of the actors of a router, on this thread, with two engines that answer at
 * once, all over a network in memory. It has the policy and the tokenizers of the router; it opens no socket,
 * file or thread.
 */

import { type ActorSystem, createActorSystem } from '@homing/actor'
import { processMetrics } from '@homing/actors/console'
import { guardian, type RouterInputs } from '@homing/actors/guardian'
import { fromErrorRecord, systemClock } from '@homing/base'
import { completeSettings, type RouterSettings, routerCommand } from '@homing/config'
import { Metrics } from '@homing/metrics'
import { type HttpExchange, MemoryNetwork, type Transport, transportCapability } from '@homing/transport'
import { parseWorkers } from './worker-specs.ts'

export type WarmUpInputs = Pick<RouterInputs, 'loadedTokenizers' | 'chatTemplates'>

const READY_MS_MAX = 60_000
const WARM_UP_ANSWER_MS_MAX = 10_000
const SHUTDOWN_MS_MAX = 5000
/** Some 1,000 tokens, and small enough to be read on this thread. */
const PROMPT_WORDS = 700
const CONVERSATIONS = 4
const CHUNKS = 8
const ORIGIN = 'http://127.0.0.1:8000'
const ENGINE_PORTS = [8001, 8002]
const PROMPT_BYTES_MAX = 64 * 1024
const WORDS = 'the router sends each request to an engine that holds the cache of its beginning'.split(' ')

/** Settings that it takes over: those by which the code differs that most requests run through. */
const KEPT = [
  ...(['routerMode', 'routerPolicy', 'queueOrder', 'queueThreshold', 'trackOutputBlocks'] as const),
  ...(['tokenizers', 'chatTemplateContentFormats', 'defaultChatTemplateKwargs'] as const),
  'inlineBodyBytesMax',
] as const satisfies readonly (keyof RouterSettings)[]

export class WarmUpRouter {
  readonly #settings: RouterSettings
  readonly #inputs: WarmUpInputs
  readonly #network = new MemoryNetwork({ clock: systemClock })
  readonly #engines: Transport = this.#network.transport()
  readonly #server: Transport = this.#network.transport()
  readonly #client: Transport = this.#network.transport()
  readonly #model: string
  #system: ActorSystem | undefined

  constructor(settings: RouterSettings, inputs: WarmUpInputs) {
    const workers = ENGINE_PORTS.map(port => `http://127.0.0.1:${port}`)
    const kept = Object.fromEntries(KEPT.map(key => [key, settings[key]]))
    this.#settings = completeSettings(routerCommand, {
      ...kept,
      ...{ workers, host: '127.0.0.1', port: 8000, logLevel: 'silent', seed: 1 },
      ...{ kvEvents: false, eventThreads: 1, tokenizerThreads: 1, gatewayThreads: 1 },
      ...{ whatIfMinutes: 0, engineMetricsIntervalMs: 0, workerSlotsMax: 8 },
      ...{ promptCacheBytes: 2 ** 20, indexBytes: 2 ** 20, labelBytes: 0 },
    })
    this.#inputs = inputs
    // A tokenizer may be given for one model alone.
    const [given] = settings.tokenizers
    this.#model = given?.includes('=') ? given.slice(0, given.indexOf('=')) : 'warm-up'
  }

  async start(): Promise<void> {
    for (const port of ENGINE_PORTS) {
      await this.#engines.http.listen({ host: '127.0.0.1', port }, exchange => {
        this.#answer(exchange).catch(() => exchange.destroy())
      })
    }
    this.#system = await createActorSystem({
      name: 'warm-up',
      provide: [
        [transportCapability, this.#server],
        [processMetrics, new Metrics()],
      ],
      logLevel: 'silent',
      warmSpare: false,
    })
    const inputs = { ...this.#inputs, specs: parseWorkers(this.#settings.workers) }
    const args = { settings: this.#settings, inputs, isOnOneThread: true }
    const ref = this.#system.spawn(guardian, { name: 'guardian', args })
    const ready = await ref.ask({ type: 'whenReady' }, { timeout: READY_MS_MAX })
    if ('code' in ready) throw fromErrorRecord(ready)
  }

  /**
   * Resolves when it is answered: chats and completions, in one piece and as streams. Rejects where it is
   * not, or not in time.
   */
  send(number: number): Promise<void> {
    const stream = number % 2 === 0
    const isChat = number % 8 < 7
    const prompt = promptOf(number % CONVERSATIONS, number)
    const body = {
      model: this.#model,
      max_tokens: CHUNKS,
      ...(stream ? { stream, stream_options: { include_usage: true } } : {}),
      ...(isChat ? { messages: [{ role: 'user', content: prompt }] } : { prompt }),
    }
    const request = {
      origin: ORIGIN,
      method: 'POST',
      path: isChat ? '/v1/chat/completions' : '/v1/completions',
      headers: { 'content-type': 'application/json' },
      body: Buffer.from(JSON.stringify(body)),
    }
    return new Promise((resolve, reject) => {
      let status = 0
      const call = this.#client.http.call(request, {
        head(given) {
          status = given
        },
        data() {},
        end() {
          timer.cancel()
          if (status === 200) resolve()
          else reject(new Error(`request ${number} of the warm-up was answered with ${status}`))
        },
        failed(error) {
          timer.cancel()
          reject(error)
        },
      })
      const timer = systemClock.after(WARM_UP_ANSWER_MS_MAX, () => call.abort())
    })
  }

  async stop(): Promise<void> {
    await this.#system?.shutdown({ deadline: SHUTDOWN_MS_MAX })
    for (const one of [this.#client, this.#server, this.#engines]) one.close()
  }

  /** As an engine whose prefill takes no time. */
  async #answer(exchange: HttpExchange): Promise<void> {
    const say = (status: number, value: unknown): void => {
      exchange.writeHead(status, { 'content-type': 'application/json' })
      exchange.end(Buffer.from(JSON.stringify(value)))
    }
    if (exchange.path === '/v1/models')
      return say(200, {
        object: 'list',
        data: [{ id: this.#model, object: 'model', max_model_len: 131_072 }],
      })
    if (exchange.path === '/health') return say(200, {})
    if (exchange.method !== 'POST' || !exchange.path.endsWith('completions')) return say(404, {})
    const body = Buffer.from(await exchange.readBody(PROMPT_BYTES_MAX))
    const isChat = exchange.path === '/v1/chat/completions'
    const usage = {
      prompt_tokens: PROMPT_WORDS,
      completion_tokens: CHUNKS,
      total_tokens: PROMPT_WORDS + CHUNKS,
    }
    const head = { id: 'warm-up', created: 0, model: this.#model }
    if (!body.includes('"stream":true')) {
      const text = WORDS.slice(0, CHUNKS).join(' ')
      const choice = { index: 0, finish_reason: 'length', logprobs: null }
      const said = isChat ? { message: { role: 'assistant', content: text } } : { text }
      return say(200, { ...head, object: 'chat.completion', choices: [{ ...choice, ...said }], usage })
    }
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    const event = (value: unknown): Buffer => Buffer.from(`data: ${JSON.stringify(value)}\n\n`)
    for (let chunk = 0; chunk < CHUNKS; chunk++) {
      const said = isChat ? { delta: { content: `${WORDS[chunk]} ` } } : { text: `${WORDS[chunk]} ` }
      const choice = { index: 0, finish_reason: chunk === CHUNKS - 1 ? 'length' : null, ...said }
      exchange.write(event({ ...head, object: 'chat.completion.chunk', choices: [choice] }))
    }
    exchange.write(event({ ...head, object: 'chat.completion.chunk', choices: [], usage }))
    exchange.end(Buffer.from('data: [DONE]\n\n'))
  }
}

/** Three quarters of it are those of its conversation. */
function promptOf(conversation: number, number: number): string {
  const words = Array.from({ length: PROMPT_WORDS }, (_, at) => {
    const seed = at < PROMPT_WORDS * 0.75 ? conversation : number
    return `${WORDS[(at * 7 + seed) % WORDS.length]}${(at + seed) % 10 === 0 ? seed : ''}`
  })
  return words.join(' ')
}
