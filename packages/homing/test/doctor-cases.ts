/**
 * Engines that are set up wrongly, and what is typed to look at them; docs/doctor.md shows what is printed.
 */

import { closedPort, type DoctorWorld, type Ending, type GivenDoctorSettings } from './doctor-world.ts'

export interface DoctorCase {
  /** Marks its place in docs/doctor.md. */
  readonly name: string
  /** What it must not overlook. */
  readonly finding: RegExp
  readonly exitCode: number
  /** Of the first worker. */
  readonly trust: string
  readonly start: (t: Ending, world: DoctorWorld) => Promise<readonly string[]>
  readonly settings?: GivenDoctorSettings
}

export const DOCTOR_CASES: readonly DoctorCase[] = [
  {
    name: 'all is well',
    finding: /told of the \d+ blocks of its own request/,
    exitCode: 0,
    trust: 'exact',
    settings: { sends: true },
    start: async (t, world) => [(await world.engine(t)).url],
  },
  {
    name: 'no KV events',
    finding: /it reports no KV events/,
    exitCode: 1,
    trust: 'approximate',
    start: async (t, world) => [(await world.engine(t, { publishesEvents: false })).url],
  },
  {
    name: 'events without replay',
    finding: /no replay: what it cached before/,
    exitCode: 1,
    trust: 'partial',
    start: async (t, world) => [(await world.engine(t, { offersReplay: false })).url],
  },
  {
    name: 'a wrong events port',
    finding: /no event socket at \S+: nothing listens there/,
    exitCode: 1,
    trust: 'approximate',
    settings: { timeoutMs: 2000 },
    async start(t, world) {
      const { engine, url, replayPort } = await world.engine(t, { version: '0.25.1' })
      // This version does not tell its ports.
      engine.setFaults({ sources: 'none' })
      const wrong = await closedPort()
      world.name(wrong, 5558)
      return [`${url}?events=${wrong}&replay=${replayPort}`]
    },
  },
  {
    name: 'two ranks on one port',
    finding: /it names \S+:5557 for its events, which \S+\/1 names for its events/,
    exitCode: 1,
    trust: 'approximate',
    async start(t, world) {
      const { engine, url } = await world.engine(t, { ranks: 2 })
      engine.setFaults({ sources: 'first' })
      return [url]
    },
  },
  {
    name: 'another block size',
    finding: /a block size of 32 is given, but its configuration says 16/,
    exitCode: 1,
    trust: 'approximate',
    start: async (t, world) => [`${(await world.engine(t)).url}?block_size=32`],
  },
  {
    name: 'a key',
    finding: /it wants an API key/,
    exitCode: 3,
    trust: 'none',
    start: async (t, world) => [(await world.engine(t, { apiKey: 'secret' })).url],
  },
  {
    name: 'another topic',
    finding: /its events have the topic "kv-events", but "kv" is given/,
    exitCode: 1,
    trust: 'approximate',
    start: async (t, world) => [`${(await world.engine(t, { topic: 'kv-events' })).url}?topic=kv`],
  },
  {
    name: 'two engines on one port',
    finding: /for its events, which \S+ names for its events: nobody can tell/,
    exitCode: 1,
    trust: 'approximate',
    async start(t, world) {
      const first = await world.engine(t)
      const second = await world.engine(t)
      second.engine.setFaults({ sources: 'none' })
      world.name(first.eventsPort + 10, 5567)
      world.name(first.eventsPort + 1010, 6567)
      return [first.url, `${second.url}?events=${first.eventsPort}&replay=${second.replayPort}`]
    },
  },
  {
    name: 'late events',
    finding: /its events are late/,
    exitCode: 1,
    trust: 'partial',
    settings: { sends: true },
    async start(t, world) {
      const { engine, url } = await world.engine(t)
      engine.setFaults({ events: { delay: 1000, delayMs: 800 } })
      return [url]
    },
  },
  {
    name: 'a prefill engine without a connector',
    finding: /its answer hands nothing over/,
    exitCode: 1,
    trust: 'exact',
    settings: { sends: true },
    async start(t, world) {
      // As vLLM without --kv-transfer-config: it takes no notice of kv_transfer_params.
      const prefill = await world.engine(t, { handover: 'bootstrap' })
      const decode = await world.engine(t, { role: 'decode' })
      return [`${prefill.url}?role=prefill`, `${decode.url}?role=decode`]
    },
  },
]
