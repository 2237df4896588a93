/** The operator hears of workers whose learned figures are far from those of their twins. */

import { createTestSystem } from '@homing/actor/testing'
import { recordingLog } from '@homing/base'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import { EngineBook, LearnedValues } from '@homing/load'
import t from 'tap'
import { tracker } from '../src/index.ts'
import { comparedWorkers, OddAlarm } from '../src/odd-alarm.ts'

const ASK = { timeout: '1s' } as const
const GATEWAY = { name: 'gateway', life: 'one' }

interface Given {
  readonly engine?: string
  readonly models?: readonly { readonly name: string; readonly base?: string }[]
  readonly taints?: readonly string[]
  readonly kvBlocks?: number
}

function workersOf(given: readonly Given[]): readonly WorkerRecord[] {
  return given.map(({ kvBlocks, ...worker }, workerSlot) => ({
    ...{ id: `w${workerSlot}`, engine: 'vllm', models: [{ name: 'm' }], taints: [], state: 'up', ...worker },
    kvBlocks: kvBlocks === undefined ? undefined : { value: kvBlocks, source: 'probed' },
    keys: [{ key: `w${workerSlot}/0`, workerSlot }],
  })) as unknown as readonly WorkerRecord[]
}

t.test('twins have the same engine, models, taints, and about as large a cache', async t => {
  const kinds = (given: readonly Given[]): readonly number[] => {
    const compared = comparedWorkers(workersOf(given))
    const bySlot = compared.toSorted((a, b) => a.workerSlot - b.workerSlot).map(({ kind }) => kind)
    return bySlot.map(kind => bySlot.indexOf(kind))
  }
  t.strictSame(kinds([{}, {}, { engine: 'sglang' }, {}]), [0, 0, 2, 0])
  t.strictSame(kinds([{}, { models: [{ name: 'n' }] }, {}]), [0, 1, 0])
  t.strictSame(kinds([{}, { models: [{ name: 'm' }, { name: 'lora', base: 'm' }] }]), [0, 0])
  t.strictSame(kinds([{ taints: ['a', 'b'] }, { taints: ['b', 'a'] }, {}]), [0, 0, 2])
  t.strictSame(
    kinds([{ kvBlocks: 2000 }, { kvBlocks: 1000 }, { kvBlocks: 1100 }, { kvBlocks: 2300 }, {}]),
    [0, 1, 1, 0, 4],
  )
})

t.test('a fleet of faults does not fill the log', async t => {
  const log = recordingLog()
  const alarm = new OddAlarm(log)
  const learned = new LearnedValues()
  const book = new EngineBook({ workerSlotsMax: 64, learned })
  alarm.takeFleet(workersOf(Array.from({ length: 60 }, () => ({}))))
  let nowMs = 0
  for (let round = 0; round < 30; round++) {
    for (let slot = 0; slot < 60; slot++) {
      const id = `${round} ${slot}`
      book.sent(id, slot, { promptTokens: 2000, newTokens: 2000, nowMs })
      nowMs += slot < 25 ? 900 : 80
      book.firstToken(id, nowMs)
      book.ended(id, nowMs, 1, 0)
    }
    alarm.look(learned, nowMs)
  }
  const warned = log.lines.filter(({ level }) => level === 'warn')
  t.ok(warned.length >= 10 && warned.length <= 13, `${warned.length} lines for 25 workers`)
  t.equal([...Array(60).keys()].filter(slot => alarm.marks(`w${slot}/0`).length > 0).length, 25)
})

t.test('a worker that is slower than its twins is told of, marked, and no longer when it is not', async t => {
  const log = recordingLog()
  const system = createTestSystem({ log })
  t.teardown(() => system.shutdown())
  const args = { workerSlotsMax: 8, requestsMax: 100, idleMsMax: 600_000 }
  const ref = system.spawn(tracker, { name: 'tracker', args })
  ref.tell({ type: 'fleet', fleet: { version: 1, workers: workersOf([{}, {}, {}]) } as Fleet })
  let requests = 0
  const serve = async (rounds: number, slowMs: number): Promise<void> => {
    for (let i = 0; i < rounds * 3; i++) {
      const decisionId = String(requests++)
      const booking = { decisionId, gateway: GATEWAY, worker: `w${i % 3}/0`, workerSlot: i % 3 }
      const size = {
        sequenceHashes: new Int32Array(0),
        promptTokens: 2000,
        prefillTokens: 2000,
        isStream: true,
        stepTokens: 8192,
      }
      await ref.ask({ type: 'book', booking: { ...booking, ...size } }, ASK)
      await system.advance(i % 3 === 1 ? slowMs : 80)
      ref.tell({ type: 'prefillComplete', decisionId })
      ref.tell({ type: 'free', decisionId, outputTokens: 1, cachedShare: 0 })
      await system.advance('2s')
    }
  }
  const marks = async () =>
    (await ref.ask({ type: 'loads' }, ASK)).rows.map(({ odd = [] }) => odd.map(({ figure }) => figure))
  const told = () =>
    log.lines
      .filter(({ text }) => text.startsWith('what was learned of a worker is'))
      .map(({ level, fields }) => [level, fields['worker'], fields['figure'], fields['against']])
  await serve(30, 500)
  t.strictSame(await marks(), [[], ['prefill'], []])
  t.strictSame(told(), [['warn', 'w1/0', 'prefill', 'twins']])
  await serve(300, 80)
  t.strictSame(await marks(), [[], [], []])
  t.strictSame(told().slice(1), [['info', 'w1/0', 'prefill', 'twins']])
})
