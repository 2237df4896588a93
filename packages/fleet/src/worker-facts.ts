/**
 * Facts about a worker, with the source of each value: given wins over learned, learned over
 * probed, probed over assumed. Pure: the directory keeps the inputs, this file derives the facts.
 */

import { STEP_TOKENS_DEFAULT } from '@homing/load'
import { faultOfEndpoint } from '@homing/transport'
import { brokerEndpointOf, type EventBroker } from './event-broker.ts'
import type {
  EngineFamily,
  Sourced,
  ValueSource,
  WorkerKeyRecord,
  WorkerModel,
  WorkerRecord,
} from './fleet.ts'
import { namedRank } from './named-ranks.ts'
import { PROBED_RANKS_MAX } from './probe-answers.ts'
import type { EventSource, ProbedFact, ReachedOutcome } from './probe-outcome.ts'
import { isOtherProcessStart } from './process-start.ts'
import { type LegFacts, legFactsOf } from './worker-role.ts'
import type { WorkerSpec } from './worker-spec.ts'
import { eventsHostOf } from './worker-spec.ts'

/** vLLM's default on large GPUs. vLLM does not report the value that it uses. */
const MAX_BATCHED_TOKENS_DEFAULT = STEP_TOKENS_DEFAULT

/** Assumptions of the directory for facts that neither the operator nor the worker gives. */
export interface WorkerDefaults {
  /** Where KV events are published that have no port; undefined: nowhere. */
  readonly broker?: EventBroker | undefined
  /** For all workers, from the command line. */
  readonly blockSizeTokens: number | undefined
}

export interface WorkerFacts extends LegFacts {
  readonly engine: EngineFamily
  readonly engineVersion: string
  readonly models: readonly WorkerModel[]
  readonly blockSizeTokens: Sourced<number> | undefined
  readonly maxBatchedTokens: Sourced<number>
  readonly kvBlocks: Sourced<number> | undefined
  readonly ranks: Sourced<number>
  /** Ranks that it claims, if they are more than it may claim: it counts as one then. */
  readonly refusedRanks: number | undefined
  readonly canTokenize: boolean
}

/**
 * The facts after a probe: a question without an answer keeps the earlier facts. So a busy engine that misses
 * one deadline keeps its ranks and its events.
 */
export function outcomeAfter(before: ReachedOutcome | undefined, outcome: ReachedOutcome): ReachedOutcome {
  if (before === undefined) return outcome
  const kept: Partial<Record<ProbedFact, unknown>> = {}
  for (const fact of outcome.unanswered) if (isEmpty(outcome[fact])) kept[fact] = before[fact]
  return { ...outcome, ...(kept as Partial<ReachedOutcome>) }
}

/**
 * Whether the engine is a new process: its start time or its block size has changed.
 */
export function isOtherProcess(before: ReachedOutcome, after: ReachedOutcome): boolean {
  const [started, size] = [after.processStartSeconds, after.blockSizeTokens]
  const sizeBefore = before.blockSizeTokens ?? size
  return (
    isOtherProcessStart(started, before.processStartSeconds) || (size !== undefined && size !== sizeBefore)
  )
}

/** `learnedBlockSizeTokens`: what the events of the worker showed. */
export function factsOf(
  spec: WorkerSpec,
  outcome: ReachedOutcome | undefined,
  learnedBlockSizeTokens: number | undefined,
  defaults: WorkerDefaults,
): WorkerFacts {
  return {
    engine: outcome?.engine ?? 'unknown',
    engineVersion: outcome?.engineVersion ?? '',
    models: modelsOf(spec, outcome),
    blockSizeTokens:
      sourced(spec.blockSizeTokens ?? defaults.blockSizeTokens, 'given') ??
      sourced(learnedBlockSizeTokens, 'learned') ??
      sourced(outcome?.blockSizeTokens, 'probed'),
    maxBatchedTokens: sourced(spec.maxBatchedTokens, 'given') ??
      sourced(outcome?.maxBatchedTokens, 'probed') ?? {
        value: MAX_BATCHED_TOKENS_DEFAULT,
        source: 'default',
      },
    kvBlocks: sourced(spec.kvBlocks, 'given') ?? sourced(outcome?.kvBlocks, 'probed'),
    ranks: ranksOf(spec, outcome),
    refusedRanks: spec.ranks === undefined && claimsTooMany(outcome) ? outcome?.ranks : undefined,
    canTokenize: outcome?.canTokenize ?? false,
    ...legFactsOf(spec, outcome),
  }
}

