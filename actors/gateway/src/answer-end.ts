/**
 * Whether an answer that ended with its connection is whole.
 *
 * Without a length and without chunks, HTTP takes an orderly close of the connection for the end (RFC 9112
 * §6.3). A server that died looks the same. The content of the answer often tells:
 *
 *   stream of completions      whole behind `[DONE]` or an error
 *   of responses, messages     whole behind its last event
 *   any other stream           whole between two events
 *   JSON                       whole behind its last bracket
 *   anything else              whole
 */

import type { UsageReport } from '@homing/openai'

/** Paths whose streams have a last event that every engine sends. */
const HAS_LAST_EVENT = /^\/v1\/(?:chat\/completions|completions|responses|messages)(?:$|\?)/

export interface EndedAnswer {
  readonly request: { readonly path: string }
  readonly isStream: boolean
  readonly isJson: boolean
}

/** Why it is not whole; undefined: nothing says so. */
export function cutOf({ request, isStream, isJson }: EndedAnswer, report: UsageReport): string | undefined {
  if (isStream) {
    if (report.isInside) return 'the connection was closed inside an event'
    // An engine that told its own failure may leave it at that.
    if (report.isDone || report.sawError) return undefined
    const hasLastEvent = HAS_LAST_EVENT.test(request.path)
    return hasLastEvent ? 'the connection was closed before the last event of the stream' : undefined
  }
  return isJson && report.isInside ? 'the connection was closed inside the JSON body' : undefined
}
