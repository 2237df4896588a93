/** The queue over real sockets: the order of requests, fairness between tenants, and what clients receive. */

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Answer, type Fleet, startFleet, until } from './fleet.ts'

const MODEL = 'homing-sim'
/** One prompt under way is past it. */
const SMALL_THRESHOLD = ['--router-queue-threshold', '0.001']

let marker = 0
function prompt(tokens: number): number[] {
  marker++
  return Array.from({ length: tokens }, (_, at) => 40 + ((marker * 7 + at * (1 + (marker % 5))) % 80))
}

interface Sent {
  readonly tokens?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly more?: object
}

interface View {
  readonly requests: number
  readonly models: readonly {
    readonly waiting: { readonly requests: number }
    readonly tenants: readonly {
      readonly tenant: string
      readonly is_held: boolean
      readonly weight: number
    }[]
    readonly classes: readonly {
      readonly policy_class: string
      readonly served: { readonly requests: number }
    }[]
  }[]
}

interface Receipt {
  readonly request_id: string
  readonly ignored_hints: string | null
  readonly queue: { readonly waited_ms: number; readonly why: string } | null
}

class Waiting {
  readonly fleet: Fleet
  readonly #answers: Promise<Answer>[] = []

  constructor(fleet: Fleet) {
    this.fleet = fleet
  }

  static async begin(t: Test, engines: number, router: readonly string[]): Promise<Waiting> {
    const fleet = await startFleet({
      engines: Array.from({ length: engines }, () => ({})),
      router: ['--router-policy', 'linear', ...router],
    })
    t.teardown(() => fleet.stop())
    return new Waiting(fleet)
  }

  /** `name` becomes the id of the request and of its receipt. */
  send(name: string, { tokens = 100, headers = {}, more = {} }: Sent = {}): Promise<Answer> {
    const body = { model: MODEL, prompt: prompt(tokens), max_tokens: 1, ...more }
    const answer = this.fleet.send('/v1/completions', { body, headers: { 'x-request-id': name, ...headers } })
    this.#answers.push(answer)
    return answer
  }

  async queue(): Promise<View> {
    return (await this.fleet.send('/queue')).json as View
  }

  async untilWaiting(requests: number): Promise<View> {
    let seen: View | undefined
    return until(
      `${requests} wait`,
      async () => {
        seen = await this.queue()
        return seen.requests === requests ? seen : undefined
      },
      { seen: () => seen },
    )
  }

  /** Sends one behind the other, so that they arrive in this order. */
  async park(requests: Readonly<Record<string, Sent>>): Promise<void> {
    const before = (await this.queue()).requests
    for (const [i, [name, sent]] of Object.entries(requests).entries()) {
      void this.send(name, sent)
      await this.untilWaiting(before + i + 1)
    }
  }

  /** Every engine has a prompt of a stream, and computes nothing until `goOn`. */
  async hold(): Promise<void> {
    for (const engine of this.fleet.engines) await engine.faults({ hang: 'generation' })
    for (const [i] of this.fleet.engines.entries()) void this.send(`blocker ${i}`, { more: { stream: true } })
    await until('each worker has a prompt', async () => {
      const keys = (await this.fleet.workers()).flatMap(({ worker_keys }) => worker_keys)
      return keys.every(({ load }) => load.prefill_tokens > 0) ? true : undefined
    })
  }

