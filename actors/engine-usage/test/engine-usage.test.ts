/** Engines that are asked for the usage of their KV caches, on a network in memory. */

import { createTestSystem } from '@homing/actor/testing'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { ReportedUsageMessage } from '@homing/actors/tracker'
import { recordingLog, SimulatedClock } from '@homing/base'
import type { Fleet, WorkerRecord, WorkerState } from '@homing/fleet'
import { MemoryNetwork, transportCapability } from '@homing/transport'
import t, { type Test } from 'tap'
import { engineUsage } from '../src/index.ts'

const INTERVAL_MS = 1000
const utf8 = new TextEncoder()

interface Answer {
  readonly status?: number
  readonly text?: string
  /** It never answers. */
  readonly isSilent?: boolean
}

class World {
  readonly clock = new SimulatedClock()
  readonly log = recordingLog()
  readonly network = new MemoryNetwork({ clock: this.clock })
  readonly system = createTestSystem({
    clock: this.clock,
    log: this.log,
    provide: [[transportCapability, this.network.transport()]],
  })
  readonly tracker = this.system.probe<ReportedUsageMessage>('tracker')
  readonly directory = this.system.probe<DirectoryMessage>('directory')
  readonly answers = new Map<string, Answer>()
  /** Questions that each engine was asked, and how many had no answer at one time. */
  readonly asked = new Map<string, number>()
  open = 0
  openMax = 0
  readonly ref = this.system.spawn(engineUsage, {
    name: 'engine-usage',
    args: {
      tracker: this.tracker.ref,
      directory: this.directory.ref,
      intervalMs: INTERVAL_MS,
      timeoutMs: 500,
    },
  })

  constructor(t: Test) {
    t.teardown(() => this.system.shutdown())
  }

  async engine(host: string, answer: Answer): Promise<void> {
    this.answers.set(host, answer)
    await this.network.transport().http.listen({ host, port: 8000 }, exchange => {
      this.asked.set(host, (this.asked.get(host) ?? 0) + 1)
      this.openMax = Math.max(this.openMax, ++this.open)
      const { status = 200, text = '', isSilent = false } = this.answers.get(host)!
      if (isSilent) return
      this.clock.after(10, () => {
        this.open--
        exchange.writeHead(exchange.path === '/metrics' ? status : 400, {})
        exchange.end(utf8.encode(text))
      })
    })
  }

  fleet(...workers: readonly WorkerRecord[]): void {
    const fleet: Fleet = { version: 1, workers }
    this.ref.tell({ type: 'fleet', fleet })
  }

  /** What the tracker was told since the last look: worker key, share, reason. */
  async told(): Promise<readonly (readonly [string, number | undefined, string | undefined])[]> {
    await this.system.settle()
    const told: [string, number | undefined, string | undefined][] = []
    while (this.tracker.waiting.length > 0) {
      const { reports } = await this.tracker.next()
      for (const { worker, share, reason } of reports) told.push([worker, share, reason])
    }
    return told
  }
}

function worker(host: string, { state = 'up' as WorkerState, ranks = 1 } = {}): WorkerRecord {
  const keys = Array.from({ length: ranks }, (_, dpRank) => ({
    key: `${host}/${dpRank}`,
    workerSlot: dpRank,
    dpRank,
  }))
  return { id: host, origin: `http://${host}:8000`, state, keys } as unknown as WorkerRecord
}

const usage = (share: number, rank = 0): string => `vllm:kv_cache_usage_perc{engine="${rank}"} ${share}\n`

t.test('every worker that is up is asked at once and then at the interval, by rank', async t => {
  const world = new World(t)
  await world.engine('one', { text: usage(0.25) })
  await world.engine('two', { text: usage(0.5) + usage(0.75, 1) })
  await world.engine('down', { text: usage(0.1) })
  world.fleet(worker('one'), worker('two', { ranks: 3 }), worker('down', { state: 'down' }))
  await world.system.advance('20ms')
  t.strictSame(await world.told(), [
    ['one/0', 0.25, undefined],
    ['two/0', 0.5, undefined],
    ['two/1', 0.75, undefined],
    ['two/2', undefined, 'its metrics name no rank 2'],
  ])
  world.answers.set('one', { text: usage(0.125, 3) })
  await world.system.advance('500ms')
  t.strictSame(await world.told(), [], 'not before the interval is over')
  await world.system.advance('600ms')
  t.strictSame((await world.told())[0], ['one/0', 0.125, undefined], 'the only rank, whatever it is called')
  t.equal(world.asked.get('down'), undefined)
})

