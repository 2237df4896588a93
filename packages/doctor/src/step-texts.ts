/**
 * Steps of a diagnosis as people read them: what was asked, what was answered, and the fact in the answer.
 */

import type { EventSource } from '@homing/fleet'
import { readEventSources, readMetrics, readModels, readServerInfo, readVersion } from '@homing/fleet'
import type { DiagnosisStep } from './diagnosis.ts'
import { OWNER_TEXTS } from './port-owner.ts'
import type { RankCheck } from './rank-check.ts'
import { type AskedHttp, jsonOf } from './recorded-http.ts'

/** A line of a terminal has room for so much of a fact. */
const TOLD_CHARACTERS_MAX = 120
const LINE_CHARACTERS_MAX = 500

export function stepOf(asked: AskedHttp, host: string): DiagnosisStep {
  const { method, path, reply, error, durationMs } = asked
  return {
    asked: `${method} ${path}`,
    answered: reply === undefined ? (error?.failure ?? 'no answer') : String(reply.status),
    durationMs,
    told: cut(reply?.status === 200 ? toldBy(asked, host) : reply === undefined ? reasonOf(error) : ''),
  }
}

/** Describes what was seen at the sockets of a rank; `timeoutMs`: the wait for a missing answer. */
export function socketSteps(
  { source, connectedMs, eventsOwner, watch, replay, replayOwner }: RankCheck,
  timeoutMs: number,
): readonly DiagnosisStep[] {
  const seen = watch?.seen
  const topics = [...(seen?.topics ?? [])].filter(topic => topic !== '')
  const steps: DiagnosisStep[] = [
    {
      asked: `SUB ${source.endpoint}`,
      answered: connectedMs === undefined ? 'no socket' : 'connected',
      durationMs: connectedMs ?? timeoutMs,
      told: cut(
        seen === undefined
          ? OWNER_TEXTS[eventsOwner ?? 'silent']
          : `${batchesText(seen.batches)}${topics.length === 0 ? '' : `, topic ${topics.join(', ')}`}`,
      ),
    },
  ]
  if (source.replayEndpoint === undefined || replay === undefined) return steps
  const { answeredMs, form, seen: repeated } = replay
  steps.push({
    asked: `replay ${source.replayEndpoint}`,
    answered: answeredMs === undefined ? 'no answer' : 'answered',
    durationMs: answeredMs ?? timeoutMs,
    told: cut(
      answeredMs === undefined
        ? OWNER_TEXTS[replayOwner ?? 'silent']
        : `${batchesText(repeated.batches)}${repeated.firstSequence === undefined ? '' : ` from ${repeated.firstSequence} on`}${form === undefined ? '' : `, ${form} form`}`,
    ),
  })
  return steps
}

/** Cuts a text to one short line. */
export function cut(text: string): string {
  return oneLine(text, TOLD_CHARACTERS_MAX)
}

/** Without control characters, and not too long: engines write what they like. */
export function oneLine(text: string, charactersMax = LINE_CHARACTERS_MAX): string {
  const line = text.replace(/[\s\p{Cc}]+/gu, ' ').trim()
  return line.length <= charactersMax ? line : `${line.slice(0, charactersMax - 1)}…`
}

/** The part of a failed call's message that is not the question. */
export function reasonOf(error: AskedHttp['error']): string {
  return String(error?.details['reason'] ?? '')
}

function toldBy(asked: AskedHttp, host: string): string {
  const body = jsonOf(asked)
  switch (asked.path) {
    case '/v1/models': {
      const models = readModels(body)?.models
      if (models === undefined) return 'no list of models'
      return models.length === 0 ? 'no model' : models.map(({ name }) => name).join(', ')
    }
    case '/version':
      return readVersion(body) ?? 'no version'
    case '/server_info':
    case '/get_server_info': {
      const info = readServerInfo(body, host)
      if (info === undefined) return 'nothing that is known here'
      return facts([
        [info.family, 'is'],
        [info.version, 'version'],
        [info.blockSizeTokens, 'block size'],
        [info.maxBatchedTokens, 'batched tokens at most'],
        [info.ranks, 'ranks'],
        [sourcesText(info.eventSources), 'events'],
      ])
    }
    case '/kv_event_sources':
      return sourcesText(readEventSources(body, host) ?? []) ?? 'no event sources'
    case '/metrics': {
      const metrics = readMetrics(new TextDecoder().decode(asked.reply?.body))
      return facts([
        [metrics.blockSizeTokens, 'block size'],
        [metrics.kvBlocks, 'blocks'],
        [metrics.ranks, 'ranks'],
      ])
    }
    case '/tokenize': {
      const tokens = (body as { readonly tokens?: unknown } | undefined)?.tokens
      return Array.isArray(tokens) ? `${tokens.length} tokens` : 'no tokens'
    }
    default:
      return ''
  }
}

function facts(named: readonly (readonly [value: string | number | undefined, name: string])[]): string {
  const known = named.filter(([value]) => value !== undefined).map(([value, name]) => `${name} ${value}`)
  return known.length === 0 ? 'nothing that is known here' : known.join(', ')
}

function sourcesText(sources: readonly EventSource[]): string | undefined {
  if (sources.length === 0) return undefined
  return sources
    .map(({ endpoint, replayEndpoint, topic }) =>
      [
        endpoint,
        replayEndpoint === undefined ? 'no replay' : `replay ${replayEndpoint}`,
        topic && `topic ${topic}`,
      ]
        .filter(Boolean)
        .join(' '),
    )
    .join('; ')
}

function batchesText(count: number): string {
  return `${count} ${count === 1 ? 'batch' : 'batches'}`
}
