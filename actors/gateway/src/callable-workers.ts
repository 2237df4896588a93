/**
 * Callable workers: those that an Envoy can call. It sends the client's own body to the origin of a worker,
 * so neither a worker that takes token ids nor one that is called over a broker is among them.
 */

import type { Fleet, WorkerRecord } from '@homing/fleet'
import { InvalidRequestError } from '@homing/openai'

/** `model`: '' where the request names none. */
export function isCallable({ calledAt, models }: WorkerRecord, model: string): boolean {
  return calledAt === undefined && !models.some(card => isOf(card, model) && card.takesTokens === true)
}

/** Throws InvalidRequestError for a model all of whose workers are called in another way. */
export function checkCallable({ workers }: Fleet, model: string): void {
  const serving = workers.filter(({ models }) => models.some(({ name }) => name === model))
  if (serving.length === 0 || serving.some(worker => isCallable(worker, model))) return
  const why = serving.some(({ calledAt }) => calledAt === undefined)
    ? 'its workers take token ids, which an Envoy does not send'
    : 'its workers are called over --request-plane, which an Envoy does not speak'
  throw new InvalidRequestError(
    'model',
    JSON.stringify(model),
    `another, or this one through the router: ${why}`,
  )
}

function isOf({ name }: { readonly name: string }, model: string): boolean {
  return model === '' || name === model
}
