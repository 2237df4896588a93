/** Answers of real routers in many states, by route. */

import { createPublisher, type StoredBlock } from '@homing/publisher'
import {
  freeReplicaPorts,
  RouterClient,
  send,
  startEngines,
  startFleet,
  startTestRouter,
  until,
} from '../system/fleet.ts'

const MODEL = 'homing-sim'

/** 'GET /workers' → its answers. */
export type Samples = Map<string, unknown[]>

const LOOKED_AT = [
  '/workers',
  '/queue',
  '/replicas',
  '/what_if',
  '/busy_threshold',
  '/decisions',
  '/actors',
  '/',
  '/dump',
  '/health',
  '/ready',
  '/v1/models',
]

const BLOCK = 16
const TOKENS = Array.from({ length: 6 * BLOCK }, (_, i) => 40 + i)

/** Queries a fleet with known prompts, one whose engines publish no events, and routers with replica sync. */
export async function collectSamples(
  collect: (route: string, status: number, answer: unknown) => void,
): Promise<void> {
  const look = async (client: RouterClient): Promise<void> => {
    for (const path of LOOKED_AT) await get(client, path, path)
    const { decisions } = (await client.send('/decisions')).json as { decisions: { id: string }[] }
    for (const { id } of decisions.slice(0, 5)) await get(client, '/decisions/:id', `/decisions/${id}`)
    await get(client, '/v1/models/:id', `/v1/models/${MODEL}`)
    const [worker] = await client.workers()
    await get(client, '/workers/:id/diagnosis', `/workers/${worker!.id}/diagnosis`)
    await get(client, '/actors/flight', '/actors/flight')
  }
  const get = async (client: RouterClient, path: string, url: string): Promise<void> => {
    const { status, json } = await client.send(url)
    collect(`GET ${path}`, status, json)
  }
  const post = async (client: RouterClient, path: string, url: string, body: unknown, method = 'POST') => {
    const { status, json } = await client.send(url, { method, ...(body !== undefined && { body }) })
    collect(`${method} ${path}`, status, json)
  }
  const work = async (client: RouterClient, count: number): Promise<void> => {
    const answers = Array.from({ length: count }, (_, i) =>
      client.send(i % 2 === 0 ? '/v1/chat/completions' : '/v1/completions', {
        headers: { 'x-homing-session-id': `session ${i % 3}` },
        body: {
          model: MODEL,
          ...(i % 2 === 0
            ? { messages: [{ role: 'user', content: `${'a system prompt '.repeat(20)}${i % 4}` }] }
            : { prompt: `${'a prompt of many words '.repeat(20)}${i % 5}` }),
          max_tokens: 3,
          stream: i % 3 === 0,
        },
      }),
    )
    await Promise.all(answers)
    await client.drained()
  }

  const fleet = await startFleet({
    engines: [{}, { blocks: 200 }],
    otherWorkers: ['http://127.0.0.1:9'],
    trust: undefined,
    router: ['--router-session-affinity-ttl-secs', '60'],
  })
  try {
    await until('two are up', async () =>
      (await fleet.workers()).filter(({ state }) => state === 'up').length === 2 ? true : undefined,
    )
    await look(fleet)
    await work(fleet, 30)
    await look(fleet)
    await post(fleet, '/route', '/route', { model: MODEL, prompt: 'a prompt' })
    await post(fleet, '/route', '/route', { model: MODEL, prompt: 'a prompt of many words '.repeat(20) })
    const asked = { model: MODEL, token_ids: Array.from({ length: 40 }, (_, i) => i + 5) }
    const { token_ids: computed } = asked
    await fleet.send('/v1/completions', { body: { model: MODEL, prompt: computed, max_tokens: 1 } })
    await fleet.caughtUp(fleet.engines)
    const program = async (name: string, body: unknown): Promise<void> =>
      post(fleet, `/v1/router/${name}`, `/v1/router/${name}`, body)
    for (const [choose, mark, free] of [
      ['best_worker', 'mark_prefill_complete', 'free'],
      ['new', 'mark_prefill', 'mark_free'],
    ] as const) {
      await program(choose, { ...asked, request_id: 'a' })
      await program('potential_loads', asked)
      await program('find_matches', asked)
      await program('query', asked)
      await program(mark, { request_id: 'a' })
      await program(free, { request_id: 'a' })
    }
    await get(fleet, '/v1/router/dump_events', '/v1/router/dump_events')
    await post(fleet, '/busy_threshold', '/busy_threshold', {
      model: MODEL,
      active_decode_blocks_threshold: 0.9,
    })
    await post(fleet, '/what_if', '/what_if', { minutes: 5, profile: 'mock-simple', anyway: true })
    await get(fleet, '/what_if', '/what_if')
    await until('it is answered', async () => {
      const { state } = (await fleet.send('/what_if')).json as { state: string }
      return state === 'running' ? undefined : true
    })
    await post(fleet, '/what_if', '/what_if', undefined, 'DELETE')
    await look(fleet)
    const { engines, stop } = await startEngines([{}])
    const url = engines[0]!.url
    const id = url.slice('http://'.length)
    await post(fleet, '/workers', '/workers', { url })
    await post(fleet, '/workers/:id/drain', `/workers/${id}/drain`, undefined)
    await until('it has left', async () => ((await fleet.workers()).length === 3 ? true : undefined))
    await post(fleet, '/workers', '/workers', { url })
    await post(fleet, '/workers/:id', `/workers/${id}`, undefined, 'DELETE')
    await stop()
  } finally {
    await fleet.stop()
  }

  await withLabels(client => get(client, '/v1/router/dump_events', '/v1/router/dump_events'))

  const plain = await startEngines([{ speed: 1, profile: 'h100-8b', blocks: 400 }, { speed: 1 }])
  const plane = await freeReplicaPorts(2)
  const routers = [0, 1].map(i =>
    startTestRouter(
      plain.engines.map(({ url }, engine) => `${url}?events=${9 + engine}`),
      ['--router-replica-sync', '--router-queue-threshold', '0.01', '--router-policy', 'linear', ...plane(i)],
    ),
  )
  try {
    const clients = (await Promise.all(routers)).map(({ url }) => new RouterClient(url))
    await until('each knows the other', async () => {
      const { replicas } = (await clients[0]!.send('/replicas')).json as { replicas: { state: string }[] }
      return replicas[0]?.state === 'live' ? true : undefined
    })
    // Nothing of what waits goes on before it was looked at.
    const hang = (how: 'generation' | 'off') =>
      Promise.all(plain.engines.map(({ url }) => send(url, '/admin/faults', { body: { hang: how } })))
    await hang('generation')
    const long = Array.from({ length: 24 }, (_, i) =>
      clients[i % 2]!.send('/v1/completions', {
        body: {
          model: MODEL,
          prompt: `${i} ${'many words that nobody has cached '.repeat(150)}`,
          max_tokens: 30,
        },
      }),
    )
    await until('something waits', async () => {
      const { requests } = (await clients[0]!.send('/queue')).json as { requests: number }
      return requests > 0 ? true : undefined
    })
    await look(clients[0]!)
    await hang('off')
    await Promise.all(long)
    await look(clients[0]!)
  } finally {
    for (const router of routers) await (await router).stop(0)
    await plain.stop()
  }
}