/**
 * The block size that counts for a model of two workers: the first one, unless that is only probed and the
 * other is not. Metrics may name another size than events have, which are right.
 */
export function blockSizeOfBoth(
  first: Sourced<number> | undefined,
  other: Sourced<number> | undefined,
): Sourced<number> | undefined {
  const isFirmer = other !== undefined && other.source !== 'probed' && first?.source === 'probed'
  return isFirmer ? other : (first ?? other)
}

/** Where the engine says that it publishes the events of a rank; undefined: it does not say. */
export function namedSourceOf(
  spec: WorkerSpec,
  outcome: ReachedOutcome | undefined,
  dpRank: number,
): EventSource | undefined {
  if (outcome === undefined) return undefined
  const { eventSources } = outcome
  const ranks = ranksOf(spec, outcome).value
  const rank = namedRank(
    eventSources.map(source => source.dpRank),
    dpRank,
    ranks,
  )
  return eventSources.find(source => source.dpRank === rank)
}

/** Where the events of a rank come from; undefined: from nowhere that is known. */
export function eventSourceOf(
  spec: WorkerSpec,
  outcome: ReachedOutcome | undefined,
  dpRank: number,
  broker: EventBroker | undefined,
): EventSource | undefined {
  const discovered = namedSourceOf(spec, outcome, dpRank)
  const given = (port: number | undefined): string | undefined =>
    port === undefined ? undefined : `tcp://${eventsHostOf(spec)}:${port + dpRank}`
  // The given host counts also where the engine names an address, which only its own network may have.
  const found = (endpoint: string | undefined): string | undefined =>
    spec.eventsHost === undefined ? endpoint : endpoint?.replace(HOST_OF_ENDPOINT, spec.eventsHost)
  const atBroker = brokerEndpointOf(spec, dpRank, broker, discovered?.endpoint)
  // A publisher at a broker answers questions under the same subject.
  if (atBroker !== undefined)
    return { dpRank, endpoint: atBroker, replayEndpoint: atBroker, topic: spec.topic ?? '' }
  const endpoint = given(spec.eventsPort) ?? found(discovered?.endpoint)
  if (endpoint === undefined) return undefined
  const replayEndpoint = given(spec.replayPort) ?? found(discovered?.replayEndpoint)
  // An endpoint that is faulty by itself says more than with the given host.
  const ownFault = spec.eventsPort === undefined ? discovered?.fault : undefined
  const fault = ownFault ?? faultOfEndpoint(endpoint)
  return {
    dpRank,
    endpoint,
    ...(fault === undefined ? {} : { fault }),
    replayEndpoint:
      replayEndpoint === undefined || faultOfEndpoint(replayEndpoint) !== undefined
        ? undefined
        : replayEndpoint,
    topic: spec.topic ?? discovered?.topic ?? '',
    ...(discovered === undefined || discovered.dpRank === dpRank ? {} : { namedRank: discovered.dpRank }),
  }
}

const HOST_OF_ENDPOINT = /(?<=^tcp:\/\/).*(?=:\d+$)/

/** Its event endpoints are not known yet, but may come: it was busy, or failed when it was asked. */
export function owesEventSources(spec: WorkerSpec, outcome: ReachedOutcome): boolean {
  const { eventSources, unanswered } = outcome
  return spec.eventsPort === undefined && eventSources.length === 0 && unanswered.includes('eventSources')
}

/** Input of `missingOf`; a WorkerRecord has all of it. */
export interface CacheFacts
  extends Pick<WorkerRecord, 'origin' | 'engine' | 'ranks' | 'refusedRanks' | 'blockSizeTokens'> {
  readonly keys: readonly Pick<WorkerKeyRecord, 'dpRank' | 'eventsEndpoint' | 'replayEndpoint'>[]
}

