/**
 * An engine is killed under load, and comes back on the same ports with an empty cache.
 *
 * Fleet   four engines, each a process, and a router in this one; closed-loop clients, streamed and whole.
 * Rules   a request without any answer byte does not fail; an answer that had begun ends with an error that
 *         says so; once the router knows that the engine is down, it sends nothing there; the restarted
 *         engine is credited with no block that it does not hold.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { freePorts } from '@homing/transport/testing'
import t from 'tap'
import { chunksOf, RouterClient, startProcess, startTestRouter, type TestProcess, until } from './fleet.ts'

const BLOCK_SIZE_TOKENS = 16
const CLIENTS = 24
const PREFIXES = 12
/**
 * Together no multiple of the block size: an engine computes the last token again, and with it a full last
 * block.
 */
const PREFIX_TOKENS = 400
const OWN_TOKENS = 37

interface Outcome {
  readonly sentAt: number
  readonly endedAt: number
  readonly isStream: boolean
  readonly status: number
  readonly worker: string
  readonly overlapTokens: number
  readonly hadBytes: boolean
  /** Undefined: it was answered to its end. */
  readonly failure: string | undefined
  readonly cachedTokens: number | undefined
}

/** Sends one request, and returns how it ended. */
async function ask(router: RouterClient, prompt: readonly number[], isStream: boolean): Promise<Outcome> {
  const sentAt = performance.now()
  const usage = isStream ? { stream: true, stream_options: { include_usage: true } } : {}
  const reply = await router.open('/v1/completions', {
    body: { model: 'homing-sim', prompt, max_tokens: 100, ...usage },
  })
  const parts: Buffer[] = []
  let failure: string | undefined
  try {
    for await (const bytes of reply.body) parts.push(bytes as Buffer)
  } catch (thrown) {
    failure = `connection: ${(thrown as Error).message}`
  }
  const text = Buffer.concat(parts).toString()
  let cachedTokens: number | undefined
  if (reply.statusCode !== 200) {
    failure ??= text
  } else if (failure === undefined && isStream && !text.endsWith('data: [DONE]\n\n')) {
    failure = text.slice(text.lastIndexOf('data: '))
  } else if (failure === undefined) {
    const { usage } = isStream ? chunksOf(text).at(-1) : JSON.parse(text)
    cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? 0
  }
  return {
    sentAt,
    endedAt: performance.now(),
    isStream,
    status: reply.statusCode,
    worker: String(reply.headers['x-homing-worker']),
    overlapTokens: Number(reply.headers['x-homing-overlap-blocks']) * BLOCK_SIZE_TOKENS,
    hadBytes: text.length > (failure !== undefined && text.endsWith(failure) ? failure.length : 0),
    failure,
    cachedTokens,
  }
}

/** Clients that send one request after the other until told to stop. */
function startLoad(router: RouterClient): { readonly outcomes: readonly Outcome[]; stop(): Promise<void> } {
  const outcomes: Outcome[] = []
  let isStopping = false
  const client = async (number: number): Promise<void> => {
    const random = seededRandom(number)
    while (!isStopping) {
      const prefix = random.below(PREFIXES)
      const prompt = [
        ...Array.from({ length: PREFIX_TOKENS }, (_, position) => 33 + ((prefix * 31 + position * 7) % 90)),
        ...Array.from({ length: OWN_TOKENS }, () => 33 + random.below(90)),
      ]
      outcomes.push(await ask(router, prompt, random.below(3) > 0))
    }
  }
  const clients = Array.from({ length: CLIENTS }, async (_, number) => client(number))
  for (const one of clients) one.catch(() => {})
  return {
    outcomes,
    async stop() {
      isStopping = true
      await Promise.allSettled(clients)
    },
  }
}

