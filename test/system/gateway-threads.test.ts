/**
 * Several gateways on threads of their own, behind one port: all answer alike, their figures add up, and one
 * whose thread dies costs its own connections and nothing else.
 */

import t from 'tap'
import { chunksOf, type Fleet, QUICK, startFleet, startTestRouter, TINY_TOKENIZER, until } from './fleet.ts'

const MODEL = 'homing-sim'
const THREADS = 2
/** Enough that the kernel gives some to each of two threads. */
const STREAMS = 24
const ids = (seed: number, count = 96): number[] =>
  Array.from({ length: count }, (_, at) => 40 + ((at * 7 + seed) % 80))

/** Requests each over a connection of its own. */
const closes = true

async function gatewayRequests(fleet: Fleet): Promise<number> {
  const { text } = await fleet.send('/metrics', { closes })
  const found = /^homing_gateway_requests_total\{route="completions",status="200"\} (\d+)$/m.exec(text)
  return Number(found?.[1] ?? 0)
}

/** Messages that the gateways have handled, by the name of each. */
async function handledBy(fleet: Fleet): Promise<ReadonlyMap<string, number>> {
  const { threads } = (await fleet.send('/actors', { closes })).json
  return new Map(
    threads.map(({ thread, handled }: { thread: string; handled: number }) => [thread, handled] as const),
  )
}

t.test('two gateways on one port', async t => {
  const fleet = await startFleet({
    engines: [
      { ...QUICK, speed: 1 },
      { ...QUICK, speed: 1 },
    ],
    router: ['--gateway-threads', String(THREADS), '--tokenizer', TINY_TOKENIZER],
  })
  t.teardown(() => fleet.stop())

  await t.test('both serve, with equal answers', async t => {
    const before = await handledBy(fleet)
    const answers = []
    for (let turn = 0; turn < 32; turn++) {
      const body = { model: MODEL, prompt: ids(3), max_tokens: 4, seed: 1 }
      answers.push(await fleet.send('/v1/completions', { body, closes }))
    }
    t.strictSame([...new Set(answers.map(({ status }) => status))], [200])
    t.equal(new Set(answers.map(({ json }) => json.choices[0].text)).size, 1)
    const decisions = new Set(answers.map(({ headers }) => headers['x-homing-decision']))
    t.equal(decisions.size, 32, 'no two decisions have one id')
    const after = await handledBy(fleet)
    for (const thread of ['gateways-0', 'gateways-1'])
      t.ok(after.get(thread)! > before.get(thread)!, `${thread} has served`)
    t.equal(await gatewayRequests(fleet), 32, 'metrics add up')
    const stream = await fleet.send('/v1/completions', {
      body: { model: MODEL, prompt: ids(5), max_tokens: 4, stream: true },
      closes,
    })
    t.ok(chunksOf(stream.text).length > 0)
  })

  await t.test('every route answers at both', async t => {
    for (const path of [
      '/v1/models',
      '/workers',
      '/queue',
      '/metrics',
      '/decisions',
      '/actors',
      '/ready',
      '/health',
    ]) {
      for (let turn = 0; turn < 6; turn++) t.equal((await fleet.send(path, { closes })).status, 200, path)
    }
  })

  await t.test('a response is found by whichever gateway is asked for it', async t => {
    for (let turn = 0; turn < 8; turn++) {
      const first = await fleet.send('/v1/responses', {
        body: { model: MODEL, input: `question ${turn}`, max_output_tokens: 2 },
        closes,
      })
      const id: string = first.json.id
      for (let again = 0; again < 6; again++) {
        const body = { model: MODEL, input: 'And then?', max_output_tokens: 2, previous_response_id: id }
        const next = await fleet.send('/v1/responses', { body, closes })
        t.equal(next.headers['x-homing-worker'], first.headers['x-homing-worker'], next.text)
      }
    }
    const { text } = await fleet.send('/metrics', { closes })
    t.match(text, /^homing_gateway_lost_responses_total 0$/m)
  })

  await t.test('a stranger, or a second router, cannot take a part of its connections', async t => {
    for (const threads of ['1', '2']) {
      const second = startTestRouter(
        fleet.engines.map(({ url }) => url),
        ['--port', String(fleet.router.port), '--gateway-threads', threads],
      )
      await t.rejects(second, { code: 'HOMING_TRANSPORT_LISTEN', message: /EADDRINUSE|in use/ })
    }
  })

  await t.test('a thread that dies costs its own connections and nothing else', async t => {
    const before = await gatewayRequests(fleet)
    const body = { model: MODEL, prompt: ids(7), max_tokens: 200, stream: true }
    // No stream ends before the thread does, however slow the machine.
    for (const engine of fleet.engines) await engine.faults({ slowMs: 500 })
    const streams = await Promise.all(
      Array.from({ length: STREAMS }, async () => {
        const { body: bytes } = await fleet.open('/v1/completions', { body, closes })
        const { promise: hasBegun, resolve } = Promise.withResolvers<void>()
        const whole = (async () => {
          let text = ''
          for await (const piece of bytes) {
            text += String(piece)
            resolve()
          }
          return chunksOf(text).length
        })()
        whole.catch(() => {})
        await hasBegun
        return { whole }
      }),
    )
    await fleet.router.system.killThread('gateways-0')
    for (const engine of fleet.engines) await engine.faults({ slowMs: 0 })
    const ended = await Promise.allSettled(streams.map(({ whole }) => whole))
    const whole = ended.filter(({ status }) => status === 'fulfilled').length
    t.ok(whole > 0, `streams of the other go on: ${whole} of ${STREAMS}`)
    t.ok(whole < STREAMS, `its own are cut: ${STREAMS - whole} of ${STREAMS}`)
    await until('it serves again', async () => {
      const { threads } = (await fleet.send('/actors', { closes })).json
      const row = threads.find(({ thread }: { thread: string }) => thread === 'gateways-0')
      return row?.lives === 2 && row.state === 'running' ? true : undefined
    })
    await fleet.drained()
    const started = await handledBy(fleet)
    for (let turn = 0; turn < 32; turn++) {
      const answer = await fleet.send('/v1/completions', {
        body: { ...body, max_tokens: 1, stream: false },
        closes,
      })
      t.equal(answer.status, 200, answer.text)
    }
    const after = await handledBy(fleet)
    for (const thread of ['gateways-0', 'gateways-1'])
      t.ok(after.get(thread)! > started.get(thread)!, `${thread} has served`)
    // Which of its streams its last text had counted is not known.
    t.ok((await gatewayRequests(fleet)) >= before + whole + 32, 'what it had counted stays')
    await fleet.drained()
  })
})
