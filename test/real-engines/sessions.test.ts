/**
 * Live engines behind the router: multi-turn sessions, and predicted against delivered cached tokens.
 *
 * Runs with HOMING_REAL_ENGINES=1 and engines at HOMING_REAL_ENGINE_URLS (comma separated, with a query where
 * an engine does not tell its ports; default two at 127.0.0.1:8100 and 8101); docs/engines.md shows how to
 * start them, and what HOMING_REAL_ENGINE_RESTART is. All else is found by the router: model, block size,
 * ranks, tokenizer.
 */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { seededRandom } from '@homing/base'
import { parseSettings, routerCommand } from '@homing/config'
import { type RunningRouter, startRouter } from 'homing'
import t, { type Test } from 'tap'
import { chunksOf, RouterClient, until } from '../system/fleet.ts'

const isLive = process.env['HOMING_REAL_ENGINES'] === '1'
const skip = isLive ? false : 'needs live engines: HOMING_REAL_ENGINES=1'
const urls = (process.env['HOMING_REAL_ENGINE_URLS'] ?? 'http://127.0.0.1:8100,http://127.0.0.1:8101').split(
  ',',
)
/** Ends the first engine and starts it anew at the same ports. */
const restartCommand = process.env['HOMING_REAL_ENGINE_RESTART']
const SEED = Number(process.env['HOMING_SEED'] ?? 20_261_121)
const REQUESTS = Number(process.env['HOMING_REAL_REQUESTS'] ?? 300)
/** Of tests that look at what stays known, not at evictions. */
const REQUESTS_FEW = 24
const SESSIONS_IN_FLIGHT = 4
const TURNS_MAX = 6
const AGREEMENT_MIN = 0.98
const LOOKS_MAX = 100
const ENGINE_START_MS_MAX = 300_000
const WORDS =
  'pigeon home river stone wind north cloud wing loft grain sky path field tower bridge lamp'.split(' ')

/** How a turn is asked for; the last one leaves it to the router to ask the engine for usage. */
type Form = 'whole' | 'stream with usage' | 'stream'
const FORMS: readonly Form[] = ['whole', 'stream with usage', 'stream']

interface Observation {
  readonly session: number
  readonly turn: number
  readonly form: Form
  readonly worker: string
  readonly trust: string
  readonly predictedTokens: number
  /** What the engine reported to the client or else to the router; undefined: no usage was requested. */
  readonly cachedTokens: number | undefined
  readonly promptTokens: number | undefined
  readonly routerPromptTokens: number
  /** The prompt of the turn before was known; false: its events are late, or its blocks are evicted. */
  readonly wasSettled: boolean
}

t.test(
  'what the router predicts is what live engines deliver, over multi-turn sessions that evict each other',
  { skip, timeout: 600_000 },
  async t => {
    const router = await startLiveRouter(t)
    const workers = await workersOf(router)
    for (const worker of workers) {
      t.equal(worker.state, 'up', `${worker.id} is up`)
      t.ok(worker.block_size?.value, `${worker.id} said its block size`)
      t.ok(
        worker.worker_keys.every(({ events }) => events !== null),
        `${worker.id} publishes events`,
      )
      const [key] = worker.worker_keys
      t.comment(
        `${worker.engine} ${worker.engine_version}: ${worker.models[0]!.id}, blocks ${worker.kv_blocks?.value} of ${worker.block_size?.value}, events ${key!.events?.endpoint} ${key!.events?.topic}; ${key!.trust}: ${key!.trust_reason}`,
      )
    }

    const observations = await runSessions(router, sessionTexts('a', REQUESTS))

    const compared = assertAgreement(t, observations)
    const hits = sumOf(compared, o => o.cachedTokens!)
    const prompts = sumOf(observations, o => o.routerPromptTokens)
    t.comment(
      `${((100 * hits) / prompts).toFixed(1)} % of prompt tokens were cached; workers used: ${new Set(observations.map(o => o.worker)).size}`,
    )
    t.ok(hits > 0, 'prefixes were reused')
    const capacityTokens = sumOf(workers, w => (w.kv_blocks?.value ?? 0) * w.block_size!.value)
    t.ok(prompts - hits > capacityTokens, 'more was computed than the caches hold: blocks were evicted')
    await assertAllExactAndIdle(t, router)
  },
)

