/**
 * Findings about KV events: whether there are any, whether they can be followed, and how far back they go.
 * Pure.
 */

import { namedSourceOf, owesEventSources } from '@homing/fleet'
import { clashText } from '@homing/transport'
import { type Finding, flagsMissing, note, ok, warning } from './diagnosis.ts'
import { RANKS_CHECKED_MAX, type ReachedEvidence } from './evidence.ts'
import { OWNER_TEXTS } from './port-owner.ts'
import type { RankCheck } from './rank-check.ts'
import { jsonOf } from './recorded-http.ts'

/** Most ranks with the same problem that get their own line; the rest are counted. */
const FINDING_LINES_MAX = 8
const START_APART = 'give each rank of each engine ports of its own'

export function eventFindings(evidence: ReachedEvidence): readonly Finding[] {
  const { ranks } = evidence
  if (ranks.length === 0) return [noEvents(evidence)]
  return [
    ...evidence.clashes.map(clash =>
      warning(
        'ports',
        'approximate',
        `it names ${clashText(clash)}: nobody can tell whose blocks are reported there`,
        START_APART,
      ),
    ),
    ...ranksWithout(evidence),
    ...gathered(ranks, rank => socketFinding(evidence, rank)),
    ...gathered(ranks, rank => portFinding(evidence, rank)),
    ...gathered(ranks, rank => topicFinding(evidence, rank)),
    ...gathered(ranks, rank => contentFinding(evidence, rank)),
    ...gathered(ranks, adapterFinding),
    ...gathered(ranks, replayFinding),
  ]
}

function noEvents({ spec, outcome, asked }: ReachedEvidence): Finding {
  const ports = `${spec.origin}?events=PORT&replay=PORT`
  if (owesEventSources(spec, outcome)) {
    return warning(
      'events',
      'approximate',
      'it did not answer whether it publishes KV events',
      `relieve it, or name their ports: ${ports}`,
    )
  }
  if (outcome.engine === 'trtllm') {
    return warning(
      'events',
      'approximate',
      'TensorRT-LLM publishes no KV events on a socket',
      `set kv_cache_config.event_buffer_max_size above 0, and run beside it: homing sidecar --poll ${spec.origin} --block-size ${outcome.blockSizeTokens ?? 'TOKENS'}`,
    )
  }
  return flagsMissing(
    'events',
    'approximate',
    'it reports no KV events: only what this router sends there counts as cached',
    tellsPorts(asked)
      ? `, or name the ports if it publishes: ${ports}`
      : `, and name its ports, which this version does not tell: ${spec.origin}?events=5557&replay=6557`,
  )
}

/** vLLM has a route for them in newer versions, SGLang an entry in its server info. */
function tellsPorts(asked: ReachedEvidence['asked']): boolean {
  const info = jsonOf(asked.find(({ path }) => path === '/server_info'))
  return (
    asked.some(({ path, reply }) => path === '/kv_event_sources' && reply?.status === 200) ||
    (typeof info === 'object' && info !== null && 'kv_events' in info)
  )
}

/** Ranks that the engine has but no event source. */
function ranksWithout({ facts, ranks }: ReachedEvidence): readonly Finding[] {
  const checked = Math.min(facts.ranks.value, RANKS_CHECKED_MAX)
  const known = new Set(ranks.map(({ dpRank }) => dpRank))
  const lacking = Array.from({ length: checked }, (_, dpRank) => dpRank).filter(rank => !known.has(rank))
  if (lacking.length === 0) return []
  const shown = lacking.slice(0, FINDING_LINES_MAX).join(', ')
  return [
    warning(
      'events',
      'approximate',
      `no KV events of rank ${shown}${lacking.length > FINDING_LINES_MAX ? ` and ${lacking.length - FINDING_LINES_MAX} more` : ''}`,
      'let every rank publish, or name the ports: ?events=PORT is that of rank 0',
    ),
  ]
}

