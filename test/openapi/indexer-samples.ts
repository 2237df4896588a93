/** Answers of real indexers in many states, by route. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createPublisher } from '@homing/publisher'
import { freePort } from '@homing/transport/testing'
import { send, startEngines, startProcess, type TestProcess, until } from '../system/fleet.ts'
import type { Collect } from './parts.ts'

const MODEL = 'tiny'
const BLOCK = 4
const PROMPT = Array.from({ length: 12 }, (_, i) => i + 1)
/** Begins as the other does, so that the dump has a block with two children. */
const FORK = [...PROMPT.slice(0, 8), 50, 51, 52, 53]
/** Local hashes of the first two blocks of it, as a program without wide numbers writes them. */
const HASHES = ['14643705804678351452', '16777012769546811212']

/** Bodies that are accepted, once each endpoint of /register is replaced by an engine's. */
export const BODIES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'POST /register': {
    instance_id: 7,
    model_name: MODEL,
    routing_group: 'default',
    dp_rank: 0,
    block_size: BLOCK,
    endpoint: 'tcp://127.0.0.1:5557',
    replay_endpoint: 'tcp://127.0.0.1:6557',
  },
  'POST /unregister': { instance_id: '7', model_name: MODEL, routing_group: 'default', dp_rank: 0 },
  'POST /query': {
    model_name: MODEL,
    routing_group: 'default',
    token_ids: PROMPT,
    lora_name: null,
    cache_salt: null,
    moe_query: null,
  },
  'POST /query_by_hash': {
    model_name: MODEL,
    routing_group: 'default',
    block_hashes: HASHES,
    moe_query: null,
  },
  'POST /register_peer': { url: 'http://127.0.0.1:1' },
  'POST /deregister_peer': { url: 'http://127.0.0.1:1' },
}

/**
 * Asks an indexer with nothing, with engines, with one that is not there; one that has asked it; and one that
 * goes on from a checkpoint.
 */
