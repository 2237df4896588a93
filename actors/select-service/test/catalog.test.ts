/** The catalog of workers: against a list of workers, whatever happens to it. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { fleetName, isWhole, keyOf, lifecycleOf, SelectCatalog } from '../src/catalog.ts'
import type { WorkerSpec } from '../src/requests.ts'

const SLOTS_MAX = 6
const NO_THRESHOLDS = {
  decodeBlocksFraction: undefined,
  prefillTokens: undefined,
  prefillFraction: undefined,
}

const catalogOf = (ignoresCaches = false): SelectCatalog =>
  new SelectCatalog({
    shardCount: 2,
    workerSlotsMax: SLOTS_MAX,
    ignoresCaches,
    busyThresholds: NO_THRESHOLDS,
  })

function specOf(fields: Partial<WorkerSpec> = {}): WorkerSpec {
  return {
    workerId: 7n,
    model: 'm',
    group: 'default',
    endpoint: 'http://a',
    blockSizeTokens: 16,
    rankFirst: 0,
    rankCount: 1,
    eventsEndpoints: {},
    replayEndpoints: {},
    maxBatchedTokens: undefined,
    kvBlocks: undefined,
    maxModelTokens: undefined,
    taints: [],
    wanted: 'schedulable',
    ...fields,
  }
}

const specs = fc
  .record({
    workerId: fc.bigInt({ min: 0n, max: 3n }),
    model: fc.constantFrom('m', 'n'),
    group: fc.constantFrom('default', 'g'),
    endpoint: fc.constantFrom(undefined, 'http://a', 'http://b'),
    blockSizeTokens: fc.constantFrom(undefined, 16, 32),
    rankFirst: fc.constantFrom(0, 3),
    rankCount: fc.integer({ min: 1, max: 4 }),
    port: fc.constantFrom(undefined, 5001, 5002, 5003),
    wanted: fc.constantFrom('schedulable' as const, 'draining' as const, 'unschedulable' as const),
  })
  .map(({ port, ...fields }) =>
    specOf({
      ...fields,
      eventsEndpoints: port === undefined ? {} : { [fields.rankFirst]: `tcp://h:${port}` },
    }),
  )

const steps = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ do: fc.constant('put' as const), spec: specs }) },
    fc.record({ do: fc.constant('remove' as const), workerId: fc.bigInt({ min: 0n, max: 3n }) }),
    fc.record({ do: fc.constant('end' as const) }),
  ),
  { maxLength: 60 },
)

/** What a rank keeps its slot for. */
const placeOf = (spec: WorkerSpec): string =>
  JSON.stringify([
    isWhole(spec),
    spec.model,
    spec.group,
    spec.blockSizeTokens,
    spec.rankFirst,
    spec.rankCount,
    spec.eventsEndpoints,
  ])

