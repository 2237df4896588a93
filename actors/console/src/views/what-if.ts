/**
 * `/what_if`: what another fleet or policy would have done with the requests of the last minutes.
 *
 *   POST {"minutes", "profile", "anyway"}   begins to find it out; all are optional. 202, or 409 while
 *                                           another is under way
 *   GET                                     how far it is, and the last answer
 *   DELETE                                  cancels what is under way
 */

import type { WhatIfQuestion, WhatIfReport, WhatIfRun } from '@homing/actors/what-if'
import { parseJson } from '@homing/base'
import {
  BadParameterError,
  type HttpAnswer,
  jsonAnswer,
  NotFoundError,
  queryOf,
  RefusedError,
} from '@homing/http'
import type { WhatIfAnswerRow, WhatIfRunRow, WhatIfSection } from '@homing/page'
import { WHAT_IF_PROFILES } from '@homing/simulate/what-if'
import type { ConsoleArgs } from '../console-args.ts'
import type { OperatorRequest } from '../messages.ts'

type Parts = Pick<ConsoleArgs, 'whatIf' | 'askMsMax'>
type Asked = NonNullable<Parts['whatIf']>

const EXAMPLE = '{"minutes": 5}'

export async function whatIfState(request: OperatorRequest, parts: Parts): Promise<HttpAnswer> {
  queryOf(request)
  return jsonAnswer(200, await whatIfView(parts))
}

/** The view for the page and for `GET /what_if`. */
export async function whatIfView({ whatIf, askMsMax }: Parts): Promise<WhatIfSection> {
  return whatIf === undefined
    ? OFF
    : viewOf(await whatIf.ask({ type: 'whatIfReport' }, { timeout: askMsMax }))
}

export async function askWhatIf(request: OperatorRequest, parts: Parts): Promise<HttpAnswer> {
  queryOf(request)
  const whatIf = keptOrNot(parts)
  const report = await whatIf.ask({ type: 'whatIfReport' }, { timeout: parts.askMsMax })
  const question = questionOf(request.body, report.kept.minutesMax)
  const begun = await whatIf.ask({ type: 'askWhatIf', question }, { timeout: parts.askMsMax })
  if ('code' in begun) throw new RefusedError(begun, undefined)
  return jsonAnswer(202, viewOf(begun))
}

export async function cancelWhatIf(request: OperatorRequest, parts: Parts): Promise<HttpAnswer> {
  queryOf(request)
  const report = await keptOrNot(parts).ask({ type: 'cancelWhatIf' }, { timeout: parts.askMsMax })
  return jsonAnswer(200, viewOf(report))
}

function keptOrNot({ whatIf }: Parts): Asked {
  if (whatIf !== undefined) return whatIf
  const remedy = 'no requests are kept: start the router with --what-if-minutes above 0'
  throw new NotFoundError('route', '/what_if', remedy)
}

function questionOf(body: Uint8Array | undefined, minutesMax: number): WhatIfQuestion {
  const given = objectOf(body)
  for (const name of Object.keys(given))
    if (!['minutes', 'profile', 'anyway'].includes(name))
      throw new BadParameterError(name, String(given[name]), 'use minutes, profile or anyway')
  const { minutes = minutesMax, profile, anyway = false } = given
  const range = `use a number of minutes above 0, up to ${minutesMax} (--what-if-minutes)`
  if (typeof minutes !== 'number' || !(minutes > 0) || minutes > minutesMax)
    throw new BadParameterError('minutes', String(minutes), range)
  if (
    profile !== undefined &&
    profile !== null &&
    !(WHAT_IF_PROFILES as readonly unknown[]).includes(profile)
  )
    throw new BadParameterError('profile', String(profile), `use one of ${WHAT_IF_PROFILES.join(', ')}`)
  if (typeof anyway !== 'boolean') throw new BadParameterError('anyway', String(anyway), 'use true or false')
  return { minutes, profile: typeof profile === 'string' ? profile : undefined, anyway }
}

function objectOf(body: Uint8Array | undefined): Readonly<Record<string, unknown>> {
  if (body === undefined || body.length === 0) return {}
  let given: unknown
  try {
    given = parseJson(new TextDecoder().decode(body))
  } catch {
    throw new BadParameterError('body', '', `send JSON, or nothing: ${EXAMPLE}`)
  }
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new BadParameterError('body', '', `send a JSON object: ${EXAMPLE}`)
  return given as Readonly<Record<string, unknown>>
}

function viewOf({ kept, cpuShare, timeMsMax, run }: WhatIfReport): WhatIfSection {
  return {
    is_on: true,
    state: run?.state ?? 'idle',
    kept: {
      requests: kept.requests,
      bytes: kept.bytes,
      bytes_max: kept.bytesMax,
      minutes_max: kept.minutesMax,
      dropped_requests: kept.dropped,
      since: kept.oldestMs === undefined ? null : new Date(kept.oldestMs).toISOString(),
    },
    cpu_share: cpuShare,
    timeout_s: timeMsMax / 1000,
    run: run === undefined ? null : runRow(run),
    answer: run?.answer === undefined ? null : answerRow(run.answer),
    error: run?.error?.message ?? null,
  }
}

function runRow({ id, startedAtMs, elapsedMs, question, progress, answer }: WhatIfRun): WhatIfRunRow {
  return {
    id,
    started_at: new Date(startedAtMs).toISOString(),
    elapsed_s: seconds(elapsedMs),
    minutes: question.minutes,
    profile: question.profile ?? null,
    anyway: question.anyway,
    step: progress?.step ?? 0,
    steps: progress?.steps ?? 0,
    what: progress?.what ?? '',
    requests: progress?.requests ?? 0,
    cpu_s: seconds(answer?.cpuMs ?? progress?.cpuMs ?? 0),
  }
}

function answerRow({
  model,
  requests,
  spanMs,
  fit,
  rows,
  notes,
}: NonNullable<WhatIfRun['answer']>): WhatIfAnswerRow {
  const asItIs = rows[0]?.ttftMs.mean ?? 0
  return {
    model,
    requests,
    span_s: seconds(spanMs),
    fit: {
      is_good: fit.isGood,
      text: fit.text,
      faults: fit.faults,
      profile: fit.profile,
      compared_requests: fit.comparedRequests,
      ttft_ms_seen: rounded(fit.ttftMs.seen),
      ttft_ms_simulated: rounded(fit.ttftMs.simulated),
      hit_rate_seen: rounded(fit.hitRate.seen),
      hit_rate_simulated: rounded(fit.hitRate.simulated),
    },
    rows: rows.map(row => ({
      name: row.name,
      workers: row.workers,
      policy: row.policy,
      kv_tokens: row.kvTokens,
      ttft_ms_mean: rounded(row.ttftMs.mean),
      ttft_ms_p50: rounded(row.ttftMs.p50),
      ttft_ms_p90: rounded(row.ttftMs.p90),
      ttft_ms_p99: rounded(row.ttftMs.p99),
      ttft_ratio: asItIs > 0 ? rounded(row.ttftMs.mean / asItIs) : 1,
      e2e_ms_mean: rounded(row.e2eMsMean),
      hit_rate: rounded(row.hitRate),
      computed_tokens: row.computedTokens,
      unserved_requests: row.unservedRequests,
    })),
    notes,
  }
}

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}

const OFF: WhatIfSection = {
  is_on: false,
  state: 'idle',
  kept: { requests: 0, bytes: 0, bytes_max: 0, minutes_max: 0, dropped_requests: 0, since: null },
  cpu_share: 0,
  timeout_s: 0,
  run: null,
  answer: null,
  error: null,
}
