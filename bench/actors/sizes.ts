/** How much each row of the bench does; every size can be given as `name=value`. */

import { parameter } from '../harness.ts'

/** Names of rows, with commas; 'all' for every one. */
export const rowsWanted = parameter('rows', { smoke: 'all', full: 'all' })
/** Rounds that share a size out among them; ours and the raw ones take turns. */
export const rounds = parameter('rounds', { smoke: 1, full: 5 })
/** Messages of a row that tells on one thread. */
export const localTells = parameter('localTells', { smoke: 20_000, full: 20_000_000 })
export const localAsks = parameter('localAsks', { smoke: 2000, full: 2_000_000 })
export const actors = parameter('actors', { smoke: 1000, full: 200_000 })
/** Messages of a row that tells another thread. */
export const crossTells = parameter('crossTells', { smoke: 20_000, full: 10_000_000 })
export const crossTargets = parameter('crossTargets', { smoke: 100, full: 1000 })
export const crossObjects = parameter('crossObjects', { smoke: 5000, full: 1_000_000 })
/** Bytes that a row of sizes sends in each, in at most so many messages. */
export const sizedBytes = parameter('sizedBytes', { smoke: 200_000, full: 256_000_000 })
export const sizedMessagesMax = parameter('sizedMessagesMax', { smoke: 500, full: 500_000 })
/** Actors that are stopped, and as many that drain before. */
export const drains = parameter('drains', { smoke: 20, full: 5000 })
export const crossAsks = parameter('crossAsks', { smoke: 2000, full: 2_000_000 })
export const crossAsksSequential = parameter('crossAsksSequential', { smoke: 200, full: 50_000 })
/** Asks on their way at once. */
export const inFlight = parameter('inFlight', { smoke: 256, full: 256 })
export const openLoopPerS = parameter('openLoopPerS', { smoke: 5000, full: 100_000 })
export const openLoopMs = parameter('openLoopMs', { smoke: 100, full: 5000 })
export const idleMs = parameter('idleMs', { smoke: 100, full: 4000 })
/** Deaths with a spare, and as many without. */
export const failovers = parameter('failovers', { smoke: 2, full: 100 })
export const failoverLoadPerS = parameter('failoverLoadPerS', { smoke: 20_000, full: 20_000 })
export const hangs = parameter('hangs', { smoke: 2, full: 50 })
export const hungAfterMs = parameter('hungAfterMs', { smoke: 100, full: 50 })
/** Bare workers that take over from another, in each row of deaths. */
export const rawTakeovers = parameter('rawTakeovers', { smoke: 2, full: 50 })
export const rejections = parameter('rejections', { smoke: 2, full: 50 })
export const stormMs = parameter('stormMs', { smoke: 300, full: 60_000 })
/** Steps of simulated games, and games of 2,000 steps. */
export const simulatedSteps = parameter('simulatedSteps', { smoke: 5000, full: 500_000 })
export const simulatedSeeds = parameter('simulatedSeeds', { smoke: 5, full: 1000 })
/** Messages that are simulated with every checker; 200,000,000 are a night's. */
export const nightMessages = parameter('nightMessages', { smoke: 5000, full: 3_000_000 })
/** Deaths of threads in the row that counts what is lost; `pnpm bench soak` has 10,000. */
export const killCycles = parameter('killCycles', { smoke: 3, full: 100 })
/** Frames of one of the two writers whose every state is explored; the other has one. */
export const modelFrames = parameter('modelFrames', { smoke: 1, full: 2 })
