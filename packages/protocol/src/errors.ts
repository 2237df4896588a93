/** Errors for messages that are not KV events. Each error is about one message; the stream goes on. */

import { CodedError } from '@homing/base'

/** A payload is not a batch of KV events; its sequence number counts as seen, its content is lost. */
export class MalformedKvBatchError extends CodedError {
  readonly code = 'HOMING_PROTOCOL_BAD_BATCH'

  constructor(reason: string, sizeBytes: number, options?: { readonly cause?: unknown }) {
    super(`cannot decode a KV event batch of ${sizeBytes} bytes: ${reason}`, { reason, sizeBytes }, options)
  }
}

/** A message does not have the frames topic, sequence, payload; it is dropped. */
export class MalformedEventFramesError extends CodedError {
  readonly code = 'HOMING_PROTOCOL_BAD_FRAMES'

  constructor(reason: string, frameCount: number) {
    super(`cannot read a KV event message of ${frameCount} frames: ${reason}`, { reason, frameCount })
  }
}

/** A request for token ids does not have the form of one: 400. */
export class MalformedTokenRequestError extends CodedError {
  readonly code = 'HOMING_PROTOCOL_BAD_TOKEN_REQUEST'

  /** `name` of the member, and what would be right. */
  constructor(name: string, wanted: string) {
    super(`cannot read the request for token ids: ${name} must be ${wanted}`, { name, wanted })
  }
}
