/** A gateway whose workers die in the middle of streams, in the order in which the router chooses them. */

import type { ReadRequest } from '@homing/actors/tokenizer'
import type { Test } from 'tap'
import { decisionFor } from './call-world.ts'
import { start as startWorld } from './gateway-world.ts'
import { READ } from './sample-records.ts'
import { textOf } from './utf8.ts'
import { data, finish, head } from './worker-exchange.ts'

export const LIMITS = {
  ...{ retriesMax: 2, retryShare: 1, stallMsMin: 10_000, silenceMsMax: 60_000, requestMsMax: 0 },
  ...{ migrationsMax: 1, migrationBytesMax: 1_048_576 },
}
export const CHAT = '/v1/chat/completions'
export const BODY = { model: 'm', messages: [], max_tokens: 9, stream: true }
export const SSE = { 'content-type': 'text/event-stream' }
/** Every text has these ids, behind whatever stands before it. */
export const IDS = [1, 2, 3]
export const SAME = { id: 'a', object: 'chat.completion.chunk', created: 1, model: 'm' }

export const event = (chunk: object): string => `data: ${JSON.stringify(chunk)}\n\n`
export const delta = (members: object, finish: string | null = null): string =>
  event({ ...SAME, choices: [{ index: 0, delta: members, finish_reason: finish }] })
export const text = (content: string, finish: string | null = null): string => delta({ content }, finish)
export const ROLE = delta({ role: 'assistant', content: '' })
export const TEXT_CHOICE = { index: 0, delta: { content: 'one' }, finish_reason: null }
export const DONE = 'data: [DONE]\n\n'
/** Of the completion with which another one goes on. */
export const more = (content: string, finish: string | null = null): string =>
  event({
    id: 'b',
    object: 'text_completion',
    created: 2,
    choices: [{ index: 0, text: content, finish_reason: finish }],
  })
export const REST = finish(`${more(' two', 'stop')}${DONE}`)
export const BEGUN = [head(200, SSE), data(ROLE + text('one'))]
export const WHOLE = [
  head(200, { 'content-type': 'application/json' }),
  finish(JSON.stringify({ ...SAME, choices: [{ index: 0, message: {}, finish_reason: 'stop' }] })),
]

export type Act = Parameters<Awaited<ReturnType<typeof startWorld>>['serve']>[1]

export const ALL_FILTERED = {
  kind: 'refused',
  error: { code: 'HOMING_ROUTER_ALL_FILTERED', message: 'none', details: {} },
} as const

/** A little later than what was sent. */
export const dieSoon: Act = () => {}

/** Workers at ports 1, 2, …, in the order in which the router chooses them; all but the last die then. */
export async function run(
  t: Test,
  acts: readonly (readonly Act[])[],
  {
    body = BODY,
    migrationsMax = 1,
    dies = true,
    joins = [],
    more = {},
    takes = () => true,
    refuses = () => false,
    reads = () => {},
    path = CHAT,
    decides,
    offers,
    hasIds = () => true,
    bodiesBytesMax = 10_000,
  }: {
    body?: object
    migrationsMax?: number
    dies?: boolean
    joins?: readonly string[]
    more?: Partial<ReadRequest>
    /** A worker would take what is left. */
    takes?: () => boolean
    /** All decisions but the first are refused: what `takes` says does not hold. */
    refuses?: () => boolean
    /** Called when ids are asked for. */
    reads?: () => void
    path?: string
    /** The first decision comes when this is over. */
    decides?: Promise<void>
    /** The tokenizer knows ids. */
    hasIds?: () => boolean
    bodiesBytesMax?: number
    /** The others come when this is over. */
    offers?: Promise<void>
  } = {},
) {
  let port = 0
  const sent: { path: string; body: Record<string, unknown> }[] = []
  const world = await startWorld(
    t,
    {
      exchangeLimits: { ...LIMITS, migrationsMax },
      audit: false,
      accessLog: { path: '-', sample: 1 },
      bodiesBytesMax,
    },
    {
      measure: () => (takes() ? { cachedTokens: 0, boundWorker: undefined } : undefined),
      read: ({ body: bytes, wantTokenIds }) => {
        if (wantTokenIds) reads()
        const { prompt } = JSON.parse(textOf(bytes)) as { prompt?: unknown }
        // As a tokenizer that treats the beginning of a text otherwise, and makes one token of some pairs.
        const isPair = joins.some(pair => typeof prompt === 'string' && prompt.startsWith(pair))
        const isText = typeof prompt === 'string' && prompt.length > 1
        const before = isPair ? [8, ...IDS] : isText ? [9, ...IDS] : typeof prompt === 'string' ? [9] : IDS
        const ids = wantTokenIds && hasIds() ? Int32Array.from(before) : undefined
        const read = {
          ...READ,
          isStream: true,
          isCounted: true,
          tokenIds: ids,
          promptTokens: ids?.length ?? 3,
          ...more,
        }
        return { kind: 'read', request: read }
      },
      decide: async () => {
        if (port > 0 && refuses()) return ALL_FILTERED
        const at = ++port
        await (at === 1 ? decides : offers)
        if (at <= acts.length) return { kind: 'decided', decision: decisionFor(at) }
        return { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'none', details: {} } }
      },
    },
    { hasWorker: false },
  )
  for (const [i, does] of acts.entries()) {
    const dying: Act = exchange => void world.system.clock.after(1, () => exchange.destroy())
    const acted = does.map(act => (act === dieSoon ? dying : act))
    await world.serve(
      i + 1,
      async exchange => {
        sent.push({ path: exchange.path, body: JSON.parse(textOf(await exchange.readBody(100_000))) })
      },
      ...acted,
      ...(dies && i < acts.length - 1 ? [dying] : []),
    )
  }
  const client = world.send('POST', path, { body: JSON.stringify(body) })
  for (let i = 0; i < 4; i++) {
    await world.system.settle()
    await world.system.advance(10)
  }
  const settled = world.log.settled.map(({ delivery, isPlacedAgain }) => [delivery.outcome, isPlacedAgain])
  const { text: metrics } = { text: (await world.ask('GET', '/metrics')).body }
  const outcomes = [...metrics.matchAll(/^homing_gateway_continuations_total\{outcome="(\w+)"\} 1$/gm)]
  return { world, client, sent, settled, outcomes: outcomes.map(([, outcome]) => outcome) }
}

/** The texts of a stream, and the code of the error with which it ends. */
export function seen(body: string): readonly [text: string, end: string] {
  const events = body.split('\n\n').filter(each => each.startsWith('data: {'))
  const chunks = events.map(each => JSON.parse(each.slice('data: '.length)))
  const said = chunks.map(({ choices }) => choices?.[0]?.delta?.content ?? '').join('')
  return [said, body.endsWith(DONE) ? 'done' : (chunks.at(-1)?.error?.code ?? 'cut')]
}
