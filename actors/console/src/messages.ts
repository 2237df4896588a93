import type { ActorRef, Reply } from '@homing/actor'
import type { ErrorRecord } from '@homing/base'
import type { HttpAddress, HttpAnswer, Piece, Pulled, StreamCounts } from '@homing/http'
import type { SourceText } from '@homing/metrics'
import type { Receipt } from '@homing/placement'
import type { HttpHeaders } from '@homing/transport'
import type { ProgramMessage } from './program-messages.ts'

/** A request for one of OPERATOR_ROUTES, as plain data. */
export interface OperatorRequest {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: HttpHeaders
  /** Peer address of the connection; '' if not known. */
  readonly peerAddress: string
  /** Undefined: it has none. */
  readonly body: Uint8Array | undefined
}

/**
 * An answer. `dump`: its body is empty, and comes in pieces that are fetched with this number. `booked`: id
 * of a request that was booked for it, which ends if the answer does not get to the client (`undelivered`).
 */
export type OperatorAnswer = HttpAnswer & { readonly dump?: number; readonly booked?: string }

/** The decision for a body, or why there is none; `param`: the field that is at fault. */
export type Explained =
  | { readonly kind: 'explained'; readonly receipt: Receipt; readonly tokenizedBy: string }
  | { readonly kind: 'refused'; readonly error: ErrorRecord; readonly param: string | undefined }

/** Questions and counts from the console to the gateway. */
export type FromConsole =
  /** Asks for the gateway's metrics, in Prometheus' text form. */
  | { readonly type: 'metrics'; readonly reply: Reply<SourceText> }
  /** The answer of its `/health`. */
  | { readonly type: 'health'; readonly reply: Reply<HttpAnswer> }
  /** The decision for a body, without sending it or changing state. */
  | {
      readonly type: 'explain'
      readonly body: Uint8Array
      readonly headers: HttpHeaders
      readonly reply: Reply<Explained>
    }
  | ProgramMessage
  /** An error on the console's own port. */
  | { readonly type: 'refused'; readonly route: string; readonly status: number }
  /** A client of that port was cut, because it took no byte. */
  | { readonly type: 'clientStalled'; readonly route: string }

export type ConsoleMessage =
  /** From the gateway, of its own clients; always answered, with an error in OpenAI's form where need be. */
  | { readonly type: 'serve'; readonly request: OperatorRequest; readonly reply: Reply<OperatorAnswer> }
  /** From the gateway: the next piece of a dump; fails if it was ended. */
  | { readonly type: 'dumpPiece'; readonly dump: number; readonly reply: Reply<Piece | ErrorRecord> }
  | { readonly type: 'endDump'; readonly dump: number }
  /** From the gateway: the client of an answer left before it had it. */
  | { readonly type: 'undelivered'; readonly booked: string }
  /**
   * From the gateway, whose clients have tabs of the page open: what has become of them, and what they are to
   * be told.
   */
  | {
      readonly type: 'pageUpdate'
      readonly gateway: string
      readonly isFirst: boolean
      readonly reply: Reply<Pulled>
    }
  | { readonly type: 'pageTabs'; readonly gateway: string; readonly counts: StreamCounts }
  /** From the guardian, repeated: the gateways. */
  | { readonly type: 'gateways'; readonly gateways: readonly ActorRef<FromConsole>[] }
  /** From the guardian: the start is over. */
  /** From itself: look at the files of its certificate. */
  | { readonly type: 'lookAtFiles' }
  | { readonly type: 'started' }
  /** Where it listens, or why it cannot; undefined: it has no port of its own. */
  | { readonly type: 'address'; readonly reply: Reply<HttpAddress | ErrorRecord | undefined> }
  /** As `address`, of the port of --metrics-port. */
  | { readonly type: 'metricsAddress'; readonly reply: Reply<HttpAddress | ErrorRecord | undefined> }
