/**
 * Dumps as peers exchange them:
 *
 *   {"<model>:<group>": {"block_size": n,
 *                        "endpoints": {"<instance>": {"<rank>": "tcp://…"}},
 *                        "events": [RouterEvent …]}}
 *
 * `endpoints` say which engines the blocks belong to; dumps of other implementations have none.
 *
 * Written    only `stored` events, parents before children; runs of blocks share an event, up to
 *            EVENT_BLOCKS_MAX. Where workers say so: labels of these blocks, and transitions of blocks in
 *            pools that they do not hold themselves. Event ids count from 0 in every partition: the format
 *            requires them, and they have no other meaning.
 * Read       leniently: unknown fields are ignored; blocks of tiers other than the device are left out, and
 *            so are labels and transitions that cannot be used (dump-labels.ts). One event whose blocks
 *            cannot be read fails the whole dump, and no part of it is used.
 * A model's name may contain a colon, a routing group in a dump may not: the last colon separates them.
 */

import { parseWideJson, tryUnsigned64 } from '@homing/base'
import { readRouterEvent } from '@homing/fleet/read-router-event'
import type { KvExpert, KvPoolPlace } from '@homing/protocol'
import { type LeftOut, type PooledRun, readExpert, readPlace, readTransition } from './dump-labels.ts'
import { BadDumpError } from './errors.ts'
import type { InheritedRun } from './inheritor.ts'
import type { Partition, RankRegistration } from './requests.ts'

/** What a dump says of one rank. */
export interface RankDump {
  readonly model: string
  readonly group: string
  readonly blockSizeTokens: number
  readonly instanceId: bigint
  readonly dpRank: number
  /** Where the engine publishes, as the peer names it; undefined: the dump does not say. */
  readonly endpoint: string | undefined
  readonly runs: InheritedRun[]
  readonly pooled: PooledRun[]
}

/** The name of a partition in a dump. */
function dumpKey(model: string, group: string): string {
  return `${model}:${group}`
}

/** The beginning of a partition, up to its events. */
export function dumpHead(
  { model, group, blockSizeTokens }: Partition & { readonly blockSizeTokens: number },
  ranks: Iterable<Pick<RankRegistration, 'instanceId' | 'dpRank' | 'endpoint'>>,
): string {
  const endpoints: Record<string, Record<string, string>> = {}
  for (const { instanceId, dpRank, endpoint } of ranks) {
    if (endpoint === undefined) continue
    endpoints[instanceId.toString()] ??= {}
    endpoints[instanceId.toString()]![dpRank] = endpoint
  }
  const key = JSON.stringify(dumpKey(model, group))
  return `${key}:{"block_size":${blockSizeTokens},"endpoints":${JSON.stringify(endpoints)},"events":[`
}

