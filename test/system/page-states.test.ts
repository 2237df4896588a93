/** The page in a real browser, in states that a small fleet does not come into by itself. */

import type { FleetKey, FleetSection, MapNode, MapSection, WhatIfSection } from '@homing/page'
import t from 'tap'
import { startFleet, until } from './fleet.ts'
import { CHROMIUM, SCHEMES, SIZES, startBrowser, Tab } from './page-browser.ts'
import { Stage } from './page-stage.ts'

if (CHROMIUM === undefined) t.plan(0, 'chromium is not installed')

const browser = CHROMIUM === undefined ? (undefined as never) : await startBrowser()
t.teardown(() => browser?.close())

const POINTED = "document.querySelector('[data-field=pointed]').innerText"
/** Worker keys 8 … 23 of 24, the ones listed one by one. */
const workers = Array.from({ length: 16 }, (_, at) => `10.0.0.${8 + at}:8000/0`)

const node = (name: string, of: Partial<MapNode>): MapNode => ({
  parent: -1,
  hash: name.padStart(16, '0'),
  depth: 0,
  length: 10,
  holders: [],
  holders_total: 1,
  blocks: 10,
  by_worker: [],
  pools: null,
  ...of,
})

const map: MapSection = {
  block_size: 16,
  blocks: 1000,
  is_whole: true,
  workers,
  workers_total: 24,
  nodes: [
    node('a', { holders: workers.map((_, at) => at), holders_total: 24, blocks: 900 }),
    node('b', { parent: 0, depth: 10, holders: [12, 13, 14], holders_total: 3, blocks: 400 }),
    node('c', { parent: 0, depth: 10, holders_total: 2, blocks: 200 }),
    node('d', { blocks: 100, holders: [3], length: 15 }),
    node('e', { parent: 1, depth: 20, holders_total: 0, blocks: 0, by_worker: [] }),
  ],
  pools: null,
}

t.test(
  'all holders are counted, some are named, and the page says that others are not told apart',
  async t => {
    const stage = await Stage.start({ map })
    t.teardown(() => stage.stop())
    const tab = await Tab.open(browser, stage.url, 'map')
    await tab.says('Of 24 workers, the 16 with most blocks are told apart')
    const cells = await tab.page.$$eval('tbody tr', rows =>
      rows.map(row => [...row.querySelectorAll('td')].slice(4).map(cell => cell.textContent)),
    )
    t.strictSame(cells, [
      ['24', '10.0.0.8:8000/0, 10.0.0.9:8000/0, 10.0.0.10:8000/0, 10.0.0.11:8000/0 and 20 more'],
      ['3', '10.0.0.20:8000/0, 10.0.0.21:8000/0, 10.0.0.22:8000/0'],
      ['2', '2 that are not told apart'],
      ['1', '10.0.0.11:8000/0'],
      ['0', 'nobody any more'],
    ])
    // 10 · (24 + 3 + 2) + 15 copies, of 45 blocks.
    await tab.says(`3 are held by more than one worker; ${((100 * 260) / 305).toFixed(1)} % of their blocks`)
    const labels = await tab.page.$$eval('.map-label', all => all.map(one => one.textContent))
    t.strictSame(labels, ['×24 0000', '×3 0000', '×2 0000', '×1 0000'])
    const shades = await tab.page.$$eval('.icicle rect', all => all.map(one => one.getAttribute('class')))
    t.strictSame(shades, ['map-3', 'map-3', 'map-2', 'map-1'])
  },
)