/** What a worker lacks before its cache can be known, each with a remedy. */
export function missingOf(worker: CacheFacts): readonly string[] {
  const { origin, engine, ranks, refusedRanks, blockSizeTokens, keys } = worker
  const missing: string[] = []
  if (refusedRanks !== undefined) {
    missing.push(
      `it claims ${refusedRanks} ranks, more than the ${PROBED_RANKS_MAX} that are believed, and counts as one: name them: ${origin}?ranks=COUNT`,
    )
  }
  if (keys.length < ranks.value) {
    missing.push(
      `no worker slot for ${ranks.value - keys.length} of its ${ranks.value} ranks: there are more worker keys than slots; raise --worker-slots-max`,
    )
  }
  const keyOf = (dpRank: number) => keys.find(key => key.dpRank === dpRank)
  // A rank without a key has no worker slot, which is another matter.
  const first = keyOf(0)
  const url = `${origin}?events=PORT&replay=PORT`
  if (first !== undefined && first.eventsEndpoint === undefined) {
    missing.push(`no KV events: start the engine with ${eventFlags(engine)}, or name their ports: ${url}`)
  } else if (first !== undefined) {
    if (first.replayEndpoint === undefined) {
      missing.push(
        `no replay: add "replay_endpoint":"tcp://*:6557" to --kv-events-config, or name its port: ${url}`,
      )
    }
    for (let dpRank = 1; dpRank < ranks.value; dpRank++) {
      const key = keyOf(dpRank)
      if (key !== undefined && key.eventsEndpoint === undefined) {
        missing.push(`no KV events of dp rank ${dpRank}`)
      }
    }
  }
  if (blockSizeTokens === undefined) {
    missing.push(`block size unknown until the first event: name it: ${origin}?block_size=TOKENS`)
  } else if (blockSizeTokens.value < 8) {
    missing.push(
      `blocks of ${blockSizeTokens.value} tokens flood the event stream: start the engine with ${
        engine === 'vllm' ? '--block-size 16' : '--page-size 16'
      } or more`,
    )
  }
  return missing
}

/** Where an engine is to publish its KV events. */
export interface EventPorts {
  readonly events: number
  readonly replay: number
  readonly topic: string
}

const EVENT_PORTS: EventPorts = { events: 5557, replay: 6557, topic: '' }

/**
 * The flags that make an engine publish its KV events. `pageFlag`: for SGLang, whose pages are too small by
 * default.
 */
export function eventFlags(
  engine: EngineFamily,
  { events, replay, topic }: EventPorts = EVENT_PORTS,
  pageFlag = ' --page-size 16',
): string {
  const config = {
    ...(engine === 'sglang' ? {} : { enable_kv_cache_events: true }),
    publisher: 'zmq',
    endpoint: `tcp://*:${events}`,
    replay_endpoint: `tcp://*:${replay}`,
    ...(topic === '' ? {} : { topic }),
  }
  return `--kv-events-config '${JSON.stringify(config)}'${engine === 'sglang' ? pageFlag : ''}`
}

function ranksOf(spec: WorkerSpec, outcome: ReachedOutcome | undefined): Sourced<number> {
  const probed = claimsTooMany(outcome) ? undefined : outcome?.ranks
  return sourced(spec.ranks, 'given') ?? sourced(probed, 'probed') ?? { value: 1, source: 'default' }
}

function claimsTooMany(outcome: ReachedOutcome | undefined): boolean {
  return (outcome?.ranks ?? 1) > PROBED_RANKS_MAX
}

function modelsOf(spec: WorkerSpec, outcome: ReachedOutcome | undefined): readonly WorkerModel[] {
  const probed = outcome?.models ?? []
  if (spec.model === undefined) return probed
  const matching = probed.filter(card => card.name === spec.model || card.base === spec.model)
  if (matching.length > 0) return matching
  return [{ name: spec.model, base: undefined, root: undefined, maxModelTokens: undefined }]
}

function sourced<T>(value: T | undefined, source: ValueSource): Sourced<T> | undefined {
  return value === undefined ? undefined : { value, source }
}

function isEmpty(fact: ReachedOutcome[ProbedFact]): boolean {
  return !fact || fact === 'unknown' || (Array.isArray(fact) && fact.length === 0)
}
