/**
 * Learned values: all that an engine book has learned of workers and of the fleet, apart from the requests
 * that it has open. Its images let another book begin where this one stands: after a restart of the tracker,
 * or of the router.
 *
 * An image is plain data. `agoMs` of a restore is the time since the image was taken: what it has ages
 * meanwhile as it would have here. A restore does not replace what was learned since.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import { BoundedMean } from './bounded-mean.ts'
import { DECODE_PRIOR, isFitImage, LearnedCosts, TRANSFER_PRIOR } from './engine-costs.ts'
import { OutputLengths } from './output-lengths.ts'
import { isKneeImage, KNEES, PrefillCosts } from './prefill-costs.ts'
import type { LearnedSpeed } from './reports.ts'
import { TokensPerEvent } from './tokens-per-event.ts'
import { UnseenLoad } from './unseen-load.ts'

const { USUAL_MS } = AUTO_CONSTANTS.book

/** What was learned of one worker. Each array is as the file of its class says. */
export interface WorkerImage {
  /** One for each of KNEES; undefined: nothing was seen. */
  readonly prefill: readonly Float64Array[] | undefined
  readonly decode: Float64Array | undefined
  /** Of the lengths of its answers. */
  readonly output: Float64Array | undefined
}

/** What was learned of all workers together. */
export interface FleetImage extends WorkerImage {
  readonly output: Float64Array
  /** Undefined: no hand-over was seen. */
  readonly transfer?: Float64Array | undefined
  readonly knee: Float64Array
  /** Means and numbers of times to the first token, of prefill and of decoding. */
  readonly times: Float64Array
  /** Unseen share, periods that taught, requests that ended, share of them that say what was cached. */
  readonly shares: Float64Array
}

export class LearnedValues {
  readonly prefill = new PrefillCosts()
  readonly decode = new LearnedCosts(DECODE_PRIOR)
  /** From the call of a decode worker until it has the blocks of the prompt. */
  readonly transfer = new LearnedCosts(TRANSFER_PRIOR)
  readonly outputs = new OutputLengths()
  readonly unseen = new UnseenLoad()
  /** Not in images: eight answers of a worker bring it back. */
  readonly perEvent = new TokensPerEvent()
  readonly firstTokenMs = new BoundedMean(USUAL_MS)
  readonly prefillMs = new BoundedMean(USUAL_MS)
  readonly decodeMs = new BoundedMean(USUAL_MS)
  /** Busy periods that have taught as delivered. */
  deliveredPeriods = 0
  /** Requests whose prompt has been settled. */
  settled = 0
  /** Share of the answers that say what was cached. */
  saidShare = 0

  /** The time by which what was learned ages. */
  tick(nowMs: number): void {
    this.prefill.tick(nowMs)
    this.decode.tick(nowMs)
    this.transfer.tick(nowMs)
    this.outputs.tick(nowMs)
    this.unseen.tick(nowMs)
  }

  speed(workerSlot: number): LearnedSpeed {
    const { kneeTokens } = this.prefill
    return {
      prefill: { ...this.prefill.knowledge(workerSlot), kneeTokens },
      decode: this.decode.knowledge(workerSlot),
    }
  }

  forget(workerSlot: number): void {
    const { prefill, decode, transfer, outputs, perEvent } = this
    for (const learned of [prefill, decode, transfer, outputs, perEvent]) learned.forget(workerSlot)
  }

  /** Undefined: nothing was learned of it. */
  workerImage(workerSlot: number): WorkerImage | undefined {
    const prefill = this.prefill.image(workerSlot)
    const decode = this.decode.image(workerSlot)
    const output = this.outputs.image(workerSlot)
    return prefill === undefined && decode === undefined && output === undefined
      ? undefined
      : { prefill, decode, output }
  }

  fleetImage(): FleetImage {
    const times = [this.firstTokenMs, this.prefillMs, this.decodeMs]
    return {
      prefill: this.prefill.image('fleet'),
      decode: this.decode.image('fleet'),
      output: this.outputs.fleetImage,
      transfer: this.transfer.image('fleet'),
      knee: this.prefill.kneeImage,
      times: Float64Array.from(times.flatMap(({ mean, count }) => [mean, count])),
      shares: Float64Array.of(this.unseen.share, this.deliveredPeriods, this.settled, this.saidShare),
    }
  }

  /** Call it before `restoreWorker`: what a worker differs from the fleet is found then. */
  restoreFleet(image: FleetImage, agoMs: number): void {
    if (this.settled > 0) return
    if (image.prefill !== undefined) this.prefill.restore('fleet', image.prefill, agoMs)
    if (image.decode !== undefined) this.decode.restore('fleet', image.decode, agoMs)
    if (image.transfer !== undefined) this.transfer.restore('fleet', image.transfer, agoMs)
    this.outputs.restoreFleet(image.output, agoMs)
    this.prefill.restoreKnee(image.knee)
    for (const [at, mean] of [this.firstTokenMs, this.prefillMs, this.decodeMs].entries())
      mean.restore(image.times[2 * at]!, image.times[2 * at + 1]!)
    const [unseenShare, deliveredPeriods, settled, saidShare] = image.shares
    this.unseen.restore(unseenShare!, agoMs)
    this.deliveredPeriods = deliveredPeriods!
    this.settled = settled!
    this.saidShare = saidShare!
  }

  restoreWorker(workerSlot: number, image: WorkerImage, agoMs: number): void {
    if (image.prefill !== undefined) this.prefill.restore(workerSlot, image.prefill, agoMs)
    if (image.decode !== undefined) this.decode.restore(workerSlot, image.decode, agoMs)
    if (image.output !== undefined) this.outputs.restore(workerSlot, image.output, agoMs)
  }
}

/** What is wrong with an image that comes from a file; undefined: nothing, it can be restored. */
export function workerImageFault({ prefill, decode, output }: WorkerImage): string | undefined {
  if (prefill !== undefined && !(prefill.length === KNEES.length && prefill.every(isFitImage)))
    return 'its prefill is no fit'
  if (decode !== undefined && !isFitImage(decode)) return 'its decoding is no fit'
  if (output !== undefined && !areFigures(output, 3)) return 'its output has no mean, number and age'
  return undefined
}

/** As `workerImageFault`. */
export function fleetImageFault(image: FleetImage): string | undefined {
  const [unseen, periods, settled, said] = image.shares
  const isShares =
    image.shares.length === 4 &&
    Math.abs(unseen!) <= 1 &&
    areFigures(Float64Array.of(periods!, settled!, said!), 3) &&
    said! <= 1
  if (!areFigures(image.output, 2)) return 'its output has no mean and age'
  if (!areFigures(image.times, 6)) return 'its times are no means and numbers'
  if (!isKneeImage(image.knee)) return 'its knee is none'
  if (!isShares) return 'its shares are none'
  if (image.transfer !== undefined && !isFitImage(image.transfer)) return 'its transfer is no fit'
  return workerImageFault({ ...image, output: undefined })
}

/** A fixed count of numbers ≥ 0, none of them larger than what is counted exactly. */
function areFigures(figures: Float64Array, count: number): boolean {
  return figures.length === count && figures.every(each => each >= 0 && each <= Number.MAX_SAFE_INTEGER)
}