t.test('arrow keys go from box to box, and a line says where one is', async t => {
  const stage = await Stage.start({ map })
  t.teardown(() => stage.stop())
  const tab = await Tab.open(browser, stage.url, 'map')
  await tab.page.waitForSelector('.icicle')
  await tab.page.focus('#map-worker')
  await tab.page.keyboard.press('Tab')
  t.equal(await tab.ask("document.activeElement.classList.contains('icicle')"), true, 'the map has its turn')
  t.equal(await tab.ask("document.querySelector('[data-field=pointed]').getAttribute('aria-live')"), 'polite')
  const goes = async (key: Parameters<typeof tab.page.keyboard.press>[0], place: string): Promise<void> => {
    await tab.page.keyboard.press(key)
    await tab.says(place)
  }
  await goes('ArrowDown', '000000000000000a: 160 tokens from 0 tokens on')
  await goes('ArrowDown', '000000000000000b: 160 tokens from 160 tokens on')
  await goes('ArrowRight', '000000000000000c: 160 tokens from 160 tokens on')
  t.match(await tab.ask(POINTED), 'held by 2 that are not told apart')
  await goes('ArrowRight', '000000000000000d: 240 tokens from 0 tokens on')
  await goes('ArrowLeft', '000000000000000a:')
  await goes('ArrowDown', '000000000000000b:')
  // An update in which everything has another place: the box stays the same.
  const nodes = [map.nodes[3]!, map.nodes[0]!, { ...map.nodes[1]!, parent: 1, blocks: 500 }]
  stage.tell({ map: { ...map, nodes } })
  await tab.says('000000000000000b: 160 tokens from 160 tokens on; with all that follows 500 copies')
  t.equal(await tab.ask("document.querySelectorAll('.map-pointed').length"), 1)
  await goes('ArrowUp', '000000000000000a:')
  await goes('Home', '000000000000000d:')
  await goes('Escape', 'Point at a box')
  for (const size of SIZES)
    for (const scheme of SCHEMES) {
      await tab.look(size, scheme)
      t.strictSame(await tab.faults(), [], `axe: ${size.width} ${scheme}`)
      t.ok((await tab.overflow()) <= 0, `as wide as its window: ${size.width}`)
      await tab.picture(`many-map-${size.width}-${scheme}`)
    }
  t.strictSame(tab.errors, [])
})

const NO_STATES = { local_gpu: 0, in_transit: 0, cxl_pooled: 0, evicted: 0 }

t.test('pooled memory: each box has its states, a line and the tables say them in words', async t => {
  const pooled = { reached_by: ['10.0.0.8:8000', 'id 99'], reached_by_total: 7, pools: [7], pools_total: 1 }
  const experts = { labelled_blocks: 0, experts: [], experts_total: 0 }
  const nodes = [
    node('a', {
      blocks: 600,
      pools: { ...pooled, ...experts, states: { ...NO_STATES, cxl_pooled: 6, in_transit: 2, local_gpu: 1 } },
    }),
    node('b', {
      blocks: 400,
      pools: {
        ...{ states: { ...NO_STATES, evicted: 5 }, pools: [], pools_total: 0, reached_by: [] },
        ...{ reached_by_total: 0, labelled_blocks: 2, experts_total: 6 },
        experts: [1, 2, 3, 4].map(expert => ({ layer: 3, expert })),
      },
    }),
    node('c', { blocks: 10 }),
  ]
  const pools: MapSection['pools'] = {
    states: { local_gpu: 1, in_transit: 2, cxl_pooled: 1006, evicted: 5 },
    orphans: 4,
    labelled_blocks: 2,
    is_whole: false,
    pools: [
      { ...pooled, id: 7, orphans: 4, states: { ...NO_STATES, in_transit: 2, cxl_pooled: 1006 } },
      { id: null, orphans: 0, states: { ...NO_STATES, evicted: 5 }, reached_by: [], reached_by_total: 0 },
    ],
    pools_total: 20,
  }
  const stage = await Stage.start({ map: { ...map, nodes, pools } })
  t.teardown(() => stage.stop())
  const tab = await Tab.open(browser, stage.url, 'map')
  await tab.says(
    'Blocks, counted for each worker that says so: 1,006 pooled, 2 in transit, 5 evicted, 1 local.',
    'Of the pooled ones, 4 are of workers that have left. 2 blocks have an expert. There are many',
    'The 2 largest of 20 pools',
  )
  const parts = await tab.page.$$eval('.pool-part', all =>
    all.map(one => [one.getAttribute('class'), Number(one.getAttribute('height'))] as const),
  )
  t.strictSame(
    parts.map(([name]) => name),
    ['cxl_pooled', 'in_transit', 'local_gpu', 'evicted'].map(state => `pool-part pool-${state}`),
  )
  // Both boxes are as high as the map; 9 of 10 blocks of the first have a state, and half of the second.
  const heights = parts.map(([, height]) => height / 42)
  for (const [i, height] of [6, 2, 1, 5].entries()) t.ok(Math.abs(heights[i]! - height) < 1e-6)
  const rows = await tab.page.$$eval('table:last-of-type [data-pool]', all =>
    all.map(one => [...one.closest('tr')!.querySelectorAll('td')].map(cell => cell.textContent)),
  )
  t.strictSame(rows, [
    ['7', '1,006', '2', '0', '4', '10.0.0.8:8000, id 99 and 5 more'],
    ['not named', '0', '0', '5', '0', 'none'],
  ])
  await tab.page.focus('.icicle')
  await tab.page.keyboard.press('ArrowDown')
  await tab.says('; 6 pooled, 2 in transit, 1 local in pool 7, reached by 10.0.0.8:8000, id 99 and 5 more')
  await tab.page.keyboard.press('ArrowRight')
  await tab.says(
    '; 5 evicted; 2 blocks of layer 3 expert 1, layer 3 expert 2, layer 3 expert 3, layer 3 expert 4 and 2 more',
  )
  t.equal(await tab.ask("document.querySelectorAll('[data-field=pool-keys] .map-sample').length"), 4)
  for (const size of SIZES)
    for (const scheme of SCHEMES) {
      await tab.look(size, scheme)
      t.strictSame(await tab.faults(), [], `axe: ${size.width} ${scheme}`)
      t.ok((await tab.overflow()) <= 0, `as wide as its window: ${size.width}`)
      await tab.picture(`pools-map-${size.width}-${scheme}`)
    }
  // All holders have gone, the pool has not.
  stage.tell({ map: { ...map, nodes: [], pools } })
  await tab.says('No worker is known to hold any block.', '1,006 pooled')
  stage.tell({ map })
  await tab.says('table below has the largest')
  t.equal(await tab.ask("document.querySelectorAll('.pool-part, [data-field=pool-keys]').length"), 0)
  t.notMatch(await tab.text(), /Pooled memory/)
  t.strictSame(tab.errors, [])
})

