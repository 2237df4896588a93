/**
 * Engines that publish no KV events, from their start or since a restart: this is reported where people and
 * machines look, with the text to type, and requests are served nevertheless. All are processes of their own.
 */

import { freePort } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import {
  type Answer,
  type KeyView,
  RouterClient,
  send,
  startProcess,
  type TestProcess,
  until,
} from './fleet.ts'
import { counts, promptOf } from './pinned-prompts.ts'

const MODEL = 'homing-sim'
const PROMPT_TOKENS = 165
const PROMPT_BLOCKS = 10
const BLOCK_SIZE_TOKENS = 16
const REQUESTS = 3
const WHAT_TO_TYPE = /--kv-events-config '\{"enable_kv_cache_events":true,"publisher":"zmq"/

interface LogLine {
  readonly level: string
  readonly msg: string
  readonly worker?: string
  readonly key?: string
  readonly trust?: string
  readonly reason?: string
  readonly missing?: readonly string[]
}

t.test('a worker whose publisher is disabled is told of within seconds of the start, and serves', async t => {
  const mute = await startEngine(t, ['--no-events'])
  const others = await Promise.all([startEngine(t), startEngine(t)])
  const { router, linesAbout, printed } = await startRouter(t, [mute, ...others])
  const found = async (engine: TestProcess) =>
    (await linesAbout(engine)).filter(({ msg }) => msg === 'worker found')

  const key = await untilReason(router, mute, 'reports no KV events: start it with')
  t.match(key, { trust: 'approximate', events: null })
  t.match(key.trust_reason, WHAT_TO_TYPE)
  t.match(key.trust_reason, /guesses from sent requests count$/)
  const metrics = (await router.send('/metrics')).text.split('\n')
  t.ok(metrics.includes(`homing_directory_trust_state{worker="${key.worker}",trust="approximate"} 1`))

  const [line, ...more] = await linesAbout(mute)
  t.strictSame(more, [], 'one line of the log is about it')
  t.match(line, { level: 'warn', msg: 'worker found' })
  const [missing, ...otherFaults] = line!.missing!
  t.strictSame(otherFaults, [])
  t.match(missing, /^no KV events: start the engine with/)
  t.match(missing, WHAT_TO_TYPE)
  const below = await printed(`  ${missing}`)
  t.match(below, new RegExp(`^worker ${key.worker.split('/')[0]}: .*no events, trust approximate$`))

  for (const other of others) {
    await until('the others are known', async () =>
      (await keyOf(router, other)).trust === 'exact' ? true : undefined,
    )
    t.match(await found(other), [{ level: 'info', missing: [] }])
  }
  await serves(t, router, mute, 'approximate')
  await serves(t, router, others[0]!, 'exact')
  t.equal((await linesAbout(mute)).length, 1, 'it is not said again')
})

t.test('an engine that comes back without its publisher is told of, and credited with nothing', async t => {
  // A port that no dialling socket is given while it is closed.
  const port = String(await freePort())
  const engine = await startEngine(t, ['--port', port])
  // Every fifth probe asks for all settings that an engine reports.
  const { router, linesAbout } = await startRouter(t, [engine], ['--probe-interval', '0.5s'])
  await router.trusted()
  await serves(t, router, engine, 'exact')

  engine.kill('SIGKILL')
  await engine.ended
  const reborn = await startEngine(t, ['--no-events', '--port', port])
  const key = await untilReason(router, reborn, 'reports no KV events: start it with')
  t.match(key, { trust: 'approximate', events: null, blocks_held: 0 })
  await until('the log says so', async () => {
    const changes = (await linesAbout(reborn)).filter(({ msg }) => msg === 'trust has changed')
    return changes.at(-1)?.trust === 'approximate' ? true : undefined
  })
  await serves(t, router, reborn, 'approximate')
})