t.test('a router that is started anew knows what live engines hold', { skip, timeout: 300_000 }, async t => {
  const texts = sessionTexts('b', REQUESTS_FEW)
  const before = await startLiveRouter(t)
  await runSessions(
    before,
    texts.map(turns => turns.slice(0, -1)),
  )
  await assertAllExactAndIdle(t, before)
  const known = await indexed(before)
  await before.stop(60_000)

  const after = await startLiveRouter(t)
  await new RouterClient(after.url).trusted()
  t.strictSame(await indexed(after), known, `the same ${known.length} blocks as before`)
  const observations = await runSessions(after, texts)
  assertAgreement(t, observations)
  t.ok(
    observations.some(({ turn, predictedTokens }) => turn === 0 && predictedTokens > 0),
    'the first prompts are known from before',
  )
  await assertAllExactAndIdle(t, after)
})

t.test(
  'a live engine that restarts under the router is credited with nothing of before',
  {
    skip: skip || (restartCommand === undefined && 'needs a command: HOMING_REAL_ENGINE_RESTART'),
    timeout: 600_000,
  },
  async t => {
    const router = await startLiveRouter(t)
    const texts = sessionTexts('c', REQUESTS_FEW)
    await runSessions(router, texts)
    const [first, ...others] = await workersOf(router)
    const heldBefore = sumOf(first!.worker_keys, key => key.blocks_held)
    t.ok(heldBefore > 0, `${first!.id} holds ${heldBefore} blocks`)

    const restart = spawn('sh', ['-c', restartCommand!], { stdio: ['ignore', 'inherit', 'inherit'] })
    t.strictSame(await once(restart, 'exit'), [0, null], `${restartCommand} has ended`)
    let seen: unknown
    const now = await until(
      'the engine is up as another process',
      async () => {
        const [worker] = await workersOf(router)
        seen = worker
        const isNew = worker!.worker_keys.every(
          ({ trust, events }, rank) =>
            trust === 'exact' && events!.epoch! > first!.worker_keys[rank]!.events!.epoch!,
        )
        return worker!.state === 'up' && isNew ? worker : undefined
      },
      { msMax: ENGINE_START_MS_MAX, seen: () => seen },
    )
    const [key] = now!.worker_keys
    t.comment(
      `epoch ${first!.worker_keys[0]!.events!.epoch} before, ${key!.events!.epoch} now; ${key!.trust}: ${key!.trust_reason}; ${key!.blocks_held} blocks`,
    )
    const model = now!.models[0]!.id
    const promptsBefore = texts.map(turns => [{ role: 'user', content: turns[0]! }])
    for (const messages of promptsBefore) {
      const { candidates } = await route(router, { model, messages })
      const restarted = candidates.filter(({ worker }) => worker.startsWith(now!.id))
      assert.ok(restarted.every(({ overlap_blocks }) => overlap_blocks === 0))
    }
    t.pass('none of the prompts of before counts')
    for (const [i, worker] of (await workersOf(router)).slice(1).entries()) {
      t.equal(worker.worker_keys[0]!.events!.epoch, others[i]!.worker_keys[0]!.events!.epoch, worker.id)
    }
    assertAgreement(t, await runSessions(router, texts))
    await assertAllExactAndIdle(t, router)
  },
)

interface WorkerView {
  readonly id: string
  readonly state: string
  readonly engine: string
  readonly engine_version: string
  readonly models: readonly { readonly id: string }[]
  readonly block_size: { readonly value: number } | null
  readonly kv_blocks: { readonly value: number } | null
  readonly worker_keys: readonly {
    readonly worker: string
    readonly trust: string
    readonly trust_reason: string
    readonly blocks_held: number
    readonly load: object
    readonly audit: { readonly state: string; readonly requests: number }
    readonly events: {
      readonly endpoint: string
      readonly topic: string
      readonly epoch: number | null
    } | null
  }[]
}

interface Usage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null
}

interface Conversation {
  readonly model: string
  readonly messages: readonly object[]
}

async function startLiveRouter(t: Test): Promise<RunningRouter> {
  const { settings } = parseSettings(routerCommand, ['--port', '0', '--log-level', 'warn'], {})
  const router = await startRouter({ ...settings, workers: urls })
  t.teardown(() => router.stop(1000))
  return router
}

