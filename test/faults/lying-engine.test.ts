/** An engine whose events omit removals: its answers show it, and the trust follows. */

import { seededRandom } from '@homing/base'
import type { EngineSettings } from '@homing/engine'
import { decodeKvBatch, encodeEventFrames, encodeKvBatch, parseEventFrames } from '@homing/protocol'
import type { Transport } from '@homing/transport'
import t, { type Test } from 'tap'
import { BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from '../simulation/simulated-fleet.ts'

const RELAY_PORT = 7557
/** With these prompts in turn, each is evicted before it comes again. */
const PROMPTS = 12
const PROMPT_BLOCKS = 4
const CACHE_BLOCKS = 25
const WAIT_MS_MAX = 240_000

/** Forwards the batches of an engine under its sequences; while it lies, it omits removals. */
class LyingRelay {
  lies = true
  readonly #close: () => void

  private constructor(close: () => void) {
    this.#close = close
  }

  static async open(transport: Transport, engineEndpoint: string): Promise<LyingRelay> {
    const { messages } = transport
    const publisher = await messages.publish({ endpoint: `tcp://127.0.0.1:${RELAY_PORT}` })
    const relay: LyingRelay = new LyingRelay(() => {
      subscriber.close()
      publisher.close()
    })
    const subscriber = messages.subscribe(
      { endpoint: engineEndpoint, topic: '' },
      {
        message(frames) {
          if (!relay.lies) return publisher.send(frames)
          const { sequence, payload } = parseEventFrames(frames)
          const { timestampSeconds, rank, events } = decodeKvBatch(payload)
          const told = events.filter(({ kind }) => kind !== 'removed')
          publisher.send(
            encodeEventFrames(
              '',
              sequence,
              encodeKvBatch({ timestampSeconds, rank, events: told }, 'vllm-map'),
            ),
          )
        },
        connected() {},
        disconnected() {},
      },
    )
    return relay
  }

  close(): void {
    this.#close()
  }
}

async function start(t: Test, engine: Partial<EngineSettings>) {
  let relay: LyingRelay | undefined
  const fleet = await SimulatedFleet.start({
    seed: 1,
    engines: [{ blocks: CACHE_BLOCKS, ...engine }],
    query: `?events=${RELAY_PORT}`,
    beforeRouter: async ({ network, engines }) => {
      relay = await LyingRelay.open(network.transport(), engines[0]!.events)
    },
  })
  t.teardown(async () => {
    relay!.close()
    await fleet.stop()
  })
  // Two rebuilds in a row have a pause between them, and the start was one.
  await fleet.simulation.run(undefined, { within: 6000 })
  const random = seededRandom(7)
  const prompts = Array.from({ length: PROMPTS }, () =>
    Array.from({ length: PROMPT_BLOCKS * BLOCK_SIZE_TOKENS + 1 }, () => 33 + random.below(90)),
  )
  let turn = 0
  const work = async (requests: number): Promise<void> => {
    for (let i = 0; i < requests; i++) {
      const prompt = prompts[turn++ % PROMPTS]
      await fleet.ask({}, { model: MODEL, prompt, max_tokens: 1, stream: i % 2 === 0 })
    }
  }
  /** Sends `requests` at once: what waits finds its blocks evicted by those before it. */
  const together = async (requests: number): Promise<void> => {
    const replies = Array.from({ length: requests }, () =>
      fleet.send({}, { model: MODEL, prompt: prompts[turn++ % PROMPTS], max_tokens: 1 }, WAIT_MS_MAX),
    )
    await fleet.simulation.settle(Promise.all(replies), { within: WAIT_MS_MAX })
  }
  const key = async () => (await fleet.workers())[0]!.worker_keys[0]!
  return { fleet, relay: relay!, work, together, key }
}

t.test('an engine that hides removals is found out by its answers, and credited less', async t => {
  const { fleet, work, key } = await start(t, { offersReplay: false })
  await work(PROMPTS)
  t.equal((await key()).trust, 'exact', 'nothing is known against it yet')
  await work(8)
  const { trust, trust_reason: reason, audit } = await key()
  t.equal(trust, 'partial')
  t.match(reason, /^4 of \d answers found less cached than the events say/)
  t.match(audit, { state: 'audited', over_predictions: 4 })

  const { decisions } = (await fleet.view('/decisions?limit=1')) as {
    decisions: readonly { candidates: readonly { credit_factor: number }[] }[]
  }
  t.ok(decisions[0]!.candidates[0]!.credit_factor < 0.9, 'what was measured counts')

  const { gaps, epoch } = (await key()).events!
  await work(5 * PROMPTS)
  t.equal((await key()).trust, 'partial', 'as long as it lies')
  t.match((await key()).events, { gaps, epoch }, 'rebuilt at most once a minute')
})

t.test('one that lied for a while is rebuilt from its replay, and exact once answers agree', async t => {
  const { fleet, relay, work, key } = await start(t, {})
  await work(PROMPTS)
  relay.lies = false
  await work(8)
  t.equal((await key()).trust, 'partial')
  await fleet.simulation.run(undefined, { within: 10_000 })
  t.match((await key()).trust_reason, /answers found less.*every batch since the engine started is applied$/)
  // Later requests hit what it holds now: answers can agree.
  for (let i = 0; i < 24; i++) {
    const prompt = Array.from({ length: 50 }, (_, at) => 40 + (at % 50))
    await fleet.ask({}, { model: MODEL, prompt, max_tokens: 1 })
  }
  await work(PROMPTS)
  t.equal((await key()).trust, 'exact', (await key()).trust_reason)
})

t.test('an honest engine whose cache is too small for what waits at it stays exact', async t => {
  const { relay, work, together, key } = await start(t, { sequencesMax: 1 })
  relay.lies = false
  await work(4)
  for (let round = 0; round < 12; round++) await together(PROMPTS)
  const { trust, trust_reason: reason, audit } = await key()
  t.ok(
    audit.over_predictions >= 8,
    `${audit.over_predictions} of ${audit.requests} found less than predicted`,
  )
  t.equal(trust, 'exact', reason)
})
