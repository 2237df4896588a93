/**
 * The page in a real browser: each view on a fleet under load, on a router without workers, and with workers that are down or not known
 * exactly. HOMING_PICTURES names a folder for pictures of them.
 */

import { writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { startRouter } from 'homing'
import type { Browser } from 'puppeteer-core'
import t, { type Test } from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { type Fleet, startFleet, until } from './fleet.ts'
import { CHROMIUM, SCHEMES, SIZES, startBrowser, Tab } from './page-browser.ts'

const VIEWS = ['fleet', 'map', 'decisions', 'pays', 'waiting', 'what-if', 'house'] as const
const DECISION_IN_FOCUS = "document.activeElement?.getAttribute('data-decision')"
const MARKUP = '<img src=x onerror="document.title=1">'

if (CHROMIUM === undefined) t.plan(0, 'chromium is not installed')

const browser: Browser = CHROMIUM === undefined ? (undefined as never) : await startBrowser()
t.teardown(() => browser?.close())
t.setTimeout(250_000)

interface Button {
  readonly disabled: boolean
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

const prompt = (seed: number, blocks = 6): number[] =>
  Array.from({ length: blocks * 16 }, (_, at) => 40 + ((at < 48 ? at * 7 : seed * 31 + at * 7) % 80))

async function load(t: Test, fleet: Fleet, model = MODEL): Promise<void> {
  for (let i = 0; i < 12; i++) {
    const body = { model, prompt: prompt(i % 4), max_tokens: 4, stream: i % 2 === 0 }
    t.equal((await fleet.send('/v1/completions', { body })).status, 200)
  }
  await fleet.drained()
  await fleet.caughtUp(fleet.engines)
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
  t.ok(paintMs < 1000, `first paint after ${paintMs} ms`)

  for (const { worker_keys } of await fleet.workers()) {
    for (const { worker, blocks_held, load } of worker_keys) {
      await until(`the card of ${worker} is as /workers`, async () => {
        const figures = await tab.figures(`[data-worker="${worker}"]`)
        return Number(figures['blocks_held']) === blocks_held && Number(figures['requests']) === load.requests
          ? true
          : undefined
      })
    }
  }

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
  // What the table says of prefixes that prompts begin with adds up to all that is held.
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

t.test('what if is asked, followed, answered and cancelled on the page, as /what_if has it', async t => {
  const fleet = await startFleet({ engines: [{}, {}], router: ['--what-if-cpu-share', '1'] })
  t.teardown(() => fleet.stop())
  const tab = await Tab.open(browser, `${fleet.url}/`, 'what-if')
  await tab.says('No request has ended yet')
  t.equal(await tab.page.$eval('.ask button', button => (button as unknown as Button).disabled), true)
  for (let round = 0; round < 10; round++) await load(t, fleet)
  await until('the page knows of them', async () => {
    return (await tab.figures('dl.figures'))['requests'] === '120' ? true : undefined
  })
  await tab.page.click('input[name="anyway"]')
  await tab.page.focus('input[name="anyway"]')
  await tab.page.keyboard.press('Enter')
  await tab.says('The last answer took', 'What would have been', 'one more worker', 'one worker less')
  const { answer, state } = (await fleet.send('/what_if')).json
  t.equal(state, 'done')
  t.equal(answer.requests, 120)
  const shown = await tab.page.$$eval('tbody tr', rows =>
    rows.map(row => [
      row.querySelector('[data-row]')?.getAttribute('data-row'),
      Number(row.querySelector('[data-field="ttft_ms_mean"]')?.getAttribute('data-value')),
    ]),
  )
  t.strictSame(
    shown,
    answer.rows.map((row: { readonly name: string; readonly ttft_ms_mean: number }) => [
      row.name,
      row.ttft_ms_mean,
    ]),
  )
  for (const size of SIZES)
    for (const scheme of SCHEMES) {
      await tab.look(size, scheme)
      t.strictSame(await tab.faults(), [], `axe: ${size.width} ${scheme}`)
      t.ok((await tab.overflow()) <= 0, `as wide as its window: ${size.width}`)
      await tab.picture(`answer-what-if-${size.width}-${scheme}`)
    }
  t.strictSame(tab.errors, [])
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
    // Ports that nobody listens on.
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
    // Nobody listens there.
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

t.test('a router that is started anew under the page is found again, and the page says so', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const start = (port: number) =>
    startRouter({ workers: fleet.engines.map(({ url }) => url), port, host: '127.0.0.1', logLevel: 'silent' })
  const first = await start(0)
  const tab = await Tab.open(browser, `${first.url}/`)
  await tab.says('1 of 1 workers are up')
  await first.stop(0)
  await tab.says('not connected', 'asking again', 'What is shown is of')
  await tab.picture('lost-fleet-1600-light')
  const second = await start(first.port)
  t.teardown(() => second.stop(0))
  await tab.live()
  await tab.says('The router was started anew while this page was open (1 ×)')
})

t.test('with a key the page asks for it, and below a path of a proxy it works the same', async t => {
  const folder = t.testdir({ key: 'open-sesame-2000\n' })
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const workers = fleet.engines.map(({ url }) => url)
  const router = await startRouter({
    workers,
    port: 0,
    host: '127.0.0.1',
    adminKeyFile: join(folder, 'key'),
    logLevel: 'silent',
  })
  t.teardown(() => router.stop(0))
  const proxy = createServer((asked, answer) => {
    const passed = request(
      { port: router.port, path: asked.url!.replace('/some/path', ''), headers: asked.headers },
      answered => {
        answer.writeHead(answered.statusCode!, answered.headers)
        answered.pipe(answer)
      },
    )
    passed.on('error', () => answer.destroy())
    asked.pipe(passed)
  })
  await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    proxy.closeAllConnections()
    proxy.close()
  })
  const tab = await Tab.open(browser, `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/some/path/`)
  await tab.page.waitForSelector('input[type=password]')
  t.strictSame(await tab.faults(), [])
  await tab.picture('key-fleet-1600-light')
  await tab.page.type('input[type=password]', 'wrong')
  await tab.page.keyboard.press('Enter')
  await tab.says('does not take this key')
  await tab.ask("document.querySelector('input[type=password]').value = 'open-sesame-2000'")
  await tab.page.click('form button')
  await tab.live()
  await tab.says('1 of 1 workers are up')
})

t.test('ten tabs of a browser share one stream, which another takes over when its tab is closed', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const tabs: Tab[] = []
  for (let i = 0; i < 10; i++) tabs.push(await Tab.open(browser, `${fleet.url}/`, VIEWS[i % VIEWS.length]))
  for (const tab of tabs) await tab.says('live', '1 of 64 tabs open')
  await tabs[0]!.page.close()
  const body = { model: MODEL, prompt: prompt(1), max_tokens: 4 }
  const { headers } = await fleet.send('/v1/completions', { body })
  await tabs[VIEWS.indexOf('decisions')]!.page.waitForSelector(
    `[data-decision="${headers['x-homing-decision']}"]`,
  )
  for (const tab of tabs.slice(1)) await tab.says('live')
})
