/** Workers that a source finds: how the fleet follows it, and what stays the operator's. */

import { recordingLog, SimulatedClock, silentLog } from '@homing/base'
import type { FoundList, FoundState, FoundWorker, SourceHandler, WorkerSource } from '@homing/discovery'
import t from 'tap'
import { FleetChanges } from '../src/fleet-changes.ts'
import { FoundWorkers } from '../src/found-workers.ts'
import type { KeptFleet } from '../src/messages.ts'
import { WorkerTable } from '../src/worker-table.ts'

const A = 'http://10.0.0.1:8000'
const B = 'http://10.0.0.2:8000?ranks=2'

function world(absence: 'leaves at once' | 'drains' = 'leaves at once', workersMax = 10) {
  const fleet = new Map<string, string>()
  const history: string[] = []
  const log = recordingLog()
  const idOf = (url: string): string => new URL(url).host
  let answers = true
  const changes = {
    idOf,
    has: (id: string) => fleet.has(id),
    isDraining: (id: string) => fleet.get(id) === 'draining',
    add(url: string) {
      fleet.set(idOf(url), 'up')
      history.push(`add ${url}`)
      return { id: idOf(url) }
    },
    remove(id: string) {
      history.push(`remove ${id}`)
      fleet.delete(id)
      found.left(id)
      return true
    },
    drain: (id: string) => void fleet.set(id, 'draining'),
    resume: (id: string) => void fleet.set(id, 'up'),
    pause(id: string, reason: string | undefined) {
      if (fleet.get(id) !== 'draining') fleet.set(id, reason === undefined ? 'up' : 'paused')
    },
    answers: () => answers,
    keep: () => {},
  } as unknown as FleetChanges
  let workers: readonly FoundWorker[] | undefined
  let isWhole = true
  let handler!: SourceHandler
  const context = { log, self: { tell: () => 'ok' }, schedule: () => ({ cancel() {} }) }
  const found = new FoundWorkers(context as never, changes, workersMax, given => {
    handler = given
    return {
      absence,
      finding: () => workers && { workers, isWhole, faults: [] },
      close() {},
    }
  })
  const says = (...list: readonly (readonly [url: string, state: FoundState, life?: string])[]): void => {
    workers = list.map(([url, state, life = '1']) => ({ url, state, life, reason: `it is ${state}` }))
    handler.changed()
    found.look()
  }
  return {
    fleet,
    history,
    log,
    found,
    says,
    changes,
    states: () => Object.fromEntries(fleet),
    isPart: () => (isWhole = false),
    isSilent: () => (answers = false),
  }
}

t.test('states of a worker are followed', async t => {
  const { says, states, history } = world()
  says([A, 'unready'], [B, 'ready'])
  t.strictSame(states(), { '10.0.0.2:8000': 'up' }, 'it joins when it is ready for the first time')
  says([A, 'ready'], [B, 'unready'])
  t.strictSame(states(), { '10.0.0.1:8000': 'up', '10.0.0.2:8000': 'paused' })
  says([A, 'leaving'], [B, 'ready'])
  t.strictSame(states(), { '10.0.0.1:8000': 'draining', '10.0.0.2:8000': 'up' })
  says([B, 'ready'])
  t.strictSame(states(), { '10.0.0.2:8000': 'up' })
  says([B, 'ready', 'another life'])
  says([`${B}&role=decode`, 'ready', 'another life'])
  t.strictSame(history.slice(-4), [
    'remove 10.0.0.2:8000',
    `add ${B}`,
    'remove 10.0.0.2:8000',
    `add ${B}&role=decode`,
  ])
})

t.test('what the operator does stays done', async t => {
  const { says, states, changes, found } = world()
  says([A, 'ready'], [B, 'ready'])
  changes.remove('10.0.0.1:8000')
  changes.drain('10.0.0.2:8000')
  says([A, 'ready'], [B, 'ready'])
  t.strictSame(states(), { '10.0.0.2:8000': 'draining' }, 'neither is taken back')
  t.strictSame([...found.kept.refused], [['10.0.0.1:8000', '1']])
  says([A, 'ready', 'another pod'], [B, 'ready'])
  t.match(states(), { '10.0.0.1:8000': 'up' })
})