/** All sessions, SESSIONS_IN_FLIGHT at a time. */
async function runSessions(
  router: RunningRouter,
  sessions: readonly (readonly string[])[],
): Promise<Observation[]> {
  const [worker] = await workersOf(router)
  const model = worker!.models[0]!.id
  const blockSize = worker!.block_size!.value
  const observations: Observation[] = []
  const queue = [...sessions.keys()]
  await Promise.all(
    Array.from({ length: SESSIONS_IN_FLIGHT }, async () => {
      for (let session = queue.shift(); session !== undefined; session = queue.shift()) {
        const messages: { role: string; content: string }[] = []
        let wasSettled = true
        for (const [turn, content] of sessions[session]!.entries()) {
          messages.push({ role: 'user', content })
          const form = FORMS[observations.length % FORMS.length]!
          const { answer, ...seen } = await complete(router, { model, messages }, form, blockSize)
          observations.push({ session, turn, form, wasSettled, ...seen })
          messages.push({ role: 'assistant', content: answer })
          const blocks = {
            prompt: Math.floor(seen.routerPromptTokens / blockSize),
            all: Math.floor((seen.computedTokens - 1) / blockSize),
          }
          wasSettled = await eventsSettled(router, seen.worker, { model, messages }, blocks)
        }
      }
    }),
  )
  return observations
}

async function complete(
  router: RunningRouter,
  conversation: Conversation,
  form: Form,
  blockSize: number,
): Promise<
  Omit<Observation, 'session' | 'turn' | 'form' | 'wasSettled'> & { answer: string; computedTokens: number }
> {
  const response = await new RouterClient(router.url).send('/v1/chat/completions', {
    body: {
      ...conversation,
      max_tokens: 24,
      temperature: 0,
      ...(form === 'whole' ? {} : { stream: true }),
      ...(form === 'stream with usage' ? { stream_options: { include_usage: true } } : {}),
    },
  })
  assert.equal(response.status, 200, response.text)
  const { answer, usage } = form === 'whole' ? wholeAnswer(response.json) : streamedAnswer(response.text)
  assert.equal(usage === undefined, form === 'stream', 'the client sees usage where it asked for it')
  const receipt = await receiptOf(router, response.headers['x-homing-decision']!)
  if (usage !== undefined) {
    assert.equal(receipt.delivered.prompt_tokens, usage.prompt_tokens, 'the receipt says what the client saw')
  }
  const told = usage ?? (receipt.delivered.prompt_tokens === null ? undefined : receipt.delivered)
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? receipt.delivered.cached_tokens ?? 0
  return {
    answer,
    worker: response.headers['x-homing-worker']!,
    trust: response.headers['x-homing-trust']!,
    predictedTokens: Number(response.headers['x-homing-overlap-blocks']) * blockSize,
    cachedTokens: told === undefined ? undefined : cached,
    promptTokens: told?.prompt_tokens ?? undefined,
    routerPromptTokens: receipt.prompt_tokens,
    computedTokens: receipt.prompt_tokens + (told?.completion_tokens ?? 0),
  }
}

function wholeAnswer(json: { choices: { message: { content: string } }[]; usage: Usage }) {
  return { answer: json.choices[0]!.message.content, usage: json.usage }
}

function streamedAnswer(text: string): { answer: string; usage: Usage | undefined } {
  const chunks = chunksOf(text) as {
    choices: { delta: { content?: string | null } }[]
    usage?: Usage | null
  }[]
  return {
    answer: chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join(''),
    usage: chunks.find(({ usage }) => usage !== undefined && usage !== null)?.usage ?? undefined,
  }
}

interface ReceiptView {
  readonly prompt_tokens: number
  readonly delivered: {
    readonly prompt_tokens: number | null
    readonly completion_tokens: number | null
    readonly cached_tokens: number | null
  }
}

/** The receipt with its delivered part, which arrives just after the end of the answer. */
function receiptOf(router: RunningRouter, id: string): Promise<ReceiptView> {
  return until(`receipt ${id} says what was delivered`, async () => {
    const receipt = (await json(router, `/decisions/${id}`)) as ReceiptView
    return receipt.delivered === null ? undefined : receipt
  })
}

/**
 * Fails where predicted and delivered differ in more than chance explains; returns what could be compared.
 */
