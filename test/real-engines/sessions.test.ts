/**
 * Live engines behind the router: multi-turn sessions, and what was predicted against what was delivered.
 *
 * Runs with HOMING_REAL_ENGINES=1 and engines at HOMING_REAL_ENGINE_URLS (comma separated; default two
 * at 127.0.0.1:8100 and 8101); docs/engines.md shows how to start them. Nothing else is configured: model,
 * block size, ranks, event and replay ports, tokenizer are found by the router.
 */

import { seededRandom } from '@homing/clock'
import { parseSettings, routerCommand } from '@homing/config'
import { type RunningRouter, startRouter } from 'homing'
import t from 'tap'

const isLive = process.env['HOMING_REAL_ENGINES'] === '1'
const urls = (process.env['HOMING_REAL_ENGINE_URLS'] ?? 'http://127.0.0.1:8100,http://127.0.0.1:8101').split(
  ',',
)
const SEED = Number(process.env['HOMING_SEED'] ?? 20_261_121)
const REQUESTS = Number(process.env['HOMING_REAL_REQUESTS'] ?? 300)
const SESSIONS_IN_FLIGHT = 4
const TURNS_MAX = 6
const AGREEMENT_MIN = 0.98
const LOOKS_MAX = 100
const WORDS =
  'pigeon home river stone wind north cloud wing loft grain sky path field tower bridge lamp'.split(' ')

interface Observation {
  readonly session: number
  readonly turn: number
  readonly worker: string
  readonly trust: string
  readonly predictedTokens: number
  readonly cachedTokens: number
  readonly promptTokens: number
  readonly routerPromptTokens: number
}

t.test(
  'what the router predicts is what live engines deliver, over multi-turn sessions that evict each other',
  { skip: isLive ? false : 'needs live engines: HOMING_REAL_ENGINES=1', timeout: 600_000 },
  async t => {
    const { settings } = parseSettings(routerCommand, ['--port', '0', '--log-level', 'warn'], {})
    const router = await startRouter({ ...settings, workers: urls })
    t.teardown(() => router.stop(1000))
    const { workers } = (await json(router, '/workers')) as { workers: WorkerView[] }
    for (const worker of workers) {
      t.equal(worker.state, 'up', `${worker.id} is up`)
      t.ok(worker.block_size?.value, `${worker.id} said its block size`)
      t.ok(
        worker.worker_keys.every(({ events }) => events !== null),
        `${worker.id} publishes events`,
      )
    }
    const model = workers[0]!.models[0]!.id
    const blockSize = workers[0]!.block_size!.value

    const observations: Observation[] = []
    const sessions = sessionTexts(REQUESTS)
    const queue = [...sessions.keys()]
    await Promise.all(
      Array.from({ length: SESSIONS_IN_FLIGHT }, async () => {
        for (let session = queue.shift(); session !== undefined; session = queue.shift()) {
          await runSession(router, model, blockSize, session, sessions[session]!, observations)
        }
      }),
    )

    const agreeing = observations.filter(o => o.predictedTokens === o.cachedTokens)
    const hits = observations.reduce((sum, o) => sum + o.cachedTokens, 0)
    const prompts = observations.reduce((sum, o) => sum + o.promptTokens, 0)
    t.comment(
      `seed ${SEED}: ${agreeing.length} of ${observations.length} agree; ${((100 * hits) / prompts).toFixed(1)} % of prompt tokens were cached; workers used: ${new Set(observations.map(o => o.worker)).size}`,
    )
    for (const o of observations) if (o.predictedTokens !== o.cachedTokens) t.comment(JSON.stringify(o))
    t.ok(agreeing.length / observations.length >= AGREEMENT_MIN, `at least ${AGREEMENT_MIN * 100} % agree`)
    t.equal(
      observations.filter(o => o.promptTokens !== o.routerPromptTokens).length,
      0,
      'the router counts as many prompt tokens as the engine',
    )
    t.ok(hits > 0, 'prefixes were reused')
    const capacityTokens = workers.reduce((sum, w) => sum + (w.kv_blocks?.value ?? 0) * blockSize, 0)
    t.ok(prompts - hits > capacityTokens, 'more was computed than the caches hold: blocks were evicted')

    const after = (await json(router, '/workers')) as { workers: WorkerView[] }
    for (const key of after.workers.flatMap(worker => worker.worker_keys)) {
      t.strictSame(
        key.load,
        { active_blocks: 0, prefill_tokens: 0, requests: 0 },
        `${key.worker} has no booking left`,
      )
      t.equal(key.trust, 'exact', `${key.worker}: ${key.trust_reason}`)
    }
  },
)

