/** Answers of a real slot tracker in many states, by route. */

import { freePortPairs, send, startProcess } from '../system/fleet.ts'
import type { Collect } from './parts.ts'

const NAME = { model_name: 'tiny', routing_group: 'default' }
const PROMPT = { ...NAME, sequence_hashes: [11, '-12'], new_isl_tokens: 40 }

/** Bodies that are accepted, in this order. */
export const SLOT_BODIES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'POST /register': { ...NAME, worker_id: 7, block_size: 16, dp_start: 0, dp_size: 2 },
  'POST /add': { ...PROMPT, worker_id: '7', request_id: 'a', dp_rank: 1 },
  'POST /potential_loads': PROMPT,
  'POST /prefill_complete': { ...NAME, request_id: 'a' },
  'POST /free': { ...NAME, request_id: 'a' },
  'POST /replica_sync/register_peer': { endpoint: 'tcp://127.0.0.1:1' },
  'POST /replica_sync/deregister_peer': { endpoint: 'tcp://127.0.0.1:1' },
  'POST /unregister': { ...NAME, worker_id: 7 },
}
const GETS = ['/workers', '/loads', '/replica_sync/peers', '/health', '/metrics', '/']

export async function collectSlotSamples(collect: Collect): Promise<void> {
  const [port] = await freePortPairs(1)
  const listening = ['--host', '127.0.0.1', '--port', '0']
  const slots = await startProcess('slots', [...listening, '--replica-endpoint', `tcp://127.0.0.1:${port}`])
  const ask = async (route: string, body?: object): Promise<void> => {
    const [method, path] = route.split(' ') as [string, string]
    const { status, text, headers } = await send(slots.url, path, { method, ...(body && { body }) })
    collect(route, status, headers['content-type'] === 'application/json' ? JSON.parse(text) : text)
  }
  const look = async (): Promise<void> => {
    for (const path of GETS) await ask(`GET ${path}`)
  }
  try {
    await look()
    for (const [route, body] of Object.entries(SLOT_BODIES)) {
      await ask(route, body)
      await ask(route, {})
      await look()
    }
    await ask('POST /register', SLOT_BODIES['POST /register'])
    await ask('POST /register', SLOT_BODIES['POST /register'])
    await ask('POST /add', { ...SLOT_BODIES['POST /add'], worker_id: 8 })
    await ask('POST /reopen_logs')
  } finally {
    slots.kill('SIGKILL')
  }
}
