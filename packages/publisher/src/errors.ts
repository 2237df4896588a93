/**
 * Mistakes that an engine can make with its publisher. Each error is thrown before any part of the call is
 * published.
 */

import { CodedError } from '@homing/base'

/** A publisher cannot be made of its options. */
export class PublisherOptionsError extends CodedError {
  readonly code = 'HOMING_PUBLISHER_BAD_OPTIONS'

  constructor(option: string, value: unknown, expected: string) {
    super(`cannot create a publisher: ${option} is ${String(value)}, use ${expected}`, {
      option,
      value: String(value),
      expected,
    })
  }
}

/** A block has another number of tokens than the publisher's blocks have. */
export class BlockSizeError extends CodedError {
  readonly code = 'HOMING_PUBLISHER_BLOCK_SIZE'

  constructor(block: { readonly index: number; readonly count: number }, tokens: number, blockSize: number) {
    const advice =
      tokens < blockSize
        ? 'publish a block when it is full'
        : 'publish one entry per block, or create the publisher with the block size of the engine'
    super(
      `cannot publish block ${block.index} of ${block.count}: it has ${tokens} tokens and blockSizeTokens is ${blockSize}; ${advice}`,
      { block: block.index, tokens, blockSizeTokens: blockSize },
    )
  }
}

/** A hash, token or chain that no KV event can have. */
export class BadBlockError extends CodedError {
  readonly code = 'HOMING_PUBLISHER_BAD_BLOCK'

  constructor(what: string, reason: string) {
    super(`cannot publish ${what}: ${reason}`, { what, reason })
  }
}

/** The publisher was closed; its sockets are gone. */
export class PublisherClosedError extends CodedError {
  readonly code = 'HOMING_PUBLISHER_CLOSED'

  constructor(action: string) {
    super(`cannot ${action}: the publisher is closed`, { action })
  }
}
