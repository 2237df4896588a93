/**
 * What Prometheus' own tools say of /metrics, of a router and an indexer under load; and that docs/metrics.md
 * has the buckets of every histogram.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import t from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { send, startFleet, startProcess, TINY_TOKENIZER, until } from './fleet.ts'

const HAS_PROMTOOL = spawnSync('promtool', ['--version']).status === 0
const PAGE = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8')
/** The catalogue of Dynamo's metrics that the mapping was written from; it is not in this repository. */
const CATALOGUE = new URL('../../../shared/reference/dynamo-router.md', import.meta.url)
const LOG_LINES = ['homing_access_log_lines_total', 'homing_decision_log_requests_total']
const prompt = (seed: number): number[] =>
  Array.from({ length: 96 }, (_, at) => 40 + ((seed * 31 + at * 7) % 80))

/**
 * /metrics of a router, an indexer, a slot tracker and a selection service that have done some of everything.
 */
const scraped: Record<'router' | 'indexer' | 'slots' | 'select', string> = {
  router: '',
  indexer: '',
  slots: '',
  select: '',
}

t.before(async () => {
  const folder = t.testdir()
  const engine = { speed: 20, tokenizer: TINY_TOKENIZER }
  const fleet = await startFleet({
    engines: [engine, engine],
    router: [
      ...['--access-log', join(folder, 'access.jsonl'), '--decision-log', join(folder, 'decisions.jsonl')],
      ...['--tokenizer', TINY_TOKENIZER, '--router-queue-threshold', '0.01', '--log-level', 'error'],
      '--metrics-dynamo-names',
    ],
  })
  const indexer = await startProcess('indexer', ['--host', '127.0.0.1', '--port', '0', '--threads', '1'])
  const slots = await startProcess('slots', ['--host', '127.0.0.1', '--port', '0'])
  const select = await startProcess('select', ['--host', '127.0.0.1', '--port', '0'])
  try {
    const said = [
      { role: 'user', content: 'How does a homing pigeon know its way over a thousand kilometres?' },
    ]
    const requests: [path: string, body: object | string][] = [0, 1, 2, 0, 1, 2].map((seed, i) => [
      '/v1/completions',
      { prompt: prompt(seed), max_tokens: 4, stream: i % 2 === 0 },
    ])
    for (const stream of [false, true])
      requests.push(
        ['/v1/chat/completions', { messages: said, max_tokens: 4, stream }],
        ['/v1/messages', { messages: said, max_tokens: 4, stream }],
        ['/v1/responses', { input: said, max_output_tokens: 4, stream }],
      )
    const answers = await Promise.all(
      requests.map(([path, body]) => fleet.send(path, { body: { model: MODEL, ...(body as object) } })),
    )
    for (const { status, text } of answers) if (status !== 200) throw new Error(text)
    await fleet.send('/v1/completions', { body: '{' })
    await fleet.send('/v1/completions', { body: { model: 'none', prompt: 'x' } })
    // Lines are written after the answers, together.
    scraped.router = await until('all lines of the logs are written', async () => {
      const { text } = await fleet.send('/metrics')
      const isWritten = (name: string) =>
        new RegExp(`^${name}\\{outcome="written"\\} 1[2-9]$`, 'm').test(text)
      return LOG_LINES.every(isWritten) ? text : undefined
    })

    for (const [id, { description }] of fleet.engines.entries()) {
      const { events, replay } = description.ranks[0]!
      const registration = {
        ...{ instance_id: id, endpoint: events, replay_endpoint: replay },
        ...{ model_name: MODEL, block_size: description.blockSizeTokens },
      }
      const registered = await send(indexer.url, '/register', { body: registration })
      if (registered.status !== 201) throw new Error(registered.text)
    }
    await until('it knows a prompt', async () => {
      const asked = { token_ids: prompt(0), model_name: MODEL }
      const { json } = await send(indexer.url, '/query', { body: asked })
      return json.frequencies.length > 0 ? true : undefined
    })
    await send(indexer.url, '/query', { body: '{' })
    scraped.indexer = (await send(indexer.url, '/metrics')).text

    await send(slots.url, '/register', { body: { worker_id: 1, model_name: MODEL, block_size: 16 } })
    const request = { model_name: MODEL, request_id: 'a', worker_id: 1, sequence_hashes: [1] }
    await send(slots.url, '/add', { body: request })
    await send(slots.url, '/add', { body: request })
    scraped.slots = (await send(slots.url, '/metrics')).text

    const worker = { worker_id: 1, model_name: MODEL, block_size: 16, endpoint: 'http://a' }
    await send(select.url, '/workers', { body: worker })
    const asked = { model_name: MODEL, token_ids: prompt(0), selection_id: 'a' }
    await send(select.url, '/select', { body: asked })
    await send(select.url, '/select_and_reserve', { body: asked })
    scraped.select = (await send(select.url, '/metrics')).text
  } finally {
    indexer.kill('SIGKILL')
    slots.kill('SIGKILL')
    select.kill('SIGKILL')
    await fleet.stop()
  }
})

