/**
 * A second engine for a late first token, over real sockets: an engine stands still with requests, another
 * one answers them, and nothing stays booked or open.
 */

import process from 'node:process'
import { seededRandom } from '@homing/base'
import t, { type Test } from 'tap'
import {
  chunksOf,
  freeReplicaPorts,
  RouterClient,
  send,
  startEngines,
  startTestRouter,
  type ThreadEngine,
  until,
} from './fleet.ts'
import { END_ID, idsOf, routerOver, ScriptedWorker, MODEL as TOKEN_MODEL } from './token-world.ts'

const MODEL = 'homing-sim'
const CHAT = '/v1/chat/completions'
const STREAM = {
  model: MODEL,
  messages: [{ role: 'user', content: 'a short chat' }],
  max_tokens: 20,
  stream: true,
}
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const ROUNDS = 6
const STREAMS = 24

async function startFleet(t: Test, argv: readonly string[] = []) {
  const { engines, stop } = await startEngines([{ hashSeed: 1 }, { hashSeed: 1 }, { hashSeed: 1 }])
  t.teardown(stop)
  const router = await startTestRouter(
    engines.map(({ url }) => url),
    [
      ...['--hedge-after', '150ms', '--hedge-rule', 'fixed', '--retry-budget', '1'],
      ...['--router-event-threads', '1', ...argv],
    ],
  )
  t.teardown(() => router.stop(0))
  return { engines, router: new RouterClient(router.url) }
}

// biome-ignore lint/suspicious/noExplicitAny: chunks of many forms
const textOf = (chunks: readonly any[]): string =>
  chunks.map(({ choices: [choice] }) => choice?.delta?.content ?? '').join('')

async function hedges(router: RouterClient): Promise<Readonly<Record<string, number>>> {
  const { text } = await router.send('/metrics')
  const rows = [...text.matchAll(/^homing_gateway_hedges_total\{outcome="(\w+)"\} (\d+)$/gm)]
  return Object.fromEntries(rows.map(([, outcome, count]) => [outcome, Number(count)]))
}

/** Streams whose first token was late, and where that has had its outcome, be it that no second is asked. */
async function late(router: RouterClient): Promise<number> {
  return Object.values(await hedges(router)).reduce((sum, count) => sum + count, 0)
}

async function assertNothingOpen(
  t: Test,
  engines: readonly ThreadEngine[],
  router: RouterClient,
): Promise<void> {
  for (const engine of engines) await engine.faults({ hang: 'off' })
  await router.drained()
  for (const { worker_keys: keys } of await router.workers())
    for (const { load } of keys) t.match(load, { requests: 0, active_blocks: 0, prefill_tokens: 0 })
}

t.test('an engine that stands still before a first token is left for another one', async t => {
  const { engines, router } = await startFleet(t, ['--router-mode', 'round-robin'])
  const whole = chunksOf((await send(engines[0]!.url, CHAT, { body: STREAM })).text)
  // One whose first token is late takes two turns.
  const { first, before } = await until('a first token is in time', async () => {
    const before = await late(router)
    const first = await router.send(CHAT, { body: STREAM })
    await router.drained()
    return (await late(router)) === before ? { first, before: (await hedges(router))['won'] ?? 0 } : undefined
  })
  const at = engines.findIndex(({ url }) =>
    String(first.headers['x-homing-worker']).startsWith(new URL(url).host),
  )
  const next = engines[(at + 1) % 3]!
  await next.faults({ hang: 'generation' })
  const answer = await router.send(CHAT, { body: STREAM })
  t.equal(textOf(chunksOf(answer.text)), textOf(whole))
  await router.drained()
  const { decisions } = (await router.send('/decisions?limit=2')).json
  const [second, tooLate] = decisions
  t.ok(tooLate.worker.startsWith(new URL(next.url).host))
  t.not(second.worker, tooLate.worker)
  t.equal(answer.headers['x-homing-decision'], second.id)
  t.match(second, { hedges: { decision: tooLate.id }, delivered: { outcome: 'ok', other_leg: null } })
  t.match(tooLate, { hedges: null, delivered: { outcome: 'aborted', other_leg: second.id } })
  t.equal(second.request_id, tooLate.request_id)
  t.match(await hedges(router), { won: before + 1 })
  await assertNothingOpen(t, engines, router)
})

t.test(`streams under engines that stand still at any time are all whole (seed ${SEED})`, async t => {
  const { engines, router } = await startFleet(t, ['--router-mode', 'round-robin'])
  const random = seededRandom(SEED)
  const whole = textOf(chunksOf((await send(engines[0]!.url, CHAT, { body: STREAM })).text))
  for (let round = 0; round < ROUNDS; round++) {
    const still = engines[random.below(3)]!
    await still.faults({ hang: 'generation' })
    const before = await late(router)
    const answers = Array.from({ length: STREAMS }, () => router.send(CHAT, { body: STREAM }))
    let areOver = false
    const all = Promise.all(answers).finally(() => {
      areOver = true
    })
    // An engine that was late often enough gets no streams for a while: then none is late.
    await until('a first token is late, or all are there', async () =>
      areOver || (await late(router)) > before ? true : undefined,
    )
    await still.faults({ hang: 'off' })
    for (const { text } of await all) t.equal(textOf(chunksOf(text)), whole)
  }
  const { won = 0, lost = 0, failed = 0 } = await hedges(router)
  t.ok(won > 0, `won ${won}, lost ${lost}, failed ${failed}`)
  await assertNothingOpen(t, engines, router)
})

