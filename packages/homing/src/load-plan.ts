/** Load plan: turns the settings of `homing load` into what is sent to whom, and the facts of its reports. */

import { availableParallelism, cpus } from 'node:os'
import type { Clock, Random } from '@homing/base'
import {
  comparedRequests,
  LOAD_AGAINST_KEY_VARIABLE,
  LOAD_KEY_VARIABLE,
  type LoadSettings,
  type SettingSource,
  SettingsError,
} from '@homing/config'
import { type KeySource, openDoor, readKey } from '@homing/fleet'
import {
  blockTokensOf,
  conversationSource,
  firstModel,
  type LoadAbout,
  type LoadPlan,
  type LoadSide,
  originOf,
  type Pace,
  type RequestSource,
  senderTo,
  traceSource,
} from '@homing/load-generator'
import type { HttpTransport } from '@homing/transport'
import { givenKey, readCertificates } from './engine-access.ts'
import type { ProgressFacts } from './progress-line.ts'
import { quoted } from './shell-word.ts'
import { version } from './version.ts'

const CONCURRENCY_UNSET = 8
/** Of the requests of a block, where their number is known. */
const WARMUP_SHARE = 0.1

export interface LoadWorld {
  readonly http: HttpTransport
  readonly clock: Clock
  readonly random: Random
}

export interface PlannedLoad {
  readonly plan: LoadPlan
  readonly about: LoadAbout
  /** For the line of progress. */
  progressOf(progress: { readonly issued: number; readonly blocksDone: number }): ProgressFacts
}

type Sources = Readonly<Record<keyof LoadSettings, SettingSource>>

/** Rejects with SettingsError, TargetError, and with what is wrong with a trace. */
export async function loadPlanOf(
  settings: LoadSettings,
  sources: Sources,
  argv: readonly string[],
  world: LoadWorld,
): Promise<PlannedLoad> {
  const { clock } = world
  const isTimed = sources.durationMs.kind !== 'default'
  const isCompared = settings.against !== undefined
  const blocks = isCompared ? settings.blocks : 1
  if (settings.caFile !== undefined)
    world.http.trust(await readCertificates(settings.caFile, 'load', '--ca-file'))
  const isReplay =
    settings.trace !== undefined && settings.ratePerS === undefined && settings.concurrency === undefined
  const source = await sourceOf(settings, isReplay && isTimed)
  const pace = paceOf(settings, isReplay)
  if (isReplay && !source.hasTimes)
    throw new SettingsError('load', [
      `--trace ${JSON.stringify(settings.trace)} has no timestamps: give --rate or --concurrency`,
    ])
  const lengths = lengthsOf(settings, source, pace, { isTimed, isCompared, blocks })
  const sides = await sidesOf(settings, world)
  const startMs = clock.nowMs()
  const plan: LoadPlan = {
    clock,
    chance: world.random,
    seed: settings.seed,
    source,
    sides: sides.map(({ side }) => side),
    blocks,
    salt: settings.salt,
    pace,
    waitingMax: settings.waitingMax,
    timeoutMs: settings.timeoutMs,
    ...lengths,
  }
  const runs = sides.length * blocks
  return {
    plan,
    about: {
      command: `homing load ${argv.map(quoted).join(' ')}`,
      startedAt: new Date(clock.wallMs()).toISOString(),
      versions: { homing: version(), node: process.versions.node },
      machine: `${cpus()[0]?.model ?? 'unknown processor'}, ${availableParallelism()} cores`,
      seed: settings.seed,
      model: [...new Set(sides.map(({ model }) => model))].join(' and '),
      pace: paceText(pace),
      requests: source.description,
      settings,
    },
    progressOf({ issued, blocksDone }) {
      const elapsedMs = clock.nowMs() - startMs
      const share = Number.isFinite(lengths.requestsMax)
        ? issued / (runs * lengths.requestsMax)
        : elapsedMs / (runs * lengths.durationMs)
      const done = isCompared ? `, ${blocksDone} of ${runs} blocks` : ''
      return {
        share: Math.min(1, share),
        leftMs: issued === 0 || share <= 0 ? undefined : Math.max(0, elapsedMs / share - elapsedMs),
        words: `${issued} requests sent${done}`,
      }
    },
  }
}

async function sourceOf(settings: LoadSettings, isSpanLimited: boolean): Promise<RequestSource> {
  const { endpoint, seed, outputTokens, ignoresEos, trace, requests, durationMs, speed } = settings
  if (trace === undefined) return conversationSource(settings)
  return traceSource(trace, {
    endpoint,
    seed,
    outputTokens,
    ignoresEos,
    requestsMax: requests ?? Number.POSITIVE_INFINITY,
    spanMsMax: isSpanLimited ? durationMs * speed : Number.POSITIVE_INFINITY,
  })
}

