/** The reports of a sweep whose figures follow from simple rules. */

import t from 'tap'
import type { SweepOutcome, SweptCell } from '../../src/index.ts'
import { parseColumn, renderHtml, renderJson, renderText, summarize } from '../../src/index.ts'
import { standInRun } from '../stand-in.ts'

const COLUMNS = ['least-loaded', 'threshold', 'linear', 'product']
const ABOUT = {
  command: 'homing simulate --trace a.jsonl',
  fleet: '8 workers with profile h100-8b, blocks of 512 tokens.',
  view: 'One router; KV events arrive 20 ms late.',
  workloads: [{ name: 'chat', source: 'a.jsonl' }],
  seeds: [1, 2, 3],
  warmupShare: 0.1,
}

function outcomeOf({
  speeds = [1, 2, 3],
  seeds = [1, 2, 3],
  columns = COLUMNS,
  workload = 'chat',
  isComplete = true,
} = {}): SweepOutcome {
  const cells: SweptCell[] = speeds.flatMap(speed =>
    columns.flatMap(column =>
      seeds.map(seed => {
        const { selection } = parseColumn(column)
        const spec = {
          workers: 8,
          profile: 'h100-8b',
          blockTokens: 512,
          routers: 1,
          view: { kind: 'exact', eventDelayMs: 0, signalDelayMs: 0 },
          selection,
          knowsOutput: true,
          speed,
          copies: 1,
          stretch: 1,
          seed,
          warmupShare: 0.1,
        } as const
        return { speed, column, seed, workload, run: standInRun(spec) }
      }),
    ),
  )
  const capacities = columns.map((column, i) => ({
    workload,
    column,
    tier: 'standard' as const,
    seed: 1,
    speed: 2 + i / 2,
    isAtLeast: i === 3,
  }))
  return { cells, capacities, isComplete }
}

t.test(
  'a row has the mean over the seeds, its interval, and the paired difference to the baseline',
  async t => {
    const summary = summarize(outcomeOf(), COLUMNS)
    const [point] = summary.workloads[0]!.points
    t.equal(summary.baseline, 'least-loaded')
    t.equal(point!.requests, 1000)
    t.ok(Math.abs(point!.requestsPerS - 1000 / 300) < 1e-9)
    const [least, , , product] = point!.rows
    t.equal(least!.figures.ttftMean.difference, undefined)
    t.equal(product!.figures.hitRate.verdict, 'better')
    t.equal(product!.figures.outputRate.verdict, 'open', 'no difference')
    t.equal(product!.figures.ttftMean.seeds, 3)
    t.equal(product!.figures.ttftMean.verdict, 'better')
    t.ok(product!.figures.ttftMean.difference!.mean < 0)
    t.ok(product!.figures.ttftMean.halfWidth! > 0)
    t.equal(summarize(outcomeOf(), ['product']).baseline, undefined, 'a policy alone has none')
  },
)

t.test('the table has a block for each load and says what its words mean', async t => {
  const text = renderText(summarize(outcomeOf(), COLUMNS))
  t.match(
    text,
    /^chat: speed 1 \(1000 requests, 3\.3 requests\/s\)\n {2}policy +TTFT s +p50 +p90 +p99 +ITL ms +E2E s +p99 +hit % +good % +imbal +TTFT to least-loaded\n/,
  )
  t.match(text, /\n {2}product +0\.04 ±0\.00 .* −?.*-\d+\.\d ±\d+\.\d % better\n/)
  t.match(text, /chat: capacity, the highest speed with 95 % of the requests inside tier standard\n/)
  t.match(text, /\n {2}product +≥ 3\.5\n/)
  t.match(text, /± is half of the 95 % interval over 3 seeds/)
  t.notMatch(text, /Stopped/)
  for (const line of text.split('\n')) if (line.length > 180) t.fail(`${line.length} columns: ${line}`)
})

t.test('what was stopped says so, and nothing done is said plainly', async t => {
  t.match(renderText(summarize(outcomeOf({ isComplete: false }), COLUMNS)), /Stopped before the end/)
  t.equal(
    renderText(summarize({ cells: [], capacities: [], isComplete: false }, COLUMNS)),
    'no cell is done\n',
  )
  t.match(renderHtml(ABOUT, summarize(outcomeOf({ isComplete: false }), COLUMNS)), /Stopped before the end/)
  t.match(
    renderHtml(ABOUT, summarize({ cells: [], capacities: [], isComplete: false }, COLUMNS)),
    /^<!doctype html>/,
  )
})

t.test('the JSON has every cell and nothing of the machine, and is the same again', async t => {
  const outcome = outcomeOf()
  const text = renderJson(ABOUT, outcome, summarize(outcome, COLUMNS))
  t.equal(renderJson(ABOUT, outcomeOf(), summarize(outcomeOf(), COLUMNS)), text)
  const document = JSON.parse(text)
  t.equal(document.cells.length, 36)
  t.equal(document.capacities.length, 4)
  t.match(document.cells[0], {
    speed: 1,
    column: 'least-loaded',
    seed: 1,
    result: { spec: { workers: 8 }, hitRate: 0.2 },
  })
  t.notMatch(text, /cpuUs|elapsedMs/)
})

