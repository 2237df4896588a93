/**
 * Reader: reads request bodies, on a thread of its own.
 *
 * In     `run` from the tokenizer, one at a time: it keeps what waits; `configure` before the first task that
 *        needs it.
 * Out    the answer to each task, with what the reader remembers.
 * Owns   a body reader: the tokenizers that it has loaded, and the beginnings of bodies and prompts that it
 *        has read.
 * Order  tasks are done as they come.
 * Fails  a task never throws: errors of input and environment are outcomes. If the thread ends, the current
 *        task is lost, and the tokenizer starts another reader.
 */

import { defineActor, type Reply } from '@homing/actor'
import { BodyReader, type BodyReaderOptions } from './body-reader.ts'
import type { ReaderAnswer, ReaderConfiguration, ReaderOutcome, ReaderTask } from './reader-tasks.ts'

export type ReaderMessage =
  /** Configuration for all later tasks. */
  | { readonly type: 'configure'; readonly configuration: ReaderConfiguration }
  /** Its answer shows that the thread runs. */
  | { readonly type: 'start'; readonly reply: Reply<void> }
  | { readonly type: 'run'; readonly task: ReaderTask; readonly reply: Reply<ReaderAnswer> }

export const reader = defineActor(
  import.meta.url,
  'reader',
)<ReaderMessage, BodyReaderOptions>({
  setup(_, options) {
    const bodies = new BodyReader(options)
    return {
      configure: ({ configuration }) => bodies.configure(configuration),

      start: ({ reply }) => reply(),

      async run({ task, reply }) {
        const outcome = withoutShared(await bodies.run(task))
        const { bytes: cacheBytes, wordTableBytes } = bodies
        reply({ outcome, cacheBytes, wordTableBytes }, { transfer: buffersToMove(outcome) })
      },
    }
  },
})

/** Copies what is in the body's shared memory, which is reused as soon as the outcome is sent. */
function withoutShared(outcome: ReaderOutcome): ReaderOutcome {
  if (outcome.kind !== 'read' && outcome.kind !== 'ask-engine') return outcome
  const { upstreamBody } = outcome.request
  if (upstreamBody === undefined || !(upstreamBody.buffer instanceof SharedArrayBuffer)) return outcome
  return { ...outcome, request: { ...outcome.request, upstreamBody: upstreamBody.slice() } }
}

/** Shorter ones are copied faster. */
const MOVED_BYTES_MIN = 16 * 1024

/** The long arrays of an answer, which the reader needs no more. */
function buffersToMove(outcome: ReaderOutcome): ArrayBuffer[] {
  if (outcome.kind !== 'read') return []
  const { localHashes, sequenceHashes, tokenIds, upstreamBody } = outcome.request
  return [localHashes, sequenceHashes, tokenIds, upstreamBody].flatMap(array => {
    if (array === undefined || array.byteLength < MOVED_BYTES_MIN) return []
    const { buffer } = array
    return buffer instanceof ArrayBuffer && buffer.byteLength === array.byteLength ? [buffer] : []
  })
}
