/**
 * Mistaken lives: lives of an engine that pass for others, and engines that are mistaken for others. Rows of
 * the fault matrix.
 *
 * UNTOLD_ROWS are those of which no sign reaches the router for some time. No observer can be right about
 * them; the page says for how long.
 */

import type { CheckpointStore } from '@homing/actors/listener'
import type { Row } from './fault-row.ts'
import type { ObservedFleet } from './observed-fleet.ts'

/** More than a listener remembers. */
const MANY = 1500
const WORK_MS = 1000

const events =
  (faults: object) =>
  ({ fleet }: ObservedFleet): void =>
    fleet.engines[0]!.engine.setFaults({ events: faults })

export const LIFE_ROWS: readonly Row[] = [
  {
    name: 'restart in place',
    needs: 'events',
    deal: ({ fleet }) => fleet.engines[0]!.engine.restartInPlace(),
  },
  {
    name: `restart in place, behind a replay of ${MANY} batches, before one is heard`,
    needs: 'events',
    deal: async observed => {
      const { fleet } = observed
      await fleet.stopRouter()
      await observed.burst(MANY)
      await observed.workPastRouter(WORK_MS)
      await observed.idle()
      observed.begin(true)
      await fleet.startRouter()
      fleet.engines[0]!.engine.restartInPlace()
    },
  },
  {
    name: 'restart in place, first batch lost, from the number that is expected',
    needs: 'events',
    // The engine does not say what happened before that sequence.
    ends: ['partial', 'exact'],
    deal: observed => {
      fromExpected(observed)
      events({ drop: 1 })(observed)
    },
  },
  {
    name: 'restart in place, as many batches lost as were heard',
    needs: 'events',
    // The first beginning of a prompt that is computed again has another hash; what else is of the life
    // before stays.
    ends: ['partial', 'exact'],
    hidesRemovals: true,
    deal: restartUnheard,
  },
  {
    name: 'the same, behind a silence of 2.5 s',
    needs: 'events',
    ends: ['partial', 'exact'],
    hidesRemovals: true,
    deal: async observed => {
      await observed.idle()
      await observed.lookFor(2500)
      await restartUnheard(observed)
    },
  },
  {
    name: 'checkpoint of another process',
    needs: 'replay',
    hasCheckpoints: true,
    deal: observed =>
      betweenRouters(observed, () => observed.fleet.simulation.settle(observed.engine.restart())),
  },
  {
    name: 'checkpoint of another life of the same process',
    needs: 'replay',
    hasCheckpoints: true,
    deal: observed => betweenRouters(observed, () => observed.engine.restartInPlace()),
  },
  {
    name: 'replay port of a neighbour, both begin',
    needs: 'ports',
    observed: { mistake: 'replay of a neighbour' },
    isThereAtStart: true,
    ends: ['partial'],
    deal() {},
  },
  {
    name: 'replay port of a neighbour, late join',
    needs: 'ports',
    observed: { mistake: 'replay of a neighbour' },
    ends: ['partial'],
    deal: observed => betweenRouters(observed, () => observed.engine.restartInPlace()),
  },
  {
    name: 'two ranks on one socket',
    needs: 'events',
    observed: { mistake: 'two ranks on one socket' },
    isThereAtStart: true,
    ends: ['partial', 'approximate'],
    deal() {},
  },
  {
    name: 'one events port for two workers',
    needs: 'events',
    observed: { mistake: 'one port for two workers' },
    isThereAtStart: true,
    ends: ['approximate'],
    deal() {},
  },
  {
    name: 'removals of an unknown kind',
    needs: 'events',
    ends: ['partial'],
    hidesRemovals: true,
    deal: events({ unknownRemovals: 5 }),
  },
  { name: 'removals under a group that never stored', needs: 'vLLM', deal: events({ removalGroup: 5 }) },
  { name: 'removals under no group', needs: 'vLLM', deal: events({ removalGroup: 'none' }) },
  { name: 'another group from here on', needs: 'vLLM', mayLack: true, deal: events({ group: 3 }) },
  { name: 'removal of the last copy only', needs: 'vLLM', engine: { removals: 'last' }, deal() {} },
  { name: 'what is reused is reported again', needs: 'vLLM', observed: { hasReports: true }, deal() {} },
  {
    name: 'salts that events do not name',
    needs: 'vLLM',
    engine: { eventForm: 'vllm-array-8' },
    observed: { hasSalts: true },
    mayLack: true,
    deal() {},
  },
]

/**
 * Hashes do not show another life: vLLM 0.32 draws another seed with each start only for hash functions that
 * are not cryptographic.
 */
const SAME_HASHES = { hashSeed: 7 }

export const UNTOLD_ROWS: readonly Row[] = [
  {
    name: 'restart in place, as many batches lost as were heard, the same hashes',
    needs: 'events',
    engine: SAME_HASHES,
    deal: restartUnheard,
  },
  {
    name: 'restart in place of an engine that numbers on, no batch lost, the same hashes',
    needs: 'events',
    engine: SAME_HASHES,
    deal: fromExpected,
  },
]

function fromExpected({ engine }: ObservedFleet): void {
  engine.restartInPlace(engine.state().ranks[0]!.nextSequence)
}

/** What the router hears next has the number that it expects. */
async function restartUnheard(observed: ObservedFleet): Promise<void> {
  const { nextSequence } = observed.engine.state().ranks[0]!
  observed.engine.restartInPlace()
  events({ drop: nextSequence })(observed)
  await observed.burst(nextSequence)
}

/** `happens` while there is no router. */
async function betweenRouters(observed: ObservedFleet, happens: () => unknown): Promise<void> {
  await observed.fleet.stopRouter()
  await happens()
  await observed.workPastRouter(WORK_MS)
  observed.begin(true)
  await observed.fleet.startRouter()
}

export class StoredCheckpoints implements CheckpointStore {
  readonly #files = new Map<string, Uint8Array>()

  async read(_directory: string, source: string): Promise<Uint8Array | undefined> {
    return this.#files.get(source)
  }

  async write(_directory: string, source: string, pieces: readonly Uint8Array[]): Promise<void> {
    this.#files.set(source, Buffer.concat(pieces))
  }

  async touch(): Promise<void> {}

  async remove(_directory: string, source: string): Promise<void> {
    this.#files.delete(source)
  }
}