t.test('an engine without the figure is asked seldom, and the log says so once', async t => {
  const world = new World(t)
  await world.engine('none', { status: 404, text: 'not here' })
  await world.engine('other', { text: 'up 1\n' })
  world.fleet(worker('none'), worker('other'))
  await world.system.advance('20ms')
  t.strictSame(await world.told(), [
    ['none/0', undefined, 'GET /metrics answers 404'],
    ['other/0', undefined, 'its metrics do not name its KV usage'],
  ])
  await world.system.advance('59s')
  t.equal(world.asked.get('none'), 1)
  await world.system.advance('10m')
  const asked = world.asked.get('none')!
  t.ok(asked >= 10 && asked <= 12, `asked ${asked} times in eleven minutes`)
  const lines = world.log.lines.filter(({ text }) => text.includes('does not report its KV usage'))
  t.equal(lines.length, 2)
  world.answers.set('none', { text: usage(0.5) })
  await world.told()
  await world.system.advance('61s')
  t.match(await world.told(), [['none/0', 0.5, undefined]], 'once it has one it counts')
})

t.test('one that misses a question keeps its figure, one that misses three has none', async t => {
  const world = new World(t)
  await world.engine('slow', { text: usage(0.9) })
  world.fleet(worker('slow'))
  await world.system.advance('20ms')
  t.strictSame(await world.told(), [['slow/0', 0.9, undefined]])
  world.answers.set('slow', { isSilent: true })
  await world.system.advance('3s')
  t.strictSame(await world.told(), [], 'two misses')
  await world.system.advance('1600ms')
  const [[key, share, reason] = []] = await world.told()
  t.strictSame([key, share], ['slow/0', undefined])
  t.type(reason, 'string')
  t.equal(world.log.lines.length, 0, 'probes tell of an engine that does not answer')
  world.answers.set('slow', { text: usage(0.1) })
  await world.system.advance('3s')
  t.strictSame((await world.told())[0], ['slow/0', 0.1, undefined])
})

t.test('a worker that goes down or leaves has no figure, and is not asked', async t => {
  const world = new World(t)
  await world.engine('one', { text: usage(0.5) })
  world.fleet(worker('one'))
  await world.system.advance('20ms')
  await world.told()
  world.fleet(worker('one', { state: 'down' }))
  t.strictSame(await world.told(), [['one/0', undefined, 'the worker is down']])
  await world.system.advance('10s')
  t.equal(world.asked.get('one'), 1)
  world.fleet(worker('one', { state: 'draining' }))
  await world.system.advance('20ms')
  t.strictSame(await world.told(), [['one/0', 0.5, undefined]], 'one that drains is up')
})

t.test('of many workers, sixteen are asked at a time, and all in turn', async t => {
  const world = new World(t)
  const hosts = Array.from({ length: 50 }, (_, i) => `w${i}`)
  for (const host of hosts) await world.engine(host, { text: usage(0.5) })
  world.fleet(...hosts.map(host => worker(host)))
  await world.system.advance('200ms')
  t.equal((await world.told()).length, 50)
  t.equal(world.openMax, 16)
})

t.test('an engine whose process started anew is looked at again, once', async t => {
  const world = new World(t)
  const text = (start: number): string => `process_start_time_seconds ${start}\n${usage(0.25)}`
  await world.engine('one', { text: text(100.5) })
  world.fleet(worker('one'))
  await world.system.advance('5s')
  t.strictSame(world.directory.waiting, [])
  world.answers.set('one', { text: text(200.5) })
  await world.system.advance('5s')
  t.strictSame(world.directory.waiting, [{ type: 'lookAgain', workerId: 'one' }])
  world.answers.set('one', { text: usage(0.25) })
  await world.system.advance('5s')
  t.equal(world.directory.waiting.length, 1, 'one that does not say has not restarted by that')
})

t.test('the start of an engine is read although it does not tell its usage', async t => {
  const world = new World(t)
  await world.engine('one', { text: 'process_start_time_seconds 100.5' })
  world.fleet(worker('one'))
  await world.system.advance('5s')
  world.answers.set('one', { text: 'process_start_time_seconds 200.5' })
  await world.system.advance('5s')
  t.strictSame(world.directory.waiting, [{ type: 'lookAgain', workerId: 'one' }])
})
