/**
 * Handovers: computed prompts that this engine holds for others, and its way to those of others.
 *
 *   kv_transfer   computed ─▶ held under an id, which is in the answer ─▶ taken once, or let go in time
 *   bootstrap     a room is opened by the request ─▶ computed ─▶ taken once ─▶ the request is answered
 *                 a leg that comes to a room that is not open yet waits for it
 *
 * Taken over `POST /handover {"id": …}` or `{"room": …}`, which stands for the side channels of the real
 * engines (NIXL, the bootstrap server): what comes over it are no blocks, but the word that they are there.
 *
 * Refused, as the real engines do: an id that is not known, was taken, or is too old; a room that does not
 * open in time; params without their members.
 * Bounds   PROMPTS_HELD_MAX prompts; the oldest are let go.
 */

import type { Clock, Timer } from '@homing/base'
import type { HttpTransport } from '@homing/transport'
import { RefusedRequest } from './completion-request.ts'
import type { HandoverWish } from './handover-settings.ts'

/** The path under which prompts are taken over. */
export const HANDOVER_PATH = '/handover'

const PROMPTS_HELD_MAX = 10_000

interface Room {
  isComputed: boolean
  /** The one that takes it over. */
  taker: ((isThere: boolean) => void) | undefined
  /** The request that computes it. */
  taken: ((isTaken: boolean) => void) | undefined
}

export class Handovers {
  readonly #clock: Clock
  readonly #msMax: number
  readonly #held = new Map<string, Timer>()
  readonly #rooms = new Map<string, Room>()

  constructor(clock: Clock, msMax: number) {
    this.#clock = clock
    this.#msMax = msMax
  }

  /** Prompts that are held, and rooms that are open. */
  get count(): number {
    return this.#held.size + this.#rooms.size
  }

  /** Holds a computed prompt. */
  hold(id: string): void {
    const [oldest] = this.#held.keys()
    if (oldest !== undefined && this.#held.size >= PROMPTS_HELD_MAX) this.take(oldest)
    this.#held.set(
      id,
      this.#clock.after(this.#msMax, () => this.#held.delete(id), { unref: true }),
    )
  }

  /** False: it is not held: unknown, taken already, or let go. */
  take(id: string): boolean {
    this.#held.get(id)?.cancel()
    return this.#held.delete(id)
  }

  /** The request of this room is being computed. */
  open(room: string): void {
    const open = this.#rooms.get(room)
    if (open === undefined) this.#rooms.set(room, newRoom())
  }

  /** Its prompt is computed; resolves with whether it was taken over in time. */
  computed(room: string): Promise<boolean> {
    const open = this.#rooms.get(room)
    if (open === undefined) return Promise.resolve(false)
    open.isComputed = true
    if (open.taker !== undefined) {
      open.taker(true)
      return Promise.resolve(true)
    }
    return this.#inTime(resolve => {
      open.taken = resolve
    }).then(isTaken => {
      if (!isTaken) this.close(room)
      return isTaken
    })
  }

  /** The request of the room has ended. */
  close(room: string): void {
    const open = this.#rooms.get(room)
    this.#rooms.delete(room)
    if (open?.isComputed !== true) open?.taker?.(false)
  }

  /** Waits for a room and its prompt; resolves with whether it came in time. */
  async meet(room: string): Promise<boolean> {
    const open = this.#rooms.get(room) ?? newRoom()
    this.#rooms.set(room, open)
    if (open.taker !== undefined) return false
    if (open.isComputed) {
      this.#rooms.delete(room)
      open.taken?.(true)
      return true
    }
    const isThere = await this.#inTime(resolve => {
      open.taker = resolve
    })
    if (this.#rooms.get(room) === open) this.#rooms.delete(room)
    return isThere
  }

  /** This life of the engine is over. */
  clear(): void {
    for (const timer of this.#held.values()) timer.cancel()
    this.#held.clear()
    for (const room of [...this.#rooms.keys()]) this.close(room)
  }

  /** False after `msMax`. */
  #inTime(begin: (resolve: (value: boolean) => void) => void): Promise<boolean> {
    return new Promise(resolve => {
      const timer = this.#clock.after(this.#msMax, () => resolve(false), { unref: true })
      begin(value => {
        timer.cancel()
        resolve(value)
      })
    })
  }
}

function newRoom(): Room {
  return { isComputed: false, taker: undefined, taken: undefined }
}

/** Takes a prompt over from its engine. Throws RefusedRequest where that is not possible. */
export async function takeOver(
  http: HttpTransport,
  wish: Exclude<HandoverWish, { readonly kind: 'offer' }>,
  msMax: number,
): Promise<void> {
  const { host, port } = wish
  const origin = `http://${host.includes(':') && !host.startsWith('[') ? `[${host}]` : host}:${port}`
  const body = JSON.stringify(wish.kind === 'take' ? { id: wish.id } : { room: wish.room })
  const answer = await http
    .fetch(
      {
        origin,
        method: 'POST',
        path: HANDOVER_PATH,
        headers: { 'content-type': 'application/json' },
        body: new TextEncoder().encode(body),
      },
      { timeoutMs: msMax },
    )
    .catch((error: unknown) => ({ status: 0, reason: String(error) }))
  if (answer.status === 200) return
  const why = 'reason' in answer ? answer.reason : `it answered ${answer.status}`
  throw new RefusedRequest(500, 'InternalServerError', `KV load from ${origin} failed: ${why}`)
}

type Body = Readonly<Record<string, unknown>>

/** What a body says of a hand-over. Throws RefusedRequest, as engines do that cannot make sense of it. */
export function readHandoverWish(
  body: Body,
  { role, handover, ranks }: { readonly role: string; readonly handover: string; readonly ranks: number },
  room: string | undefined,
  dpRank: number,
): HandoverWish | undefined {
  if (handover === 'bootstrap') {
    if (role === 'both') return undefined
    const host = body['bootstrap_host']
    const port = body['bootstrap_port'] ?? 8998
    if (room === undefined || !/^\d+$/.test(room) || typeof host !== 'string')
      throw bad('Disaggregated request received without bootstrap room id.')
    if (role === 'prefill' && BigInt(room) % BigInt(ranks) !== BigInt(dpRank))
      throw bad(`bootstrap_room ${room} is not a room of data_parallel_rank ${dpRank}`)
    return { kind: 'meet', host, port: Number(port), room }
  }
  const params = body['kv_transfer_params']
  if (typeof params !== 'object' || params === null) return undefined
  const { do_remote_decode, do_remote_prefill, remote_host, remote_port, remote_request_id } = params as Body
  if (do_remote_decode === true) return { kind: 'offer' }
  if (do_remote_prefill !== true) return undefined
  const isWhole =
    typeof remote_host === 'string' &&
    typeof remote_port === 'number' &&
    typeof remote_request_id === 'string'
  if (!isWhole)
    throw new RefusedRequest(500, 'InternalServerError', 'Got invalid KVTransferParams: members are missing')
  return { kind: 'take', host: remote_host, port: remote_port, id: remote_request_id }
}

function bad(message: string): RefusedRequest {
  return new RefusedRequest(400, 'BadRequestError', message)
}
