/**
 * A source that floods the only event thread: another engine's index still equals its cache, and losses are
 * counted.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import process from 'node:process'
import { createInterface, type Interface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { seededRandom } from '@homing/base'
import t from 'tap'
import { assertIndexEqualsCaches, startFleet, until } from './fleet.ts'

const PUBLISHER = fileURLToPath(new URL('flood-publisher.ts', import.meta.url))
const FLOOD_BATCHES = 100_000
const ROUNDS_MIN = 5
const REQUESTS_PER_ROUND = 8

class Flood {
  readonly endpoint: string
  readonly #child: ChildProcess
  readonly #lines: Interface

  private constructor(child: ChildProcess, lines: Interface, endpoint: string) {
    this.#child = child
    this.#lines = lines
    this.endpoint = endpoint
  }

  static async open(): Promise<Flood> {
    const child = spawn(process.execPath, [PUBLISHER], { stdio: ['pipe', 'pipe', 'inherit'] })
    process.once('exit', () => child.kill('SIGKILL'))
    const lines = createInterface({ input: child.stdout })
    const [line] = (await once(lines, 'line')) as [string]
    return new Flood(child, lines, line.split(' ')[1]!)
  }

  begin(): void {
    this.#child.stdin!.write('begin\n')
  }

  /** Batches that were sent. */
  async end(): Promise<number> {
    this.#child.stdin!.write('end\n')
    const [line] = (await once(this.#lines, 'line')) as [string]
    return Number(line.split(' ')[1])
  }

  close(): void {
    this.#child.kill('SIGKILL')
  }
}

t.test(
  'a source that floods starves no other, and is honest about its losses',
  { timeout: 600_000 },
  async t => {
    const flood = await Flood.open()
    t.teardown(() => flood.close())
    const fleet = await startFleet({
      engines: [{ blocks: 200 }, { publishesEvents: false }],
      workerQuery: (_, position) => (position === 1 ? `?events=${flood.endpoint.split(':').at(-1)}` : ''),
      router: ['--router-event-threads', '1'],
      trust: undefined,
    })
    t.teardown(() => fleet.stop())
    const [quiet, flooded] = fleet.engines as [(typeof fleet.engines)[0], (typeof fleet.engines)[0]]
    const keyOf = async (url: string) => (await fleet.worker(url)).worker_keys[0]!
    for (const { url } of fleet.engines) {
      await until('the event socket is connected', async () =>
        (await keyOf(url)).events!.state === 'live' ? true : undefined,
      )
    }
    const { instance_id } = await fleet.worker(quiet.url)
    const random = seededRandom(1)
    const prompt = () => Array.from({ length: 70 }, () => 33 + random.below(90))

    flood.begin()
    let seen = 0
    let rounds = 0
    for (; rounds < ROUNDS_MIN || seen < FLOOD_BATCHES; rounds++) {
      for (let i = 0; i < REQUESTS_PER_ROUND; i++) {
        const answer = await fleet.send('/v1/completions', {
          body: {
            model: 'homing-sim',
            prompt: prompt(),
            max_tokens: 4,
            nvext: { backend_instance_id: instance_id },
          },
        })
        t.equal(answer.status, 200, answer.text)
      }
      await fleet.caughtUp([quiet])
      await assertIndexEqualsCaches(fleet, [quiet])
      seen = (await keyOf(flooded.url)).events!.last_sequence ?? 0
    }
    t.comment(`${rounds} rounds while the flood was on`)
    const sent = await flood.end()
    t.ok(sent > FLOOD_BATCHES, `${sent} batches were sent`)

    const { trust, events } = await keyOf(quiet.url)
    t.equal(trust, 'exact')
    t.equal(events!.gaps, 0, 'the other source was not disturbed')

    const last = await until('all of the flood is over', async () => {
      const { trust, trust_reason, worker, events } = await keyOf(flooded.url)
      const { state, last_sequence, batches, gaps } = events!
      if (state !== 'live' || last_sequence! < sent) return undefined
      return { trust, trust_reason, worker, gaps: gaps!, missed: last_sequence! + 1 - batches! }
    })
    t.comment(`${last.missed} of ${sent} batches are missing, ${last.gaps} gaps, trust ${last.trust}`)
    t.equal(last.trust, last.missed === 0 ? 'exact' : 'partial', last.trust_reason)
    t.equal(last.gaps > 0, last.missed > 0, 'what is missing is a gap')
    const metrics = (await fleet.send('/metrics')).text
    const lost = new RegExp(`homing_listener_lost_frames_total\\{worker="${last.worker}"\\} (\\d+)`).exec(
      metrics,
    )
    t.ok(lost !== null && Number(lost[1]) <= last.missed, `${lost?.[1]} of them found no room`)
  },
)