t.test('an engine is killed under load and comes back', async t => {
  // Ports that no dialling socket is given while their engine is down.
  const ports = (await freePorts(3)).map(String) as [string, string, string]
  const start = ([port, events, replay]: readonly [string, string, string]): Promise<TestProcess> =>
    startProcess('engine', [
      ...['--port', port, '--events-port', events, '--replay-port', replay, '--speed', '10'],
    ])
  const any = ['0', '0', '0'] as const
  const engines = await Promise.all([start(any), start(ports), start(any), start(any)])
  t.teardown(() => engines.map(engine => engine.kill('SIGKILL')))
  const running = await startTestRouter(
    engines.map(({ url }) => url),
    ['--log-level', 'silent'],
  )
  t.teardown(() => running.stop(0))
  const router = new RouterClient(running.url)
  await router.trusted()

  const load = startLoad(router)
  t.teardown(() => load.stop())
  const { outcomes } = load
  const enough = (what: string, isEnough: () => boolean) =>
    until(what, () => (isEnough() ? true : undefined), { seen: () => `${outcomes.length} requests` })
  const victim = engines[1]!
  const victimKey = new URL(victim.url).host
  const isVictims = ({ worker }: Outcome): boolean => worker.startsWith(victimKey)
  await enough('the victim has served some', () => outcomes.filter(isVictims).length >= 30)

  const killedAt = performance.now()
  victim.kill('SIGKILL')
  await victim.ended
  await until('the router knows that it is down', async () =>
    (await router.worker(victim.url)).state === 'down' ? true : undefined,
  )
  const knownAt = performance.now()
  t.comment(`known to be down ${(knownAt - killedAt).toFixed(0)} ms after the kill`)
  await enough(
    'requests were sent since it is known',
    () => outcomes.filter(({ sentAt }) => sentAt > knownAt).length >= 50,
  )

  const failed = outcomes.filter(({ failure }) => failure !== undefined)
  t.comment(
    `${outcomes.length} requests; ${failed.length} had begun on the killed engine; the last request sent there: ` +
      `${(Math.max(...outcomes.filter(isVictims).map(({ sentAt }) => sentAt)) - killedAt).toFixed(0)} ms after the kill`,
  )
  for (const outcome of failed) {
    t.ok(outcome.hadBytes, `no request fails of which no byte had come: ${outcome.failure}`)
    t.ok(isVictims(outcome), 'only requests of the killed engine fail')
    if (outcome.isStream) {
      const event = JSON.parse(outcome.failure!.slice('data: '.length))
      t.equal(event.error.code, 'upstream_failed', event.error.message)
    }
  }
  t.ok(
    outcomes.every(outcome => outcome.sentAt < knownAt || !isVictims(outcome)),
    'nothing goes to a worker that is known to be down',
  )
  const survivors = new Set(outcomes.filter(({ sentAt }) => sentAt > killedAt).map(({ worker }) => worker))
  t.equal(
    [...survivors].filter(worker => !worker.startsWith(victimKey)).length,
    3,
    'the others share its traffic',
  )

  const restartedAt = performance.now()
  const reborn = await start(ports)
  engines.push(reborn)
  const served = () => outcomes.filter(outcome => outcome.sentAt > restartedAt && isVictims(outcome))
  await enough('the engine that came back serves', () => served().length >= 60)
  await enough('its new blocks are known', () => served().some(({ overlapTokens }) => overlapTokens > 0))
  await load.stop()
  const firstAfterMs = (outcomes: readonly Outcome[]): string =>
    (Math.min(...outcomes.map(({ sentAt }) => sentAt)) - restartedAt).toFixed(0)
  t.comment(
    `it served again ${firstAfterMs(served())} ms after its start, its blocks counted after ` +
      `${firstAfterMs(served().filter(({ overlapTokens }) => overlapTokens > 0))} ms`,
  )

  // The rest of a stream may have come from another worker, whose usage counts then.
  const isContinued = (outcome: Outcome): boolean =>
    outcome.isStream && isVictims(outcome) && outcome.sentAt < knownAt && outcome.endedAt >= killedAt
  for (const outcome of outcomes) {
    if (outcome.cachedTokens === undefined || isContinued(outcome)) continue
    assert.ok(
      outcome.overlapTokens <= outcome.cachedTokens,
      `${outcome.worker} was credited with ${outcome.overlapTokens} tokens and held ${outcome.cachedTokens}, ` +
        `${(outcome.sentAt - restartedAt).toFixed(0)} ms after the restart`,
    )
  }
  t.pass('no stale block was credited to any worker')
  await router.drained()
  await router.caughtUp(engines.filter(engine => engine !== victim))
  await router.trusted()
})
