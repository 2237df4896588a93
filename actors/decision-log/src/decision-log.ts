/**
 * Decision log: writes a line for every settled request into a file that a simulation can read as a trace.
 *
 * In     `settled` from the router; the fleet, for the header; `flush` at the drain.
 * Out    lines of packages/trace (log-line.ts) into the file. No actor waits for them.
 * Owns   the file, the numbers that stand for block hashes and sessions, the lines that wait for the disk.
 * Order  lines are in the order of settlement.
 * Bounds the mailbox, the lines that wait for the disk (WAITING_BYTES_MAX), the remembered hashes
 *        (block-numbers.ts). Requests without room are counted; a line before the next one with room says how
 *        many are missing.
 * Fails  a file that cannot be written is logged once and tried again every LOG_LOOK_MS; routing is not
 *        affected. After a restart the file continues with a header of a new life, whose numbers begin at 0;
 *        lines that waited are lost.
 * Thread its own: it looks up hashes and writes lines while requests are routed.
 */

import { type ActorContext, defineActor, signal } from '@homing/actor'
import { type Clock, LineWriter, shownJson } from '@homing/base'
import {
  headerLine,
  type LoggedSelection,
  type LoggedWorker,
  loggedWorkers,
  lossLine,
  requestLine,
} from '@homing/trace'
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
const LOG_LOOK_MS = 5000
const LOG_LIFE_BYTES = 9

export const decisionLog = defineActor(
  import.meta.url,
  'decisionLog',
)<DecisionLogMessage, DecisionLogArgs>({
  reentrant: true,
  setup(context, args) {
    const log = new DecisionLog(context, args)
    context.scheduleEvery(LOG_LOOK_MS, { type: 'look' })
    return {
      fleet: ({ fleet }) => log.takeFleet(loggedWorkers(fleet.workers)),
      settled: ({ request, number }) => log.settled(request, number),
      flush: async ({ reply }) => reply(await log.writer.flush()),
      status: ({ reply }) => reply(log.writer.status),
      look: () => log.writer.look(),
      async [signal](event) {
        if (event.type === 'stopped' || event.type === 'beforeRestart') await log.writer.close()
      },
    }
  },
})

class DecisionLog {
  readonly writer: LineWriter
  readonly #clock: Clock
  readonly #selection: LoggedSelection
  readonly #blocks: BlockNumbers
  readonly #sessions = new TextNumbers(SESSIONS_REMEMBERED)
  readonly #life: string
  readonly #startedMs: number
  readonly #originMs: number
  #workers: readonly LoggedWorker[] = []
  /** Goes before the next line; '' when the file has the fleet as it is. */
  #headerDue = ''
  /** Number of the next settled request. */
  #expected: number | undefined
  /** Requests missing in the file, and not yet reported there as missing. */
  #unsaid = 0

  constructor(context: ActorContext<DecisionLogMessage>, args: DecisionLogArgs) {
    const { clock, log, random } = context
    const { path, fileBytesMax, filesMax } = args
    this.#clock = clock
    this.#selection = args.selection
    this.#blocks = new BlockNumbers(args.blocksRemembered ?? BLOCKS_REMEMBERED)
    this.#life = Buffer.from(random.bytes(LOG_LIFE_BYTES)).toString('base64url')
    this.#startedMs = clock.nowMs()
    this.#originMs = clock.wallMs()
    this.writer = new LineWriter({
      files: context.use(logFiles),
      path,
      waitingBytesMax: WAITING_BYTES_MAX,
      fileBytesMax,
      filesMax,
      header: () => this.#header(),
      broke: reason => log.warn({ path, reason }, 'decision log cannot be written'),
      mended: () => {
        log.info({ path, droppedRequests: this.writer.status.dropped }, 'decision log is written again')
      },
    })
  }

  takeFleet(workers: readonly LoggedWorker[]): void {
    if (JSON.stringify(workers) === JSON.stringify(this.#workers)) return
    this.#workers = workers
    if (this.writer.isUsed) this.#headerDue = this.#header()
  }

  settled(request: SettledRequest, number: number): void {
    // A lower number: the router has begun anew.
    const missing = Math.max(0, number - (this.#expected ?? number))
    this.writer.lost(missing)
    this.#unsaid += missing
    this.#expected = number + 1
    const { sessionId, blockSizeTokens } = request
    const line = requestLine({
      ...request,
      timestampMs: request.arrivedAtMs - this.#originMs,
      inputTokens: request.promptTokens,
      outputTokens: request.outputTokens ?? 0,
      blockTokens: blockSizeTokens,
      hashIds: numbersOf(request, this.#blocks),
      sessionId: sessionId === undefined ? undefined : String(this.#sessions.of(sessionId)),
    })
    const loss = this.#unsaid > 0 ? lossLine(this.#unsaid) : ''
    if (!this.writer.add(shownJson(loss + this.#headerDue + line))) {
      this.#unsaid++
      return
    }
    this.#unsaid = 0
    this.#headerDue = ''
  }

  #header(): string {
    return headerLine({
      life: this.#life,
      originMs: this.#originMs,
      timestampMs: this.#clock.nowMs() - this.#startedMs,
      selection: this.#selection,
      workers: this.#workers,
    })
  }
}

/** One number per block. A partial last block gets a number that no other block has. */
function numbersOf(
  { promptTokens, blockSizeTokens, sequenceHashes }: SettledRequest,
  blocks: BlockNumbers,
): number[] {
  const count = Math.ceil(promptTokens / blockSizeTokens)
  const numbers = blocks.of(sequenceHashes.subarray(0, 2 * count))
  while (numbers.length < count) numbers.push(blocks.fresh())
  return numbers
}
