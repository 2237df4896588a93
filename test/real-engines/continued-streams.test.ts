/**
 * Greedy streams of a live engine that is killed in the middle: another one goes on, and each text is that of
 * an answer without the death.
 *
 * Runs with HOMING_REAL_ENGINES=1, two engines of one model at HOMING_REAL_ENGINE_URLS (default
 * 127.0.0.1:8100 and 8101), and HOMING_REAL_ENGINE_KILL, a command that kills the first of them (`kill -9
 * -GROUP`). docs/engines.md shows how to start them. The model must be a trained one (trained-model.py makes
 * a small one): random weights write tokens that no tokenizer makes of their text.
 */

import { execFileSync } from 'node:child_process'
import process from 'node:process'
import t from 'tap'
import { chunksOf, RouterClient, send, startTestRouter, until } from '../system/fleet.ts'

const isLive = process.env['HOMING_REAL_ENGINES'] === '1'
const killCommand = process.env['HOMING_REAL_ENGINE_KILL']
const skip = !isLive
  ? 'needs live engines: HOMING_REAL_ENGINES=1'
  : killCommand === undefined && 'needs a command: HOMING_REAL_ENGINE_KILL'
const urls = (process.env['HOMING_REAL_ENGINE_URLS'] ?? 'http://127.0.0.1:8100,http://127.0.0.1:8101').split(
  ',',
)
/** Of both engines together; half of them are cut. */
const STREAMS = Number(process.env['HOMING_REAL_STREAMS'] ?? 44)
const STREAMS_MIN = Math.floor((STREAMS * 20) / 44)
const TOKENS = Number(process.env['HOMING_REAL_TOKENS'] ?? 300)
/** Of each stream, before the engine is killed. */
const EVENTS_MIN = 20
const TOPICS = [
  'The router',
  'A worker',
  'The cache',
  'Events of an engine',
  'A block',
  'The queue',
  'Requests',
]

interface Asked {
  readonly path: string
  readonly body: Readonly<Record<string, unknown>>
}

/** Neighbours go to different engines, so each engine gets both forms. */
function asked(model: string, at: number): Asked {
  const text = `${TOPICS[at % TOPICS.length]} ${at} is`
  const body = {
    model,
    max_tokens: TOKENS,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  }
  const isChat = Math.floor(at / 2) % 2 === 0
  return isChat
    ? { path: '/v1/chat/completions', body: { ...body, messages: [{ role: 'user', content: text }] } }
    : { path: '/v1/completions', body: { ...body, prompt: text } }
}

function readStream(text: string) {
  const chunks = chunksOf(text)
  // biome-ignore lint/suspicious/noExplicitAny: chunks of two forms
  const choices = chunks.flatMap(chunk => chunk.choices as any[])
  return {
    text: choices.map(choice => choice.text ?? choice.delta?.content ?? '').join(''),
    finishes: choices.map(choice => choice.finish_reason).filter(reason => reason != null),
    roles: choices.filter(choice => choice.delta?.role != null).length,
    ids: new Set(chunks.map(({ id }) => id)).size,
    usage: chunks.at(-1).usage,
  }
}

t.test(
  'streams of a live engine that is killed go on at another one',
  { skip, timeout: 900_000 },
  async t => {
    const [first = '', second = ''] = urls.map(url => url.split('?', 1)[0]!)
    const model = (await send(second, '/v1/models')).json.data[0].id
    const version = (await send(second, '/version')).json.version
    const requests = Array.from({ length: STREAMS }, (_, at) => asked(model, at))
    const wholes = await Promise.all(
      requests.map(async ({ path, body }) => readStream((await send(second, path, { body })).text)),
    )
    const router = await startTestRouter(urls, ['--router-mode', 'round-robin'])
    t.teardown(() => router.stop(0))
    const client = new RouterClient(router.url)
    await until('both engines are up', async () =>
      (await client.workers()).every(({ state }) => state === 'up') ? true : undefined,
    )

    const texts = requests.map(() => '')
    const cut: number[] = []
    let opened = 0
    const ended = new Set<number>()
    const reads = requests.map(async ({ path, body }, at) => {
      const answer = await client.open(path, { body })
      opened++
      if (String(answer.headers['x-homing-worker']).startsWith(new URL(first).host)) cut.push(at)
      for await (const bytes of answer.body) texts[at] += String(bytes)
      ended.add(at)
    })
    await until(
      'each stream of the first engine is under way',
      async () => {
        const isBegun = cut.every(at => texts[at]!.split('\n\n').length > EVENTS_MIN)
        return opened === STREAMS && isBegun ? true : undefined
      },
      { msMax: 120_000, seen: () => [opened, cut, texts.map(({ length }) => length)] },
    )
    t.ok(cut.length >= STREAMS_MIN, `${cut.length} streams at the first engine`)
    t.strictSame(
      cut.filter(at => ended.has(at)),
      [],
      'none of them has ended',
    )
    execFileSync('sh', ['-c', killCommand!])
    const had = cut.map(at => texts[at]!.split('\n\n').length)
    await Promise.all(reads)

    let sameTokens = 0
    for (const at of cut) {
      const { path } = requests[at]!
      const [given, whole] = [readStream(texts[at]!), wholes[at]!]
      t.equal(given.text, whole.text, `${path} ${at}`)
      t.strictSame(given.finishes, whole.finishes, 'one end')
      t.strictSame([given.roles, given.ids], [whole.roles, 1], 'one role, one stream')
      t.equal(given.usage.prompt_tokens, whole.usage.prompt_tokens)
      if (given.usage.completion_tokens === whole.usage.completion_tokens) sameTokens++
    }
    const { text: metrics } = await client.send('/metrics')
    const placed = /^homing_gateway_continuations_total\{outcome="place"\} (\d+)$/m.exec(metrics)?.[1]
    t.equal(Number(placed), cut.length, 'each of them was placed again')
    t.comment(
      `vLLM ${version}: ${cut.length} streams cut after ${Math.min(...had)} … ${Math.max(...had)} events, continued ${placed}; of ${TOKENS} tokens each, ${sameTokens} with the same count of tokens`,
    )
  },
)
