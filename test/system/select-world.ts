/** `homing select` with a client, and what its answers are compared with. */

import assert from 'node:assert/strict'
import { hashToBigInt } from '@homing/blocks'
import { type GivenSelectSettings, startSelect } from 'homing'
import type { Test } from 'tap'
import { type Answer, type Call, send, type ThreadEngine } from './fleet.ts'

export const OK = { status: 'ok' }
export const BLOCK = 4
export const MODEL = 'm'
/** A worker without events: what it holds is guessed from reservations. */
export const WORKER = { worker_id: 7, model_name: MODEL, endpoint: 'http://a:1', block_size: BLOCK }
export const NAMES = { model_name: MODEL, routing_group: 'default' }

export const tokensUpTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1)

export interface Select {
  readonly url: string
  call(method: string, path: string, body?: unknown): Promise<Answer>
  post(path: string, body?: unknown): Promise<Answer>
  get(path: string): Promise<Answer>
}

export function clientOf(url: string): Select {
  const call = (method: string, path: string, body?: unknown): Promise<Answer> => {
    const options: Call = body === undefined ? { method } : { method, body }
    return send(url, path, options)
  }
  return { url, call, post: (path, body) => call('POST', path, body), get: path => call('GET', path) }
}

export async function select(t: Test, given: GivenSelectSettings = {}): Promise<Select> {
  const started = await startSelect({
    host: '127.0.0.1',
    port: 0,
    eventThreads: 1,
    logLevel: 'error',
    ...given,
  })
  t.teardown(() => started.stop(0))
  return clientOf(started.url)
}

/** Rows of all groups: worker, rank, prefill tokens, blocks, requests. */
export async function loadsOf({ get }: Select): Promise<readonly (readonly number[])[]> {
  const groups = (await get('/loads')).json as readonly {
    readonly loads: readonly Record<string, number>[]
  }[]
  return groups.flatMap(({ loads }) =>
    loads.map(row => [
      row['worker_id']!,
      row['dp_rank']!,
      row['active_prefill_tokens']!,
      row['active_decode_blocks']!,
      row['active_requests']!,
    ]),
  )
}

/** A worker as its engine is to be added. */
export function workerOf({ url, description }: ThreadEngine, workerId: number, fields: object = {}): object {
  return {
    worker_id: workerId,
    model_name: MODEL,
    endpoint: url,
    block_size: description.blockSizeTokens,
    data_parallel_size: description.ranks.length,
    kv_events_endpoints: Object.fromEntries(description.ranks.map(({ rank, events }) => [rank, events])),
    replay_endpoint: Object.fromEntries(description.ranks.map(({ rank, replay }) => [rank, replay])),
    ...fields,
  }
}

/** From pairs [lo, hi]. */
export function hashesOf(words: Int32Array): readonly bigint[] {
  return Array.from({ length: words.length / 2 }, (_, i) => hashToBigInt(words[2 * i]!, words[2 * i + 1]!))
}

/** As `JSON.parse` reads it. */
export const approximately = (hash: bigint): bigint => BigInt(Number(hash))

export async function compute(engine: ThreadEngine, tokens: readonly number[]): Promise<void> {
  const answer = await send(engine.url, '/v1/completions', { body: { prompt: tokens, max_tokens: 1 } })
  assert.equal(answer.status, 200, answer.text)
}