t.test('a session that a second engine has taken over goes there through the other router, too', async t => {
  const { engines, stop } = await startEngines([{ hashSeed: 1 }, { hashSeed: 1 }])
  t.teardown(stop)
  const plane = await freeReplicaPorts(2)
  const routers: RouterClient[] = []
  for (const i of [0, 1]) {
    const router = await startTestRouter(
      engines.map(({ url }) => url),
      [
        // What is asked of the other one stays where it is sent, and a healthy engine is in time.
        ...(i === 0 ? ['--hedge-after', '500ms', '--hedge-rule', 'fixed', '--retry-budget', '1'] : []),
        ...[
          ...plane(i),
          '--router-session-affinity-ttl-secs',
          '60',
          '--router-session-affinity-mode',
          'hard',
        ],
        ...['--router-replica-sync', '--router-replica-expiry', '600s'],
      ],
    )
    t.teardown(() => router.stop(0))
    routers.push(new RouterClient(router.url))
  }
  const [here, there] = routers as [RouterClient, RouterClient]
  const ask = async (router: RouterClient, session: string): Promise<string> => {
    const headers = { 'x-dynamo-session-id': session }
    return String((await router.send(CHAT, { body: STREAM, headers })).headers['x-homing-worker'])
  }
  /** What it has heard of `here`. */
  const heard = async () => (await there.send('/replicas')).json.replicas[0]
  await until('the replicas know each other', async () =>
    (await heard())?.state === 'live' ? true : undefined,
  )
  // Of two workers, either may be the one that replicas prefer where both are bound at once.
  for (let i = 0; i < 4; i++) {
    const session = `session ${i}`
    const first = await ask(here, session)
    const slow = engines.find(({ url }) => first.startsWith(new URL(url).host))!
    await slow.faults({ hang: 'generation' })
    const before = (await hedges(here))['won'] ?? 0
    const second = await ask(here, session)
    t.not(second, first)
    t.equal((await hedges(here))['won'], before + 1)
    await slow.faults({ hang: 'off' })
    await here.drained()
    // Messages come in order: behind those of the session is that of another request.
    const { operations } = await until('nothing of it is open', async () => {
      const replica = await heard()
      return replica.open_bookings === 0 ? replica : undefined
    })
    await here.send(CHAT, { body: STREAM })
    await until('another request is heard of', async () =>
      (await heard()).operations > operations ? true : undefined,
    )
    t.equal(await ask(there, session), second)
    t.equal(await ask(here, session), second)
  }
})

t.test('a stream of token ids that its second worker lost goes on there token by token', async t => {
  const words = 'Which way is home, and how far is it from here?'
  const ids = [...(await idsOf(words)), END_ID]
  const half = ids.length >> 1
  const workers = [0, 1].map(() => new ScriptedWorker([{ ids, holdsAt: [0, half] }]))
  const running = await Promise.all(workers.map(worker => worker.start({})))
  t.teardown(() => Promise.all(running.map(one => one.close(0))))
  const argv = ['--hedge-after', '50ms', '--hedge-rule', 'fixed', '--migration-limit', '1']
  const router = await routerOver(t, 'http', running, undefined, argv)
  const body = { model: TOKEN_MODEL, messages: STREAM.messages, stream: true, return_token_ids: true }
  const opened = router.open(CHAT, { body })
  await until('both are asked', () => (workers.every(({ held }) => held === 1) ? true : undefined))
  const { decisions } = (await router.send('/decisions?limit=2')).json
  const at = running.findIndex(({ url }) => decisions.at(-1).worker.startsWith(new URL(url).host))
  const [first, second] = [workers[at]!, workers[1 - at]!]
  first.go()
  let isWhole = false
  const text = (await opened).body.text().finally(() => {
    isWhole = true
  })
  await until('the second one is left in the middle of the first one', () =>
    first.held === 1 && second.cancelled === 1 ? true : undefined,
  )
  second.go()
  await running[at]!.close(0)
  await until('the stream has ended', () => {
    second.go()
    return isWhole ? true : undefined
  })
  const chunks = chunksOf(await text)
  t.equal(textOf(chunks), words)
  t.strictSame(
    chunks.flatMap(({ choices: [choice] }) => choice?.token_ids ?? []),
    ids,
    'no token is missing, none is there twice',
  )
  t.equal(second.requests[1]!.resumedTokens, half)
})
