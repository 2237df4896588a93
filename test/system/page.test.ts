/**
 * The page in a real browser: each view on a fleet under load, on a router without workers, and with workers
 * that are down or not known exactly. HOMING_PICTURES names a folder for pictures of them.
 */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { startRouter } from 'homing'
import type { Browser } from 'puppeteer-core'
import t, { type Test } from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { type KeyView, RouterClient, startEngines, startFleet, startTestRouter, until } from './fleet.ts'
import {
  CHROMIUM,
  load,
  promptOf,
  SCHEMES,
  SIZE_4K,
  SIZES,
  startBrowser,
  Tab,
  VIEWS,
} from './page-browser.ts'

const DECISION_IN_FOCUS = "document.activeElement?.getAttribute('data-decision')"
const MARKUP = '<img src=x onerror="document.title=1">'

if (CHROMIUM === undefined) t.plan(0, 'chromium is not installed')

const browser: Browser = CHROMIUM === undefined ? (undefined as never) : await startBrowser()
t.teardown(() => browser?.close())
t.setTimeout(600_000)

/** Of a worker key of `/workers`, what its card says. */
interface CardKey extends KeyView {
  readonly events: (KeyView['events'] & { readonly events: number }) | null
  readonly audit: {
    readonly requests: number
    readonly predicted_tokens: number
    readonly delivered_tokens: number
  }
}

/** A receipt of `/decisions`. */
interface Decided {
  readonly id: string
  readonly worker: string
  readonly runner_up: string | null
  readonly candidates: readonly { readonly worker: string; readonly cost: number }[]
  readonly guard: { readonly arm: string | null } | null
}

interface Delivered {
  readonly delivered: { readonly prompt_tokens: number; readonly cached_tokens: number | null }
}

/** Every view, small and large, light and dark: nothing breaks, axe finds nothing, nothing sticks out. */
async function lookAround(
  t: Test,
  tab: Tab,
  name: string,
  sizes: readonly (typeof SIZES)[number][] = SIZES,
): Promise<void> {
  for (const view of VIEWS) {
    await tab.look(SIZES[1], 'light')
    await tab.show(view)
    for (const size of sizes) {
      for (const scheme of SCHEMES) {
        await tab.look(size, scheme)
        const what = `${name}-${view}-${size.width}-${scheme}`
        t.strictSame(await tab.faults(), [], `${what}: axe`)
        t.ok((await tab.overflow()) <= 0, `${what}: as wide as its window`)
        await tab.picture(what)
      }
    }
  }
  t.strictSame(tab.errors, [], `${name}: no errors in the browser`)
}

