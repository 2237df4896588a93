/**
 * Answer end: tells whether an answer that ended when its connection closed is complete.
 *
 * Without a length and without chunks, HTTP takes an orderly close of the connection for the end (RFC 9112
 * §6.3). A server that died looks the same. The content of the answer often tells the difference:
 *
 *   stream of completions      complete after `[DONE]` or an error
 *   of responses, messages     complete after its last event
 *   any other stream           complete between two events
 *   JSON                       complete after its last bracket
 *   anything else              counts as complete
 */

import type { UsageReport } from '@homing/openai'

/** Paths whose streams have a last event that every engine sends. */
const HAS_LAST_EVENT = /^\/v1\/(?:chat\/completions|completions|responses|messages)(?:$|\?)/

export interface EndedAnswer {
  readonly request: { readonly path: string }
  readonly isStream: boolean
  readonly isJson: boolean
}

/** Why the answer is not complete; undefined if nothing shows that. */
export function cutOf({ request, isStream, isJson }: EndedAnswer, report: UsageReport): string | undefined {
  if (isStream) {
    if (report.isInside) return 'the connection was closed inside an event'
    // An engine that has reported an error may send nothing more.
    if (report.isDone || report.sawError) return undefined
    const hasLastEvent = HAS_LAST_EVENT.test(request.path)
    return hasLastEvent ? 'the connection was closed before the last event of the stream' : undefined
  }
  return isJson && report.isInside ? 'the connection was closed inside the JSON body' : undefined
}
