/**
 * Queue, router, tracker and gateway of a router process fail, engine processes are killed and come back, and
 * at last the router itself is killed or stopped, all while requests wait: each request ends, once and in
 * time, and nothing is left. `HOMING_FAULTS_RUNS` sets the rounds (default 1), `HOMING_FAULTS_SEED` the first
 * seed.
 */

import { type Random, seededRandom } from '@homing/base'
import { freePort, freePorts } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { RouterClient, startProcess, type TestProcess, until } from './fleet.ts'

const ROUNDS = Number(process.env['HOMING_FAULTS_RUNS'] ?? 1)
const FIRST = Number(process.env['HOMING_FAULTS_SEED'] ?? 1)
const MODEL = 'homing-sim'
const ENGINES = 3
const ACTORS = ['queue', 'router', 'tracker', 'gateway'] as const
/** Requests of a wave; the engines take some seconds for one. */
const WAVE = 120
const WAITING_MIN = 40
/** Longest time from the last fault to the end of the last request. */
const END_MS_MAX = 240_000
const SPEED = '0.5'

interface Sent {
  readonly name: string
  readonly leaves: boolean
  /** '200', the code of an error, or 'cut'. */
  end: string | undefined
}

class Round {
  readonly sent: Sent[] = []
  readonly #random: Random
  readonly #router: RouterClient
  readonly #seed: number
  #open: Promise<void>[] = []

  constructor(seed: number, random: Random, router: RouterClient) {
    this.#seed = seed
    this.#random = random
    this.#router = router
  }

  /** Requests come at once, and again while too few of them are left; resolves when many wait. */
  async wave(): Promise<void> {
    let seen = 0
    await until(
      `${WAITING_MIN} wait`,
      async () => {
        const open = this.sent.filter(({ end }) => end === undefined).length
        // Of a gateway or a router that is on its way back all are refused.
        if (open < WAITING_MIN) for (let i = open; i < WAVE; i++) this.#open.push(this.#send())
        seen = await this.waiting()
        return seen >= WAITING_MIN ? true : undefined
      },
      { seen: () => seen },
    )
  }

  async waiting(): Promise<number> {
    // The gateway may be on its way back.
    const answer = await this.#router.send('/queue').catch(() => undefined)
    return answer?.status === 200 ? answer.json.requests : 0
  }

  /** Resolves when all sent requests have ended. */
  async ended(): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const tooLong = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('requests hang')), END_MS_MAX)
    })
    await Promise.race([Promise.all(this.#open.splice(0)), tooLong])
    clearTimeout(timer)
  }

  async #send(): Promise<void> {
    const random = this.#random
    const name = `round-${this.#seed}-${this.sent.length}`
    const one: Sent = { name, leaves: random.below(10) === 0, end: undefined }
    this.sent.push(one)
    const prompt = Array.from({ length: 200 + random.below(600) }, () => 40 + random.below(80))
    const tenant = ['a', 'b', 'c'][random.below(3)]!
    const leaving = new AbortController()
    if (one.leaves) setTimeout(() => leaving.abort(), random.below(3000))
    const signal = AbortSignal.any([leaving.signal, AbortSignal.timeout(END_MS_MAX)])
    const headers = {
      'x-request-id': name,
      'x-homing-tenant': tenant,
      ...(random.below(8) === 0 ? { 'x-homing-queue-timeout-ms': String(random.below(2000)) } : {}),
    }
    const body = { model: MODEL, prompt, max_tokens: 2, stream: random.below(2) === 0 }
    await this.#router
      .send('/v1/completions', { body, headers, signal })
      .then(
        ({ status, text }) => endOf(status, text),
        () => 'cut',
      )
      .then(end => {
        one.end = end
      })
  }
}

function endOf(status: number, text: string): string {
  const code = /"code":\s*"([a-z_]+)"/.exec(text)?.[1]
  return status === 200 ? (code ?? '200') : (code ?? `${status} without a code`)
}

/** An engine process that can be killed, and started again on its ports. */
class EngineProcess {
  process!: TestProcess
  /** No dialling socket is given one of them while it is down. */
  #ports: readonly string[] | undefined