t.test('a fleet under load: each view, and its figures are those of the JSON routes', async t => {
  const fleet = await startFleet({ engines: [{}, {}, {}] })
  t.teardown(() => fleet.stop())
  await load(t, fleet)
  const tab = await Tab.open(browser, `${fleet.url}/`)
  await tab.live()
  await tab.says('3 of 3 workers are up', 'exact')
  const paintMs = await tab.ask<number>("performance.getEntriesByName('first-contentful-paint')[0].startTime")
  t.comment(`first paint after ${paintMs.toFixed(0)} ms`)

  const keys = (await fleet.workers()).flatMap(({ worker_keys }) => worker_keys as readonly CardKey[])
  for (const { worker, trust, blocks_held, load, events, audit } of keys) {
    const { active_blocks, prefill_tokens, requests } = load
    const { predicted_tokens, delivered_tokens } = audit
    const told = {
      ...{ trust, blocks_held, active_blocks, prefill_tokens, requests, events: events?.events },
      ...(audit.requests > 0 && { predicted_tokens, delivered_tokens }),
    }
    let seen: unknown
    await until(
      `the card of ${worker} is as /workers: ${JSON.stringify(told)}`,
      async () => {
        const figures = await tab.figures(`[data-worker="${worker}"]`)
        seen = figures
        return Object.entries(told).every(([field, value]) => figures[field] === String(value))
          ? true
          : undefined
      },
      { seen: () => seen },
    )
  }
  t.ok(
    keys.some(({ audit }) => audit.requests > 0 && audit.delivered_tokens > 0),
    'one was audited',
  )

  await tab.show('decisions')
  await tab.page.waitForSelector('[data-decision]')
  const listed = await tab.page.$$eval('[data-decision]', all =>
    all.map(one => one.getAttribute('data-decision')),
  )
  const { decisions } = (await fleet.send('/decisions?limit=40')).json
  t.strictSame(
    listed,
    decisions.map(({ id }: { readonly id: string }) => id),
  )
  const places = await tab.page.$$eval('.decision-where', all => all.map(one => one.textContent))
  for (const [at, { id, worker, runner_up, candidates, guard }] of (
    decisions as readonly Decided[]
  ).entries()) {
    const costOf = (key: string) => candidates.find(one => one.worker === key)!.cost
    if (guard?.arm === 'control' || runner_up === null) continue
    const margin = costOf(runner_up) - costOf(worker)
    const word = Math.abs(margin) < 1e-9 ? 'as good as' : margin < 0 ? 'ms dearer than' : 'ms before'
    t.ok(
      places[at]!.startsWith(worker) && places[at]!.endsWith(` ${word} ${runner_up}`),
      `${id}: ${places[at]}`,
    )
  }
  t.ok(
    places.some(place => / by [\d.]+ ms before /.test(place!)),
    'one has won by something',
  )

  const receipt = decisions[0]
  await tab.page.click(`[data-decision="${receipt.id}"]`)
  await tab.says(
    `Sent to ${receipt.worker}`,
    `holds ${receipt.overlap_blocks} of the`,
    'What the terms mean',
    'Round-robin',
  )
  const rows = await tab.page.$$eval('dialog tbody tr', all => all.length)
  t.equal(rows, receipt.candidates.length)
  t.strictSame(await tab.faults(), [], 'axe finds nothing in a receipt')
  await tab.picture('load-receipt-1600-light')
  await tab.page.keyboard.press('Escape')
  await tab.page.waitForSelector('dialog', { hidden: true })

  await tab.show('map')
  // The copies of the first prefixes in the table add up to all held blocks.
  const held = (await fleet.workers()).flatMap(({ worker_keys }) => worker_keys.map(key => key.blocks_held))
  await until('the map has all copies of blocks', async () => {
    const copies = await tab.page.$$eval('tbody tr', rows =>
      rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent ?? '')),
    )
    const sum = copies
      .filter(([, from]) => from === '0 tokens')
      .reduce((total, [, , , blocks]) => total + Number(blocks!.replaceAll(',', '')), 0)
    return sum === held.reduce((total, blocks) => total + blocks, 0) ? true : undefined
  })
  t.match(await tab.page.$eval('[data-hash]', cell => cell.getAttribute('data-hash')), /^[0-9a-f]{16}$/)

  await tab.show('pays')
  const all = (await fleet.send('/decisions?limit=1000')).json.decisions as readonly Delivered[]
  const sum = (of: (delivered: Delivered['delivered']) => number) =>
    all.reduce((total, { delivered }) => total + of(delivered), 0)
  const cached = sum(({ cached_tokens }) => cached_tokens ?? 0)
  await until('the hour is the sum of the receipts', async () => {
    const figures = await tab.figures('main')
    return figures['requests'] === String(all.length) && figures['cached_tokens'] === String(cached)
      ? true
      : undefined
  })
  t.equal((await tab.figures('main'))['hit_rate'], String(cached / sum(({ prompt_tokens }) => prompt_tokens)))
  await tab.show('house')
  const { threads } = (await fleet.send('/actors')).json
  await tab.page.waitForSelector('[data-field=threads]')
  t.equal((await tab.figures('main'))['threads'], String(threads.length))
  await lookAround(t, tab, 'load')
  await tab.look(SIZE_4K, 'light')
  for (const view of VIEWS) {
    await tab.show(view)
    t.ok((await tab.overflow()) <= 0, `${view}: as wide as its window of ${SIZE_4K.width}`)
    await tab.picture(`load-${view}-${SIZE_4K.width}-light`)
  }
  await tab.page.close()
})

t.test('the keyboard reaches all that can be used, and opens and closes a receipt', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  await load(t, fleet)
  const tab = await Tab.open(browser, `${fleet.url}/`, 'decisions')
  await tab.page.waitForSelector('[data-decision]')
  for (const view of VIEWS) {
    await tab.show(view)
    const usable = await tab.ask<number>(`(() => {
      const all = [...document.querySelectorAll('a[href], button, input, select, [tabindex="0"]')]
      for (const [at, one] of all.entries()) one.setAttribute('data-reach', at)
      document.activeElement?.blur()
      return all.length
    })()`)
    const reached = new Set<string>()
    for (let step = 0; step < usable + 3; step++) {
      await tab.page.keyboard.press('Tab')
      const at = await tab.ask<string>("document.activeElement?.getAttribute('data-reach') ?? ''")
      if (at !== '') reached.add(at)
    }
    t.equal(reached.size, usable, `${view}: ${usable} elements`)
  }
  await tab.show('decisions')
  await tab.page.focus('[data-decision]')
  const id = await tab.ask<string>(DECISION_IN_FOCUS)
  await tab.page.keyboard.press('Enter')
  await tab.says('What the terms mean')
  await tab.page.keyboard.press('Escape')
  await tab.page.waitForSelector('dialog', { hidden: true })
  const focused = await tab.ask<string>(DECISION_IN_FOCUS)
  t.equal(focused, id, 'the line has the focus again')
})