t.test('a worker of the operator is not touched', async t => {
  const { says, states, changes, found } = world()
  changes.add(A)
  says([A, 'leaving'])
  says()
  t.strictSame(states(), { '10.0.0.1:8000': 'up' })
  t.notOk(found.has('10.0.0.1:8000'))
})

t.test('of a name, what went drains, and comes back; a doubtful one stays while it answers', async t => {
  const { says, states, isSilent, isPart } = world('drains')
  says([A, 'ready'])
  says()
  t.strictSame(states(), { '10.0.0.1:8000': 'draining' })
  says([A, 'ready'])
  t.strictSame(states(), { '10.0.0.1:8000': 'up' })
  isPart()
  says()
  t.strictSame(states(), { '10.0.0.1:8000': 'up' }, 'what is not whole takes nothing away')
  says([A, 'doubtful'])
  t.strictSame(states(), { '10.0.0.1:8000': 'up' })
  isSilent()
  says([A, 'doubtful'])
  t.strictSame(states(), {})
})

t.test('what has drained because its source said so comes back under the same life', async t => {
  for (const absence of ['drains', 'leaves at once'] as const) {
    const { says, states, changes, found } = world(absence)
    says([A, 'ready', ''])
    if (absence === 'drains') says()
    else says([A, 'leaving', ''])
    t.strictSame(states(), { '10.0.0.1:8000': 'draining' })
    // Its last request has ended.
    changes.remove('10.0.0.1:8000')
    t.strictSame(found.kept.refused, new Map(), absence)
    if (absence === 'leaves at once') {
      says([A, 'leaving', ''])
      t.strictSame(states(), {}, 'not before it is ready')
    }
    says([A, 'ready', ''])
    t.strictSame(states(), { '10.0.0.1:8000': 'up' }, absence)
  }
})

t.test('a pause is kept over a restart of the directory while its source is away', async t => {
  const life = (kept?: KeptFleet) => {
    const workers = new WorkerTable({} as never)
    let finding: FoundList | undefined
    const clock = new SimulatedClock()
    const context = { log: silentLog, clock, self: { tell: () => 'ok' }, schedule: () => ({ cancel() {} }) }
    const fleet: { kept?: KeptFleet } = {}
    const changes = new FleetChanges({
      context: context as never,
      workers,
      specs: [],
      drainMsMax: 1000,
      joined() {},
      left: worker => found.left(worker.spec.id),
      changed() {},
      keep: workers => (fleet.kept = { workers, file: undefined, found: found.kept }),
    })
    changes.begin(kept?.workers ?? [])
    const open = (): WorkerSource => ({ absence: 'leaves at once', finding: () => finding, close() {} })
    const found = new FoundWorkers(context as never, changes, 10, open, kept?.found)
    return {
      fleet,
      pause: () => workers.get('10.0.0.1:8000')?.pause,
      says(state: FoundState): void {
        finding = {
          workers: [{ url: A, state, life: '1', reason: `it is ${state}` }],
          isWhole: true,
          faults: [],
        }
        found.look()
      },
    }
  }
  const first = life()
  first.says('ready')
  first.says('unready')
  t.equal(first.pause(), 'it is unready')
  const second = life(structuredClone(first.fleet.kept))
  t.equal(second.pause(), 'it is unready', 'its source says nothing')
  second.says('ready')
  t.equal(second.pause(), undefined)
  t.equal(life(second.fleet.kept).pause(), undefined)
})

t.test('no more than there are slots, said once', async t => {
  const { says, states, log } = world('drains', 1)
  says([A, 'ready'], [B, 'ready'])
  says([A, 'ready'], [B, 'ready'])
  t.strictSame(states(), { '10.0.0.1:8000': 'up' })
  t.equal(log.lines.filter(({ text }) => text.includes('cannot be used as a worker')).length, 1)
})
