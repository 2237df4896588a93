/** How much each row of the bench does; every size can be given as `name=value`. */

import { parameter } from '../harness.ts'

/** Names of rows, with commas; 'all' for every one. */
export const rowsWanted = parameter('rows', { smoke: 'all', full: 'all' })
/** Messages of a row that tells on one thread. */
export const localTells = parameter('localTells', { smoke: 20_000, full: 20_000_000 })
export const localAsks = parameter('localAsks', { smoke: 2000, full: 2_000_000 })
export const actors = parameter('actors', { smoke: 1000, full: 200_000 })
/** Messages of a row that tells another thread. */
export const crossTells = parameter('crossTells', { smoke: 20_000, full: 5_000_000 })
export const crossTargets = parameter('crossTargets', { smoke: 100, full: 1000 })
export const crossObjects = parameter('crossObjects', { smoke: 5000, full: 1_000_000 })
export const crossAsks = parameter('crossAsks', { smoke: 2000, full: 1_000_000 })
export const crossAsksSequential = parameter('crossAsksSequential', { smoke: 200, full: 20_000 })
/** Asks on their way at once. */
export const inFlight = parameter('inFlight', { smoke: 256, full: 256 })
export const openLoopPerS = parameter('openLoopPerS', { smoke: 5000, full: 100_000 })
export const openLoopMs = parameter('openLoopMs', { smoke: 100, full: 3000 })
export const idleMs = parameter('idleMs', { smoke: 100, full: 4000 })
/** Deaths of a thread in the row on failover; 10,000 of them are the long check of what may be lost. */
export const failovers = parameter('failovers', { smoke: 2, full: 40 })
export const failoverLoadPerS = parameter('failoverLoadPerS', { smoke: 20_000, full: 20_000 })
export const rejections = parameter('rejections', { smoke: 2, full: 40 })
export const stormMs = parameter('stormMs', { smoke: 300, full: 20_000 })