t.test(
  'promtool finds nothing',
  { skip: HAS_PROMTOOL ? false : 'promtool (Debian: prometheus) is not installed' },
  async t => {
    for (const [who, text] of Object.entries(scraped)) {
      const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
        // It does not like milliseconds, and the names of others are theirs.
        input: text.replace(/^(# \w+ )?dynamo_.*\n/gm, ''),
        encoding: 'utf8',
      })
      t.equal(`${stdout}${stderr}`, '', who)
      t.equal(status, 0, who)
    }
  },
)

t.test(
  'what parts of the program say they take explains what the system says it has',
  { skip: process.platform !== 'linux' && 'the parts are read from /proc' },
  async t => {
    const sumOf = (sample: RegExp): number =>
      [...scraped.router.matchAll(sample)].reduce((sum, [, value]) => sum + Number(value), 0)
    const told =
      sumOf(/^homing_process_resident_bytes\{part="(?:program|compiled|allocator)"\} (\d+)$/gm) +
      sumOf(/^homing_(?:actor_heap_resident|index_used)_bytes\{.*\} (\d+)$/gm)
    const resident = sumOf(/^process_resident_memory_bytes (\d+)$/gm)
    t.ok(told >= 0.8 * resident, `${told} of ${resident}`)
  },
)

t.test('what was under load has counted', async t => {
  for (const [who, samples] of [
    [
      'router',
      [
        /^homing_queue_placed_requests_total\{.*\} [1-9]/m,
        /^homing_gateway_requests_total\{route="messages",status="200"\} 2$/m,
        /^homing_gateway_requests_total\{route="responses",status="200"\} 2$/m,
        /^homing_gateway_requests_total\{route="chat",status="200"\} 2$/m,
      ],
    ],
    ['indexer', [/^homing_indexer_query_tokens_total [1-9]/m, /^homing_indexer_overlap_tokens_total [1-9]/m]],
    ['slots', [/^homing_slots_bookings_total\{outcome="(?:booked|duplicate)"\} 1$/m]],
    [
      'select',
      [/^homing_select_bookings_total\{outcome="booked"\} 1$/m, /^homing_select_pending_requests 1$/m],
    ],
  ] as const)
    for (const sample of samples) t.match(scraped[who], sample, who)
})