t.test('an engine that computes and publishes nothing, though its sockets are open, is told of', async t => {
  const [mute, other] = await Promise.all([startEngine(t), startEngine(t)])
  const { router, linesAbout } = await startRouter(t, [mute, other], ['--probe-interval', '0.5s'])
  await router.trusted()
  const disable = (body: object) => send(mute.url, '/admin/faults', { body: { events: body } })
  t.equal((await disable({ drop: 1_000_000, forget: true })).status, 200)

  t.equal((await complete(router, mute, 1)).status, 200)
  t.equal((await complete(router, other, 1)).status, 200)
  const key = await untilReason(router, mute, 'it has computed blocks and published none')
  t.equal(key.trust, 'partial')
  const warnings = await until('the log says so', async () => {
    const lines = (await linesAbout(mute)).filter(({ level }) => level === 'warn')
    return lines.length > 0 ? lines : undefined
  })
  t.match(warnings, [{ msg: 'engine does not publish what it computes', reason: key.trust_reason }])
  const metrics = (await router.send('/metrics')).text.split('\n')
  t.ok(metrics.includes(`homing_directory_trust_state{worker="${key.worker}",trust="partial"} 1`))
  t.equal((await complete(router, mute, 2)).status, 200, 'it serves')
  t.equal((await keyOf(router, other)).trust, 'exact', 'the other one published')

  t.equal((await disable({ drop: 0, forget: false })).status, 200)
  t.equal((await complete(router, mute, 3)).status, 200)
  await until('it is believed as far as it tells', async () => {
    const { trust_reason: reason, events } = await keyOf(router, mute)
    return events!.last_sequence !== null && reason !== key.trust_reason ? true : undefined
  })
})

/** Sends new prompts, each twice: the first time the router credits nothing, the second time all of it. */
async function serves(t: Test, router: RouterClient, engine: TestProcess, trust: string): Promise<void> {
  for (let seed = 0; seed < REQUESTS; seed++) {
    for (const blocks of [0, PROMPT_BLOCKS]) {
      const { status, headers, json } = await complete(router, engine, seed)
      t.equal(status, 200)
      t.match(headers, { 'x-homing-trust': trust, 'x-homing-overlap-blocks': String(blocks) })
      t.equal(json.usage.prompt_tokens_details?.cached_tokens ?? 0, blocks * BLOCK_SIZE_TOKENS)
      if (blocks > 0) continue
      await router.caughtUp([engine])
      // Of an engine without events it is guessed, on another thread.
      const { worker } = await keyOf(router, engine)
      await counts(router, worker, { prompt: promptOf(seed, PROMPT_TOKENS) }, PROMPT_BLOCKS)
    }
  }
}

/** A request for this engine and no other; equal seeds, equal prompts. */
async function complete(router: RouterClient, engine: TestProcess, seed: number): Promise<Answer> {
  const prompt = promptOf(seed, PROMPT_TOKENS)
  const { instance_id: instance } = await router.worker(engine.url)
  return router.send('/v1/completions', {
    body: { model: MODEL, prompt, max_tokens: 2, nvext: { backend_instance_id: instance } },
  })
}

function startEngine(t: Test, argv: readonly string[] = []): Promise<TestProcess> {
  return started(t, 'engine', [
    '--port',
    '0',
    '--events-port',
    '0',
    '--replay-port',
    '0',
    '--speed',
    '0',
    ...argv,
  ])
}

async function startRouter(t: Test, engines: readonly TestProcess[], argv: readonly string[] = []) {
  const process = await started(t, 'router', [
    // No engine is taken to be down because the machine is busy.
    ...['--port', '0', '--host', '127.0.0.1', '--probe-timeout', '10s'],
    ...engines.flatMap(({ url }) => ['--worker', url]),
    ...argv,
  ])
  const about = (engine: TestProcess) => (line: LogLine) =>
    line.worker === new URL(engine.url).host || line.key?.startsWith(`${new URL(engine.url).host}/`) === true
  const lines = (): LogLine[] => process.errorLines.map(line => JSON.parse(line) as LogLine)
  return {
    router: new RouterClient(process.url),
    /** Lines of the log about an engine, once there is any. */
    linesAbout: (engine: TestProcess) =>
      until(`the log speaks of ${engine.url}`, () => {
        const found = lines().filter(about(engine))
        return found.length > 0 ? found : undefined
      }),
    /** The line printed before `wanted`, once that is there. */
    printed: (wanted: string) =>
      until(`the router prints ${wanted}`, () => {
        const position = process.outputLines.indexOf(wanted)
        return position < 0 ? undefined : process.outputLines[position - 1]
      }),
  }
}

async function started(t: Test, command: string, argv: readonly string[]): Promise<TestProcess> {
  const process = await startProcess(command, argv)
  t.teardown(() => process.kill('SIGKILL'))
  return process
}

/** The key of an engine once the reason for its trust begins so. */
async function untilReason(router: RouterClient, engine: TestProcess, reason: string): Promise<KeyView> {
  let seen: KeyView | undefined
  const ask = async () => {
    seen = await keyOf(router, engine)
    return seen.trust_reason.startsWith(reason) ? seen : undefined
  }
  return until(`${engine.url} ${reason}`, ask, { seen: () => seen })
}

async function keyOf(router: RouterClient, engine: TestProcess): Promise<KeyView> {
  return (await router.worker(engine.url)).worker_keys[0]!
}
