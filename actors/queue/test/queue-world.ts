/**
 * A queue between a router of which the test says how much room it has, and a tracker that the test plays.
 */

import { defineActor } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { ErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { Decision, RoutingRequest } from '@homing/placement'
import type { Test } from 'tap'
import { type PlaceResult, type QueueArgs, queue, type WaitingHints } from '../src/index.ts'

type Arm<T extends RouterMessage['type']> = Extract<RouterMessage, { readonly type: T }>

/** What the router does, and what it was asked and told. */
export interface RouterScript {
  /** Requests that it has room for. */
  room: number
  /** Whether there is none for this one, however much there is else. */
  isBusy: (request: RoutingRequest) => boolean
  cachedTokens: number
  /** The worker to which the session of a request is bound. */
  boundWorker: (request: RoutingRequest) => string | undefined
  refusal: ErrorRecord | undefined
  /** False: messages are kept, and handled in order by `answerKept`. */
  answers: boolean
  readonly kept: (() => void)[]
  /** 'decide a', 'measure', 'settled a', …: in order. */
  readonly log: string[]
  readonly booked: Set<string>
}

const scripts = new Map<string, RouterScript>()

const scriptedRouter = defineActor(
  import.meta.url,
  'scriptedRouter',
)<Arm<'decide'> | Arm<'measure'> | Arm<'settled'> | Arm<'gatewayStarted'>, { readonly name: string }>({
  setup(_context, { name }) {
    const script = scripts.get(name)!
    const answer = (run: () => void): void => {
      if (script.answers) run()
      else script.kept.push(run)
    }
    return {
      decide({ id, request, roomRules, reply }) {
        script.log.push(`decide ${id}`)
        answer(() => {
          if (script.refusal !== undefined) reply({ kind: 'refused', error: script.refusal })
          else if (roomRules !== undefined && (script.room <= 0 || script.isBusy(request)))
            reply({
              kind: 'busy',
              cachedTokens: script.cachedTokens,
              boundWorker: script.boundWorker(request),
              falls: 0,
            })
          else {
            script.room--
            script.booked.add(id)
            reply({ kind: 'decided', decision: { id, worker: 'w/0', predictedTokens: 0 } as Decision })
          }
        })
      },
      measure({ request, reply }) {
        script.log.push('measure')
        answer(() =>
          reply(
            script.refusal ?? { cachedTokens: script.cachedTokens, boundWorker: script.boundWorker(request) },
          ),
        )
      },
      settled({ id }) {
        script.log.push(`settled ${id}`)
        answer(() => void script.booked.delete(id))
      },
      gatewayStarted: ({ gateway }) => void script.log.push(`started ${gateway.life}`),
    }
  },
})

const REQUEST: RoutingRequest = {
  requestId: 'r',
  model: 'm',
  promptTokens: 100,
  blockSizeTokens: 16,
  localHashes: new Int32Array(0),
  sequenceHashes: new Int32Array(0),
  unknownPromptReason: undefined,
  textBlocksReason: undefined,
  override: { overlapWeight: undefined, overlapCredit: undefined, temperature: undefined },
  pinnedInstanceId: undefined,
  pinnedRank: undefined,
  excludedWorkers: [],
}

const HINTS: WaitingHints = {
  tenant: '',
  policyClass: undefined,
  priorityJumpSeconds: 0,
  strictPriority: 0,
  doNotQueue: false,
  deadlineMs: undefined,
  bytes: 10,
}

export const FLEET = fleetOf('m')

export function fleetOf(...models: readonly string[]): Fleet {
  return fleetWithStep(8192, ...models)
}

/** One worker for each name; `stepTokens`: of every engine. */
export function fleetWithStep(stepTokens: number, ...models: readonly string[]): Fleet {
  const workers = models.map(name => ({
    id: `worker of ${name}`,
    state: 'up',
    models: [{ name }],
    keys: [{}],
    maxBatchedTokens: { value: stepTokens, source: 'probed' },
  }))
  return { version: 1, workers } as unknown as Fleet
}

const SETTLED = { type: 'settled', delivery: {} as Arm<'settled'>['delivery'], wasTaken: false } as const

export interface PlaceOptions {
  readonly request?: Partial<RoutingRequest>
  readonly life?: string
}

export async function start(t: Test, args: Partial<QueueArgs> = {}) {
  const name = t.fullname
  const script: RouterScript = {
    room: 0,
    isBusy: () => false,
    cachedTokens: 0,
    boundWorker: () => undefined,
    refusal: undefined,
    answers: true,
    kept: [],
    log: [],
    booked: new Set(),
  }
  scripts.set(name, script)
  const system = createTestSystem()
  t.teardown(() => system.shutdown())
  const tracker = system.probe<TrackerMessage>('tracker')
  const router = system.spawn(scriptedRouter, { name: 'router', args: { name } })
  const ref = system.spawn(queue, {
    name: 'queue',
    supervision: { directive: 'restart', max: 10, within: '1m', backoff: { min: '20ms', max: '1s' } },
    args: {
      router: router as never,
      tracker: tracker.ref,
      rules: { threshold: 1, order: 'fcfs', classes: undefined },
      requestsMax: 100,
      tokensMax: 1e6,
      bytesMax: 1e6,
      waitMsMax: 60_000,
      agingMs: 60_000,
      askMsMax: 1000,
      ...args,
    },
  })
  ref.tell({ type: 'fleet', fleet: FLEET })
  /** By id: how its ask ended. */
  const ends = new Map<string, string>()
  const place = (
    id: string,
    hints: Partial<WaitingHints> | undefined = {},
    { request, life = 'one' }: PlaceOptions = {},
  ): Promise<PlaceResult | undefined> =>
    ref
      .ask(
        {
          type: 'place',
          id,
          gateway: { name: 'gateway', life },
          request: { ...REQUEST, requestId: id, ...request },
          ageMs: 0,
          hints: { ...HINTS, ...hints },
        },
        { timeout: '10m' },
      )
      .then(
        result => {
          ends.set(id, result.kind === 'decided' ? 'placed' : result.error.code)
          return result
        },
        (thrown: { readonly code: string }) => {
          ends.set(id, thrown.code)
          return undefined
        },
      )
  return {
    system,
    ref,
    script,
    ends,
    place,
    settle: (id: string) => void ref.tell({ ...SETTLED, id }),
    /** Load fell, as the tracker tells who watches. */
    fell: () => void ref.tell({ type: 'loadFell' }),
    /** Messages of the tracker of this kind. */
    watches: () => tracker.waiting.filter(({ type }) => type === 'watchLoad').length,
    answerKept: () => {
      for (const run of script.kept.splice(0)) run()
    },
    status: () => ref.ask({ type: 'queueStatus' }, { timeout: '1s' }),
    /** It fails, and is restarted. */
    kill: () => void ref.tell({ type: 'fleet', fleet: undefined as never }),
  }
}
