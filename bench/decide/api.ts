/**
 * The part `api` of the bench: what a decision costs a program that asks for it (`KvRouter.bestWorker`,
 * `markPrefillComplete`, `free`) beside one that the router makes for a client of its own.
 *
 *   inside   in the gateway, as an exchange does it: the body of a completion of token ids is read and
 *            hashed, the placement asked for at the queue, its first token told, the placement settled
 *   api      a program makes the body of its token ids, and asks the gateway three times; there the same
 *            happens. It adds the body, three messages to an actor and back, and the reservation
 *
 * The actors are the real ones: tokenizer, queue, router and tracker, with the gateway's own reader,
 * placements and reservations; they are shared, and the ways take turns. CPU time of the thread, so that what
 * else the machine does counts less. The ratio is the median over rounds of api ÷ inside in the same round.
 */

import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type ActorRef, createActorSystem, defineActor, type Reply } from '@homing/actor'
import type { ChosenWorker } from '@homing/actors/console'
import { type TokenizerMessage, tokenizer, tokenizerArgsFromSettings } from '@homing/actors/tokenizer'
import { type ErrorRecord, fromErrorRecord, silentLog } from '@homing/base'
import { parseSettings, routerCommand } from '@homing/config'
import { NO_ALIASES } from '@homing/fleet'
import { Bodies } from '@homing/http'
import { callerDelivery } from '@homing/placement'
import { selectionSettings } from '@homing/selection'
import type { GatewayArgs } from '../../actors/gateway/src/gateway-args.ts'
import type { GatewayMetrics } from '../../actors/gateway/src/gateway-metrics.ts'
import { type Placement, Placements } from '../../actors/gateway/src/placement.ts'
import { RequestReader } from '../../actors/gateway/src/request-reader.ts'
import { Reservations } from '../../actors/gateway/src/reservations.ts'
import { ResponseHolders } from '../../actors/gateway/src/response-holders.ts'
import { SliceTrust } from '../../actors/gateway/src/slice-trust.ts'
import { TokenWorkers } from '../../actors/gateway/src/tokens/token-workers.ts'
import { promptBody } from '../../packages/homing/src/kv-router-options.ts'
import type { Measure, Measures, Target } from '../harness.ts'
import { median } from '../statistics.ts'
import { fleetOf, promptOf, SEL_PROMPT_TOKENS } from './fixture.ts'
import { type Arm, BATCH, BURST, House, type HouseParts, OPEN, PROMPTS } from './whole.ts'

const TIMEOUT = { timeout: 60_000 } as const

export interface ApiParameters {
  readonly fleets: readonly number[]
  readonly rounds: number
}

type DoorMessage =
  | { readonly type: 'inside'; readonly count: number; readonly reply: Reply<void> }
  | {
      readonly type: 'bestWorker'
      readonly body: Uint8Array
      readonly id: string | undefined
      readonly reply: Reply<ChosenWorker | ErrorRecord>
    }
  | {
      readonly type: 'reservedPrefilled'
      readonly id: string
      readonly reply: Reply<ErrorRecord | undefined>
    }
  | { readonly type: 'freeReserved'; readonly id: string; readonly reply: Reply<ErrorRecord | undefined> }

interface DoorArgs extends HouseParts {
  readonly tokenizer: ActorRef<TokenizerMessage>
  readonly workers: number
}

const { settings } = parseSettings(routerCommand, [], {})

/** What a gateway does of this, with the gateway's own parts. */
const door = defineActor(
  import.meta.url,
  'door',
)<DoorMessage, DoorArgs>({
  reentrant: true,
  setup({ clock }, { router, queue, tracker, tokenizer: reading, workers }) {
    const fleet = fleetOf(workers)
    let number = 0
    const newId = () => `id-${number++}`
    const placements = new Placements({
      ...{ queue, router, gateway: { name: 'door', life: 'one' }, askMsMax: 10_000, queueMsMax: 0, newId },
    })
    const tokens = new TokenWorkers({ tokenizer: reading, askMsMax: 10_000, modelTokens: () => undefined })
    const reader = new RequestReader({
      args: {
        tokenizer: reading,
        router,
        readMsMax: 60_000,
        askMsMax: 10_000,
        bodyBytesMax: settings.bodyBytesMax,
        affinityHeaders: [],
        // The reader needs no more of them.
      } as unknown as GatewayArgs,
      clock,
      bodies: new Bodies(settings.bodiesBytesMax, () => new Error('no room')),
      metrics: { hintIgnored() {}, keyRefused() {} } as unknown as GatewayMetrics,
      newId,
      fleet: () => fleet,
      names: () => NO_ALIASES,
      responses: new ResponseHolders(0),
      slices: new SliceTrust(0),
      tokens,
    })
    const reservations = new Reservations({
      ...{ clock, log: silentLog, placements, router, tracker, fleet: () => fleet, askMsMax: 10_000 },
      read: (body, id) => reader.placeable(body, id),
      openMax: 10_000,
      idleMsMax: 600_000,
    })
    const bodies = Array.from({ length: PROMPTS }, (_, seed) => bodyOf(seed))
    const open: Placement[] = []
    const settle = (placement: Placement) => {
      const { delivery, wasTaken } = callerDelivery(10, 100, undefined)
      placement.settle(delivery, wasTaken, false)
    }
    return {
      async inside({ count, reply }) {
        for (let i = 0; i < count; i++) {
          if (i % BURST === 0) await nextTurn()
          const request = await reader.placeable(bodies[i % PROMPTS]!, undefined)
          const placement = placements.ask({ ...request, isStream: true }, undefined, 0)
          const answer = await placement.answer
          assert.ok('worker' in answer)
          tracker.tell({ type: 'prefillComplete', decisionId: placement.id, teaches: true })
          placement.firstToken(10)
          open.push(placement)
          if (open.length > OPEN) settle(open.shift()!)
        }
        for (const placement of open.splice(0)) settle(placement)
        reply()
      },
      bestWorker: async ({ body, id, reply }) => reply(await reservations.bestWorker(body, id)),
      reservedPrefilled: ({ id, reply }) => reply(reservations.prefilled(id)),
      freeReserved: ({ id, reply }) => reply(reservations.free(id)),
    }
  },
})

