import type { ActorRef } from '@homing/actor'
import type { ErrorRecord } from '@homing/errors'
import type { BodyEdit } from '@homing/openai'
import type { Decision, RoutingRequest } from '@homing/router'
import type { HttpCallFailure, HttpHeaders } from '@homing/transport'

/** What the dispatcher tells the gateway about one exchange, in this order: head, data*, end or failed. */
export type AnswerMessage =
  | {
      readonly type: 'answerHead'
      readonly exchange: number
      readonly status: number
      readonly headers: HttpHeaders
      readonly decision: Decision
    }
  | { readonly type: 'answerData'; readonly exchange: number; readonly bytes: Uint8Array }
  | { readonly type: 'answerEnd'; readonly exchange: number }
  /** The exchange is over, whether its head was answered or not. */
  | {
      readonly type: 'answerFailed'
      readonly exchange: number
      readonly error: ErrorRecord
      readonly decision: Decision | undefined
    }

/** What is sent upstream. `body` is the client's bytes; it must not be changed afterwards. */
export interface UpstreamRequest {
  readonly method: string
  readonly path: string
  readonly headers: HttpHeaders
  readonly body: Uint8Array | undefined
  /** What asks for the usage of a stream, in `body`; undefined: nothing is to be asked. */
  readonly usageEdit: BodyEdit | undefined
}

export type DispatcherMessage =
  /** Sends a placed request; on failure before the first byte of the answer it is placed again, elsewhere. */
  | {
      readonly type: 'dispatch'
      readonly exchange: number
      readonly request: UpstreamRequest
      readonly routing: RoutingRequest
      readonly decision: Decision
      readonly sink: ActorRef<AnswerMessage>
    }
  /** The client has left, or the gateway gave up. */
  | { readonly type: 'abort'; readonly exchange: number }
  | { readonly type: 'pause'; readonly exchange: number }
  | { readonly type: 'resume'; readonly exchange: number }
  | {
      readonly type: 'upstreamHead'
      readonly exchange: number
      readonly attempt: number
      readonly status: number
      readonly headers: HttpHeaders
    }
  | {
      readonly type: 'upstreamData'
      readonly exchange: number
      readonly attempt: number
      readonly bytes: Uint8Array
    }
  | { readonly type: 'upstreamEnd'; readonly exchange: number; readonly attempt: number }
  | {
      readonly type: 'upstreamFailed'
      readonly exchange: number
      readonly attempt: number
      readonly reason: string
      readonly failure: HttpCallFailure
      /** The call went over a connection that had served another one. */
      readonly reusedConnection: boolean
    }
  /** The sink may take answers again. */
  | { readonly type: 'flush'; readonly exchange: number }
  | { readonly type: 'sweep' }