function socketFinding({ spec, facts, listenedMs }: ReachedEvidence, rank: RankCheck): Finding {
  const { source, connectedMs, eventsOwner, watch } = rank
  if (source.fault !== undefined) {
    const text = `nothing can connect to its event endpoint ${source.endpoint}: ${source.fault}`
    return warning(
      'events',
      'approximate',
      text,
      'correct the endpoint at the engine, or name the port: ?events=PORT',
    )
  }
  if (connectedMs === undefined) {
    const owner = eventsOwner ?? 'silent'
    const correct =
      spec.eventsPort === undefined ? 'name the right port: ?events=PORT' : 'correct ?events=PORT'
    const connects = 'with an address instead of * it connects to somebody, and listens to nobody'
    const text = `no event socket at ${source.endpoint}: ${OWNER_TEXTS[owner]}`
    if (owner === 'closed' && spec.eventsPort === undefined)
      return flagsMissing('events', 'approximate', text, `: ${connects}; or ${correct}`)
    const advice = {
      closed: `${correct}, or start the engine with an endpoint of the form tcp://*:PORT: ${connects}`,
      silent: `open ${source.endpoint} in the firewall between router and engine`,
      http: `${correct}; that port is of HTTP`,
      events: correct,
      replay: 'exchange the ports: ?events=PORT is where it publishes, ?replay=PORT where it repeats',
      other: correct,
    }[owner]
    return warning('events', 'approximate', text, advice)
  }
  const { batches } = watch!.seen
  const listened = `${batches} ${batches === 1 ? 'batch' : 'batches'} in ${Math.round(listenedMs)} ms`
  const seen = batches === 0 ? 'nothing was published meanwhile, as in an idle engine' : listened
  const others = facts.ranks.value - 1
  const many = others === 0 ? '' : ` and ${others === 1 ? 'one rank' : `${others} ranks`} more`
  return ok('events', `connected to ${source.endpoint}${many}; ${seen}`)
}

/** Compares the given ports with the ports that the engine reports. */
function portFinding({ spec, outcome, own }: ReachedEvidence, rank: RankCheck): Finding | undefined {
  const told = namedSourceOf(spec, outcome, rank.dpRank)
  if (told === undefined) return undefined
  const events = portOf(rank.source.endpoint)
  const replay = portOf(rank.source.replayEndpoint)
  const wrong = [
    events === portOf(told.endpoint) ? '' : `events=${events}, but it publishes on ${portOf(told.endpoint)}`,
    replay === portOf(told.replayEndpoint) || told.replayEndpoint === undefined
      ? ''
      : `replay=${replay}, but it repeats on ${portOf(told.replayEndpoint)}`,
  ].filter(Boolean)
  // Another port may be a way there, as out of a container.
  if (wrong.length === 0 || own?.storedAfterMs !== undefined) return undefined
  return warning(
    'ports',
    'approximate',
    `given ${wrong.join('; ')}: these may be of another engine`,
    'leave both out, or correct them; if they are forwarded on purpose, --send shows whether they are its own',
  )
}

function topicFinding({ outcome, spec }: ReachedEvidence, rank: RankCheck): Finding | undefined {
  const { topic } = rank.source
  if (topic === '') return undefined
  const told = namedSourceOf(spec, outcome, rank.dpRank)?.topic
  const heard = [...(rank.watch?.seen.topics ?? []), ...(rank.replay?.seen.topics ?? [])]
  const other = told !== undefined && told !== topic ? told : heard.find(name => name !== topic)
  if (other === undefined) return undefined
  return warning(
    'topic',
    'approximate',
    `its events have the topic ${JSON.stringify(other)}, but ${JSON.stringify(topic)} ${spec.topic === undefined ? 'is told' : 'is given'}: they pass unread`,
    `leave out topic, or give topic=${encodeURIComponent(other)}`,
  )
}

/** Messages of the socket that are no KV events, or of another rank. */
function contentFinding(
  { facts }: ReachedEvidence,
  { source, watch, replay, dpRank }: RankCheck,
): Finding | undefined {
  const seen = [watch?.seen, replay?.seen].filter(part => part !== undefined)
  const unreadable = seen.reduce((sum, part) => sum + part.unreadable, 0)
  if (unreadable > 0) {
    return warning(
      'events',
      'partial',
      `${unreadable} of its messages are no KV events that can be read`,
      'correct ?events=PORT, or update homing: docs/engines.md has the forms',
    )
  }
  const named = new Set(seen.flatMap(part => [...part.dpRanks]))
  const others = [...named].filter(rank => rank !== (source.namedRank ?? dpRank))
  // The only rank of a worker may be one of a larger engine.
  const isOnlyRank = facts.ranks.value === 1 && named.size === 1
  if (others.length === 0 || isOnlyRank) return undefined
  return warning(
    'ranks',
    'approximate',
    `the socket of rank ${dpRank} has events of rank ${others.join(', ')}`,
    'name the port of rank 0 with ?events=PORT and the number of ranks with ?ranks=N',
  )
}