t.test('markup in the name of a model is text', async t => {
  const fleet = await startFleet({ engines: [{ model: MARKUP }] })
  t.teardown(() => fleet.stop())
  await load(t, fleet, MARKUP)
  const tab = await Tab.open(browser, `${fleet.url}/`)
  await tab.says(MARKUP)
  await tab.show('decisions')
  await tab.says(MARKUP)
  await tab.page.click('[data-decision]')
  await tab.says('What the terms mean', MARKUP)
  t.equal(await tab.page.$('img'), null)
  t.equal(await tab.page.title(), 'Decisions · Homing')
})

t.test('blocks that a worker sends to a pool are pooled on the map, and reached by its peer', async t => {
  const { engines, stop } = await startEngines([
    { poolId: 4, poolWorkers: ['2'] },
    { publishesEvents: false },
  ])
  t.teardown(() => stop())
  const router = await startTestRouter(
    engines.map(({ url }, i) => `${url}?id=${i + 1}&block_size=16`),
    ['--router-policy', 'linear'],
  )
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  const [a, b] = engines.map(({ url }) => new URL(url).host) as [string, string]
  const body = { model: MODEL, prompt: promptOf(1, 4), max_tokens: 1, nvext: { backend_instance_id: 1 } }
  t.equal((await client.send('/v1/completions', { body })).status, 200)
  const tab = await Tab.open(browser, `${router.url}/`, 'map')
  await tab.says('Blocks, counted for each worker that says so: 4 pooled.')
  const cells = await tab.page.$eval('[data-pool="4"]', one =>
    [...one.closest('tr')!.querySelectorAll('td')].map(cell => cell.textContent),
  )
  t.strictSame(cells, ['4', '4', '0', '0', '0', [a, b].sort().join(', ')])
  await tab.page.focus('.icicle')
  await tab.page.keyboard.press('ArrowDown')
  await tab.says(`held by ${a}/0; 4 pooled in pool 4, reached by ${[a, b].sort().join(', ')}`)
  await tab.picture('pools-live-1600-light')
})

t.test('a router without workers has a drawn state in each view', async t => {
  const file = join(t.testdir(), 'workers.yaml')
  writeFileSync(file, 'workers: []\n')
  const router = await startRouter({ workersFile: file, port: 0, host: '127.0.0.1', logLevel: 'silent' })
  t.teardown(() => router.stop(0))
  const tab = await Tab.open(browser, `${router.url}/`)
  await tab.says('This router has no workers')
  await tab.show('decisions')
  await tab.says('No decisions yet')
  await lookAround(t, tab, 'empty', [SIZES[0]])
})

t.test('all workers are down, and were never seen: each has its card', async t => {
  const router = await startRouter({
    // Ports without a listener.
    workers: ['http://127.0.0.1:1', 'http://127.0.0.1:2'],
    port: 0,
    host: '127.0.0.1',
    logLevel: 'silent',
  })
  t.teardown(() => router.stop(0))
  const tab = await Tab.open(browser, `${router.url}/`)
  await tab.says('0 of 2 workers are up', '127.0.0.1:1', '127.0.0.1:2', 'down')
  await tab.page.click('.card button')
  await tab.says('homing doctor: unusable')
  await lookAround(t, tab, 'down', [SIZES[1]])
})

t.test('one worker down, one known by guesses: both say so, and what to do', async t => {
  const fleet = await startFleet({
    engines: [{}, { publishesEvents: false }],
    // No process listens there.
    otherWorkers: ['http://127.0.0.1:1'],
    trust: undefined,
  })
  t.teardown(() => fleet.stop())
  await load(t, fleet)
  const tab = await Tab.open(browser, `${fleet.url}/`)
  await tab.says('2 of 3 workers are up', 'down', 'approximate', 'exact')
  const first = await tab.page.$eval('.card', card => card.getAttribute('data-worker'))
  t.equal(first, '127.0.0.1:1/0', 'what is down comes first')
  const approximate = `[data-worker="${new URL(fleet.engines[1]!.url).host}/0"]`
  await tab.page.click(`${approximate} button`)
  await tab.says('homing doctor: inexact')
  await tab.page.waitForSelector(`${approximate} .remedy li`)
  await lookAround(t, tab, 'trouble')
})