/** A router whose worker says of its blocks which experts they are of, and which are in pools. */
async function withLabels(look: (client: RouterClient) => Promise<void>): Promise<void> {
  const { engines, stop } = await startEngines([{ publishesEvents: false, blockSizeTokens: BLOCK }])
  const ends: (() => unknown)[] = [stop]
  try {
    const sockets = { eventsEndpoint: 'tcp://127.0.0.1:0', replayEndpoint: 'tcp://127.0.0.1:0' }
    const publisher = await createPublisher({ ...sockets, blockSizeTokens: BLOCK })
    ends.push(() => publisher.close())
    const expert = { layerId: 3, expertId: 1 }
    const pooled = { state: 'cxl_pooled', poolId: 1, accessibleWorkers: [11n] } as const
    const labels: readonly Pick<StoredBlock, 'moeMetadata' | 'cxlMetadata'>[] = [
      { moeMetadata: expert, cxlMetadata: { state: 'local_gpu' } },
      { moeMetadata: { ...expert, expertGroup: 2 }, cxlMetadata: pooled },
      { cxlMetadata: pooled },
      { moeMetadata: { ...expert, expertGroup: 2 }, cxlMetadata: pooled },
      { cxlMetadata: pooled },
      { moeMetadata: expert, cxlMetadata: { ...pooled, poolId: 2, members: { heat: 1 } } },
    ]
    const blocks = labels.map((label, i) => ({
      ...{ hash: BigInt(i + 1), tokens: TOKENS.slice(i * BLOCK, (i + 1) * BLOCK) },
      ...label,
    }))
    publisher.stored(undefined, blocks)
    // These are in pools alone from now on.
    publisher.removed([6n, 5n, 4n])
    const [events, replay] = [publisher.endpoint, publisher.replayEndpoint].map(at => at?.split(':').at(-1))
    const url = `${engines[0]!.url}?events=${events}&replay=${replay}&block_size=${BLOCK}`
    const router = await startTestRouter([url], [])
    ends.push(() => router.stop(0))
    const client = new RouterClient(router.url)
    await until('its labels are known', async () => {
      const { text } = await client.send('/v1/router/dump_events')
      return text.includes('moe_metadata') && text.includes('cxl_state_transition') ? true : undefined
    })
    await look(client)
  } finally {
    for (const end of ends.reverse()) await end()
  }
}