interface WorkerView {
  readonly id: string
  readonly state: string
  readonly models: readonly { readonly id: string }[]
  readonly block_size: { readonly value: number } | null
  readonly kv_blocks: { readonly value: number } | null
  readonly worker_keys: readonly {
    readonly worker: string
    readonly trust: string
    readonly trust_reason: string
    readonly load: object
    readonly events: { readonly last_sequence: number | null } | null
  }[]
}

async function runSession(
  router: RunningRouter,
  model: string,
  blockSize: number,
  session: number,
  turns: readonly string[],
  observations: Observation[],
): Promise<void> {
  const messages: { role: string; content: string }[] = []
  for (const [turn, content] of turns.entries()) {
    messages.push({ role: 'user', content })
    const response = await fetch(`${router.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages, max_tokens: 24, temperature: 0 }),
      signal: AbortSignal.timeout(60_000),
    })
    const answer = (await response.json()) as {
      choices: { message: { content: string } }[]
      usage: {
        prompt_tokens: number
        completion_tokens: number
        prompt_tokens_details: { cached_tokens: number | null } | null
      }
    }
    if (response.status !== 200) throw new Error(`${response.status}: ${JSON.stringify(answer)}`)
    const decision = (await json(router, `/decisions/${response.headers.get('x-homing-decision')}`)) as {
      prompt_tokens: number
    }
    observations.push({
      session,
      turn,
      worker: response.headers.get('x-homing-worker')!,
      trust: response.headers.get('x-homing-trust')!,
      predictedTokens: Number(response.headers.get('x-homing-overlap-blocks')) * blockSize,
      cachedTokens: answer.usage.prompt_tokens_details?.cached_tokens ?? 0,
      promptTokens: answer.usage.prompt_tokens,
      routerPromptTokens: decision.prompt_tokens,
    })
    messages.push({ role: 'assistant', content: answer.choices[0]!.message.content })
    const { prompt_tokens, completion_tokens } = answer.usage
    const blocks = Math.floor((prompt_tokens + completion_tokens - 1) / blockSize)
    await eventsSettled(router, response.headers.get('x-homing-worker')!, { model, messages }, blocks)
  }
}

/**
 * The next turn is typed by a person: by then the engine has published the last one. Asks where the conversation so
 * far would go until its worker is known to hold every full block of it, LOOKS_MAX times at most: what the engine
 * has evicted meanwhile never comes, nor does an answer that its text tokenizes otherwise.
 */
async function eventsSettled(
  router: RunningRouter,
  worker: string,
  body: { readonly model: string; readonly messages: readonly object[] },
  blocks: number,
): Promise<void> {
  for (let look = 0; look < LOOKS_MAX; look++) {
    const response = await fetch(`${router.url}/route`, { method: 'POST', body: JSON.stringify(body) })
    const { candidates } = (await response.json()) as {
      candidates: { worker: string; overlap_blocks: number }[]
    }
    if ((candidates.find(row => row.worker === worker)?.overlap_blocks ?? 0) >= blocks) return
  }
}

async function json(router: RunningRouter, path: string): Promise<unknown> {
  const response = await fetch(router.url + path, { signal: AbortSignal.timeout(10_000) })
  if (response.status !== 200) throw new Error(`${path}: ${response.status}`)
  return response.json()
}

/** Sessions whose turns add up to `requests`; no two share a prefix, for each begins with its own number. */
function sessionTexts(requests: number): string[][] {
  const random = seededRandom(SEED)
  const sessions: string[][] = []
  for (let count = 0; count < requests; ) {
    const turns = Math.min(requests - count, 2 + random.below(TURNS_MAX - 1))
    count += turns
    sessions.push(
      Array.from({ length: turns }, (_, turn) => {
        const words = 40 + random.below(80)
        const text = Array.from({ length: words }, () => WORDS[random.below(WORDS.length)]!).join(' ')
        return `Session ${SEED}-${sessions.length} turn ${turn}: ${text}`
      }),
    )
  }
  return sessions
}