t.test('workers, slots and conflicts are those of a list, whatever happened before', async t => {
  const agree = fc.property(steps, list => {
    const catalog = catalogOf()
    let workers: WorkerSpec[] = []
    const ending: number[] = []
    /** Ids of those that have slots, and of those that wait for some. */
    let ranked = new Set<bigint>()
    let waiting: bigint[] = []
    const ofId = (id: bigint): WorkerSpec => workers.find(({ workerId }) => workerId === id)!
    const countOf = (some: Iterable<WorkerSpec>): number =>
      [...some].reduce((sum, { rankCount }) => sum + rankCount, 0)
    /** Those that get slots now, the first to wait first. */
    const admit = (begun: readonly { readonly instanceId: bigint }[]): void => {
      const ids: bigint[] = []
      for (const id of waiting) {
        const taken = ending.length + countOf([...ranked].map(ofId))
        if (taken + ofId(id).rankCount > SLOTS_MAX) break
        ranked.add(id)
        ids.push(...Array(ofId(id).rankCount).fill(id))
      }
      waiting = waiting.filter(id => !ranked.has(id))
      assert.deepEqual(
        begun.map(({ instanceId }) => instanceId),
        ids,
      )
    }
    const leave = ({ workerId }: WorkerSpec): void => {
      ranked = new Set([...ranked].filter(id => id !== workerId))
      waiting = waiting.filter(id => id !== workerId)
    }
    for (const step of list) {
      if (step.do === 'end') {
        const slot = ending.pop()
        if (slot !== undefined) admit(catalog.end(catalog.registry.ofSlot(slot)!, 1))
        check()
        continue
      }
      const ended = (gone: readonly { readonly workerSlot: number }[]): void => {
        ending.push(...gone.map(({ workerSlot }) => workerSlot))
      }
      if (step.do === 'remove') {
        const known = workers.find(({ workerId }) => workerId === step.workerId)
        if (known === undefined) {
          assert.throws(() => catalog.remove('remove', step.workerId), { code: 'HOMING_SERVICE_NOT_FOUND' })
          continue
        }
        const { gone, begun } = catalog.remove('remove', step.workerId)
        assert.equal(gone.length, ranked.has(known.workerId) ? known.rankCount : 0)
        assert.equal(begun.length, 0)
        ended(gone)
        leave(known)
        workers = workers.filter(worker => worker !== known)
        check()
        continue
      }
      const { spec } = step
      const before = workers.find(({ workerId }) => workerId === spec.workerId)
      const others = workers.filter(worker => worker !== before && isWhole(worker))
      const put = () => catalog.put(spec, 1)
      const stays = before !== undefined && placeOf(before) === placeOf(spec)
      const all = countOf(workers.filter(worker => worker !== before)) + spec.rankCount
      if (!stays && all > SLOTS_MAX) {
        assert.throws(put, { code: 'HOMING_SERVICE_FULL' })
        continue
      }
      if (!stays && isWhole(spec)) {
        const contradicts = others.some(
          ({ model, group, blockSizeTokens }) =>
            model === spec.model && group === spec.group && blockSizeTokens !== spec.blockSizeTokens,
        )
        const sockets = Object.values(spec.eventsEndpoints)
        const clashes = others.some(({ eventsEndpoints }) =>
          Object.values(eventsEndpoints).some(socket => sockets.includes(socket)),
        )
        if (contradicts || clashes) {
          assert.throws(put, { code: 'HOMING_SERVICE_CONFLICT' })
          continue
        }
      }
      const { gone, begun } = put()
      const leaves = !stays && before !== undefined
      assert.equal(gone.length, leaves && ranked.has(before.workerId) ? before.rankCount : 0)
      ended(gone)
      if (leaves) leave(before)
      workers = before === undefined ? [...workers, spec] : workers.map(w => (w === before ? spec : w))
      if (!stays && isWhole(spec)) waiting.push(spec.workerId)
      admit(begun)
      check()
    }

    function check(): void {
      assert.deepEqual(
        [...catalog.workers].map(({ workerId }) => workerId),
        workers.map(w => w.workerId),
      )
      const ranks = [...catalog.workers].flatMap(worker => worker.ranks)
      const slots = [...ranks.map(({ workerSlot }) => workerSlot), ...ending]
      assert.equal(new Set(slots).size, slots.length, 'no two have one slot')
      assert.equal(catalog.registry.slotsTaken, slots.length)
      assert.equal(catalog.rankCount, countOf(workers))
      const { workers: records } = catalog.fleet()
      assert.deepEqual(
        records.map(({ id, models, keys }) => [id, models[0]!.name, keys.map(({ key }) => key)]),
        workers
          .filter(({ workerId }) => ranked.has(workerId))
          .map(({ workerId, rankFirst, rankCount, ...spec }) => [
            String(workerId),
            fleetName(spec),
            Array.from({ length: rankCount }, (_, i) =>
              keyOf({ instanceId: workerId, dpRank: rankFirst + i }),
            ),
          ]),
      )
      assert.equal(new Set(records.map(({ joinedMs }) => joinedMs)).size, records.length)
      assert.equal(new Set(records.map(({ instanceId }) => instanceId)).size, records.length)
    }
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('a clash of sockets changes nothing, and a worker may keep its own', async t => {
  const catalog = catalogOf()
  catalog.put(specOf({ eventsEndpoints: { 0: 'tcp://h:1' }, replayEndpoints: { 0: 'tcp://h:2' } }), 1)
  catalog.put(specOf({ workerId: 8n, eventsEndpoints: { 0: 'tcp://h:3' } }), 1)
  const clashing = specOf({ workerId: 8n, eventsEndpoints: { 0: 'tcp://h:2' } })
  t.throws(() => catalog.put(clashing, 1), {
    message: /add worker 8: it names tcp:\/\/h:2 for its events, which worker 7 names for its replay/,
  })
  t.equal(catalog.get(8n)!.ranks[0]!.endpoint, 'tcp://h:3')
  const moved = catalog.put(specOf({ eventsEndpoints: { 0: 'tcp://h:2' } }), 1)
  t.equal(moved.gone.length, 1)
  t.doesNotThrow(() => catalog.put(specOf({ workerId: 9n, eventsEndpoints: { 0: 'tcp://h:1' } }), 1))
})

t.test('the trust in a rank, and its state, are what a router would see', async t => {
  const catalog = catalogOf()
  const { worker } = catalog.put(specOf({ wanted: 'draining', taints: ['x'], maxModelTokens: 9 }), 1)
  t.match(catalog.fleet().workers[0], {
    state: 'draining',
    isDraining: true,
    taints: ['x'],
    models: [{ name: 'm:default', maxModelTokens: 9 }],
    keys: [{ key: '7/0', trust: 'approximate', epoch: 0 }],
  })
  t.equal(catalog.begin(worker.ranks[0]!.workerSlot), 1)
  t.equal(catalog.fleet().workers[0]!.keys[0]!.epoch, 1)
  const blind = catalogOf(true)
  blind.put(specOf(), 1)
  t.match(blind.fleet().workers[0]!.keys[0], { trust: 'none', trustReason: /caches are ignored/ })
})

t.test('at the bound a worker is replaced, and begins when the slots of its last life are free', async t => {
  const catalog = catalogOf()
  const { begun } = catalog.put(specOf({ rankCount: SLOTS_MAX }), 1)
  const { worker, gone } = catalog.put(specOf({ rankCount: SLOTS_MAX, blockSizeTokens: 32 }), 1)
  t.strictSame(gone, begun)
  t.equal(lifecycleOf(worker), 'incomplete')
  t.throws(() => catalog.put(specOf({ workerId: 8n }), 1), { code: 'HOMING_SERVICE_FULL' })
  t.throws(() => catalog.put(specOf({ workerId: 8n, endpoint: undefined }), 1), {
    message: /it has 1 ranks, and there is room for 0 of 6 \(--worker-slots-max\)/,
  })
  t.strictSame(
    gone.slice(1).flatMap(rank => catalog.end(rank, 1)),
    [],
  )
  t.equal(catalog.end(gone[0]!, 1).length, SLOTS_MAX)
  t.equal(lifecycleOf(catalog.get(7n)!), 'schedulable')
})

t.test('the fleet is made once for each change', async t => {
  const catalog = catalogOf()
  catalog.put(specOf(), 1)
  const fleet = catalog.fleet()
  t.equal(catalog.fleet(), fleet)
  catalog.touch()
  t.not(catalog.fleet(), fleet)
  t.ok(catalog.fleet().version > fleet.version)
})