const NOW = '2026-03-01T12:00:00.000Z'
const beat = { now: NOW, life: 'stage', tabs: 1, tabs_max: 64, build_ms: 1, interval_ms: 250, silent: [] }
const ago = (ms: number): string => new Date(Date.parse(NOW) - ms).toISOString()

const card = (at: number, of: Partial<FleetKey>): FleetKey => ({
  worker: `10.0.0.${at}:8000/0`,
  id: `10.0.0.${at}:8000`,
  url: `http://10.0.0.${at}:8000`,
  state: 'up',
  state_reason: 'answers',
  engine: 'vllm',
  models: ['m'],
  role: 'both',
  handover: 'kv_transfer',
  trust: 'exact',
  trust_reason: 'its events arrive',
  trust_since: ago(305_000),
  block_size: 16,
  kv_blocks: 1000,
  blocks_held: 10,
  active_blocks: 1,
  prefill_tokens: 2,
  requests: 3,
  events: 4,
  last_event_age_ms: 42_000,
  audit: { state: 'good', requests: 0, predicted_tokens: 0, delivered_tokens: 0, precision: null },
  learned: null,
  odd: [],
  ...of,
})

const fleetOf = (keys: readonly FleetKey[]): FleetSection => ({
  version: 1,
  workers: keys.length,
  workers_up: keys.length,
  keys_total: keys.length,
  keys_left_out: 0,
  trust: { [keys[0]!.trust]: keys.length },
  apart: [],
  keys,
})

t.test('where everything is approximate, the page says so, on each card and for all', async t => {
  const unknown = {
    trust: 'approximate',
    trust_reason: 'it publishes no events',
    events: null,
    last_event_age_ms: null,
  }
  const guessed = [1, 2, 3].map(at => card(at, unknown))
  const stage = await Stage.start({ beat, fleet: fleetOf(guessed), map: { ...map, nodes: [] } })
  t.teardown(() => stage.stop())
  const tab = await Tab.open(browser, stage.url)
  await tab.says('3 of 3 workers are up', 'No cache is known by events')
  const cards = await tab.page.$$eval('.card', all => all.map(one => one.textContent ?? ''))
  t.equal(cards.length, 3)
  for (const text of cards) t.match(text, /approximate.*it publishes no events.*none are sent.*What to do/)
  for (const size of SIZES)
    for (const scheme of SCHEMES) {
      await tab.look(size, scheme)
      t.strictSame(await tab.faults(), [], `axe: ${size.width} ${scheme}`)
      t.ok((await tab.overflow()) <= 0, `as wide as its window: ${size.width}`)
      await tab.picture(`guessed-fleet-${size.width}-${scheme}`)
    }
  await tab.show('map')
  await tab.says('No worker is known to hold any block')
  const odd = [{ figure: 'prefill', times: 4.213, against: 'twins', since: ago(185_000) }]
  stage.tell({ fleet: { ...fleetOf([...guessed, card(4, { odd })]), trust: { approximate: 3, exact: 1 } } })
  await tab.show('fleet')
  await tab.says('4 of 4 workers are up', '⚠ Prefill takes 4.2 times as long as at its twins, for 3 min')
  t.notMatch(await tab.text(), 'No cache is known by events')
  t.strictSame(tab.errors, [])
})