t.test("what is there under Dynamo's names too is in docs/metrics.md, and has the same figures", async t => {
  const { router: text } = scraped
  const [, section = ''] = PAGE.split(/^## Dynamo's names$/m)
  const listed = /```\n([^`]+)\n```/.exec(section)![1]!.split('\n')
  const there = [...text.matchAll(/^# TYPE (dynamo_\w+) /gm)].map(([, name]) => name!)
  t.strictSame(there.sort(), listed.sort())
  const value = (sample: string) =>
    Number(
      text
        .split('\n')
        .find(line => line.startsWith(`${sample} `))!
        .split(' ')
        .at(-1),
    )
  const ofModel = `{model="${MODEL}"}`
  t.equal(
    value(`dynamo_component_router_requests_total${ofModel}`),
    value(`homing_request_started_total${ofModel}`),
  )
  t.equal(
    value(`dynamo_router_overhead_scheduling_ms_count{router_id="0"}`),
    value(`homing_request_stage_seconds_count{stage="decide"}`),
  )
  t.match(
    text,
    /^dynamo_frontend_worker_last_time_to_first_token_seconds\{worker_id="127[^"]*",dp_rank="0",worker_type="decode"\} [\d.e-]+$/m,
  )
  t.match(text, /^dynamo_component_kv_cache_events_applied\{event_type="stored",status="ok"\} [1-9]/m)
})

t.test('docs/metrics.md has the buckets of every histogram', async t => {
  const answered = new Map<string, string>()
  for (const text of Object.values(scraped)) {
    for (const [, name] of text.matchAll(/^# TYPE (homing_\w+) histogram$/gm)) {
      const bounds = [...text.matchAll(new RegExp(`^${name}_bucket\\{(?:.*,)?le="([^"]+)"`, 'gm'))]
      answered.set(name!, [...new Set(bounds.map(([, bound]) => bound!))].slice(0, -1).join(', '))
    }
  }
  t.ok(answered.size > 8, `${answered.size} histograms`)
  const [, section = ''] = PAGE.split(/^## Buckets$/m)
  const documented = new Map<string, string>()
  for (const row of section.split(/^## /m)[0]!.matchAll(/^\| (`homing.*) \| ([\d., -]+) \|$/gm))
    for (const [, name] of row[1]!.matchAll(/`(\w+)`/g)) documented.set(name!, row[2]!.trim())
  t.strictSame(Object.fromEntries(documented), Object.fromEntries(answered))
  for (const [name, bounds] of answered) t.not(bounds, '', `${name} was observed`)
})

t.test(
  'the mapping has every family of the catalogue, and no other',
  { skip: existsSync(CATALOGUE) ? false : 'needs the catalogue: ../shared/reference/dynamo-router.md' },
  async t => {
    const [, catalogue = ''] = readFileSync(CATALOGUE, 'utf8').split(/^## M\. Metrics$/m)
    const theirs = catalogue
      .split('\n')
      .filter(line => line.startsWith('| dynamo_'))
      .flatMap(line => familiesOf(line.split('|')[1]!))
    const [, mapping = ''] = PAGE.split(/^## Dynamo's names$/m)
    const mapped = mapping
      .split('\n')
      .filter(line => line.startsWith('| `dynamo_'))
      .flatMap(line => [...line.split(' | ')[0]!.matchAll(/`(dynamo_[\w*]+)`/g)].map(([, name]) => name!))
    t.ok(theirs.length > 80, `${theirs.length} families`)
    const missing = theirs.filter(family => !mapped.some(name => isOf(name, family)))
    t.strictSame(missing, [], 'each has its line')
    const extra = mapped.filter(name => !theirs.some(family => isOf(name, family)))
    t.strictSame(extra, [], 'no line is of another')
  },
)

interface Family {
  readonly begin: string
  readonly part: string
}

/**
 * A cell of the catalogue: 'a_b_c, …d, _e{label}' are three names that begin alike, 'a_{b, c}' is a choice. A
 * name that is cut short gives its first two words and the written rest.
 */
function familiesOf(cell: string): Family[] {
  const written = cell
    .replace(/(?<=[a-z])\{[^{}]*\}/g, '')
    .replace(/([a-z_]+_)\{([^}]*)\}/g, (_, begin: string, choices: string) =>
      choices
        .split(',')
        .map(choice => begin + choice.trim())
        .join(', '),
    )
    .split(/[,/]/)
    .map(name => name.trim())
  const begin = /^dynamo_[a-z]+/.exec(written[0]!)![0]
  return written.map(name => ({ begin, part: name.replace('…', '') }))
}

function isOf(name: string, { begin, part }: Family): boolean {
  if (name.endsWith('*')) return part.startsWith(name.slice(0, -1))
  return part.startsWith('dynamo_') ? name === part : name.startsWith(`${begin}_`) && name.includes(part)
}

t.test('the figures of requests add up', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const count = 5
  for (let i = 0; i < count; i++) {
    const body = {
      model: MODEL,
      prompt: prompt(1),
      max_tokens: 4,
      stream: true,
      stream_options: { include_usage: true },
    }
    t.equal((await fleet.send('/v1/completions', { body })).status, 200)
    await fleet.caughtUp(fleet.engines)
  }
  const { text } = await fleet.send('/metrics')
  const value = (sample: string): number => {
    const line = text.split('\n').find(each => each.startsWith(`${sample} `))
    t.ok(line, sample)
    return Number(line?.split(' ').at(-1))
  }
  const by = `{model="${MODEL}"}`
  t.equal(value(`homing_request_started_total${by}`), count)
  t.equal(value(`homing_request_first_token_seconds_count${by}`), count)
  t.equal(value(`homing_request_prompt_tokens_sum${by}`), 96 * count)
  t.equal(value(`homing_request_output_tokens_sum${by}`), 4 * count)
  // The last token of a prompt is always computed, so the last of its six blocks is not reused.
  t.equal(value(`homing_request_cached_tokens_total${by}`), 80 * (count - 1))
  for (const stage of ['read', 'tokenize', 'place', 'lookup', 'decide', 'call'])
    t.equal(value(`homing_request_stage_seconds_count{stage="${stage}"}`), count, stage)
})