  async start(): Promise<void> {
    if (this.#ports === undefined) {
      const [port, events, replay] = (await freePorts(3)).map(String) as [string, string, string]
      this.#ports = ['--port', port, '--events-port', events, '--replay-port', replay]
    }
    this.process = await startProcess('engine', [...this.#ports, '--speed', SPEED])
  }

  async kill(): Promise<void> {
    this.process.kill('SIGKILL')
    await this.process.ended
  }
}

async function startRouter(engines: readonly EngineProcess[]): Promise<TestProcess> {
  const workers = engines.flatMap(({ process: { url } }) => ['--worker', `${url}?max_batched_tokens=1024`])
  return startProcess(
    'router',
    [
      ...['--port', String(await freePort()), '--host', '127.0.0.1', ...workers, '--log-level', 'silent'],
      ...['--router-queue-threshold', '1', '--router-event-threads', '1', '--tokenizer-threads', '1'],
      // No engine is taken to be down because the machine is busy.
      ...['--router-tenant-weight', 'b=3', '--probe-interval', '300ms', '--probe-timeout', '10s'],
    ],
    { canFail: true },
  )
}

function shuffled<T>(items: readonly T[], random: Random): readonly T[] {
  const left = [...items]
  return items.map(() => left.splice(random.below(left.length), 1)[0]!)
}

/** Requests of which two placements were answered to their end, as far as the router remembers. */
async function answeredTwice(router: RouterClient): Promise<readonly string[]> {
  const { decisions } = (await router.send('/decisions?limit=1000')).json as { decisions: readonly Receipt[] }
  const answered = decisions.filter(({ delivered }) => delivered?.outcome === 'ok')
  const names = answered.map(({ request_id: name }) => name)
  return names.filter((name, i) => names.indexOf(name) < i)
}

interface Receipt {
  readonly request_id: string
  readonly delivered: { readonly outcome: string } | null
}

async function nothingIsLeft(t: Test, router: RouterClient): Promise<void> {
  await router.drained()
  const queue = (await router.send('/queue')).json
  t.strictSame([queue.requests, queue.prompt_tokens, queue.bytes], [0, 0, 0], 'nothing waits')
}

async function runRound(t: Test, seed: number, engines: readonly EngineProcess[]): Promise<void> {
  const random = seededRandom(seed)
  const routerProcess = await startRouter(engines)
  t.teardown(() => routerProcess.kill('SIGKILL'))
  const router = new RouterClient(routerProcess.url)
  const round = new Round(seed, random, router)
  const victims = shuffled([...ACTORS, 'engine', 'all engines'], random)
  for (const victim of victims) {
    await round.wave()
    if (victim === 'engine') {
      const engine = engines[random.below(engines.length)]!
      await engine.kill()
      await engine.start()
    } else if (victim === 'all engines') {
      await Promise.all(engines.map(engine => engine.kill()))
      await round.ended()
      await Promise.all(engines.map(engine => engine.start()))
      await until('all engines are back', async () => {
        const workers = await router.workers().catch(() => [])
        return workers.length > 0 && workers.every(({ state }) => state === 'up') ? true : undefined
      })
    } else await routerProcess.fail(victim)
  }
  await round.ended()
  const ends = Map.groupBy(round.sent, ({ end }) => end ?? 'never')
  const listed = [...ends].map(([end, of]) => `${of.length} ${end}`).join(', ')
  t.comment(`seed ${seed}: ${victims.join(', ')}: ${listed}`)
  await until('the gateway is back', () => router.send('/health').catch(() => undefined))
  t.strictSame(await answeredTwice(router), [], 'no request is answered by two workers')
  for (const [end, of] of ends) {
    // What an actor has in its hands when it fails ends with its error.
    if (end === 'internal_error' && of.length <= ACTORS.length) continue
    const isRight = ENDS.has(end) || of.every(({ leaves }) => leaves)
    t.ok(isRight, `seed ${seed}: ${of.length} end with ${end}`)
  }
  await nothingIsLeft(t, router)
  const body = { model: MODEL, prompt: [50, 51], max_tokens: 1 }
  t.equal((await router.send('/v1/completions', { body })).status, 200, 'it serves')
  await theEnd(t, seed, round, routerProcess, random.below(2) === 0)
}

/** What a failing gateway, worker, queue or router leaves; `cut`: a gateway, or a client that left. */
const ENDS: ReadonlySet<string> = new Set([
  '200',
  'cut',
  'deadline',
  'no_worker',
  'upstream_failed',
  'timeout',
])

/** The router itself is killed, or stopped, while requests wait. */
async function theEnd(
  t: Test,
  seed: number,
  round: Round,
  routerProcess: TestProcess,
  isKilled: boolean,
): Promise<void> {
  const from = round.sent.length
  await round.wave()
  routerProcess.kill(isKilled ? 'SIGKILL' : 'SIGTERM')
  t.equal(await routerProcess.ended, isKilled ? 'SIGKILL' : 0, 'the router has ended')
  await round.ended()
  const ends = round.sent.slice(from).filter(({ leaves }) => !leaves)
  const allowed = isKilled ? ['200', 'cut', 'deadline'] : ['200', 'deadline', 'shutting_down']
  for (const { end } of ends) if (!allowed.includes(end ?? '')) t.fail(`seed ${seed}: ended with ${end}`)
}

t.test(
  'whatever is killed while requests wait, each ends once, and nothing is left',
  { timeout: 900_000 },
  async t => {
    const engines = Array.from({ length: ENGINES }, () => new EngineProcess())
    await Promise.all(engines.map(engine => engine.start()))
    t.teardown(() => engines.map(engine => engine.process.kill('SIGKILL')))
    for (let seed = FIRST; seed < FIRST + ROUNDS; seed++) await runRound(t, seed, engines)
  },
)
