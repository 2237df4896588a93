/**
 * The table of requests whose routed answers must be those of the engine, member for member, and how two are
 * compared.
 *
 * Ids and times differ between any two answers and are left out; so are figures of how long the engine took.
 * All else counts, the order of events included. How much of a prompt is cached counts too: each prompt is
 * sent once before.
 */

import assert from 'node:assert/strict'
import { type Answer, send } from './fleet.ts'

export interface TableRow {
  readonly title: string
  readonly path: string
  readonly body: Readonly<Record<string, unknown>>
}

const CHAT = '/v1/chat/completions'
const TEXT = '/v1/completions'
const WEATHER = {
  type: 'function',
  function: {
    name: 'weather',
    description: 'The weather at a place.',
    parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'] },
  },
}
const SCHEMA = {
  type: 'json_schema',
  json_schema: {
    name: 'bird',
    schema: { type: 'object', properties: { legs: { type: 'integer' } }, required: ['legs'] },
  },
}

/**
 * What a request adds to its prompt; each is sent whole and as a stream, to both routes where they have it.
 */
const VARIANTS: readonly (readonly [title: string, members: object, paths?: readonly string[]])[] = [
  ['plain', {}],
  // Greedy sampling has one choice only.
  ['n = 2', { n: 2, temperature: 1 }],
  ['log probabilities', { logprobs: true, top_logprobs: 2 }, [CHAT]],
  ['log probabilities', { logprobs: 2 }, [TEXT]],
  ['token ids', { return_token_ids: true }],
  ['tools', { tools: [WEATHER], tool_choice: 'auto' }, [CHAT]],
  ['tools that are not to be used', { tools: [WEATHER], tool_choice: 'none' }, [CHAT]],
  [
    'a tool by name',
    { tools: [WEATHER], tool_choice: { type: 'function', function: { name: 'weather' } } },
    [CHAT],
  ],
  ['a JSON schema', { response_format: SCHEMA, max_tokens: 24 }, [CHAT]],
  ['stop strings', { stop: ['e', ' a'], max_tokens: 24 }],
  ['a list of one prompt', { prompt: ['The pigeon flies home.'] }, [TEXT]],
  ['a list of prompts', { prompt: ['The pigeon flies', 'home to the loft'] }, [TEXT]],
]

const OPTIONS: readonly (readonly [title: string, members: object])[] = [
  ['include_usage true', { stream_options: { include_usage: true } }],
  ['include_usage false', { stream_options: { include_usage: false } }],
  ['include_usage absent', { stream_options: {} }],
  ['stream_options null', { stream_options: null }],
  ['continuous_usage_stats', { stream_options: { include_usage: true, continuous_usage_stats: true } }],
  ['continuous_usage_stats alone', { stream_options: { continuous_usage_stats: true } }],
]

/** All rows, for a model of this name. */
export function answerTable(model: string): readonly TableRow[] {
  const rows: TableRow[] = []
  const add = (title: string, path: string, members: object): void => {
    rows.push({ title: `${path}: ${title}`, path, body: { ...promptOf(path), ...members, model } })
  }
  for (const path of [CHAT, TEXT]) {
    for (const [title, members, paths] of VARIANTS) {
      if (paths?.includes(path) === false) continue
      add(`${title}, whole`, path, members)
      add(`${title}, stream`, path, { ...members, stream: true })
      add(`${title}, stream with usage`, path, {
        ...members,
        stream: true,
        stream_options: { include_usage: true },
      })
    }
    for (const [title, members] of OPTIONS) add(title, path, { ...members, stream: true })
  }
  for (const path of ['/v1/responses', '/v1/messages']) {
    add('whole', path, {})
    add('stream', path, { stream: true })
  }
  return rows
}

function promptOf(path: string): object {
  const text = 'Which bird carries a letter home over a thousand miles, and how does it know the way?'
  const messages = [{ role: 'user', content: text }]
  const sampling = { temperature: 0, seed: 7 }
  if (path === CHAT) return { messages, max_tokens: 12, ...sampling }
  if (path === TEXT) return { prompt: text, max_tokens: 12, ...sampling }
  if (path === '/v1/responses') return { input: text, max_output_tokens: 12, temperature: 0 }
  return { messages, max_tokens: 12, temperature: 0 }
}

/**
 * Sends a row to the engine, and to the router; throws where they differ. Returns the answer of the router.
 * `folds`: what stands in one chunk of the one may stand in several of the other, since live engines put
 * tokens together as they come.
 */