function paceOf(settings: LoadSettings, isReplay: boolean): Pace {
  const { ratePerS, arrival, concurrency, openMax, speed } = settings
  if (ratePerS !== undefined) {
    const most = Math.min(concurrency ?? openMax, openMax)
    return { kind: 'rate', perS: ratePerS, arrival, openMax: most }
  }
  if (isReplay) return { kind: 'times', speed, openMax }
  return { kind: 'closed', concurrency: concurrency ?? CONCURRENCY_UNSET }
}

function paceText(pace: Pace): string {
  if (pace.kind === 'closed') return `closed loop, ${pace.concurrency} requests at one time`
  if (pace.kind === 'rate') return `open loop, ${pace.perS} requests/s, ${pace.arrival}`
  return `open loop at the times of the trace, speed ${pace.speed}`
}

/** Of each block. */
function lengthsOf(
  { requests, durationMs, warmup }: LoadSettings,
  source: RequestSource,
  pace: Pace,
  { isTimed, isCompared, blocks }: { isTimed: boolean; isCompared: boolean; blocks: number },
): Pick<LoadPlan, 'requestsMax' | 'durationMs' | 'warmup'> {
  const isClosedComparison = isCompared && pace.kind === 'closed'
  const counted = [requests, source.count].filter(count => count !== undefined)
  const all =
    counted.length > 0 ? Math.min(...counted) : isClosedComparison ? comparedRequests(blocks) : Infinity
  const requestsMax = Number.isFinite(all) ? Math.floor(all / blocks) : Infinity
  if (requestsMax < 2)
    throw new SettingsError('load', [
      `the trace has ${all} requests, which is not 2 for each of ${blocks} blocks: give a longer one, or fewer --blocks`,
    ])
  const hasEnd = Number.isFinite(requestsMax) && !isTimed
  const ownMs = hasEnd || pace.kind === 'times' ? Infinity : durationMs / blocks
  const expected = pace.kind === 'rate' ? Math.min(requestsMax, (pace.perS * ownMs) / 1000) : requestsMax
  const preset = Number.isFinite(expected)
    ? Math.min(Math.ceil(expected * WARMUP_SHARE), Math.max(0, requestsMax - 1))
    : pace.kind === 'closed'
      ? pace.concurrency
      : 0
  return { requestsMax, durationMs: ownMs, warmup: warmup ?? preset }
}

interface PlannedSide {
  readonly side: LoadSide
  readonly model: string
}

async function sidesOf(settings: LoadSettings, world: LoadWorld): Promise<readonly PlannedSide[]> {
  const key = givenKey(settings.keyFile, LOAD_KEY_VARIABLE, 'load', '--api-key-file')
  const ownKey = givenKey(
    settings.againstKeyFile,
    LOAD_AGAINST_KEY_VARIABLE,
    'load',
    '--against-api-key-file',
  )
  const againstKey = ownKey ?? key
  const url = settings.urls[0]!
  if (ownKey !== undefined && settings.against !== undefined) {
    const origin = originOf(url)
    const isSame = key !== undefined && textOf(key) === textOf(ownKey)
    if (origin === originOf(settings.against) && !isSame)
      throw new SettingsError('load', [
        `${settings.againstKeyFile === undefined ? LOAD_AGAINST_KEY_VARIABLE : '--against-api-key-file'}: both sides are at ${origin}, which gets one key: give it with --api-key-file`,
      ])
  }
  const sides = [await sideOf('A', url, key, settings, world)]
  if (settings.against !== undefined)
    sides.push(await sideOf('B', settings.against, againstKey, settings, world))
  return sides
}

/** Undefined: it cannot be read. */
function textOf(source: KeySource): string | undefined {
  const found = readKey(source)
  return 'key' in found ? found.key : undefined
}

async function sideOf(
  name: string,
  url: string,
  key: KeySource | undefined,
  settings: LoadSettings,
  { http, clock }: LoadWorld,
): Promise<PlannedSide> {
  const origin = originOf(url)
  const fault = openDoor(http, origin, key)
  if (fault !== undefined) throw new SettingsError('load', [`the API key for ${origin}: ${fault.fault}`])
  const found = key === undefined ? undefined : readKey(key)
  const secret = found !== undefined && 'key' in found ? found.key : undefined
  const model = settings.model ?? (await firstModel(http, origin))
  return {
    model,
    side: {
      name,
      url: origin,
      blockTokens: settings.blockSizeTokens ?? (await blockTokensOf(http, origin)),
      sendWith: salt =>
        senderTo(http, clock, {
          origin,
          model: settings.model,
          modelUnset: model,
          isStream: settings.stream,
          salt,
          secret,
        }),
    },
  }
}
