/**
 * Decision log: writes a line for every settled request into a file that a simulation can read as a trace.
 *
 * In     `settled` from the router; the fleet, for the header; `flush` at the drain.
 * Out    lines of packages/trace (log-line.ts) into the file. Nobody waits for them.
 * Owns   the file, the numbers that stand for block hashes and sessions, what waits for the disk.
 * Order  lines are in the order of settlement.
 * Bounds the mailbox, what waits for the disk (WAITING_BYTES_MAX), the hashes that are remembered
 *        (block-numbers.ts). Requests that find no room are counted; a line in front of the next one that finds
 *        room says how many are missing.
 * Fails  a file that cannot be written: said once, tried again every LOOK_MS; routing does not notice. After a restart the file
 *        goes on behind a header of a new life, whose numbers begin at 0; what waited is lost.
 * Thread its own: hashes are looked up and lines written while requests are routed.
 */

import { defineActor, signal } from '@homing/actor'
import { LineWriter } from '@homing/base'
import { headerLine, type LoggedWorker, loggedWorkers, lossLine, requestLine } from '@homing/trace'
import { BlockNumbers } from './block-numbers.ts'
import type { DecisionLogArgs } from './decision-log-args.ts'
import { logFiles } from './log-files.ts'
import type { DecisionLogMessage, SettledRequest } from './messages.ts'
import { TextNumbers } from './text-numbers.ts'

/** A million blocks of 16 tokens are the caches of 38 engines with 440,000 tokens each. */
const BLOCKS_REMEMBERED = 2 ** 20
const SESSIONS_REMEMBERED = 2 ** 16
/** Lines that wait for the file, in bytes. */
export const WAITING_BYTES_MAX = 8 * 2 ** 20
const LOOK_MS = 5000
const LIFE_BYTES = 9

export const decisionLog = defineActor(
  import.meta.url,
  'decisionLog',
)<DecisionLogMessage, DecisionLogArgs>({
  reentrant: true,
  setup(context, args) {
    const { path, fileBytesMax, filesMax, selection } = args
    const blocks = new BlockNumbers(args.blocksRemembered ?? BLOCKS_REMEMBERED)
    const sessions = new TextNumbers(SESSIONS_REMEMBERED)
    const life = Buffer.from(context.random.bytes(LIFE_BYTES)).toString('base64url')
    const startedMs = context.clock.nowMs()
    const originMs = context.clock.wallMs()
    let workers: readonly LoggedWorker[] = []
    let headerDue = ''
    /** Number of the next settled request. */
    let expected: number | undefined
    /** Requests that are in no file, and of which the file does not say so yet. */
    let unsaid = 0

    const header = (): string => {
      const timestampMs = context.clock.nowMs() - startedMs
      return headerLine({ life, originMs, timestampMs, selection, workers })
    }
    const writer = new LineWriter({
      files: context.use(logFiles),
      path,
      waitingBytesMax: WAITING_BYTES_MAX,
      fileBytesMax,
      filesMax,
      header,
      broke: reason => context.log.warn({ path, reason }, 'decision log cannot be written'),
      mended: () => {
        context.log.info({ path, droppedRequests: writer.status.dropped }, 'decision log is written again')
      },
    })
    context.scheduleEvery(LOOK_MS, { type: 'look' })

    return {
      fleet({ fleet }) {
        const told = loggedWorkers(fleet.workers)
        if (JSON.stringify(told) === JSON.stringify(workers)) return
        workers = told
        if (writer.isUsed) headerDue = header()
      },

      settled({ request, number }) {
        // A lower number: the router has begun anew.
        const missing = Math.max(0, number - (expected ?? number))
        writer.lost(missing)
        unsaid += missing
        expected = number + 1
        const hashIds = numbersOf(request, blocks)
        const { sessionId, blockSizeTokens } = request
        const line = requestLine({
          ...request,
          timestampMs: request.arrivedAtMs - originMs,
          inputTokens: request.promptTokens,
          outputTokens: request.outputTokens ?? 0,
          blockTokens: blockSizeTokens,
          hashIds,
          sessionId: sessionId === undefined ? undefined : String(sessions.of(sessionId)),
        })
        const loss = unsaid > 0 ? lossLine(unsaid) : ''
        if (!writer.add(loss + headerDue + line)) {
          unsaid++
          return
        }
        unsaid = 0
        headerDue = ''
      },

      async flush({ reply }) {
        reply(await writer.flush())
      },

      status({ reply }) {
        reply(writer.status)
      },

      look() {
        writer.look()
      },

      async [signal](event) {
        if (event.type === 'stopped' || event.type === 'beforeRestart') await writer.close()
      },
    }
  },
})

/** One number for each block, the partial last one included: that one is nobody else's. */
function numbersOf(
  { promptTokens, blockSizeTokens, sequenceHashes }: SettledRequest,
  blocks: BlockNumbers,
): number[] {
  const count = Math.ceil(promptTokens / blockSizeTokens)
  const numbers = blocks.of(sequenceHashes.subarray(0, 2 * count))
  while (numbers.length < count) numbers.push(blocks.fresh())
  return numbers
}