export async function compareRow(
  engineUrl: string,
  routerUrl: string,
  row: TableRow,
  { folds = false } = {},
): Promise<Answer> {
  const formOf = (answer: Answer): unknown => (folds ? folded(comparable(answer)) : comparable(answer))
  const ask = (url: string): Promise<Answer> => send(url, row.path, { body: row.body })
  // The second answer finds the prompt cached, as all after it do.
  await ask(engineUrl)
  const direct = await ask(engineUrl)
  const routed = await ask(routerUrl)
  const again = await ask(routerUrl)
  for (const answer of [routed, again]) {
    assert.equal(answer.status, direct.status, `${row.title}: ${answer.text}`)
    assert.equal(answer.headers['content-type'], direct.headers['content-type'], row.title)
    assert.deepEqual(formOf(answer), formOf(direct), row.title)
  }
  return again
}

/** The events of a stream, or the members of a whole answer, without what differs between any two. */
function comparable(answer: Answer): Members | Line[][] {
  const isStream = answer.headers['content-type']?.startsWith('text/event-stream') === true
  if (!isStream) return withoutIds(answer.json) as Members
  const events = answer.text.split('\n\n')
  assert.equal(events.pop(), '', 'a stream ends with an empty line')
  return events.map(event =>
    event.split('\n').map(line => {
      const payload = /^data: (\{.*\})$/.exec(line)?.[1]
      return payload === undefined ? line : (withoutIds(JSON.parse(payload)) as Members)
    }),
  )
}

type Members = Readonly<Record<string, unknown>>
/** Of an event: its payload, or any other line. */
type Line = string | Members

interface FoldedChoice {
  readonly merged: Members
  /** Members of the chunk that ends the choice, and of the others together, that have a value. */
  readonly last: readonly string[]
  readonly others: readonly string[]
}

/** A stream with the chunks of each choice put together, and deltas of typed events; all else as it is. */
function folded(answer: Members | Line[][]): unknown {
  if (!Array.isArray(answer)) return answer
  const choices: Record<number, FoldedChoice> = {}
  const events: Line[][] = []
  for (const lines of answer) {
    const chunk = lines.find(line => typeof line !== 'string')
    const choice = (chunk?.['choices'] as Members[] | undefined)?.[0]
    if (chunk === undefined) {
      events.push(lines)
    } else if (choice !== undefined) {
      const index = Number(choice['index'])
      const before = choices[index] ?? { merged: {}, last: [], others: [] }
      const names = Object.keys(chunk).filter(name => chunk[name] !== null)
      const isLast = choice['finish_reason'] != null
      choices[index] = {
        merged: merge(before.merged, { ...chunk, choices: choice }),
        last: isLast ? names : before.last,
        others: isLast ? before.others : [...new Set([...before.others, ...names])].sort(),
      }
    } else {
      const previous = events.at(-1)?.find(line => typeof line !== 'string')
      const { sequence_number: _, ...members } = chunk
      const isMore = String(members['type']).endsWith('delta') && previous?.['type'] === members['type']
      if (isMore) events[events.length - 1] = [merge(previous ?? {}, members)]
      else events.push([members])
    }
  }
  return { choices, events }
}

/** Texts that grow chunk by chunk. */
const GROWING: ReadonlySet<string> = new Set(['content', 'text', 'arguments', 'delta'])

function merge(before: Members, after: Members): Members {
  const merged: Record<string, unknown> = { ...before }
  for (const [name, value] of Object.entries(after)) {
    const known = merged[name]
    if (known == null) merged[name] = value
    else if (typeof known === 'string' && GROWING.has(name)) merged[name] = known + String(value ?? '')
    else if (Array.isArray(known) && Array.isArray(value)) merged[name] = mergeLists(known, value)
    else if (typeof known === 'object' && typeof value === 'object' && value !== null)
      merged[name] = merge(known as Members, value as Members)
    else if (value !== null) merged[name] = value
  }
  return merged
}

/** Tool calls name their place; of all else more is added. */
function mergeLists(before: readonly unknown[], after: readonly unknown[]): readonly unknown[] {
  const merged = [...before]
  for (const element of after) {
    const index = (element as { index?: unknown } | null)?.index
    const at =
      index === undefined ? -1 : merged.findIndex(each => (each as { index?: unknown }).index === index)
    if (at < 0) merged.push(element)
    else merged[at] = merge(merged[at] as Members, element as Members)
  }
  return merged
}

const LEFT_OUT: ReadonlySet<string> = new Set([
  'id',
  'item_id',
  'created',
  'created_at',
  'completed_at',
  'metrics',
])

function withoutIds(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutIds)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      name,
      LEFT_OUT.has(name) ? '(left out)' : withoutIds(inner),
    ]),
  )
}