function bodyOf(seed: number): Uint8Array {
  return promptBody('choose a worker', promptOf(SEL_PROMPT_TOKENS, seed), { model: 'm' })
}

export async function measureApi({ fleets, rounds }: ApiParameters): Promise<Measures> {
  const measures: Record<string, Measure> = {}
  for (const workers of fleets) {
    const system = await createActorSystem({})
    const arm: Arm = { name: 'api', settings: selectionSettings({ policy: 'auto' }), share: 0, queue: 'off' }
    const house = new House(system, arm, workers)
    const reading = system.spawn(tokenizer, {
      name: 'tokenizer',
      args: tokenizerArgsFromSettings(settings, { loaded: new Map() }),
    })
    reading.tell({ type: 'fleet', fleet: fleetOf(workers) })
    const ref = system.spawn(door, { name: 'door', args: { ...house.parts, tokenizer: reading, workers } })
    const program = new Program(ref)
    const ways = [() => ref.ask({ type: 'inside', count: BATCH }, TIMEOUT), () => program.requests(BATCH)]
    for (const way of ways) await way()
    const times: [number[], number[]] = [[], []]
    for (let round = 0; round < rounds; round++)
      for (let turn = 0; turn < ways.length; turn++) {
        const i = (round + turn) % ways.length
        const from = process.threadCpuUsage()
        await ways[i]!()
        const { user, system: kernel } = process.threadCpuUsage(from)
        times[i]!.push((user + kernel) / BATCH)
      }
    await house.end()
    await system.shutdown()
    const ratios = times[1].map((time, round) => time / times[0][round]!)
    measures[`inside, W=${workers}`] = { value: median(times[0]), unit: 'µs' }
    measures[`api, W=${workers}`] = { value: median(times[1]), unit: 'µs' }
    measures[`api ÷ inside, W=${workers}`] = { value: median(ratios), unit: '×' }
  }
  return measures
}

export function apiTargets(fleets: readonly number[]): Readonly<Record<string, Target>> {
  return Object.fromEntries(
    fleets.map((workers): [string, Target] => [`api ÷ inside, W=${workers}`, { floor: 1.2, goal: 1.1 }]),
  )
}

/** Asks as KvRouter does. */
class Program {
  readonly #door: ActorRef<DoorMessage>
  readonly #prompts = Array.from({ length: PROMPTS }, (_, seed) => promptOf(SEL_PROMPT_TOKENS, seed))
  #asked = 0

  constructor(ref: ActorRef<DoorMessage>) {
    this.#door = ref
  }

  async requests(count: number): Promise<void> {
    const open: string[] = []
    for (let i = 0; i < count; i++) {
      if (i % BURST === 0) await nextTurn()
      const id = `request-${this.#asked++}`
      const body = promptBody('choose a worker', this.#prompts[i % PROMPTS]!, { model: 'm' })
      const best = await this.#door.ask({ type: 'bestWorker', body, id }, TIMEOUT)
      if ('code' in best) throw fromErrorRecord(best)
      this.#sure(await this.#door.ask({ type: 'reservedPrefilled', id }, TIMEOUT))
      open.push(id)
      if (open.length > OPEN)
        this.#sure(await this.#door.ask({ type: 'freeReserved', id: open.shift()! }, TIMEOUT))
    }
    for (const id of open) this.#sure(await this.#door.ask({ type: 'freeReserved', id }, TIMEOUT))
  }

  #sure(error: ErrorRecord | undefined): void {
    if (error !== undefined) throw fromErrorRecord(error)
  }
}