  /** Resolves when all sent requests have an answer. */
  async goOn(): Promise<readonly Answer[]> {
    for (const engine of this.fleet.engines) await engine.faults({ hang: 'off' })
    const answers = await Promise.all(this.#answers.splice(0))
    await this.fleet.drained()
    return answers
  }

  /** Names in the order in which they were placed, without the blockers. */
  async placed(): Promise<readonly string[]> {
    return (await this.receipts()).map(({ request_id }) => request_id)
  }

  /** The oldest first. */
  async receipts(): Promise<readonly Receipt[]> {
    const { decisions } = (await this.fleet.send('/decisions?limit=1000')).json as { decisions: Receipt[] }
    return decisions.reverse().filter(({ request_id }) => !request_id.startsWith('blocker'))
  }
}

t.test('orders, head starts and strict priorities decide who goes first', async t => {
  const requests = {
    long: { tokens: 400 },
    short: { tokens: 50 },
    middle: { tokens: 200 },
    hurried: { tokens: 300, headers: { 'x-dynamo-request-priority': '3600' } },
    sensitive: { tokens: 350, more: { nvext: { agent_hints: { latency_sensitivity: 1800 } } } },
    strict: { tokens: 500, headers: { 'x-dynamo-request-strict-priority': '1' } },
  }
  for (const [order, expected] of [
    ['fcfs', ['strict', 'hurried', 'sensitive', 'long', 'short', 'middle']],
    ['lcfs', ['strict', 'hurried', 'sensitive', 'middle', 'short', 'long']],
    ['wspt', ['strict', 'hurried', 'sensitive', 'short', 'middle', 'long']],
  ] as const) {
    await t.test(order, async t => {
      const waiting = await Waiting.begin(t, 1, [...SMALL_THRESHOLD, '--router-queue-policy', order])
      await waiting.hold()
      await waiting.park(requests)
      const answers = await waiting.goOn()
      t.ok(answers.every(({ status }) => status === 200))
      t.strictSame(await waiting.placed(), expected)
      const receipts = await waiting.receipts()
      t.ok(receipts.every(({ queue }) => queue?.why === 'no_room' || queue?.why === 'others_first'))
      t.equal((await waiting.queue()).requests, 0)
    })
  }
})

t.test("a tenant's flood of long prompts does not hold back the chat of another", async t => {
  const waiting = await Waiting.begin(t, 2, [
    ...['--router-queue-threshold', '4', '--router-tenant-contention', '1h'],
    ...['--router-tenant-weight', 'chat=4', '--max-open-requests', '40'],
    // Of the rule for long prompts that cannot be sent in slices.
    ...['--router-prefill-slices', 'off'],
  ])
  const chat = { headers: { 'x-homing-tenant': 'chat' } }
  const flood = { tokens: 12_000, headers: { 'x-tenant-id': 'flood' } }
  t.equal((await waiting.send('chat before', chat)).status, 200)
  for (const engine of waiting.fleet.engines) await engine.faults({ hang: 'generation' })
  for (let i = 0; i < 6; i++) void waiting.send(`flood ${i}`, flood)
  const view = await waiting.untilWaiting(5)
  t.match(
    view.models[0]!.tenants.find(({ tenant }) => tenant === '(others)'),
    { is_held: true, weight: 1 },
    'it has all workers but one, and no weight of its own',
  )
  t.match(
    view.models[0]!.tenants.find(({ tenant }) => tenant === 'chat'),
    { is_held: false, weight: 4 },
  )
  const during = waiting.send('chat during', chat)
  await until('the chat has the other worker', async () => {
    const keys = (await waiting.fleet.workers()).flatMap(({ worker_keys }) => worker_keys)
    return keys.some(({ load }) => load.prefill_tokens === 100) ? true : undefined
  })
  t.equal((await waiting.queue()).requests, 5, 'the flood waits on')
  const answers = await waiting.goOn()
  t.equal((await during).status, 200)
  t.ok(answers.every(({ status }) => status === 200))
  const names = await waiting.placed()
  t.equal(names.indexOf('chat during'), 2, 'behind one of the flood')
  const receipts = await waiting.receipts()
  t.equal(
    receipts.find(({ request_id }) => request_id === 'chat during')?.queue ?? null,
    null,
    'it did not wait',
  )
  t.ok(receipts.filter(({ queue }) => queue?.why === 'long_prompt').length >= 4)

  // Its waiting requests take all places of open requests.
  for (const engine of waiting.fleet.engines) await engine.faults({ hang: 'generation' })
  const flooded = Array.from({ length: 40 }, (_, i) => waiting.send(`again ${i}`, flood))
  await waiting.untilWaiting(39)
  const loads = await waiting.fleet.workers()
  const idle = loads.find(({ worker_keys }) => worker_keys.every(({ load }) => load.requests === 0))
  await waiting.fleet.engines.find(({ url }) => url === idle?.url)!.faults({ hang: 'off' })
  for (let round = 0; round < 5; round++) {
    const chats = await Promise.all(Array.from({ length: 8 }, (_, i) => waiting.send(`${round} ${i}`, chat)))
    t.strictSame(
      chats.map(({ status }) => status),
      Array(8).fill(200),
      'all chats are answered',
    )
  }
  await waiting.goOn()
  const ends = await Promise.all(flooded)
  const refused = ends.filter(({ status }) => status !== 200)
  t.ok(refused.length > 0 && refused.length <= 8, `${refused.length} of the flood made room`)
  t.ok(refused.every(({ text }) => /"queue_full"/.test(text) && /--max-open-requests is reached/.test(text)))
})

t.test('tenants that are backlogged share by weight, whatever they say of their priority', async t => {
  const waiting = await Waiting.begin(t, 1, [...SMALL_THRESHOLD, '--router-tenant-weight', 'heavy=3'])
  await waiting.hold()
  for (let i = 0; i < 24; i++) {
    void waiting.send(`heavy ${i}`, { headers: { 'x-homing-tenant': 'heavy' } })
    const strict = { 'x-dynamo-request-strict-priority': '9' }
    void waiting.send(`light ${i}`, { headers: { 'x-homing-tenant': `light ${i}`, ...strict } })
  }
  await waiting.untilWaiting(48)
  await waiting.goOn()
  const first = (await waiting.placed()).slice(0, 24)
  const heavy = first.filter(name => name.startsWith('heavy')).length
  t.ok(Math.abs(heavy - 18) <= 1, `${heavy} of the first 24 are of the tenant with weight 3`)
  const light = (await waiting.receipts()).find(({ request_id }) => request_id === 'light 7')
  t.match(light?.ignored_hints, /^strict_priority ignored: --router-trusted-hints does not name light 7$/)
  const metrics = await waiting.fleet.send('/metrics')
  t.match(metrics.text, 'homing_gateway_ignored_hints_total{hint="strict_priority"} 24')
})

const CLASSES = `
default_policy_family: small
uncached_isl_buckets: [{ min_tokens: 0, bucket: all }]
policy_classes:
  - { name: small, policy_family: small, cache_bucket: all, quantum: 100, prefill_busy_threshold: 0 }
  - { name: large, policy_family: large, cache_bucket: all, quantum: 400, prefill_busy_threshold: 0 }
  - { name: few, quantum: 100, prefill_busy_threshold: 0, request_queue_limit_per_worker: 2 }
`

t.test('policy classes share by quantum, and each has its own limit', async t => {
  const file = join(t.testdir({}), 'classes.yaml')
  await writeFile(file, CLASSES)
  const waiting = await Waiting.begin(t, 1, ['--router-policy-config', file])
  await waiting.hold()
  for (let i = 0; i < 30; i++) {
    void waiting.send(`small ${i}`)
    void waiting.send(`large ${i}`, { headers: { 'x-dynamo-meta-policy-class': 'large' } })
  }
  await waiting.untilWaiting(60)
  const few = { headers: { 'x-homing-policy-class': 'few' } }
  await waiting.park({ 'few 0': few, 'few 1': few })
  const refused = await waiting.send('few 2', few)
  t.equal(refused.status, 503)
  t.equal(refused.json.error.code, 'class_limit')
  t.ok(Number(refused.headers['retry-after']) >= 1)
  const answers = await waiting.goOn()
  t.equal(answers.filter(({ status }) => status === 200).length, 63)
  const first = (await waiting.placed()).filter(name => !name.startsWith('few')).slice(0, 30)
  const large = first.filter(name => name.startsWith('large')).length
  t.ok(Math.abs(large - 24) <= 2, `${large} of the first 30 are of the class with four times the quantum`)
})

t.test('what may not wait is refused, with the status that operators chose', async t => {
  const waiting = await Waiting.begin(t, 1, [
    ...SMALL_THRESHOLD,
    ...['--http-overload-status-code', '429', '--router-queue-max-requests', '1'],
  ])
  t.equal((await waiting.send('room', { headers: { 'x-homing-do-not-queue': 'true' } })).status, 200)
  // Its answer may be here before its place is free.
  await waiting.fleet.drained()
  t.equal((await waiting.send('late', { headers: { 'x-homing-queue-timeout-ms': '0' } })).status, 200)
  await waiting.hold()
  await waiting.park({ waits: {} })
  for (const [headers, code] of [
    [{ 'x-homing-do-not-queue': 'true' }, 'do_not_queue'],
    [{ 'x-homing-queue-timeout-ms': '0' }, 'deadline'],
    [{}, 'queue_full'],
  ] as const) {
    const refused = await waiting.send(code, { headers })
    t.strictSame([refused.status, refused.json.error.code], [429, code])
    t.ok(Number(refused.headers['retry-after']) >= 1)
  }
  const answers = await waiting.goOn()
  t.equal(answers.filter(({ status }) => status === 200).length, 4)
})