export async function collectIndexerSamples(collect: Collect): Promise<void> {
  const { engines, stop } = await startEngines([
    { blockSizeTokens: BLOCK },
    { blockSizeTokens: BLOCK, offersReplay: false },
  ])
  const folder = await mkdtemp(join(tmpdir(), 'homing-openapi-'))
  const processes: TestProcess[] = []
  const start = async (argv: readonly string[] = []): Promise<TestProcess> => {
    const started = await startProcess('indexer', ['--host', '127.0.0.1', '--port', '0', ...argv])
    processes.push(started)
    return started
  }
  const ask = async (at: TestProcess, route: string, given?: object) => {
    const [method, path] = route.split(' ') as [string, string]
    const body = given ?? BODIES[route]
    const { status, text, headers } = await send(at.url, path, {
      method,
      ...(body === undefined ? {} : { body }),
    })
    const isJson = headers['content-type'] === 'application/json'
    collect(route, status, isJson ? JSON.parse(text) : text)
    return isJson ? JSON.parse(text) : text
  }
  const look = async (at: TestProcess): Promise<void> => {
    for (const path of ['/workers', '/dump', '/peers', '/health', '/metrics', '/'])
      await ask(at, `GET ${path}`)
    for (const path of ['/query', '/query_by_hash']) await ask(at, `POST ${path}`)
  }
  const socketsOf = ({ description }: (typeof engines)[number]) => {
    const { events, replay } = description.ranks[0]!
    return { endpoint: events, ...(replay === undefined ? {} : { replay_endpoint: replay }) }
  }
  try {
    const first = await start()
    await look(first)
    const { replay_endpoint: _, ...registration } = BODIES['POST /register']!
    await ask(first, 'POST /register', { ...registration, ...socketsOf(engines[0]!) })
    const { endpoint } = socketsOf(engines[1]!)
    await ask(first, 'POST /register', { ...registration, instance_id: 8, endpoint })
    const nobody = `tcp://127.0.0.1:${await freePort()}`
    await ask(first, 'POST /register', { ...registration, instance_id: 9, endpoint: nobody })
    await until('both engines are followed', async () => {
      const workers = (await send(first.url, '/workers')).json as readonly { readonly status: string }[]
      return workers.filter(({ status }) => status === 'active').length === 2 ? true : undefined
    })
    for (const prompt of [PROMPT, FORK])
      for (const { url } of engines) await send(url, '/v1/completions', { body: { prompt, max_tokens: 1 } })
    await until('both are known to hold the prompts', async () => {
      const body = { ...BODIES['POST /query'], token_ids: FORK }
      const { scores } = (await send(first.url, '/query', { body })).json
      return scores['7']?.['0'] === 12 && scores['8']?.['0'] === 12 ? true : undefined
    })
    await look(first)
    await askOfLabels()
    await ask(first, 'POST /register', { ...registration, ...socketsOf(engines[0]!) })
    await ask(first, 'POST /register', { instance_id: 7 })
    await ask(first, 'POST /query', { ...BODIES['POST /query'], model_name: 'other' })
    await ask(first, 'POST /register_peer')
    await ask(first, 'GET /peers')
    await ask(first, 'POST /deregister_peer')
    await ask(first, 'POST /reopen_logs')

    async function askOfLabels(): Promise<void> {
      const publisher = await createPublisher({
        eventsEndpoint: 'tcp://127.0.0.1:0',
        replayEndpoint: 'tcp://127.0.0.1:0',
        blockSizeTokens: BLOCK,
      })
      try {
        const cxlMetadata = { state: 'cxl_pooled', poolId: 1, accessibleWorkers: [11n] } as const
        const block = { hash: 1n, tokens: PROMPT.slice(0, BLOCK) }
        publisher.stored(undefined, [{ ...block, moeMetadata: { layerId: 3, expertId: 1 }, cxlMetadata }])
        const labelled = {
          ...registration,
          model_name: 'labelled',
          replay_endpoint: publisher.replayEndpoint,
        }
        await ask(first, 'POST /register', { ...labelled, instance_id: 10, endpoint: publisher.endpoint })
        const silent = { replay_endpoint: undefined, endpoint: `tcp://127.0.0.1:${await freePort()}` }
        await ask(first, 'POST /register', { ...labelled, ...silent, instance_id: 11 })
        const query = { ...BODIES['POST /query'], model_name: 'labelled', moe_query: { layer_id: 3 } }
        await until('its labels are known', async () => {
          const { cxl_accessible_scores: pooled } = (await send(first.url, '/query', { body: query })).json
          return pooled?.['11']?.['0'] === 1 ? true : undefined
        })
        await ask(first, 'POST /query', query)
        const byHash = {
          ...BODIES['POST /query_by_hash'],
          model_name: 'labelled',
          moe_query: { layer_id: 3 },
        }
        await ask(first, 'POST /query_by_hash', byHash)
      } finally {
        await publisher.close()
      }
    }

    const second = await start([
      ...['--model-name', MODEL, '--block-size', String(BLOCK), '--workers', `8=${endpoint}`],
      ...['--peers', first.url, '--peer-wait', '3s'],
    ])
    await look(second)
    await ask(first, 'POST /unregister')

    const { replay_endpoint: replay, ...followed } = socketsOf(engines[0]!)
    const kept = [
      ...[
        '--checkpoint-dir',
        folder,
        '--checkpoint-interval',
        '1s',
        '--model-name',
        MODEL,
        '--block-size',
        String(BLOCK),
      ],
      ...['--workers', `7=${followed.endpoint}?replay=${new URL(replay!).port}`],
    ]
    const before = await start(kept)
    await until('it has written a checkpoint', async () => {
      const [{ listeners }] = (await send(before.url, '/workers')).json
      return listeners[0].saved_sequence === null ? undefined : true
    })
    await look(before)
    before.kill('SIGTERM')
    await before.ended
    const after = await start(kept)
    await until('it went on from its checkpoint', async () => {
      const [{ listeners }] = (await send(after.url, '/workers')).json
      return listeners[0].resumed_sequence === null ? undefined : true
    })
    await look(after)
  } finally {
    for (const one of processes) one.kill('SIGKILL')
    await stop()
    await rm(folder, { recursive: true, force: true })
  }
}
