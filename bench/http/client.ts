/** The client of the bench: requests over kept connections, a fixed number of them open at a time. */

import assert from 'node:assert/strict'
import { Agent, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http'

export interface Answer {
  readonly headers: IncomingHttpHeaders
  /** What the engine generated. */
  readonly text: string
  readonly promptTokens: number
  /** From the call to the first byte of the answer's body. */
  readonly firstByteMs: number
  /** Reads in which the body came: chunks that were late came together. */
  readonly pieces: number
}

const ANSWER_MS_MAX = 60_000
/** While other arms have their turn, servers end connections that are idle; this side ends them first. */
const agent = new Agent({ keepAlive: true, timeout: 2000 })

/** Sends `bodies` in order, `concurrency` at a time; body i goes to URL i mod the number of `urls`. */
export async function sendAll(
  urls: readonly string[],
  bodies: readonly string[],
  concurrency: number,
): Promise<readonly Answer[]> {
  const answers: Answer[] = []
  let next = 0
  const sendOn = async (): Promise<void> => {
    while (next < bodies.length) {
      const i = next++
      answers[i] = await send(urls[i % urls.length]!, bodies[i]!)
    }
  }
  await Promise.all(Array.from({ length: concurrency }, sendOn))
  return answers
}

/**
 * Sends `bodies` in order, one at a time, in two legs: as little as can be between the answer of the prefill
 * engine and the call of the decode engine.
 */
export async function sendInLegs(
  prefill: string,
  decode: string,
  bodies: readonly string[],
): Promise<readonly Answer[]> {
  const answers: Answer[] = []
  for (const body of bodies) {
    const asked = { ...JSON.parse(body), max_tokens: 1, stream: false, kv_transfer_params: ASKS }
    delete asked.stream_options
    const first = JSON.stringify(asked)
    const rest = `${body.slice(0, -1)},"kv_transfer_params":`
    const sentMs = performance.now()
    const computed = JSON.parse((await received(await called(prefill, first))).toString())
    answers.push(await send(decode, `${rest}${JSON.stringify(computed.kv_transfer_params)}}`, sentMs))
  }
  return answers
}

const ASKS = { do_remote_decode: true, do_remote_prefill: false }

async function received(reply: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of reply) pieces.push(piece as Buffer)
  return Buffer.concat(pieces)
}

/** `sentMs`: when it began. */
async function send(url: string, body: string, sentMs = performance.now()): Promise<Answer> {
  const reply = await called(url, body)
  const pieces: Buffer[] = []
  let firstByteMs = 0
  for await (const piece of reply) {
    if (pieces.length === 0) firstByteMs = performance.now() - sentMs
    pieces.push(piece as Buffer)
  }
  const bytes = Buffer.concat(pieces).toString()
  assert.equal(reply.statusCode, 200, `cannot use the answer of ${url}: ${bytes}`)
  const isStream = reply.headers['content-type']?.startsWith('text/event-stream') === true
  return {
    headers: reply.headers,
    ...(isStream ? readStream(bytes) : readWhole(bytes)),
    firstByteMs,
    pieces: pieces.length,
  }
}

/** The head of the answer is there. */
function called(url: string, body: string): Promise<IncomingMessage> {
  return new Promise<IncomingMessage>((resolve, reject) => {
    request(`${url}/v1/chat/completions`, {
      agent,
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    })
      .once('response', resolve)
      .once('error', reject)
      .end(body)
  })
}

function readWhole(text: string): { text: string; promptTokens: number } {
  const { choices, usage } = JSON.parse(text)
  return { text: choices[0].message.content, promptTokens: usage.prompt_tokens }
}

function readStream(text: string): { text: string; promptTokens: number } {
  const events = text.trimEnd().split('\n\n')
  assert.equal(events.pop(), 'data: [DONE]', 'a stream comes to its end')
  const chunks = events.map(event => JSON.parse(event.slice('data: '.length)))
  return {
    text: chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join(''),
    promptTokens: chunks.at(-1).usage.prompt_tokens,
  }
}
