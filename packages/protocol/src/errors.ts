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