/** Stores that name an adapter by number only. */
function adapterFinding({ watch, replay }: RankCheck): Finding | undefined {
  const stores = [...(watch?.seen.stored ?? []), ...(replay?.seen.stored ?? [])]
  const unnamed = stores.find(({ loraId, loraName }) => loraId !== undefined && loraName === undefined)
  if (unnamed === undefined) return undefined
  return warning(
    'events',
    'partial',
    `its events name adapter ${unnamed.loraId} by number only: what is cached for adapters is not known`,
    'update the engine: vLLM names adapters since 0.13',
  )
}

function replayFinding(rank: RankCheck): Finding | undefined {
  // Without an event connection there is no stream to check.
  if (rank.connectedMs === undefined) return undefined
  const { source, replay, replayOwner } = rank
  if (source.replayEndpoint === undefined || replay === undefined) {
    return flagsMissing(
      'replay',
      'partial',
      'no replay: what it cached before the router began is not known, nor what a lost batch told',
      ', or name its port if it has one: replay=PORT',
    )
  }
  if (replay.answeredMs === undefined) {
    const owner = replayOwner ?? 'silent'
    const what = owner === 'other' ? 'something is there that answers no replay' : OWNER_TEXTS[owner]
    const text = `no replay at ${source.replayEndpoint}: ${what}`
    if (owner === 'closed') return flagsMissing('replay', 'partial', text, ', or correct ?replay=PORT')
    const advice = {
      silent: `open ${source.replayEndpoint} in the firewall between router and engine`,
      http: 'correct ?replay=PORT: that port is of HTTP',
      events: 'correct ?replay=PORT: that port publishes',
      replay: 'correct ?replay=PORT',
      other: 'correct ?replay=PORT, or look why the engine does not answer there',
    }[owner]
    return warning('replay', 'partial', text, advice)
  }
  const { seen } = replay
  if (seen.batches === 0) return ok('replay', `answers at ${source.replayEndpoint}`)
  if (seen.firstSequence !== 0) {
    return warning(
      'replay',
      'partial',
      `the replay begins with batch ${seen.firstSequence}: what was cached before is not known until answers confirm it`,
      'raise "buffer_steps" in --kv-events-config, or run homing sidecar beside the engine',
    )
  }
  if (seen.missing > 0) {
    return note(
      'replay',
      `the replay leaves out ${seen.missing} of ${seen.missing + seen.batches} batches: a router asks again until it has them`,
      'if it goes on, raise "hwm" in --kv-events-config',
    )
  }
  return ok(
    'replay',
    `answers at ${source.replayEndpoint} with every batch since its start (${seen.batches})`,
  )
}

/** One line where all ranks are well, one for each that is not. */
function gathered(
  ranks: readonly RankCheck[],
  findingOf: (rank: RankCheck) => Finding | undefined,
): readonly Finding[] {
  const found = ranks.flatMap(rank => {
    const finding = findingOf(rank)
    return finding === undefined ? [] : [{ rank, finding }]
  })
  const bad = found.filter(({ finding }) => finding.level !== 'ok')
  const well = found.filter(({ finding }) => finding.level === 'ok').slice(0, 1)
  const shown = bad.slice(0, FINDING_LINES_MAX).map(({ rank, finding }) => ({
    ...finding,
    text: ranks.length === 1 ? finding.text : `rank ${rank.dpRank}: ${finding.text}`,
  }))
  const left = bad.length - shown.length
  if (left > 0) {
    const last = shown.at(-1)!
    shown[shown.length - 1] = { ...last, text: `${last.text} (and ${left} ranks more)` }
  }
  return [...(bad.length === 0 ? well.map(({ finding }) => finding) : []), ...shown]
}

function portOf(endpoint: string | undefined): string | undefined {
  return endpoint === undefined ? undefined : endpoint.slice(endpoint.lastIndexOf(':') + 1)
}