t.test('the page is one file that asks for nothing, and tells series by marks and dashes, too', async t => {
  const html = renderHtml(ABOUT, summarize(outcomeOf(), COLUMNS))
  t.notMatch(html, /<script|<link|@import|url\(|https?:|\ssrc=/)
  for (const heading of [
    'TTFT mean, s',
    'TTFT p99, s',
    'E2E p50, s',
    'hit rate, %',
    'outstanding tokens, max ÷ mean',
    'capacity, tier standard',
  ]) {
    t.ok(html.includes(`<figcaption>${heading}</figcaption>`), heading)
  }
  t.match(html, /prefers-color-scheme:dark/)
  t.match(html, /name="viewport" content="width=device-width/)
  const shapes = COLUMNS.map((_, i) =>
    new RegExp(`class="s s${i}"><polyline[^>]*stroke-dasharray="([^"]*)"/><(\\w+) class="mark`).exec(html),
  )
  t.equal(new Set(shapes.map(found => `${found?.[1]} ${found?.[2]}`)).size, 4)
  t.match(html, /<title>product, speed 1: 0\.04 ± 0\.00 s<\/title>/)
  t.match(html, /▲<i>better<\/i>/)
  t.notMatch(html, /NaN|undefined|Infinity/)
})

t.test('what waited, and what each tenant got, is in the table and on the page', async t => {
  const plain = outcomeOf({ speeds: [1], columns: ['product'] })
  t.notMatch(renderHtml(ABOUT, summarize(plain, ['product'])), /waiting in the router|by tenant/)
  const tenant = {
    ...plain.cells[0]!.run.result,
    tenant: 'a<b',
    requests: 40,
    prefillShare: 0.25,
    ttftMs: { mean: 1500, p50: 1, p90: 1, p99: 2500 },
    waitMs: { mean: 500, p50: 1, p90: 1, p99: 1, max: 900 },
  }
  const queue = {
    waitedShare: 0.125,
    waitMs: { mean: 250, p99: 700, max: 900 },
    waitingMost: 5,
    refused: 3,
  }
  const cells = plain.cells.map(each => {
    const result = { ...each.run.result, queue, tenants: [tenant] }
    return { ...each, run: { ...each.run, result } }
  })
  const summary = summarize({ ...plain, cells }, ['product'])
  t.match(renderText(summary), /waiting in the router .*\n {2}product +12\.5 +0\.25 +0\.70 +0\.90 +3\n/)
  t.match(renderText(summary), /\n {2}product, a<b +40 +25\.0 +1\.50 +2\.50 +0\.50 +0\.90\n/)
  const html = renderHtml(ABOUT, summary)
  const row = (name: string, ...figures: readonly string[]): string =>
    `<th scope="row">${name}</th>${figures.map(text => `<td>${text}</td>`).join('')}</tr>`
  t.ok(html.includes(row('product', '12.5', '0.25', '0.70', '0.90', '3')))
  t.ok(html.includes(row('product, a&lt;b', '40', '25.0', '1.50', '2.50', '0.50', '0.90')))
  t.match(html, /waiting in the router.*by tenant/s)
})

t.test('names from outside are text in the page, not markup', async t => {
  const evil = '<img src=x onerror=alert(1)>'
  const html = renderHtml(
    { ...ABOUT, command: evil, fleet: evil, workloads: [{ name: evil, source: evil }] },
    summarize(outcomeOf({ workload: evil }), COLUMNS),
  )
  t.notMatch(html, /<img/)
})

t.test('one load is shown as a row for each policy, since one point makes no curve', async t => {
  const html = renderHtml(
    { ...ABOUT, seeds: [1] },
    summarize(outcomeOf({ speeds: [2], seeds: [1] }), COLUMNS),
  )
  t.match(html, /<g class="s s3"><text[^>]*>product<\/text><line class="stem"/)
  t.match(html, /One seed: there are no intervals/)
})

t.test('the figures are finite where a fleet serves nothing', async t => {
  const outcome = outcomeOf()
  const dead = outcome.cells.map(cell => ({
    ...cell,
    run: {
      ...cell.run,
      result: {
        ...cell.run.result,
        ttftMs: { mean: Number.NaN, p50: Number.NaN, p90: Number.NaN, p99: Number.NaN },
        refused: 3,
        spanMs: 0,
      },
    },
  }))
  const summary = summarize({ ...outcome, cells: dead }, COLUMNS)
  t.notMatch(renderHtml(ABOUT, summary), /NaN|Infinity/)
  const text = renderText(summary)
  t.notMatch(text, /NaN|Infinity/)
  t.match(
    text,
    /3 requests were never served: they are larger than the cache of a worker, or no worker was there/,
  )
})
