/**
 * The part `api` of the bench: what a decision costs a program that asks for it (`KvRouter.bestWorker`,
 * `markPrefillComplete`, `free`) beside one that the router makes for a client of its own.
 *
 *   inside   in the gateway, as an exchange does it: the body of a completion of token ids is read and
 *            hashed, the placement asked for at the queue, its first token told, the placement settled
 *   of ids   the same, but of ids that the gateway has: what is left of it without JSON
 *   api      a program gives its token ids, and asks the gateway three times; there the same happens as of
 *            ids. It adds a copy of the ids, three messages to an actor and back, and the reservation
 *
 * The actors are the real ones: tokenizer, queue, router and tracker, with the gateway's own reader,
 * placements and reservations; they are shared, and the ways take turns. CPU time of the thread, so that what
 * else the machine does counts less. A ratio is the median over rounds of api ÷ the other in the same round.
 */

import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type ActorRef, createActorSystem, defineActor, type Reply } from '@homing/actor'
import type { ChosenWorker, ProgramPrompt } from '@homing/actors/console'
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
import { RequestMetrics } from '../../actors/gateway/src/request-metrics.ts'
import { RequestReader } from '../../actors/gateway/src/request-reader.ts'
import { Reservations } from '../../actors/gateway/src/reservations.ts'
import { ResponseHolders } from '../../actors/gateway/src/response-holders.ts'
import { SliceTrust } from '../../actors/gateway/src/slice-trust.ts'
import { TokenWorkers } from '../../actors/gateway/src/tokens/token-workers.ts'
import { promptOf as questionOf, type TokenIds } from '../../packages/homing/src/kv-router-options.ts'
import { Metrics, MODEL_LABELS_DEFAULT } from '../../packages/metrics/src/index.ts'
import type { Measure, Measures } from '../harness.ts'
import { median } from '../statistics.ts'
import { fleetOf, promptOf, SEL_PROMPT_TOKENS } from './fixture.ts'
import { type Arm, BATCH, BURST, House, type HouseParts, OPEN, PROMPTS } from './whole.ts'

const TIMEOUT = { timeout: 60_000 } as const

export interface ApiParameters {
  readonly fleets: readonly number[]
  readonly rounds: number
}

type DoorMessage =
  | {
      readonly type: 'inside'
      readonly of: 'body' | 'ids'
      readonly count: number
      readonly reply: Reply<void>
    }
  | {
      readonly type: 'bestWorker'
      readonly prompt: ProgramPrompt
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
    const requests = new RequestMetrics(new Metrics(), MODEL_LABELS_DEFAULT, clock)
    const reservations = new Reservations({
      metrics: { requests, decided() {} },
      ...{ clock, log: silentLog, placements, router, tracker, fleet: () => fleet, askMsMax: 10_000 },
      read: (prompt, id) => reader.placeable(prompt, id),
      openMax: 10_000,
      idleMsMax: 600_000,
    })
    const prompts = { body: promptsOf(bodyOf), ids: promptsOf(seed => askedOf(idsOf(seed))) }
    const open: Placement[] = []
    const settle = (placement: Placement) => {
      const { delivery, wasTaken } = callerDelivery(10, 100, undefined)
      placement.settle(delivery, wasTaken, false)
    }
    return {
      async inside({ of, count, reply }) {
        for (let i = 0; i < count; i++) {
          if (i % BURST === 0) await nextTurn()
          const request = await reader.placeable(prompts[of][i % PROMPTS]!, undefined)
          const placement = placements.ask({ ...request, isStream: true }, undefined, 0)
          const answer = await placement.answer
          assert.ok('worker' in answer)
          requests.decided(request, answer, true)
          tracker.tell({ type: 'prefillComplete', decisionId: placement.id, teaches: true })
          requests.firstToken(request.model, 10, answer.worker)
          placement.firstToken(10)
          open.push(placement)
          if (open.length > OPEN) settle(open.shift()!)
        }
        for (const placement of open.splice(0)) settle(placement)
        reply()
      },
      bestWorker: async ({ prompt, id, reply }) => reply(await reservations.bestWorker(prompt, id)),
      reservedPrefilled: ({ id, reply }) => reply(reservations.prefilled(id)),
      freeReserved: ({ id, reply }) => reply(reservations.free(id)),
    }
  },
})

function promptsOf<T>(of: (seed: number) => T): readonly T[] {
  return Array.from({ length: PROMPTS }, (_, seed) => of(seed))
}

function idsOf(seed: number): Int32Array {
  return promptOf(SEL_PROMPT_TOKENS, seed)
}

/** As a client sends it. */
function bodyOf(seed: number): ProgramPrompt {
  return { body: new TextEncoder().encode(JSON.stringify({ token_ids: [...idsOf(seed)], model: 'm' })) }
}

/** As KvRouter gives it to the gateway. */
function askedOf(tokens: TokenIds): ProgramPrompt {
  return questionOf('choose a worker', tokens, { model: 'm' }, true)
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
    const ways = [
      () => ref.ask({ type: 'inside', of: 'body', count: BATCH }, TIMEOUT),
      () => ref.ask({ type: 'inside', of: 'ids', count: BATCH }, TIMEOUT),
      () => program.requests(BATCH),
    ]
    for (const way of ways) await way()
    const times: [number[], number[], number[]] = [[], [], []]
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
    const [inside, ofIds, api] = times
    const ratioTo = (others: readonly number[]): Measure => ({
      value: median(api.map((time, round) => time / others[round]!)),
      unit: '×',
    })
    measures[`inside, W=${workers}`] = { value: median(inside), unit: 'µs' }
    measures[`inside of ids, W=${workers}`] = { value: median(ofIds), unit: 'µs' }
    measures[`api, W=${workers}`] = { value: median(api), unit: 'µs' }
    measures[`api ÷ inside, W=${workers}`] = ratioTo(inside)
    measures[`api ÷ inside of ids, W=${workers}`] = ratioTo(ofIds)
  }
  return measures
}

/** Asks as KvRouter does. */
class Program {
  readonly #door: ActorRef<DoorMessage>
  readonly #prompts = promptsOf(seed => [...idsOf(seed)])
  #asked = 0

  constructor(ref: ActorRef<DoorMessage>) {
    this.#door = ref
  }

  async requests(count: number): Promise<void> {
    const open: string[] = []
    for (let i = 0; i < count; i++) {
      if (i % BURST === 0) await nextTurn()
      const id = `request-${this.#asked++}`
      const prompt = askedOf(this.#prompts[i % PROMPTS]!)
      const best = await this.#door.ask({ type: 'bestWorker', prompt, id }, TIMEOUT)
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