function assertAgreement(t: Test, observations: readonly Observation[]): readonly Observation[] {
  const compared = observations.filter(o => o.cachedTokens !== undefined)
  for (const form of FORMS) {
    const those = compared.filter(o => o.form === form)
    t.comment(
      `seed ${SEED}: ${form}: ${those.filter(isEqual).length} of ${those.length} agree, ${those.filter(o => o.predictedTokens > 0).length} of them predicted more than 0`,
    )
  }
  for (const o of compared) if (!isEqual(o)) t.comment(JSON.stringify(o))
  const agreeing = compared.filter(isEqual).length
  t.comment(
    `${agreeing} of ${compared.length} agree, of ${observations.length} requests; ${observations.filter(o => !o.wasSettled).length} were sent before the prompt of the turn before was known`,
  )
  t.ok(agreeing / compared.length >= AGREEMENT_MIN, `at least ${AGREEMENT_MIN * 100} % agree`)
  t.equal(
    compared.filter(o => o.promptTokens !== o.routerPromptTokens).length,
    0,
    'the router counts as many prompt tokens as the engine',
  )
  // The first streams to an engine pass unchanged, to show what it sends unasked; sessions in flight send
  // some at once.
  const unasked = observations.filter(o => o.cachedTokens === undefined && o.predictedTokens > 0)
  const workers = new Set(observations.map(o => o.worker)).size
  t.ok(
    unasked.every(({ form }) => form === 'stream') && unasked.length <= workers * SESSIONS_IN_FLIGHT,
    `wherever something was predicted the engine was asked, but for ${unasked.length} first streams`,
  )
  return compared
}

const isEqual = (o: Observation): boolean => o.predictedTokens === o.cachedTokens

async function assertAllExactAndIdle(t: Test, router: RunningRouter): Promise<void> {
  await new RouterClient(router.url).drained()
  for (const key of (await workersOf(router)).flatMap(worker => worker.worker_keys)) {
    t.equal(key.trust, 'exact', `${key.worker}: ${key.trust_reason}`)
    t.not(key.audit.state, 'unaudited', `${key.worker}: ${key.audit.requests} answers audited`)
  }
}

/**
 * A person types the next turn, so the engine has published the last one by then. Asks where the conversation
 * so far would go until its worker is known to hold every full block of it, LOOKS_MAX times at most: blocks
 * evicted meanwhile never arrive, nor does an answer whose text tokenizes differently. False: not even the
 * prompt is known.
 */
async function eventsSettled(
  router: RunningRouter,
  worker: string,
  conversation: Conversation,
  blocks: { readonly prompt: number; readonly all: number },
): Promise<boolean> {
  let known = 0
  for (let look = 0; look < LOOKS_MAX; look++) {
    const { candidates } = await route(router, conversation)
    known = candidates.find(row => row.worker === worker)?.overlap_blocks ?? 0
    if (known >= blocks.all) break
  }
  return known >= blocks.prompt
}

async function route(
  router: RunningRouter,
  conversation: Conversation,
): Promise<{ candidates: { worker: string; overlap_blocks: number }[] }> {
  const answer = await new RouterClient(router.url).send('/route', { body: conversation })
  assert.equal(answer.status, 200, answer.text)
  return answer.json
}

/** Worker keys with their blocks, sorted. */
async function indexed(router: RunningRouter): Promise<string[]> {
  const blocks = await new RouterClient(router.url).indexedBlocks()
  return [...blocks].flatMap(([key, held]) => held.map(block => `${key} ${block}`)).sort()
}

async function workersOf(router: RunningRouter): Promise<WorkerView[]> {
  return ((await json(router, '/workers')) as { workers: WorkerView[] }).workers
}

async function json(router: RunningRouter, path: string): Promise<unknown> {
  const answer = await new RouterClient(router.url).send(path)
  assert.equal(answer.status, 200, answer.text)
  return answer.json
}

function sumOf<T>(rows: readonly T[], value: (row: T) => number): number {
  return rows.reduce((sum, row) => sum + value(row), 0)
}

/**
 * Sessions whose turns add up to `requests`; no two share a prefix, because each begins with its own number.
 */
function sessionTexts(name: string, requests: number): string[][] {
  const random = seededRandom(SEED)
  const sessions: string[][] = []
  for (let count = 0; count < requests; ) {
    const turns = Math.min(requests - count, 2 + random.below(TURNS_MAX - 1))
    count += turns
    sessions.push(
      Array.from({ length: turns }, (_, turn) => {
        const words = 40 + random.below(80)
        const text = Array.from({ length: words }, () => WORDS[random.below(WORDS.length)]!).join(' ')
        return `Session ${SEED}${name}-${sessions.length} turn ${turn}: ${text}`
      }),
    )
  }
  return sessions
}