t.test('workers that take a part of a request say which, and a receipt has both legs', async t => {
  const fleet = await startFleet({
    engines: [{ role: 'prefill' }, { role: 'decode' }],
    workerQuery: (_, position) => `?role=${position === 0 ? 'prefill' : 'decode'}`,
  })
  t.teardown(() => fleet.stop())
  const answer = await until('a prompt is handed over', async () => {
    const body = { model: 'homing-sim', prompt: 'a pigeon '.repeat(40), max_tokens: 3 }
    const { headers } = await fleet.send('/v1/completions', { body })
    return headers['x-homing-prefill-worker'] === undefined ? undefined : headers
  })
  const prefill = String(answer['x-homing-prefill-worker'])
  const tab = await Tab.open(browser, `${fleet.url}/`)
  await tab.says(
    'homing-sim: prefill and decode apart, active',
    'Computes prompts only, and hands them over by kv_transfer',
    'Goes on with prompts that others compute (kv_transfer)',
  )
  await tab.show('decisions')
  await tab.page.waitForSelector('[data-decision]')
  await tab.page.click(`[data-decision="${answer['x-homing-decision']}"]`)
  await tab.page.waitForSelector('[data-leg=prefill]')
  await tab.says(
    `${prefill} computed its prompt and handed it over, so only load counted`,
    `Sent to ${prefill}`,
  )
  for (const size of SIZES)
    for (const scheme of SCHEMES) {
      await tab.look(size, scheme)
      t.strictSame(await tab.faults(), [], `axe: ${size.width} ${scheme}`)
      await tab.picture(`legs-${size.width}-${scheme}`)
    }
  t.strictSame(tab.errors, [])
})

const whatIf: WhatIfSection = {
  is_on: true,
  state: 'idle',
  kept: {
    requests: 1,
    bytes: 1,
    bytes_max: 2,
    minutes_max: 15,
    dropped_requests: 0,
    since: ago(600_000),
  },
  cpu_share: 0.25,
  timeout_s: 300,
  run: null,
  answer: null,
  error: null,
}

t.test('a question that runs is cancelled by its button', async t => {
  const run = {
    ...{ id: 'q', started_at: ago(65_000), elapsed_s: 65, minutes: 15, profile: null, anyway: false },
    ...{ step: 2, steps: 7, what: 'one more worker', requests: 1, cpu_s: 1.5 },
  }
  const stage = await Stage.start({ beat, whatIf: { ...whatIf, state: 'running', run } })
  t.teardown(() => stage.stop())
  const tab = await Tab.open(browser, stage.url, 'what-if')
  await tab.says('Simulating 2 of 7: one more worker.', '1 min 5 s so far; 1.5 s of processor time')
  t.strictSame(await tab.faults(), [])
  await tab.page.click('.ask button')
  await until('the router was told', () => (stage.told.length > 0 ? true : undefined))
  t.strictSame(stage.told, ['DELETE /what_if'])
  stage.tell({ whatIf: { ...whatIf, state: 'cancelled', run } })
  await tab.says('The last question was cancelled.')
  await tab.page.waitForSelector('.ask button[type=submit]:not([disabled])')
  t.strictSame(tab.errors, [])
})

for (const hours of [-2, 2])
  t.test(`ages are right where the clock of the browser is off by ${hours} h`, async t => {
    const stage = await Stage.start({ beat, fleet: fleetOf([card(1, {})]), whatIf })
    t.teardown(() => stage.stop())
    const tab = await Tab.open(browser, stage.url, 'fleet', Date.parse(NOW) + hours * 3_600_000)
    t.equal(await tab.ask<number>('Date.now()'), Date.parse(NOW) + hours * 3_600_000)
    const local = await tab.ask<string>(`new Date('${NOW}').toLocaleTimeString('en-GB')`)
    await tab.says('for 5 min 5 s', '42 s ago', `Router time ${local}`)
    await tab.show('what-if')
    await tab.says('10 min 0 s ago')
    t.strictSame(tab.errors, [])
  })
