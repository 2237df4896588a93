/** What the status of a worker's answer says of the worker and of the request. */

/** Statuses that say that the worker has failed, not the client. */
export const FAILING_STATUSES: ReadonlySet<number> = new Set([429, 500, 502, 503, 504])
/** Statuses of a worker that sheds load, without having worked on the request. */
export const SHEDDING_STATUSES: ReadonlySet<number> = new Set([429, 503])

/** Whether a worker that answers with this status has worked on the request. */
export function isTaking(status: number): boolean {
  return FAILING_STATUSES.has(status) && !SHEDDING_STATUSES.has(status)
}

const text = new TextDecoder()

/**
 * Whether a 404 is about the model, and not about a response, a file or the route. One whose body was too
 * long to keep is: errors about ids are short.
 */
export function lacksModel(refusal: { readonly body: readonly Uint8Array[] } | undefined): boolean {
  if (refusal === undefined) return true
  const said = refusal.body.map(bytes => text.decode(bytes, { stream: true })).join('')
  return /model/i.test(said) && !/response[ _]?id|previous_response/i.test(said)
}
