/**
 * The official clients of OpenAI and Anthropic against a live engine behind the router: chats, responses and
 * messages of two turns, whole and streamed, with the cached tokens that the router predicted.
 *
 * Runs with HOMING_REAL_ENGINES=1 and engines at HOMING_REAL_ENGINE_URLS (docs/engines.md). The engine's
 * model must be on this machine, so that the router loads its tokenizer.
 */

import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import t from 'tap'
import { RouterClient, send, startTestRouter, until } from '../system/fleet.ts'

const isLive = process.env['HOMING_REAL_ENGINES'] === '1'
const skip = isLive ? false : 'needs live engines: HOMING_REAL_ENGINES=1'
const urls = (process.env['HOMING_REAL_ENGINE_URLS'] ?? 'http://127.0.0.1:8100').split(',')
/** A prompt that no earlier run has left in the cache. */
const SYSTEM =
  `Run ${process.pid} of ${Date.now()}. You answer in one sentence, and you never guess. `.repeat(4)
const QUESTION = 'How does a homing pigeon know its way?'
const AGAIN = 'And at night?'
const TIMEOUT_MS = 60_000

/** The first one of a conversation is the system's text. */
interface Message {
  readonly role: 'user' | 'assistant'
  readonly content: string
}

interface Asked {
  readonly decision: string | null
  readonly said: string
  readonly promptTokens: number
  readonly cachedTokens: number
}

t.test('official clients', { skip, timeout: 300_000 }, async t => {
  const engineUrl = urls[0]!.split('?', 1)[0]!
  const { json: models } = await send(engineUrl, '/v1/models')
  const { id: model, root } = models.data[0]
  const router = await startTestRouter(urls, ['--tokenizer', `${model}=${root}`])
  t.teardown(() => router.stop(0))
  const looks = new RouterClient(router.url)
  await looks.trusted()
  const options = { apiKey: 'unused', maxRetries: 0, timeout: TIMEOUT_MS }
  const openai = new OpenAI({ baseURL: `${router.url}/v1`, ...options })
  const anthropic = new Anthropic({ baseURL: router.url, ...options })

  const batches = async () =>
    (await looks.workers())
      .flatMap(({ worker_keys }) => worker_keys.map(({ events }) => events?.batches))
      .join()
  const cachedOf: Record<string, (messages: Message[], isStream: boolean) => Promise<Asked>> = {
    async chat([system, ...said], isStream) {
      const messages = [{ role: 'system' as const, content: system!.content }, ...said]
      const body = { model, messages, max_tokens: 8 }
      if (!isStream) {
        const { data, response } = await openai.chat.completions.create(body).withResponse()
        const { message } = data.choices[0]!
        return askedOf(
          response,
          message.content,
          data.usage!.prompt_tokens,
          data.usage!.prompt_tokens_details,
        )
      }
      const streamed = { ...body, stream: true as const, stream_options: { include_usage: true } }
      const { data, response } = await openai.chat.completions.create(streamed).withResponse()
      let text = ''
      let usage: OpenAI.CompletionUsage | undefined
      for await (const chunk of data) {
        text += chunk.choices[0]?.delta.content ?? ''
        usage = chunk.usage ?? usage
      }
      return askedOf(response, text, usage!.prompt_tokens, usage!.prompt_tokens_details)
    },
    async responses([system, ...input], isStream) {
      const body = { model, instructions: system!.content, input, max_output_tokens: 8 }
      if (!isStream) {
        const { data, response } = await openai.responses.create(body).withResponse()
        return askedOf(response, data.output_text, data.usage!.input_tokens, data.usage!.input_tokens_details)
      }
      const { data, response } = await openai.responses.create({ ...body, stream: true }).withResponse()
      let text = ''
      let usage: OpenAI.Responses.ResponseUsage | undefined
      for await (const event of data) {
        if (event.type === 'response.output_text.delta') text += event.delta
        if ('response' in event) usage = event.response.usage ?? usage
      }
      return askedOf(response, text, usage!.input_tokens, usage!.input_tokens_details)
    },
    async messages([system, ...messages], isStream) {
      const body = { model, system: system!.content, messages, max_tokens: 8 }
      const { data, response } = isStream
        ? await anthropic.messages.stream(body).withResponse()
        : await anthropic.messages.create(body).withResponse()
      const whole = 'finalMessage' in data ? await data.finalMessage() : data
      // Anthropic counts three kinds: neither found nor kept in the cache, kept, and found.
      const { input_tokens: other, cache_creation_input_tokens: kept, cache_read_input_tokens } = whole.usage
      const cached = cache_read_input_tokens ?? 0
      const text = whole.content.map(block => (block.type === 'text' ? block.text : '')).join('')
      return askedOf(response, text, other + (kept ?? 0) + cached, { cached_tokens: cached })
    },
  }
  for (const [form, ask] of Object.entries(cachedOf)) {
    for (const isStream of [false, true]) {
      const messages: Message[] = [
        { role: 'user', content: `${form}, streamed: ${isStream}. ${SYSTEM}` },
        { role: 'user', content: QUESTION },
      ]
      for (const turn of [1, 2]) {
        const before = await batches()
        const { decision, said, promptTokens, cachedTokens } = await ask(messages, isStream)
        await until('its events have come', async () => ((await batches()) === before ? undefined : true))
        const { json } = await looks.send(`/decisions/${decision}`)
        const what = `${form}, ${isStream ? 'streamed' : 'whole'}, turn ${turn}`
        t.equal(json.unknown_prompt, null, what)
        t.equal(promptTokens, json.prompt_tokens, `${what}: ${promptTokens} tokens of the prompt`)
        t.equal(cachedTokens, json.predicted_cached_tokens, `${what}: ${cachedTokens} cached, as predicted`)
        t.equal(cachedTokens > 0, turn === 2, `${what}: only the second finds something`)
        messages.push({ role: 'assistant', content: said }, { role: 'user', content: AGAIN })
      }
    }
  }
})

function askedOf(
  response: Response,
  said: string | null,
  promptTokens: number,
  details: { readonly cached_tokens?: number | undefined } | undefined,
): Asked {
  const decision = response.headers.get('x-homing-decision')
  return { decision, said: said || 'Nothing.', promptTokens, cachedTokens: details?.cached_tokens ?? 0 }
}
