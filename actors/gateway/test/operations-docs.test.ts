/**
 * docs/operations.md against the answers of a running gateway: every field of a receipt and of /workers,
 * every operator route.
 */

import { readFileSync } from 'node:fs'
import { OPERATOR_ROUTES } from '@homing/actors/console'
import type { FleetReport } from '@homing/actors/directory'
import type { SourceStatus } from '@homing/actors/listener'
import type { Receipt } from '@homing/placement'
import t from 'tap'
import { start } from './gateway-world.ts'
import { fleetOf, RECEIPT, WORKER, WORKER_DIAGNOSIS } from './sample-records.ts'

const PAGE = readFileSync(new URL('../../../docs/operations.md', import.meta.url), 'utf8')

/** The text below a heading, up to the next heading. */
function section(heading: string): string {
  const [, text] = PAGE.split(`\n## ${heading}\n`)
  if (text === undefined) throw new Error(`docs/operations.md has no section "${heading}"`)
  return text.split(/^## /m)[0]!
}

/** What the first cells of a section's tables name in backticks. */
function named(heading: string): string[] {
  const cells = [...section(heading).matchAll(/^\| (`[^|]*) \|/gm)]
  return cells.flatMap(([, cell]) => [...cell!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!))
}

/**
 * Paths of all fields of a value: `a`, `a.b`, `a[].b`. Lists of plain values and empty objects have no
 * fields.
 */
function fieldsOf(value: unknown, at = ''): string[] {
  if (Array.isArray(value)) return value.flatMap(element => fieldsOf(element, `${at}[]`))
  if (value === null || typeof value !== 'object') return []
  return Object.entries(value).flatMap(([name, inner]) => {
    const path = at === '' ? name : `${at}.${name}`
    return [path, ...fieldsOf(inner, path)]
  })
}

const unique = (names: readonly string[]): string[] => [...new Set(names)].sort()

/** Every field that may be null has a value. */
const WHOLE_RECEIPT: Receipt = {
  ...RECEIPT,
  // The names of terms are those of a policy, and on its page.
  cost: { ...RECEIPT.cost, terms: [] },
  runnerUp: '10.0.0.2:8001/0',
  queue: { waitedMs: 5, why: 'no_room', expectedMs: 20 },
  candidates: [
    {
      worker: RECEIPT.worker,
      trust: 'exact',
      overlapBlocks: 3,
      creditFactor: 1,
      layers: [],
      score: 0,
      moeScore: 0,
      cxlAccessibleScore: 0,
      activePrefillTokens: 0,
      prefillTokens: 52,
      prefillBlocks: 3.25,
      activeBlocks: 0,
      newBlocks: 3,
      decodeBlocks: 3,
      activeRequests: 0,
      preference: 1,
      terms: [],
      cost: 6.25,
      probability: 1,
    },
  ],
  excluded: [{ worker: '10.0.0.3:8001/0', reason: 'down' }],
  guard: {
    arm: 'control',
    phase: 'trusting',
    controlShare: 0.01,
    predictedFirstTokenMs: 20,
    extraTokens: 0,
    regretMs: { 'round-robin': -10, 'least-loaded': 0, product: -1 },
  },
  delivery: {
    outcome: 'error',
    status: 500,
    promptTokens: 100,
    completionTokens: 1,
    cachedTokens: 48,
    waitedMs: 0,
    timeToFirstByteMs: 1,
    durationMs: 2,
    streamEvents: undefined,
    error: { code: 'HOMING_DISPATCH_UPSTREAM_FAILED', message: 'cannot get an answer', details: {} },
  },
}

const SOURCE: SourceStatus = {
  path: 'publisher',
  state: 'live',
  lastSequence: 1,
  epoch: 1,
  batches: 1,
  events: 1,
  gaps: 0,
  replays: 0,
  restarts: 0,
  contradictions: 0,
  duplicates: 0,
  malformedFrames: 0,
  skippedEvents: 0,
  droppedBatches: 0,
  lostFrames: 0,
  foreignRanks: 0,
  foreignTopics: 0,
  lastEventAgeMs: 1,
  checkpoint: {
    resumedSequence: undefined,
    refusal: undefined,
    savedSequence: undefined,
    savedAgeMs: undefined,
    saves: 0,
    failedSaves: 0,
  },
}

const WHOLE_REPORT: FleetReport = {
  fleet: fleetOf({ ...WORKER, kvBlocks: { value: 1000, source: 'probed' } }),
  sources: { 0: SOURCE },
}

const SPEED = { coefficients: [10, 0.05, 1e-6], source: 'prior', observations: 0 } as const
const LOADS = {
  rows: [
    {
      worker: '10.0.0.1:8001/0',
      workerSlot: 0,
      activeBlocks: 0,
      activePrefillTokens: 0,
      activeRequests: 0,
      reported: { share: undefined, reason: 'GET /metrics answers 404' },
      learned: { prefill: { ...SPEED, kneeTokens: 256 }, decode: SPEED },
      odd: [{ figure: 'prefill', times: 4.2, against: 'twins', sinceMs: 1_767_225_600_000 }] as const,
    },
  ],
  stats: { expiredTotal: 0 } as never,
}

t.test('docs/operations.md names every field of a receipt and no other', async t => {
  const { ask } = await start(t, {}, { receipts: [WHOLE_RECEIPT] })
  const one = JSON.parse((await ask('GET', '/decisions/decision-1')).body)
  t.strictSame(unique(named('Fields of a receipt')), unique(fieldsOf(one)))
  const { decisions } = JSON.parse((await ask('GET', '/decisions')).body)
  t.strictSame(decisions, [one])
})

t.test('what /route adds to a receipt is one field', async t => {
  const { ask } = await start(t, {}, { explain: () => WHOLE_RECEIPT })
  const explained = JSON.parse((await ask('POST', '/route', { body: '{}' })).body)
  const { tokenized_by, ...receipt } = explained
  t.equal(tokenized_by, 'router')
  t.strictSame(unique(named('Fields of a receipt')), unique(fieldsOf(receipt)))
  t.match(section('Fields of a receipt'), /`tokenized_by`/)
})

t.test('docs/operations.md names every field of /workers and no other', async t => {
  const { ask } = await start(t, {}, { report: WHOLE_REPORT, loads: LOADS })
  const answer = JSON.parse((await ask('GET', '/workers')).body)
  t.strictSame(unique(named('Fields of /workers')), unique(fieldsOf(answer)))
})

t.test('docs/operations.md names every field of a diagnosis and no other', async t => {
  const { ask } = await start(t)
  const answer = JSON.parse((await ask('GET', `/workers/${WORKER_DIAGNOSIS.worker}/diagnosis`)).body)
  t.strictSame(unique(named('A diagnosis')), unique(fieldsOf(answer)))
})

t.test('docs/operations.md names every route for operators and no other', async t => {
  const documented = named('Routes').map(name =>
    name.replace(/\?.*/, '').replace(/:id(\/drain|\/diagnosis)?/, '*'),
  )
  const served = OPERATOR_ROUTES.map(({ method, path }) => `${method} ${path}`)
  t.strictSame(unique(documented), unique([...served, 'GET /health', 'GET /ready']))
})
