/**
 * `/busy_threshold`: reads and sets the busy thresholds of models. Its bodies are those of Dynamo's route,
 * errors too: `{"error": …}`.
 *
 *   GET                                          every model that a worker serves
 *   POST {"model"}                               that model; null for each if no worker serves it
 *   POST {"model", one threshold or more}        sets these, keeps the rest. Nothing unsets one
 */

import type { ActorRef } from '@homing/actor'
import type { DirectoryMessage } from '@homing/actors/directory'
import { parseJson, shownValue } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { type HttpAnswer, jsonAnswer, queryOf } from '@homing/http'
import { type BusyThresholds, NO_BUSY_THRESHOLDS } from '@homing/load'
import type { OperatorRequest } from '../messages.ts'

export interface BusyThresholdParts {
  readonly directory: ActorRef<DirectoryMessage>
  readonly askMsMax: number
}

interface Field {
  readonly key: keyof BusyThresholds
  readonly isRight: (value: number) => boolean
  readonly range: string
}

const FIELDS: Readonly<Record<string, Field>> = {
  active_decode_blocks_threshold: {
    key: 'decodeBlocksFraction',
    isRight: value => value >= 0 && value <= 1,
    range: 'a number from 0 to 1',
  },
  active_prefill_tokens_threshold: {
    key: 'prefillTokens',
    isRight: value => Number.isSafeInteger(value) && value >= 0,
    range: 'a whole number of tokens ≥ 0',
  },
  active_prefill_tokens_threshold_frac: {
    key: 'prefillFraction',
    isRight: value => value >= 0 && value < Number.POSITIVE_INFINITY,
    range: 'a number ≥ 0',
  },
}

/** Names that are meant for a threshold; a typing error in one must not go unnoticed. Others are ignored. */
const THRESHOLD_LIKE = /^active_|threshold/

/** An error answer in the form of this route. */
class Fault extends Error {
  readonly status: 400 | 404 | 422

  constructor(status: 400 | 404 | 422, message: string) {
    super(message)
    this.status = status
  }
}

export async function busyThresholds(
  request: OperatorRequest,
  parts: BusyThresholdParts,
): Promise<HttpAnswer> {
  queryOf(request)
  try {
    if (request.method === 'POST') return jsonAnswer(200, await post(request.body, parts))
    const fleet = await fleetOf(parts)
    const models = [...new Set(fleet.workers.flatMap(worker => worker.models.map(({ name }) => name)))].sort()
    return jsonAnswer(200, { thresholds: models.map(model => view(model, thresholdsOf(fleet, model))) })
  } catch (thrown) {
    if (!(thrown instanceof Fault)) throw thrown
    return jsonAnswer(thrown.status, { error: thrown.message })
  }
}

async function post(body: Uint8Array | undefined, parts: BusyThresholdParts): Promise<object> {
  const { model, change } = read(body)
  if (Object.keys(change).length === 0) return view(model, thresholdsOf(await fleetOf(parts), model))
  const { directory, askMsMax } = parts
  const now = await directory.ask({ type: 'setBusyThresholds', model, change }, { timeout: askMsMax })
  if (now !== undefined) return view(model, now)
  throw new Fault(
    404,
    `no worker serves the model ${shownValue(model)}: GET /v1/models lists those that are served`,
  )
}

function read(body: Uint8Array | undefined): { model: string; change: Partial<BusyThresholds> } {
  const given = parsed(body)
  const model = given['model']
  if (typeof model !== 'string' || model === '')
    throw new Fault(422, 'the body names no model: send {"model": "…"}')
  const stranger = Object.keys(given).find(name => THRESHOLD_LIKE.test(name) && !Object.hasOwn(FIELDS, name))
  if (stranger !== undefined)
    throw new Fault(400, `${shownValue(stranger)} is no threshold: use ${Object.keys(FIELDS).join(', ')}`)
  const change: { -readonly [K in keyof BusyThresholds]?: number } = {}
  for (const [name, { key, isRight, range }] of Object.entries(FIELDS)) {
    const value = given[name] ?? undefined
    if (value === undefined) continue
    if (typeof value !== 'number' || !isRight(value))
      throw new Fault(400, `${name} is ${shownValue(value)}: use ${range}`)
    change[key] = value
  }
  return { model, change }
}

function parsed(body: Uint8Array = new Uint8Array(0)): Readonly<Record<string, unknown>> {
  let given: unknown
  try {
    given = parseJson(new TextDecoder().decode(body))
  } catch {
    throw new Fault(422, 'the body is no JSON')
  }
  if (typeof given === 'object' && given !== null && !Array.isArray(given))
    return given as Readonly<Record<string, unknown>>
  throw new Fault(422, 'the body is no JSON object')
}

async function fleetOf({ directory, askMsMax }: BusyThresholdParts): Promise<Fleet> {
  return (await directory.ask({ type: 'describe' }, { timeout: askMsMax })).fleet
}

/** None for a model that no worker serves, because no load is compared with them. */
function thresholdsOf({ busyThresholds: all, workers }: Fleet, model: string): BusyThresholds {
  const isServed = workers.some(({ models }) => models.some(({ name }) => name === model))
  return (isServed ? (all?.byModel.get(model) ?? all?.others) : undefined) ?? NO_BUSY_THRESHOLDS
}

function view(model: string, thresholds: BusyThresholds): object {
  const values = Object.entries(FIELDS).map(([name, { key }]) => [name, thresholds[key] ?? null])
  return { model, ...Object.fromEntries(values) }
}
