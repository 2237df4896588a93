/**
 * The ranks and peers that `homing indexer` is given: `ID[:RANK]=ENDPOINT[?replay=PORT]`, `URL`; several in
 * one text are separated by commas.
 */

import {
  faultOfPeer,
  faultOfSource,
  peerUrl,
  RANK_MAX,
  type Registration,
} from '@homing/actors/index-service'
import { openName, openText } from '@homing/base'
import { clashText, SocketClaims } from '@homing/transport'

/** What all ranks of the command line have in common. */
export interface RankDefaults {
  readonly model: string
  readonly group: string
  readonly blockSizeTokens: number
}

const INSTANCE_MAX = (1n << 64n) - 1n
const RANK = /^(\d{1,20})(?::(\d{1,10}))?=([^?]+)(?:\?(.*))?$/

/** Every fault, a sentence each that begins with the rank. `texts`: undefined where one is faulty already. */
export function faultsOfRanks(texts: readonly (string | undefined)[]): readonly string[] {
  const seen = new Set<string>()
  const claims = new SocketClaims()
  return itemsOf(texts).flatMap(text => {
    const rank = tryRank(text)
    if (typeof rank === 'string') return [`${JSON.stringify(openText(text))}: ${rank}`]
    const name = `${rank.instanceId}:${rank.dpRank}`
    if (seen.has(name)) return [`${JSON.stringify(openText(text))}: rank ${name} is given twice`]
    seen.add(name)
    const { endpoint, replayEndpoint } = rank
    const replay = replayEndpoint === undefined ? [] : [{ use: 'replay', endpoint: replayEndpoint } as const]
    claims.claim(`rank ${name}`, [{ use: 'events', endpoint }, ...replay])
    const clash = claims.clashOf(`rank ${name}`)
    if (clash === undefined) return []
    return [
      `${JSON.stringify(openText(text))}: it names ${clashText(clash)}; every rank needs a socket of its own`,
    ]
  })
}

export function faultsOfPeers(texts: readonly (string | undefined)[]): readonly string[] {
  return itemsOf(texts).flatMap(text => {
    const fault = faultOfPeer(text)
    return fault === undefined ? [] : [`${JSON.stringify(openText(text))}: it ${fault}`]
  })
}

/** Ranks that have no fault; throws Error for others. */
export function parseRanks(
  texts: readonly string[],
  { model, group, blockSizeTokens }: RankDefaults,
): readonly Registration[] {
  return itemsOf(texts).map(text => {
    const rank = tryRank(text)
    if (typeof rank === 'string') throw new Error(`${JSON.stringify(openText(text))}: ${rank}`)
    return { ...rank, model, group, blockSizeTokens }
  })
}

export function parsePeers(texts: readonly string[]): readonly string[] {
  return [...new Set(itemsOf(texts).map(peerUrl))]
}

function itemsOf(texts: readonly (string | undefined)[]): readonly string[] {
  return texts.flatMap(text => text?.split(',') ?? []).flatMap(item => item.trim() || [])
}

type RankPlace = Omit<Registration, keyof RankDefaults>

/** A rank, or why the text is none. */
function tryRank(text: string): RankPlace | string {
  const match = RANK.exec(text)
  if (match === null) return 'it must be ID=ENDPOINT or ID:RANK=ENDPOINT, such as 7:0=tcp://10.0.0.1:5557'
  const [, id, rank = '0', endpoint, query = ''] = match
  const instanceId = BigInt(id!)
  if (instanceId > INSTANCE_MAX) return `the id must be at most ${INSTANCE_MAX}`
  if (Number(rank) > RANK_MAX) return `the rank must be at most ${RANK_MAX}`
  const fault = faultOfSource(endpoint!)
  if (fault !== undefined) return `the endpoint ${fault}`
  let replayEndpoint: string | undefined
  for (const [name, value] of new URLSearchParams(query)) {
    if (name !== 'replay') return `unknown parameter ${openName(name)}; known: replay=PORT`
    replayEndpoint = /^\d+$/.test(value)
      ? `${endpoint!.slice(0, endpoint!.lastIndexOf(':'))}:${value}`
      : value
    const replayFault = faultOfSource(replayEndpoint)
    if (replayFault !== undefined) return `the replay endpoint ${replayFault}`
  }
  return { instanceId, dpRank: Number(rank), endpoint: endpoint!, replayEndpoint }
}
