/** The options to type for an engine, and the ports that it then needs. */

import type { WorkerSpec } from '@homing/fleet'
import { type EventPorts, eventFlags, eventSourceOf, eventsHostOf } from '@homing/fleet'
import type { Door, Finding } from './diagnosis.ts'
import type { ReachedEvidence } from './evidence.ts'

const EVENTS_PORT = 5557
/** Between events and replay; more than the ranks of a server. */
const REPLAY_DISTANCE = 1000
/** Between two engines of one host. */
const ENGINE_DISTANCE = 10
const PORT_MAX = 65_535

/** The options to add, as typed on a command line; undefined: none. */
export function flagsOf(evidence: ReachedEvidence, planned: EventPorts | undefined): string | undefined {
  const { engine } = evidence.outcome
  const { own } = evidence
  const flags: string[] = []
  if (planned !== undefined) {
    const isSmall = (evidence.facts.blockSizeTokens?.value ?? 1) < 8
    if (engine !== 'sglang') flags.push('--enable-prefix-caching')
    flags.push(eventFlags(engine, planned, isSmall ? ' --page-size 16' : ''))
  }
  if (own !== undefined && own.answer.reply?.status === 200 && !own.saysCachedTokens && engine !== 'trtllm') {
    flags.push(engine === 'sglang' ? '--enable-cache-report' : '--enable-prompt-tokens-details')
  }
  return flags.length === 0 ? undefined : flags.join(' ')
}

/** The ports that the engine should publish on; undefined: on those that it has, or it cannot. */
export function plannedPorts(
  { spec, outcome, clashes, ranks, position }: ReachedEvidence,
  findings: readonly Finding[],
): EventPorts | undefined {
  if (outcome.engine === 'trtllm') return undefined
  const source = eventSourceOf(spec, outcome, 0, undefined)
  const events = portOf(source?.endpoint) ?? EVENTS_PORT
  const topic = source?.topic ?? ''
  if (clashes.some(({ rival }) => !rival.startsWith(`${spec.id}/`))) {
    // The first of two may keep its own.
    if (position === 0) return undefined
    const own = events + position * Math.max(ENGINE_DISTANCE, ranks.length)
    if (own + ranks.length > PORT_MAX) return undefined
    return { events: own, replay: replayPort(own), topic }
  }
  if (!findings.some(({ needsFlags }) => needsFlags)) return undefined
  return { events, replay: portOf(source?.replayEndpoint) ?? replayPort(events), topic }
}

/** The endpoints that the router must reach, after missing flags are added. */
export function doorsOf(
  worker: WorkerSpec,
  evidence: ReachedEvidence | undefined,
  planned: EventPorts | undefined,
): readonly Door[] {
  const doors: Door[] = [{ at: worker.id, use: 'requests', dpRank: undefined }]
  if (evidence === undefined) return doors
  const { spec, outcome, facts } = evidence
  const host = eventsHostOf(spec)
  for (let dpRank = 0; dpRank < facts.ranks.value; dpRank++) {
    const checked = evidence.ranks.find(rank => rank.dpRank === dpRank)
    const source = checked?.source ?? eventSourceOf(spec, outcome, dpRank, undefined)
    const events = planned === undefined ? source?.endpoint : `tcp://${host}:${planned.events + dpRank}`
    const replay = planned === undefined ? source?.replayEndpoint : `tcp://${host}:${planned.replay + dpRank}`
    for (const [use, endpoint] of [
      ['events', events],
      ['replay', replay],
    ] as const) {
      if (endpoint !== undefined) doors.push({ at: placeOf(endpoint), use, dpRank })
    }
  }
  return doors
}

function placeOf(endpoint: string): string {
  return endpoint.startsWith('tcp://') ? endpoint.slice('tcp://'.length) : endpoint
}

function portOf(endpoint: string | undefined): number | undefined {
  const port = Number(/^tcp:.*:(\d+)$/.exec(endpoint ?? '')?.[1])
  return port > 0 ? port : undefined
}

function replayPort(events: number): number {
  return events + REPLAY_DISTANCE <= PORT_MAX ? events + REPLAY_DISTANCE : events - REPLAY_DISTANCE
}