/** Throws BadDumpError. `leftOut` is added to. */
export function readDump(
  peer: string,
  body: Uint8Array,
  leftOut: LeftOut = { labels: 0, members: 0, transitions: 0 },
): readonly RankDump[] {
  const fail = (why: string): never => {
    throw new BadDumpError(peer, why)
  }
  let dump: unknown
  try {
    dump = parseWideJson(new TextDecoder('utf-8', { fatal: true }).decode(body))
  } catch (thrown) {
    return fail(`it is not JSON: ${(thrown as Error).message}`)
  }
  const ranks = new Map<string, RankDump>()
  for (const [key, entry] of Object.entries(objectOr(dump, () => fail('it is not a JSON object')))) {
    const colon = key.lastIndexOf(':')
    if (colon < 0) fail(`${JSON.stringify(key)} is not a model and routing group`)
    const fields = objectOr(entry, () => fail(`${JSON.stringify(key)} is no object`))
    const { block_size: blockSize, endpoints, events } = fields
    const endpointOf = readEndpoints(endpoints, () =>
      fail(`endpoints of ${JSON.stringify(key)} cannot be read`),
    )
    if (typeof blockSize !== 'number' || !Number.isInteger(blockSize) || blockSize < 1) {
      fail(`block_size of ${JSON.stringify(key)} is not a whole number`)
    }
    if (!Array.isArray(events)) return fail(`events of ${JSON.stringify(key)} is no list`)
    for (const [i, event] of (events as readonly unknown[]).entries()) {
      const unreadable = () => fail(`event ${i} of ${JSON.stringify(key)} cannot be read`)
      const read = readEvent(event, leftOut, unreadable)
      if (read === undefined) continue
      const name = JSON.stringify([key, read.instanceId.toString(), read.dpRank])
      let rank = ranks.get(name)
      if (rank === undefined) {
        const { instanceId, dpRank } = read
        const partition = { model: key.slice(0, colon), group: key.slice(colon + 1) }
        const endpoint = endpointOf(instanceId, dpRank)
        const blockSizeTokens = blockSize as number
        rank = { ...partition, blockSizeTokens, instanceId, dpRank, endpoint, runs: [], pooled: [] }
        ranks.set(name, rank)
      }
      if (read.run !== undefined) rank.runs.push(read.run)
      if (read.pooled !== undefined) rank.pooled.push(read.pooled)
    }
  }
  return [...ranks.values()]
}

/** Undefined for ranks that have none. */
function readEndpoints(
  value: unknown,
  fail: () => never,
): (instanceId: bigint, dpRank: number) => string | undefined {
  if (value === undefined || value === null) return () => undefined
  const endpoints = new Map<string, string>()
  for (const [instanceId, ranks] of Object.entries(objectOr(value, fail))) {
    for (const [dpRank, endpoint] of Object.entries(objectOr(ranks, fail))) {
      endpoints.set(`${instanceId}/${dpRank}`, typeof endpoint === 'string' ? endpoint : fail())
    }
  }
  return (instanceId, dpRank) => endpoints.get(`${instanceId}/${dpRank}`)
}

interface ReadEvent {
  readonly instanceId: bigint
  readonly dpRank: number
  readonly run?: InheritedRun
  readonly pooled?: PooledRun
}

/** Undefined: not of the device, or neither a store nor a transition. */
function readEvent(value: unknown, leftOut: LeftOut, fail: () => never): ReadEvent | undefined {
  const read = readRouterEvent(value, fail)
  if (read === undefined) return readPooled(value, leftOut)
  const { event } = value as { event: { data: { stored: { blocks: readonly Record<string, unknown>[] } } } }
  const experts: (KvExpert | undefined)[] = []
  const places: (KvPoolPlace | undefined)[] = []
  for (const block of event.data.stored.blocks) {
    experts.push(readExpert(block['moe_metadata'], leftOut))
    places.push(readPlace(block['cxl_metadata'], places, leftOut))
  }
  const hasLabels = [...experts, ...places].some(label => label !== undefined)
  return hasLabels ? { ...read, run: { ...read.run, labels: { experts, places } } } : read
}

/** Undefined: no transition, not of the device, or left out. `value`: an event whose form was looked at. */
function readPooled(value: unknown, leftOut: LeftOut): ReadEvent | undefined {
  const { worker_id: workerId, storage_tier: tier, event } = value as Fields
  const { data, dp_rank: dpRank = 0 } = event as Fields
  if (data === 'cleared' || (tier !== undefined && tier !== 'device')) return undefined
  const { cxl_state_transition: transition } = data as Fields
  const pooled = transition === undefined ? undefined : readTransition(transition, leftOut)
  if (pooled === undefined) return undefined
  const instanceId = tryUnsigned64(workerId)
  if (instanceId === undefined || typeof dpRank !== 'number' || !Number.isInteger(dpRank)) {
    leftOut.transitions++
    return undefined
  }
  return { instanceId, dpRank, pooled }
}

type Fields = Readonly<Record<string, unknown>>

function objectOr(value: unknown, fail: () => never): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return fail()
  return value as Readonly<Record<string, unknown>>
}
